"""T5, T5 v1.1, mT5, Flan-T5 and ByT5: pre-norm models with relative positions and RMSNorm.

`T5ForConditionalGeneration` and `MT5ForConditionalGeneration` are one class under two names. They
compute the scores without a scale, and with tied embeddings (v1.0) they scale the logits.
"""

from dataclasses import replace
from typing import Any

from transformers import (
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from vanilla_transformer.interop.hf_mapping import Family
from vanilla_transformer.interop.match_weights import Rules
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig

_SAME = {
    "vocab_size": "vocab_size",
    "d_model": "d_model",
    "head_dim": "d_kv",
    "encoder_layers": "num_layers",
    "decoder_layers": "num_decoder_layers",
    "relative_attention_num_buckets": "relative_attention_num_buckets",
    "relative_attention_max_distance": "relative_attention_max_distance",
    "layer_norm_eps": "layer_norm_epsilon",
    "use_cache": "use_cache",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "decoder_start_token_id": "decoder_start_token_id",
}
_BOTH_STACKS = {"attention_heads": "num_heads", "ffn_dim": "d_ff"}
_DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "final_dropout")
_PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
_FFN = {"wi": "fc1", "wi_0": "gate", "wi_1": "fc1", "wo": "fc2"}


def _make_names() -> Rules:
    block = r"(encoder|decoder)\.block\.(\d+)\.layer"
    layer = r"model.\1.layers.\2"
    rules: dict[str, Any] = {
        r"shared\.weight": "model.shared.weight",
        r"(encoder|decoder)\.embed_tokens\.weight": r"model.\1.embed_tokens.weight",
        r"(encoder|decoder)\.final_layer_norm\.weight": r"model.\1.final_norm.weight",
        r"(encoder|decoder)\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.weight": (
            r"model.\1.embed_positions.weight"
        ),
        rf"{block}\.0\.layer_norm\.weight": rf"{layer}.self_attn_pre_norm.weight",
        rf"{block}\.2\.layer_norm\.weight": rf"{layer}.feed_forward_pre_norm.weight",
        r"encoder\.block\.(\d+)\.layer\.1\.layer_norm\.weight": (
            r"model.encoder.layers.\1.feed_forward_pre_norm.weight"
        ),
        r"decoder\.block\.(\d+)\.layer\.1\.layer_norm\.weight": (
            r"model.decoder.layers.\1.encoder_attn_pre_norm.weight"
        ),
    }
    for theirs, ours in _PROJECTIONS.items():
        rules[rf"{block}\.0\.SelfAttention\.{theirs}\.weight"] = f"{layer}.self_attn.{ours}.weight"
        rules[rf"{block}\.1\.EncDecAttention\.{theirs}\.weight"] = (
            f"{layer}.encoder_attn.{ours}.weight"
        )
    for theirs, ours in _FFN.items():
        rules[rf"{block}\.[12]\.DenseReluDense\.{theirs}\.weight"] = (
            f"{layer}.feed_forward.{ours}.weight"
        )
    return rules


def _read_fields(config: Any) -> dict[str, Any]:
    scaled = getattr(config, "scale_decoder_outputs", False)
    both = {
        f"{stack}_{ours}": getattr(config, theirs)
        for ours, theirs in _BOTH_STACKS.items()
        for stack in ("encoder", "decoder")
    }
    return {
        **both,
        **dict.fromkeys(_DROPOUTS, config.dropout_rate),
        "activation_function": config.dense_act_fn,
        "gated_ffn": config.is_gated_act,
        "norm_placement": "pre",
        "norm_type": "rms_norm",
        "final_layer_norm": True,
        "position_embedding_type": "relative",
        "scale_embedding": False,
        "attention_bias": False,
        "ffn_bias": False,
        "attention_scale": 1.0,
        "logit_scale": config.d_model**-0.5 if scaled else 1.0,
    }


def _write_options(config: VanillaTransformerConfig) -> dict[str, Any]:
    activation = config.activation_function
    named = "gelu" if config.gated_ffn and activation == "gelu_new" else activation
    sizes = {theirs: getattr(config, f"encoder_{ours}") for ours, theirs in _BOTH_STACKS.items()}
    return {
        **sizes,
        "d_kv": config.head_dim_with(config.encoder_attention_heads),
        "dropout_rate": config.dropout,
        "feed_forward_proj": f"gated-{named}" if config.gated_ffn else named,
        "tie_word_embeddings": config.logit_scale != 1,  # that is how the class chooses the scale
    }


_IGNORED = {
    "classifier_dropout",
    "d_ff",
    "dropout_rate",
    "feed_forward_proj",
    "initializer_factor",
    "is_decoder",
    "is_encoder_decoder",
    "num_heads",
    "tie_word_embeddings",
}


T5 = Family(
    kind="t5",
    model_class=T5ForConditionalGeneration,
    config_class=T5Config,
    options=_SAME,
    read_fields=_read_fields,
    write_options=_write_options,
    names=_make_names(),
    ignored=_IGNORED,
)
MT5 = replace(T5, model_class=MT5ForConditionalGeneration, config_class=MT5Config)
