"""Loads the tokenizer and the config of a run and checks them, or makes new ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoConfig

from vanilla_transformer.columns import split_tag
from vanilla_transformer.data.cased_copies import drawn_rows
from vanilla_transformer.files.loading import load_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.run.options import TokenizerArguments
from vanilla_transformer.tokenizer_sides import vocabulary_of

_FREE_TO_CHANGE = (
    *("dropout", "attention_dropout", "activation_dropout", "ffn_dropout", "label_smoothing"),
    *("encoder_layerdrop", "decoder_layerdrop", "rope_parameters", "max_position_embeddings"),
)
"""Fields of a saved model that may change: regularisation, and the reach of its positions."""


def tokenizer_sample(rows: Dataset, size: int) -> Dataset:
    """Draws the pairs that a tokenizer is trained on; the same data give the same pairs."""
    if len(rows) <= size:
        return rows
    return rows.select(drawn_rows(len(rows), size / len(rows)))


def open_tokenizer(
    named: str | None, init_from: str | None, added_tokens: Sequence[str], wanted: Mapping[str, Any]
) -> Any:
    """Loads the tokenizer of a name, or else of the saved model.

    It must have the added tokens, and the wanted options of its training.
    """
    path = str(named or init_from)
    tokenizer = load_tokenizer(path)
    if named is not None and init_from is not None:
        _check_same_tokens(tokenizer, named, init_from)
    saved = getattr(tokenizer, "training_options", {})
    for name, value in wanted.items():
        if value != saved.get(name):
            raise ValueError(
                f"The vocabulary of {path!r} is not made anew: its {name} is {saved.get(name)!r}, "
                f"not {value!r}. Leave the option out, or train a new model."
            )
    check_added_tokens(tokenizer, added_tokens, path)
    return tokenizer


def train_tokenizer(
    options: TokenizerArguments, sample: Dataset, added_tokens: Sequence[str], has_stand_ins: bool
) -> Any:
    """Trains a tokenizer on a sample of the pairs.

    Args:
        added_tokens: Whole tokens of the vocabulary: the tags of sources, terms and memories.
        has_stand_ins: Whether the vocabulary gets the stand-ins of placeholders.
    """
    sources = _texts_of(sample, "source")
    if added_tokens:
        sources = (split_tag(text, added_tokens)[1] for text in sources)
    tokenizer = VanillaTransformerTokenizer.train(
        sources, _texts_of(sample, "target"), do_lower_case=None, **options.training_options()
    )
    tokenizer.add_tokens(list(added_tokens), special_tokens=True)
    if has_stand_ins:
        tokenizer.add_placeholders()
    return tokenizer


def keeps_case(tokenizer_path: str) -> bool:
    """Returns whether a saved tokenizer gives other ids to capitals than to small letters."""
    tokenizer = load_tokenizer(tokenizer_path)
    small = [token for token in tokenizer.get_vocab() if token.islower()][:100]
    capitals = [token.upper() for token in small]
    return bool(small and tokenizer(small)["input_ids"] != tokenizer(capitals)["input_ids"])


def check_added_tokens(tokenizer: Any, added_tokens: Iterable[str], path: str) -> None:
    """Refuses a saved tokenizer that cuts a token into pieces or does not know it."""
    for token in added_tokens:
        ids = tokenizer(token, add_special_tokens=False)["input_ids"]
        if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
            raise ValueError(
                f"{token!r} is no token of the tokenizer in {path!r}: add it with "
                f"`vanilla-transformer vocabulary {path} OUT --add-tokens {token!r}`."
            )


def _texts_of(rows: Dataset, side: str) -> Iterator[str]:
    for batch in rows.select_columns([side]).iter(batch_size=1000):
        yield from batch[side]


def _check_same_tokens(tokenizer: Any, named: str, saved: str) -> None:
    """Refuses a tokenizer whose ids mean other tokens than those of the saved model."""
    if Path(saved).is_dir() and not list(Path(saved).glob("tokenizer*.json")):
        return  # converted weights may come without a tokenizer
    if difference := first_difference(tokenizer, load_tokenizer(saved)):
        raise ValueError(
            f"`tokenizer_name_or_path` {named!r} is not the tokenizer of the model in {saved!r} "
            f"({difference}): leave the option out, or train a new model."
        )


def first_difference(tokenizer: Any, other: Any) -> str | None:
    """Describes the first token with different ids in two tokenizers; None: there is none."""
    for side in ("source", "target"):
        ids = vocabulary_of(tokenizer, side)
        for token, index in vocabulary_of(other, side).items():
            if ids.get(token) != index:
                return f"{side} token {token!r} has the ids {ids.get(token)} and {index}"
    return None


def make_config(
    changes: dict[str, Any], tokenizer: Any, init_from: str | None
) -> VanillaTransformerConfig:
    """Loads the config of the saved model and changes it, or makes one for the tokenizer."""
    if init_from is None:
        return new_config(tokenizer, changes)
    config: VanillaTransformerConfig = AutoConfig.from_pretrained(init_from)
    unfit = [
        f"`{name}` {value!r} (saved: {config.to_dict().get(name, 'no such field')})"
        for name, value in changes.items()
        if not hasattr(config, name)
        or (name not in _FREE_TO_CHANGE and value != getattr(config, name))
    ]
    if unfit:
        raise ValueError(
            f"{', '.join(unfit)} do not fit the architecture of the model in {init_from!r}: leave "
            "them out, or train a new model."
        )
    for name, value in changes.items():
        setattr(config, name, value)
    _check_tokenizer_fits(config, tokenizer, init_from)
    return config


def new_config(tokenizer: Any, changes: dict[str, Any]) -> VanillaTransformerConfig:
    """Makes the config of a new model; the tokenizer decides sizes and special tokens."""
    separate = getattr(tokenizer, "separate_vocabularies", False)
    start = tokenizer.bos_token_id
    return VanillaTransformerConfig(
        **_tokenizer_fields(tokenizer),
        decoder_start_token_id=tokenizer.pad_token_id if start is None else start,
        **{"share_encoder_decoder_embeddings": not separate, **changes},
    )


def _check_tokenizer_fits(config: VanillaTransformerConfig, tokenizer: Any, init_from: str) -> None:
    """Refuses a tokenizer with more tokens than the saved model, or other special tokens."""
    unfit = []
    for name, value in _tokenizer_fields(tokenizer).items():
        of_model = getattr(config, name)
        is_size = name in ("vocab_size", "decoder_vocab_size")
        if value is not None and (of_model < value if is_size else of_model != value):
            unfit.append(f"`{name}` {of_model} (tokenizer: {value})")
    if unfit:
        raise ValueError(
            f"The tokenizer does not fit the model in {init_from!r}, which has {', '.join(unfit)}: "
            "give the tokenizer that the model was trained with."
        )


def _tokenizer_fields(tokenizer: Any) -> dict[str, Any]:
    """Returns the config fields that the tokenizer determines."""
    return {
        "vocab_size": len(tokenizer),
        "decoder_vocab_size": getattr(tokenizer, "target_vocab_size", len(tokenizer)),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
