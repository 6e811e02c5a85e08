"""The tokenizer and the model of a run: loaded and checked against the options, or made anew."""

from pathlib import Path
from typing import Any, cast

from datasets import DatasetDict
from transformers import AutoConfig, Seq2SeqTrainer
from transformers.utils import logging

from vanilla_transformer.inference.loading import load_tokenizer, load_weights
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.run.arguments import RunArguments

logger = logging.get_logger(__name__)

# Fields that a model may be trained on with: regularisation, and how far its positions reach.
_FREE_TO_CHANGE = {
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "ffn_dropout",
    "label_smoothing",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "rope_parameters",
    "max_position_embeddings",
}


def make_tokenizer(arguments: RunArguments, data: DatasetDict, saved: str | None) -> Any:
    """Loads the tokenizer that belongs to the run, or trains one on the training split.

    Args:
        arguments: Of the run.
        data: The splits.
        saved: Checkpoint that the run resumes from, or saved model that it starts from.

    Returns:
        A tokenizer.

    Raises:
        ValueError: If one must be trained and there is no training split, or a saved one is not
            what the options say, or not that of the saved model.
    """
    options = arguments.tokenizer
    given = options.tokenizer_name_or_path
    if (path := given or saved) is not None:
        tokenizer = load_tokenizer(path)
        _check_training_options(options.training_options(), tokenizer, path)
        if given is not None and saved is not None:
            _check_same_tokens(tokenizer, given, saved)
        return tokenizer
    if "train" not in data:
        raise ValueError(
            "A new tokenizer needs a training split: give one, or `--tokenizer_name_or_path`."
        )
    if options.target_tokenizer_kind and not options.separate_vocabularies:
        raise ValueError("`target_tokenizer_kind` needs `--separate_vocabularies True`.")
    return VanillaTransformerTokenizer.train(
        data["train"]["source"], data["train"]["target"], **options.training_options()
    )


def _check_training_options(asked: dict[str, Any], tokenizer: Any, path: str) -> None:
    """Refuses options that a saved tokenizer contradicts."""
    known = getattr(tokenizer, "training_options", {})
    sizes = {"vocab_size": len(tokenizer)}
    sizes["target_vocab_size"] = getattr(tokenizer, "target_vocab_size", len(tokenizer))
    for name, value in asked.items():
        found = known.get(name, sizes.get(name))
        # A saved vocabulary without a record may have been allowed more tokens than it holds.
        larger = name in sizes and name not in known and value > sizes[name]
        if larger:
            logger.warning(f"`{name}` {value} has no effect: {path!r} has {found} tokens.")
        elif value not in (found, sizes.get(name)):
            option, value, found = _as_option(name, value, found)
            raise ValueError(
                f"`{option}` is {value!r}, but the tokenizer in {path!r} was trained with "
                f"{found!r}: leave the option out, or train a new model."
            )


def _as_option(name: str, value: Any, found: Any) -> tuple[str, Any, Any]:
    """Puts an option of the tokenizer's `train` in the words of the command line."""
    if name == "shared":
        return "separate_vocabularies", not value, None if found is None else not found
    names = {"kind": "tokenizer_kind", "target_kind": "target_tokenizer_kind"}
    return names.get(name, name), value, found


def _check_same_tokens(tokenizer: Any, given: str, saved: str) -> None:
    """Refuses a tokenizer whose ids mean other tokens than those of the model's own."""
    if Path(saved).is_dir() and not list(Path(saved).glob("tokenizer*.json")):
        return  # converted weights may come without one
    own = load_tokenizer(saved)
    for side in ("source", "target"):
        ids = _vocabulary(tokenizer, side)
        for token, index in _vocabulary(own, side).items():
            if ids.get(token) != index:
                raise ValueError(
                    f"`tokenizer_name_or_path` {given!r} gives {token!r} the id "
                    f"{ids.get(token)}, but the model in {saved!r} learned it as {index} "
                    f"({side}): leave the option out, or train a new model."
                )


def _vocabulary(tokenizer: Any, side: str) -> dict[str, int]:
    options = {"side": side} if hasattr(tokenizer, "separate_vocabularies") else {}
    vocabulary: dict[str, int] = tokenizer.get_vocab(**options)
    return vocabulary


def make_model(arguments: RunArguments, tokenizer: Any, saved: str | None) -> Any:
    """Loads the model to go on with, or builds a new one for the tokenizer.

    Args:
        arguments: Of the run.
        tokenizer: Gives the sizes of the vocabularies.
        saved: Checkpoint that the run resumes from, or saved model that it starts from.

    Returns:
        A model whose generation config holds the search that the run evaluates with.

    Raises:
        ValueError: If the weights cannot be read, or do not fit the architecture asked for or the
            tokenizer.
    """
    changes = arguments.architecture_changes()
    if saved is None:
        config = new_config(tokenizer, changes)
        model = VanillaTransformerForConditionalGeneration(config)
    else:
        _check_architecture(saved, changes)
        model = load_weights(saved, **changes)
        _check_tokenizer_fits(model.config, tokenizer, saved)
    model.set_attn_implementation(_attention(arguments))
    _set_search(model, arguments, is_new=saved is None)
    return model


def _attention(arguments: RunArguments) -> str:
    training = arguments.training
    is_slow = training.device.type == "cpu" and (training.bf16 or training.fp16)
    return arguments.model.attn_implementation or ("eager" if is_slow else "sdpa")


def _check_architecture(saved: str, changes: dict[str, Any]) -> None:
    """Refuses fields that would make another function of the saved weights."""
    config = AutoConfig.from_pretrained(saved)
    unfit = [
        f"`{name}` {value!r} (saved: {getattr(config, name)!r})"
        for name, value in changes.items()
        if name not in _FREE_TO_CHANGE and value != getattr(config, name)
    ]
    if unfit:
        raise ValueError(
            f"{', '.join(unfit)} do not fit the architecture of the model in {saved!r}: leave them "
            "out, or train a new model."
        )


def _check_tokenizer_fits(config: VanillaTransformerConfig, tokenizer: Any, saved: str) -> None:
    wanted = _fields_of(tokenizer)
    sizes = ("vocab_size", "decoder_vocab_size")
    unfit = [
        f"`{name}` {getattr(config, name)} (tokenizer: {value})"
        for name, value in wanted.items()
        if value is not None
        and (getattr(config, name) < value if name in sizes else getattr(config, name) != value)
    ]
    if unfit:
        raise ValueError(
            f"The tokenizer does not fit the model in {saved!r}, which has {', '.join(unfit)}: "
            "give the tokenizer that the model was trained with."
        )


def new_config(tokenizer: Any, changes: dict[str, Any]) -> VanillaTransformerConfig:
    """Makes the config of a new model.

    Args:
        tokenizer: Gives the sizes of the vocabularies and the special tokens.
        changes: Architecture fields that differ from their defaults.

    Returns:
        The config.
    """
    separate = getattr(tokenizer, "separate_vocabularies", False)
    start = tokenizer.bos_token_id
    return VanillaTransformerConfig(
        **_fields_of(tokenizer),
        decoder_start_token_id=tokenizer.pad_token_id if start is None else start,
        **{"share_encoder_decoder_embeddings": not separate, **changes},
    )


def _fields_of(tokenizer: Any) -> dict[str, Any]:
    """Returns the fields of the config that a tokenizer decides."""
    return {
        "vocab_size": len(tokenizer),
        "decoder_vocab_size": getattr(tokenizer, "target_vocab_size", len(tokenizer)),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }


def _set_search(model: Any, arguments: RunArguments, is_new: bool) -> None:
    """Saves with the model how it was evaluated, so that a plain `generate()` repeats it.

    What was saved with a model, or stands in the file of `generation_config`, stays as it is, where
    the arguments say nothing else.
    """
    training, search = arguments.training, model.generation_config
    if (given := training.generation_config) is not None:
        search.update(**Seq2SeqTrainer.load_generation_config(cast(Any, given)).to_diff_dict())
        training.generation_config = None  # or Trainer would exchange the whole search for it
    elif is_new:
        training.generation_num_beams = training.generation_num_beams or 1
    if search.max_length is None and search.max_new_tokens is None:
        training.generation_max_length = training.generation_max_length or 256
    if (longest := training.generation_max_length) is not None:
        if model.config.position_embedding_type == "learned":
            longest = min(longest, model.config.max_position_embeddings)
        training.generation_max_length = longest
        search.update(max_length=longest, max_new_tokens=None)
    if (beams := training.generation_num_beams) is not None:
        stays = beams > 1 and (search.num_beams or 1) > 1
        stop = search.early_stopping if stays else beams > 1
        search.update(num_beams=beams, early_stopping=stop)
