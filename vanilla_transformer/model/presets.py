"""Presets: the fields that make a config the model of a published system.

`VanillaTransformerConfig.from_preset` reads them. A field that a preset does not name keeps its
default, which is the paper's base model. Initial values are not part of an architecture, but those
of published systems are larger than the default.
"""

from typing import Any


def _of_both_stacks(**fields: Any) -> dict[str, Any]:
    """Returns fields for the encoder, and the same ones for the decoder."""
    stacks = ("encoder", "decoder")
    return {f"{stack}_{name}": value for name, value in fields.items() for stack in stacks}


SEPARATE_EMBEDDINGS = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
XAVIER = {"initializer": "xavier"}
PRESETS: dict[str, dict[str, Any]] = {
    # Vaswani et al. 2017, table 3, base model: 65M parameters with the 37,000 tokens of §5.1.
    "vaswani-base": {**XAVIER, "vocab_size": 37000, "label_smoothing": 0.1},
    # Vaswani et al. 2017, table 3, big model: 213M parameters; the English-German dropout.
    "vaswani-big": {
        **XAVIER,
        "vocab_size": 37000,
        "d_model": 1024,
        **_of_both_stacks(attention_heads=16, ffn_dim=4096),
        "dropout": 0.3,
        "label_smoothing": 0.1,
    },
    # fairseq's transformer_iwslt_de_en, with the options and vocabulary sizes of its example.
    "iwslt": {
        **XAVIER,
        "vocab_size": 8848,
        "decoder_vocab_size": 6632,
        **_of_both_stacks(attention_heads=4, ffn_dim=1024),
        "position_embedding_type": "sinusoidal_fairseq",
        "position_offset": 2,
        "dropout": 0.3,
        "label_smoothing": 0.1,
        "share_encoder_decoder_embeddings": False,
    },
    # MongTae, "Transformer code review": two vocabularies, untied embeddings, no embedding scale.
    "system-a": {
        **XAVIER,
        **SEPARATE_EMBEDDINGS,
        "vocab_size": 1000,
        "decoder_vocab_size": 1200,
        "d_model": 32,
        **_of_both_stacks(layers=2, attention_heads=4, ffn_dim=64),
        "scale_embedding": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "decoder_start_token_id": 1,
    },
    # Crimsonjoo, Easy-Transformer: an encoder without a decoder, for inputs already embedded.
    "system-b": {
        **XAVIER,
        "encoder_layers": 5,
        "fused_qkv": True,
        "norm_type": "unbiased_std",
        "layer_norm_eps": 1e-6,
        "final_layer_norm": True,
        "position_embedding_type": "none",
        "scale_embedding": False,
        "dropout": 0.0,
        "activation_dropout": 0.1,
    },
    # A tutorial's character-level translator; the vocabulary sizes depend on the data.
    "system-c": {
        **XAVIER,
        **SEPARATE_EMBEDDINGS,
        "fused_qkv": True,
        "scale_embedding": False,
        "lm_head_bias": True,
        "activation_dropout": 0.1,
    },
    # A tutorial's pre-norm model with four dropouts per layer and no norm after the stacks.
    "system-d": {
        **XAVIER,
        **SEPARATE_EMBEDDINGS,
        "activation_function": "gelu",
        "norm_placement": "pre",
        "final_layer_norm": False,
        "lm_head_bias": True,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "ffn_dropout": 0.1,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "decoder_start_token_id": 1,
    },
    # A tutorial's composable model: residual sums without norms or dropout.
    "system-e": {
        **XAVIER,
        **SEPARATE_EMBEDDINGS,
        "norm_placement": "none",
        "lm_head_bias": True,
        "dropout": 0.0,
    },
    # The choices of LLaMA (Touvron et al. 2023) with grouped queries (Ainslie et al. 2023). The
    # feed-forward width is about 2/3 of the base model's, because gating adds a third matrix.
    "modern": {
        **_of_both_stacks(num_key_value_heads=2, ffn_dim=1408),
        "activation_function": "silu",
        "gated_ffn": True,
        "norm_placement": "pre",
        "norm_type": "rms_norm",
        "layer_norm_eps": 1e-6,
        "position_embedding_type": "rope",
        "attention_bias": False,
        "ffn_bias": False,
        "label_smoothing": 0.1,
    },
}
