"""The config and the model of a run: loaded and checked against the options, or made anew."""

from pathlib import Path
from typing import Any

from transformers import AutoConfig, GenerationConfig
from transformers.utils import logging

from vanilla_transformer.inference.loading import load_weights
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.names import NOAM
from vanilla_transformer.rules import is_given
from vanilla_transformer.run.plan import RunPlan
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

logger = logging.get_logger(__name__)

# Fields of a saved model that may change: regularisation, and the reach of its positions.
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
_VOCABULARY_SIZES = ("vocab_size", "decoder_vocab_size")


def make_config(
    changes: dict[str, Any], tokenizer: Any, start: str | None
) -> VanillaTransformerConfig:
    """Loads the config of the saved model, or makes one for the tokenizer.

    Args:
        changes: Architecture fields that were given.
        tokenizer: Determines the vocabulary sizes and the special tokens.
        start: Saved model or checkpoint that the run starts from; None: a new model.

    Returns:
        The config.

    Raises:
        ValueError: If the changes or the tokenizer do not fit the saved model.
    """
    if start is None:
        return new_config(tokenizer, changes)
    saved = AutoConfig.from_pretrained(start)
    unfit = [
        f"`{name}` {value!r} (saved: {getattr(saved, name)!r})"
        for name, value in changes.items()
        if name not in _FREE_TO_CHANGE and value != getattr(saved, name)
    ]
    if unfit:
        raise ValueError(
            f"{', '.join(unfit)} do not fit the architecture of the model in {start!r}: leave them "
            "out, or train a new model."
        )
    config: VanillaTransformerConfig = AutoConfig.from_pretrained(start, **changes)
    _check_tokenizer_fits(config, tokenizer, start)
    return config


def new_config(tokenizer: Any, changes: dict[str, Any]) -> VanillaTransformerConfig:
    """Makes the config of a new model.

    Args:
        tokenizer: Determines the vocabulary sizes and the special tokens.
        changes: Architecture fields that differ from their defaults.

    Returns:
        The config.
    """
    separate = getattr(tokenizer, "separate_vocabularies", False)
    start = tokenizer.bos_token_id
    return VanillaTransformerConfig(
        **_tokenizer_fields(tokenizer),
        decoder_start_token_id=tokenizer.pad_token_id if start is None else start,
        **{"share_encoder_decoder_embeddings": not separate, **changes},
    )


def _check_tokenizer_fits(config: VanillaTransformerConfig, tokenizer: Any, start: str) -> None:
    """Refuses a tokenizer with more tokens than the saved model, or other special tokens."""
    unfit = []
    for name, value in _tokenizer_fields(tokenizer).items():
        found = getattr(config, name)
        is_size = name in _VOCABULARY_SIZES
        if value is not None and (found < value if is_size else found != value):
            unfit.append(f"`{name}` {found} (tokenizer: {value})")
    if unfit:
        raise ValueError(
            f"The tokenizer does not fit the model in {start!r}, which has {', '.join(unfit)}: "
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


def load_generation_settings(
    config: VanillaTransformerConfig, start: str | None
) -> GenerationConfig:
    """Loads the generation config of the saved model, or makes that of a new model.

    Args:
        config: Config of the model.
        start: Saved model or checkpoint that the run starts from; None: a new model.

    Returns:
        The generation config before the run changes it.
    """
    if start is None:
        return GenerationConfig.from_model_config(config)
    try:
        return GenerationConfig.from_pretrained(start)
    except OSError:
        if Path(start, "generation_config.json").exists():
            raise  # it is damaged
        logger.info(f"{start!r} holds no generation_config.json: its config.json is used.")
        # As `from_pretrained` of the model does.
        return GenerationConfig.from_pretrained(start, "config.json", _from_model_config=True)


def make_model(plan: RunPlan, config: VanillaTransformerConfig) -> Any:
    """Loads the weights that the run starts from, or initialises a new model.

    Args:
        plan: Plan of the run.
        config: Config of the model.

    Returns:
        A model whose generation config holds the search of the run.

    Raises:
        ValueError: If the weights cannot be read, or do not fit the config.
    """
    if plan.start is None:
        _warn_of_a_small_rate(plan.training)
        model: Any = VanillaTransformerForConditionalGeneration(config)
    else:
        model = load_weights(plan.start, config=config)
    model.set_attn_implementation(plan.attention)
    model.generation_config = plan.search.to_save()
    return model


def _warn_of_a_small_rate(training: TokenBudgetTrainingArguments) -> None:
    """Warns if a new model learns with the rate that transformers has for fine-tuning."""
    if not is_given(training, "learning_rate") and training.lr_scheduler_type != NOAM:
        logger.warning(
            f"`learning_rate` is {training.learning_rate}, the default of transformers, which "
            "suits fine-tuning. A new model learns slowly with it: try "
            "`--learning_rate 1e-3 --warmup_steps 400`."
        )
