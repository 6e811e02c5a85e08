"""Stand-ins for the libraries that CTranslate2's converters import, around models of ours.

fairseq 0.12 cannot be imported in Python 3.11, and OpenNMT-tf and Eole bring TensorFlow and a torch
of their own. So the converters of CTranslate2 run as they are; what they ask these libraries for
comes from here, under the same names and with the same layout of weights.
"""

import sys
from enum import Enum
from types import ModuleType, SimpleNamespace

import torch


def install(monkeypatch, name, **content):
    """Makes a module, and those that it lies in, importable."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        path = ".".join(parts[:count])
        module = ModuleType(path)
        if count == len(parts):
            vars(module).update(content)
        monkeypatch.setitem(sys.modules, path, module)


# fairseq ------------------------------------------------------------------------------------------


def install_fairseq(monkeypatch, model, dictionaries):
    """fairseq, which builds this model of transformers: the names of its layers are the same."""
    for stack in (model.model.encoder, model.model.decoder):
        positions = stack.embed_positions
        positions.padding_idx = 1
        defaults = {"layer_norm": None, "layernorm_embedding": None, "project_in_dim": None}
        defaults |= {"project_out_dim": None, "embed_scale": model.config.d_model**0.5}
        for attribute, value in defaults.items():
            if not hasattr(stack, attribute):
                setattr(stack, attribute, value)
    if not hasattr(model.model.decoder, "output_projection"):
        model.model.decoder.output_projection = model.get_output_embeddings()
    built = SimpleNamespace(
        eval=lambda: None,
        load_state_dict=lambda weights: None,
        encoder=model.model.encoder,
        decoder=model.model.decoder,
    )
    source, target = (SimpleNamespace(symbols=words) for words in dictionaries)
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    install(
        monkeypatch,
        "fairseq",
        checkpoint_utils=None,
        models=SimpleNamespace(
            ARCH_MODEL_NAME_REGISTRY={"transformer_iwslt_de_en": "transformer"},
            build_model=lambda args, task: built,
        ),
        tasks=SimpleNamespace(setup_task=lambda args: task),
    )


# OpenNMT-tf ---------------------------------------------------------------------------------------


class Named:
    """A class of OpenNMT-tf: the converter asks for nothing but its name."""

    def __init__(self, **content):
        vars(self).update(content)


NAMES = ("Transformer", "LanguageModel", "SelfAttentionEncoder", "WordEmbedder",
         "ParallelInputter", "MultiInputter", "PositionEmbedder", "Vocab")  # fmt: skip
TF = {name: type(name, (Named,), {}) for name in NAMES}


def install_opennmt_tf(monkeypatch):
    reduction = Enum("MultiHeadAttentionReduction", ["NONE", "AVERAGE_ALL_LAYERS",
                                                     "AVERAGE_LAST_LAYER"])  # fmt: skip
    layers = SimpleNamespace(MultiHeadAttentionReduction=reduction, **TF)
    same = dict.fromkeys(("models", "encoders", "inputters", "data"), SimpleNamespace(**TF))
    install(monkeypatch, "opennmt", layers=layers, **same)


def as_opennmt_tf(model, words):
    """A model of ours, pre-norm and of 4 heads, in OpenNMT-tf: kernels are (inputs, outputs)."""
    stacks = {}
    for name in ("encoder", "decoder"):
        stack = getattr(model.model, name)
        stacks[name] = {
            "layers": [_layer(layer) for layer in stack.layers],
            "layer_norm": _norm(stack.final_norm),
            "position_encoder": Named(),  # sinusoids, which are not stored
        }
    inputters = [
        TF["WordEmbedder"](
            embedding=getattr(model.model, name).embed_tokens.weight,
            vocabulary_file=TF["Vocab"](words=list(tokens)),
            mark_start=False,
            mark_end=False,
        )
        for name, tokens in zip(stacks, words, strict=True)
    ]
    return TF["Transformer"](
        encoder=TF["SelfAttentionEncoder"](**stacks["encoder"]),
        decoder=Named(
            **stacks["decoder"], output_layer=_dense(model.lm_head), attention_reduction=None
        ),
        features_inputter=inputters[0],
        labels_inputter=inputters[1],
    )


def _layer(layer):
    inner = _dense(layer.feed_forward.fc1)
    inner.activation = torch.relu
    forward = Named(inner=inner, outer=_dense(layer.feed_forward.fc2))
    attention = []
    if cross := getattr(layer, "encoder_attn", None):
        attention.append(_wrapped(_attention(cross), layer.encoder_attn_pre_norm))
    return Named(
        self_attention=_wrapped(_attention(layer.self_attn), layer.self_attn_pre_norm),
        attention=attention,
        ffn=_wrapped(forward, layer.feed_forward_pre_norm),
    )


def _wrapped(layer, norm):
    return Named(layer=layer, input_layer_norm=_norm(norm), output_layer_norm=None)


def _attention(attention):
    parts = {"queries": "q", "keys": "k", "values": "v", "output": "out"}
    linears = {f"linear_{old}": _dense(getattr(attention, f"{new}_proj"))
               for old, new in parts.items()}  # fmt: skip
    return Named(num_heads=4, maximum_relative_position=None, **linears)


def _dense(linear):
    return Named(kernel=linear.weight.T, transpose=False, bias=linear.bias)


def _norm(norm):
    return Named(gamma=norm.weight, beta=norm.bias)
