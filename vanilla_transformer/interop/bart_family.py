"""Marian, Pegasus, BART, mBART, Blenderbot, FSMT, M2M100 and NLLB.

They descend from one code base: their weights have equal names, and their options too. They differ
in whether norms come before or after a sublayer, in the norms around the stacks, and in their
positions.
Blenderbot-small is another class: its decoder normalises the embeddings before it adds the
positions, which no config here expresses.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    FSMTConfig,
    FSMTForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedConfig,
    PreTrainedModel,
)

from vanilla_transformer.interop.hf_mapping import Family
from vanilla_transformer.interop.match_weights import Rules
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig

_OPTIONS = {
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
_IGNORED = {  # the weights show which matrices are tied
    "classifier_dropout",
    "init_std",
    "is_decoder",
    "is_encoder_decoder",
    "tie_word_embeddings",
}
_COMPUTED_TABLES: Rules = {r"model\.(encoder|decoder)\.embed_positions\.weights?": None}


def _names_with(slot: str) -> Rules:
    """Returns the rules for names; the norms of a sublayer have the slot "pre" or "post"."""
    layer = r"(model\.(?:encoder|decoder)\.layers\.\d+)"
    return {
        layer + r"\.(self|encoder)_attn_layer_norm\.(\w+)": rf"\1.\2_attn_{slot}_norm.\3",
        layer + r"\.final_layer_norm\.(\w+)": rf"\1.feed_forward_{slot}_norm.\2",
        layer + r"\.(fc\d)\.(\w+)": r"\1.feed_forward.\2.\3",
        r"model\.(encoder|decoder)\.layernorm_embedding\.(\w+)": r"model.\1.embed_norm.\2",
        r"model\.(encoder|decoder)\.layer_norm\.(\w+)": r"model.\1.final_norm.\2",
        "final_logits_bias": "lm_head.bias",
    }


def _make_family(
    kind: str,
    model_class: type[PreTrainedModel],
    config_class: type[PreTrainedConfig],
    positions: str,
    *,
    pre_norm: bool = False,
    embedding_norm: bool = False,
    more_fields: Callable[[Any], dict[str, Any]] = lambda config: {},
) -> Family:
    """Describes one of these classes.

    Args:
        positions: Our `position_embedding_type`.
        pre_norm: Whether norms stand before sublayers, with one after each stack; otherwise they
            stand after the sublayers.
        embedding_norm: Whether a norm follows the embeddings.
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
        options=_OPTIONS,
        read_fields=lambda config: {**fields, **more_fields(config)},
        write_options=lambda ours: {  # all three matrices are one, or none is tied
            "tie_word_embeddings": bool(
                ours.share_encoder_decoder_embeddings and ours.tie_word_embeddings
            )
        },
        names={**_names_with(slot), **(_COMPUTED_TABLES if sinusoids else {})},
        ignored=_IGNORED,
        fixed={  # options of old checkpoints, which the classes ignore, with what they compute
            "normalize_before": pre_norm,
            "add_final_layer_norm": pre_norm,
            "normalize_embedding": embedding_norm,
            "static_position_embeddings": sinusoids,
        },
    )


def _from_row_2(config: Any) -> dict[str, Any]:
    """BART's tables of positions have two unused first rows."""
    return {"position_offset": 2}


def _after_padding(config: Any) -> dict[str, Any]:
    """fairseq, and the classes that descend from it, count positions from the padding id + 1."""
    return {"position_offset": int(config.pad_token_id) + 1}


def _read_vocabularies_of_marian(config: Any) -> dict[str, Any]:
    shared = config.share_encoder_decoder_embeddings
    return {
        # A shared table has one size, and the class then ignores the other one.
        "decoder_vocab_size": config.vocab_size if shared else config.decoder_vocab_size,
        "share_encoder_decoder_embeddings": shared,
    }


def _write_vocabularies_of_marian(config: VanillaTransformerConfig) -> dict[str, Any]:
    # With `share_encoder_decoder_embeddings` Marian also ties the output, or else nothing.
    shared, tied = config.share_encoder_decoder_embeddings, config.tie_word_embeddings
    return {
        "decoder_vocab_size": config.decoder_vocab_size,
        "share_encoder_decoder_embeddings": bool(shared and tied),
        "tie_word_embeddings": tied,
    }


MARIAN = replace(
    _make_family(
        "marian",
        MarianMTModel,
        MarianConfig,
        "sinusoidal_half",
        more_fields=_read_vocabularies_of_marian,
    ),
    write_options=_write_vocabularies_of_marian,
    ignored={*_IGNORED, "decoder_vocab_size", "share_encoder_decoder_embeddings"},
)
PEGASUS = _make_family(
    "pegasus", PegasusForConditionalGeneration, PegasusConfig, "sinusoidal_half", pre_norm=True
)
BART = _make_family(
    "bart",
    BartForConditionalGeneration,
    BartConfig,
    "learned",
    embedding_norm=True,
    more_fields=_from_row_2,
)
MBART = _make_family(
    "mbart",
    MBartForConditionalGeneration,
    MBartConfig,
    "learned",
    pre_norm=True,
    embedding_norm=True,
    more_fields=_from_row_2,
)
BLENDERBOT = replace(
    _make_family(
        "blenderbot",
        BlenderbotForConditionalGeneration,
        BlenderbotConfig,
        "learned",
        pre_norm=True,
    ),
    ignored={*_IGNORED, "encoder_no_repeat_ngram_size"},  # part of the generation config
)
M2M100 = _make_family(
    "m2m100",
    M2M100ForConditionalGeneration,
    M2M100Config,
    "sinusoidal_fairseq",
    pre_norm=True,
    more_fields=_after_padding,
)
_POST_NORM_OF_FAIRSEQ = _make_family(
    "fsmt",
    FSMTForConditionalGeneration,
    FSMTConfig,
    "sinusoidal_fairseq",
    more_fields=lambda config: {
        "share_encoder_decoder_embeddings": False,
        **_after_padding(config),
    },
)
FSMT = replace(
    _POST_NORM_OF_FAIRSEQ,
    options={**_OPTIONS, "vocab_size": "src_vocab_size", "decoder_vocab_size": "tgt_vocab_size"},
    names={
        r"model\.decoder\.output_projection\.weight": "lm_head.weight",
        **_POST_NORM_OF_FAIRSEQ.names,
    },
    ignored={
        *_IGNORED,
        "langs",
        # parts of the generation config
        "early_stopping",
        "length_penalty",
        "max_length",
        "num_beams",
    },
)
