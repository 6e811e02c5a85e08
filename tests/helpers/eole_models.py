"""A small model of Eole, made from the one of OpenNMT-py."""

import json
import re

import torch
from opennmt_models import HEADS, INNER, SOURCE, TARGET, WIDTH, weights_of
from safetensors.torch import save_file

from vanilla_transformer.weights.sinusoids import sinusoids

SPECIALS = {"bos_token": "<s>", "pad_token": "<blank>", "eos_token": "</s>", "unk_token": "<unk>"}
MODEL = {
    "architecture": "transformer",
    "layers": 2,
    "hidden_size": WIDTH,
    "heads": HEADS,
    "transformer_ff": INNER,
    "norm_eps": 1e-6,
    "add_qkvbias": True,
    "add_ffnbias": True,
    "encoder": {"encoder_type": "transformer", "add_final_linear_bias": True},
    "embeddings": {"word_vec_size": WIDTH, "position_encoding_type": "SinusoidalInterleaved"},
    "decoder": {"layers": 1, "decoder_type": "transformer", "add_final_linear_bias": True},
}
NAMES = {
    r"(en|de)coder\.embeddings\.make_embedding\.emb_luts\.0": r"\1coder_emb.embeddings",
    r"(en|de)coder\.embeddings\.make_embedding\.pe": r"\1coder_emb.pe",
    r"encoder_emb": "src_emb",
    r"decoder_emb": "tgt_emb",
    r"\.transformer\.": ".transformer_layers.",
    r"(layers\.\d+)\.layer_norm(_1)?\.": r"\1.input_layernorm.",
    r"layer_norm_2": "precontext_layernorm",
    r"feed_forward\.layer_norm": "post_attention_layernorm",
    r"feed_forward\.w_1": "mlp.gate_up_proj",
    r"feed_forward\.w_2": "mlp.down_proj",
}


def renamed(model):
    """The weights under Eole's names."""
    weights = {}
    for name, tensor in weights_of(model).items():
        for pattern, new in NAMES.items():
            name = re.sub(pattern, new, name)
        weights[name] = tensor
    for name in ("src_emb.pe.pe", "tgt_emb.pe.pe"):
        weights[name] = sinusoids("sinusoidal", 5000, WIDTH)[:, None]  # as many as Eole stores
    weights["decoder.transformer_layers.0.layer_scalar"] = torch.ones(1)
    output = model.generator.state_dict()
    return weights | {f"generator.{name}": tensor for name, tensor in output.items()}


def save(folder, weights, changes=None, training=None, **vocab):
    folder.mkdir(exist_ok=True)
    config = {"model": {**MODEL, **(changes or {})}, "training": training or {"dropout": [0.2]}}
    (folder / "config.json").write_text(json.dumps(config))
    words = {"src": SOURCE, "tgt": TARGET, "decoder_start_token": "<s>", "specials": SPECIALS}
    (folder / "vocab.json").write_text(json.dumps(words | vocab))
    save_file(dict(list(weights.items())[:9]), folder / "model.00.safetensors")
    save_file(dict(list(weights.items())[9:]), folder / "model.01.safetensors")
    return folder
