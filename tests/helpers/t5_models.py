"""Small random models of the T5 family."""

import torch
from hf_models import make_source
from transformers import (
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

SIZES = {
    "vocab_size": 50,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 20,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}


def untie_output(source):
    source.lm_head.weight = torch.nn.Parameter(source.lm_head.weight.detach().clone())
    source.lm_head.weight.data += 0.1
    return source


def t5(version="1.0", seed=0, **changes):
    """A T5: v1.0 ties and scales its output, v1.1 (and Flan, ByT5) and mT5 do neither."""
    if version == "1.0":
        return make_source(T5ForConditionalGeneration, T5Config(**{**SIZES, **changes}), seed)
    fields = {**SIZES, "feed_forward_proj": "gated-gelu", **changes}
    if version == "mt5":
        source = make_source(MT5ForConditionalGeneration, MT5Config(**fields), seed)
    else:
        config = T5Config(**fields, tie_word_embeddings=False)
        source = make_source(T5ForConditionalGeneration, config, seed)
    return untie_output(source)
