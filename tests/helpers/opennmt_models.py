"""A small OpenNMT-py checkpoint, and the same function out of torch's parts."""

import math
from argparse import Namespace

import torch
from tiny_models import add_noise
from torch import nn

from vanilla_transformer.weights.sinusoids import sinusoids

WIDTH, HEADS, INNER = 16, 2, 24
SPECIALS = ["<unk>", "<blank>", "<s>", "</s>"]
SOURCE = [*SPECIALS, *(f"w{i}" for i in range(19)), "averyunlikelytoken0"]
TARGET = [*SPECIALS, "das", "Ha￭", "us", "￭.", *(f"v{i}" for i in range(12))]
OPTIONS = {
    "encoder_type": "transformer",
    "decoder_type": "transformer",
    "model_type": "text",
    "model_task": "seq2seq",
    "enc_layers": 2,
    "dec_layers": 1,
    "heads": HEADS,
    "transformer_ff": INNER,
    "position_encoding": True,
    "position_encoding_type": "SinusoidalInterleaved",
    "max_relative_positions": 0,
    "dropout": [0.1, 0.0],
    "attention_dropout": [0.2],
    "copy_attn": False,
    "generator_function": "softmax",
    "self_attn_type": "scaled-dot",
    "pos_ffn_activation_fn": "relu",
    "add_qkvbias": True,
    "lora_layers": [],
    "quant_layers": [],
}
PARTS = {"linear_query": 0, "linear_keys": 1, "linear_values": 2}


def reference_model():
    """The same function out of torch's parts: pre-norm, with a norm after each stack."""
    torch.manual_seed(0)
    model = nn.Transformer(WIDTH, HEADS, 2, 1, INNER, norm_first=True, layer_norm_eps=1e-6,
                           batch_first=True)  # fmt: skip
    model.source, model.target = nn.Embedding(24, WIDTH), nn.Embedding(20, WIDTH)
    model.generator = nn.Linear(WIDTH, 20)
    return add_noise(model, 0.3).eval()


def logits_of(model, ids, targets, scheme="sinusoidal"):
    hidden = ids == 1
    first = model.source(ids) * math.sqrt(WIDTH) + sinusoids(scheme, ids.shape[1], WIDTH)
    second = model.target(targets) * math.sqrt(WIDTH) + sinusoids(scheme, targets.shape[1], WIDTH)
    causal = torch.ones(targets.shape[1], targets.shape[1]).triu(1).bool()
    states = model(first, second, tgt_mask=causal, src_key_padding_mask=hidden,
                   memory_key_padding_mask=hidden)  # fmt: skip
    return model.generator(states)


def weights_of(model, scheme="sinusoidal"):
    """The weights under OpenNMT-py's names."""
    weights = {}
    names = {"linear1": "feed_forward.w_1", "linear2": "feed_forward.w_2"}
    for stack, list_name, norms in (
        ("encoder", "transformer", {"norm1": "layer_norm", "norm2": "feed_forward.layer_norm"}),
        ("decoder", "transformer_layers", {"norm1": "layer_norm_1", "norm2": "layer_norm_2",
                                           "norm3": "feed_forward.layer_norm"}),
    ):  # fmt: skip
        half = getattr(model, stack)
        embedding = model.source if stack == "encoder" else model.target
        place = f"{stack}.embeddings.make_embedding"
        weights[f"{place}.emb_luts.0.weight"] = embedding.weight
        weights[f"{place}.pe.pe"] = sinusoids(scheme, 50, WIDTH)[:, None]
        for kind in ("weight", "bias"):
            weights[f"{stack}.layer_norm.{kind}"] = getattr(half.norm, kind)
        for number, layer in enumerate(half.layers):
            here = f"{stack}.{list_name}.{number}"
            for theirs, ours in (("self_attn", "self_attn"), ("multihead_attn", "context_attn")):
                if (attention := getattr(layer, theirs, None)) is None:
                    continue
                for part, index in PARTS.items():
                    place = f"{here}.{ours}.{part}"
                    weights[f"{place}.weight"] = attention.in_proj_weight.chunk(3)[index]
                    weights[f"{place}.bias"] = attention.in_proj_bias.chunk(3)[index]
                for kind in ("weight", "bias"):
                    out = getattr(attention.out_proj, kind)
                    weights[f"{here}.{ours}.final_linear.{kind}"] = out
            for old, new in {**names, **norms}.items():
                for kind in ("weight", "bias"):
                    weights[f"{here}.{new}.{kind}"] = getattr(getattr(layer, old), kind)
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def save(path, model, weights=None, vocab=(SOURCE, TARGET), **options):
    vocabularies = {"src": vocab[0], "tgt": vocab[1], "data_task": "seq2seq",
                    "decoder_start_token": "<s>"}  # fmt: skip
    checkpoint = {
        "model": weights_of(model) if weights is None else weights,
        "generator": model.generator.state_dict(),
        "vocab": vocabularies,
        "opt": Namespace(**{**OPTIONS, **options}),
        "optim": {"training_step": 9},
    }
    torch.save(checkpoint, path)
    return path


def batch():
    ids, targets = torch.randint(4, 20, (3, 9)), torch.randint(4, 20, (3, 7))
    ids[1, 5:] = 1
    targets[:, 0] = 2
    return ids, targets


def assert_same_logits(imported, reference, scheme="sinusoidal"):
    ids, targets = batch()
    with torch.no_grad():
        expected = logits_of(reference, ids, targets, scheme)
        found = imported.model(
            input_ids=ids, attention_mask=(ids != 1).long(), decoder_input_ids=targets
        ).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
