"""What Marian, Pegasus, BART, mBART, Blenderbot and M2M100 have in common.

They descend from one code base: their weights have equal names, and their options too. They differ
in the place of their norms, in the norms around the stacks, and in their positions.
"""

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from vanilla_transformer.interop.families import Family
from vanilla_transformer.interop.renaming import Rules

OPTIONS = {
    name: name
    for name in (
        "vocab_size",
        "d_model",
        "encoder_layers",
        "decoder_layers",
        "encoder_attention_heads",
        "decoder_attention_heads",
        "encoder_ffn_dim",
        "decoder_ffn_dim",
        "activation_function",
        "max_position_embeddings",
        "scale_embedding",
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "encoder_layerdrop",
        "decoder_layerdrop",
        "use_cache",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "decoder_start_token_id",
        "forced_eos_token_id",
    )
}
"""Their options by name of our field."""

IGNORED = {
    "classifier_dropout",
    "init_std",
    "is_decoder",
    "is_encoder_decoder",
    "tie_word_embeddings",
}
"""Options that do not change what a trained model computes; the weights tell which are tied."""

COMPUTED_TABLES: Rules = {r"model\.(encoder|decoder)\.embed_positions\.weights?": None}
"""Sinusoids, which both sides compute."""


def names_with(slot: str) -> Rules:
    """Returns the rules for names of weights.

    Args:
        slot: Place of the norms of a sublayer: "pre" or "post".

    Returns:
        Rules from their names to ours. Attention, embeddings and output have the same names.
    """
    layer = r"(model\.(?:encoder|decoder)\.layers\.\d+)"
    return {
        layer + r"\.(self|encoder)_attn_layer_norm\.(\w+)": rf"\1.\2_attn_{slot}_norm.\3",
        layer + r"\.final_layer_norm\.(\w+)": rf"\1.feed_forward_{slot}_norm.\2",
        layer + r"\.(fc\d)\.(\w+)": r"\1.feed_forward.\2.\3",
        r"model\.(encoder|decoder)\.layernorm_embedding\.(\w+)": r"model.\1.embed_norm.\2",
        r"model\.(encoder|decoder)\.layer_norm\.(\w+)": r"model.\1.final_norm.\2",
        "final_logits_bias": "lm_head.bias",
    }


def write_tying(config: Any) -> dict[str, Any]:
    """Returns the option for tied embeddings: all three matrices are one, or none is tied."""
    return {
        "tie_word_embeddings": bool(
            config.share_encoder_decoder_embeddings and config.tie_word_embeddings
        )
    }


def make_family(
    kind: str,
    model_class: type[PreTrainedModel],
    config_class: type[PreTrainedConfig],
    *,
    pre_norm: bool,
    embedding_norm: bool,
    positions: str,
    more_fields: Callable[[Any], dict[str, Any]] = lambda config: {},
) -> Family:
    """Makes the description of one of these classes.

    Args:
        kind: Its name here.
        model_class: The class, with an output projection.
        config_class: The class of its config.
        pre_norm: Whether norms stand before sublayers, with one after each stack; otherwise they
            stand after the sublayers.
        embedding_norm: Whether a norm follows the embeddings.
        positions: Our `position_embedding_type`.
        more_fields: Computes our fields beyond these from its config.
    """
    slot, sinusoids = "pre" if pre_norm else "post", positions.startswith("sinusoidal")
    fields = {
        "norm_placement": slot,
        "final_layer_norm": pre_norm,
        "normalize_embedding": embedding_norm,
        "position_embedding_type": positions,
    }
    return Family(
        kind=kind,
        model_class=model_class,
        config_class=config_class,
        options=OPTIONS,
        read_fields=lambda config: {**fields, **more_fields(config)},
        write_options=write_tying,
        names={**names_with(slot), **(COMPUTED_TABLES if sinusoids else {})},
        ignored=IGNORED,
        fixed={  # options of old checkpoints, which the classes ignore, with what they compute
            "normalize_before": pre_norm,
            "add_final_layer_norm": pre_norm,
            "normalize_embedding": embedding_norm,
            "static_position_embeddings": sinusoids,
        },
    )
