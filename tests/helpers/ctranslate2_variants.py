"""Fields of the configs of small models that CTranslate2 can compute, by name."""

VARIANTS = {
    "post-norm": {},
    "final norms, tanh gelu": {"final_layer_norm": True, "activation_function": "gelu_new"},
    "pre-norm": {"norm_placement": "pre"},
    "pre-norm without final norms": {"norm_placement": "pre", "final_layer_norm": False},
    "rms norm": {"norm_type": "rms_norm", "layer_norm_eps": 1e-2},
    "normalised queries": {"qk_norm": "self", "position_embedding_type": "rope"},
    "rms of queries": {
        "qk_norm": "self",
        "norm_type": "rms_norm",
        "decoder_num_key_value_heads": 2,
    },
    "embedding norm, gelu": {
        "normalize_embedding": True,
        "scale_embedding": False,
        "activation_function": "gelu",
    },
    "half sinusoids": {"position_embedding_type": "sinusoidal_half"},
    "fairseq's sinusoids": {"position_embedding_type": "sinusoidal_fairseq", "position_offset": 2},
    "learned": {"position_embedding_type": "learned"},
    "learned from 2": {"position_embedding_type": "learned", "position_offset": 2},
    "no positions": {"position_embedding_type": "none"},
    "rope": {
        "position_embedding_type": "rope",
        "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5},
    },
    "relative, as in T5": {
        "position_embedding_type": "relative",
        "relative_attention_max_distance": 20,
        "attention_scale": 1.0,
        "logit_scale": 0.25,
    },
    "swiglu": {"gated_ffn": True, "activation_function": "silu"},
    "grouped queries, wide heads": {
        "encoder_num_key_value_heads": 1,
        "decoder_num_key_value_heads": 2,
        "head_dim": 12,
    },
    "narrow rotated heads": {
        "position_embedding_type": "rope",
        "head_dim": 2,
        "encoder_num_key_value_heads": 1,
    },
    "no biases": {"attention_bias": False, "ffn_bias": False, "lm_head_bias": True},
    "scaled residuals": {"residual_scale": 0.5, "fused_qkv": True},
    "two vocabularies": {"decoder_vocab_size": 44, "tie_word_embeddings": False},
}
