"""Exports a model to ONNX, for transformers.js and onnxruntime.

This module needs the extra `onnx`. A directory holds two graphs in its folder `onnx`, the config,
the generation config and the tokenizer. Names, inputs and outputs are as transformers.js reads them
for an encoder-decoder:

- `encoder_model.onnx` takes `input_ids` and `attention_mask`, both (batch, source_len), and returns
  `last_hidden_state` of shape (batch, source_len, d_model).
- `decoder_model_merged.onnx` takes `input_ids` of shape (batch, target_len), these states as
  `encoder_hidden_states`, the mask as `encoder_attention_mask`, and for each layer N the keys and
  values of earlier calls: `past_key_values.N.decoder.key` and `.value` of the target tokens,
  `past_key_values.N.encoder.key` and `.value` of the source. Before the first token both have the
  length 0. It returns `logits` of shape (batch, target_len, vocab), the `alignment` of target and
  source tokens, (batch, target_len, source_len), and all keys and values as `present.N...`; keys
  and values of the source are computed once.

Keys and values are (batch, key_value_heads, length, head_dim). All other sizes are dynamic: batch,
source_len, target_len and past_len. The graphs are of the opset `OPSET`, with weights of 32, 16
(`encoder_model_fp16.onnx`) or 8 bits (`encoder_model_quantized.onnx`).

transformers.js chooses its code by `model_type`, and knows no type of this package: config.json
names `STAND_IN`, whose graphs have the same interface. All other fields are ours.
"""

import copy
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch import nn
from torch.export import Dim
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from vanilla_transformer.interop.comparison import Comparison, compare_logits
from vanilla_transformer.interop.funnel import check_agreement
from vanilla_transformer.interop.tokenizers import save_plain_tokenizer
from vanilla_transformer.model.evaluation import aligning_weights, banned_ids
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.progress import without_messages
from vanilla_transformer.tokenizer_sides import unnamed_ids
from vanilla_transformer.weights.match_weights import STACKS

OPSET = 20
"""Version of ONNX's set of operators that the graphs use."""

FOLDER = "onnx"
"""Sub-folder of the graphs in an export."""

ENCODER, DECODER = "encoder_model", "decoder_model_merged"
"""Names of the graphs, without the suffix for the type of their weights."""

TYPES = {"float32": ("fp32", ""), "float16": ("fp16", "_fp16"), "int8": ("q8", "_quantized")}
"""The types of weights: the name of each in transformers.js, and its suffix in a file name."""

STAND_IN = "marian"
"""`model_type` of an export: transformers.js loads a class that it knows."""

_JS_CONFIG = "transformers.js_config"

# transformers.js reads `batch_size`, and makes every other size of an empty cache 0.
_BATCH, _SOURCE, _TARGET = Dim("batch_size"), Dim("source_len"), Dim("target_len")
_KNOWN, _PAST = Dim("known_source_len", min=0), Dim("past_len", min=0)


def export_to_onnx(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: Any,
    output_dir: str | Path,
    quantization: str | None = None,
) -> tuple[Comparison, tuple[str, ...]]:
    """Writes the graphs of a model, its configs and its tokenizer, and compares both.

    The model is on the CPU, in float32 and in evaluation mode afterwards.

    Args:
        quantization: Type of the weights, a key of `TYPES`. None: float32.

    Returns:
        The difference of the graphs from the model before a quantisation, and notes for the user:
        the effect of a quantisation, and notes on the tokenizer.
    """
    if model.config.decoder_start_token_id is None:
        raise ValueError(
            "`decoder_start_token_id` is None, but an export holds that token: set it."
        )
    folder = Path(output_dir)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    fields = {name: value for name, value in model.config.to_dict().items() if name != "auto_map"}
    unnamed = [] if tokenizer is None else unnamed_ids(tokenizer, model.lm_head.out_features)
    with banned_ids(model, unnamed):
        _export_graphs(model, folder / FOLDER)
        _write_config(folder, {**fields, "model_type": STAND_IN}, "float32")
        model.generation_config.save_pretrained(folder)
        notes = () if tokenizer is None else save_plain_tokenizer(tokenizer, folder)
        library = f"onnxruntime {onnxruntime.__version__}"
        comparison = compare_logits(model, library, partial(graph_logits, folder))
        check_agreement(comparison)
        if quantization in ("float16", "int8"):
            quantize_graphs(folder, quantization)
            rounded = compare_logits(model, library, partial(graph_logits, folder)).difference
            bits = f"In {quantization}, the largest difference of two logits is {rounded:.1e}."
            notes = (bits, *notes)
    return comparison, notes


def quantize_graphs(folder: Path, kind: str = "int8") -> None:
    """Replaces the graphs of an export in float32 by graphs with 8 or 16 bits a weight.

    The steps that make float32 of them have no input, so that a runtime takes them once, when it
    loads a graph. With 8 bits each row of an embedding, and each column of another matrix, has a
    scale of its own.
    """
    for name in (ENCODER, DECODER):
        path = _graph_path(folder, name, "float32")
        graph = onnx.load(path)
        floats = [w for w in graph.graph.initializer if w.data_type == onnx.TensorProto.FLOAT]
        matrices = [weight for weight in floats if len(weight.dims) == 2]
        steps = [step for each in matrices for step in _shorten(graph.graph, each, kind)]
        kept = [*steps, *graph.graph.node]
        del graph.graph.node[:]
        graph.graph.node.extend(kept)
        path.unlink()
        onnx.save(graph, _graph_path(folder, name, kind))
    _write_config(folder, json.loads((folder / "config.json").read_text(encoding="utf-8")), kind)


def _shorten(graph: Any, weight: Any, kind: str) -> Iterator[Any]:
    """Stores a matrix in fewer bits; yields the steps that make the matrix of it."""
    matrix, name, short = numpy_helper.to_array(weight), weight.name, f"{weight.name}.{kind}"
    is_embedding = any(node.op_type == "Gather" and name in node.input for node in graph.node)
    scales = np.abs(matrix).max(int(is_embedding), keepdims=True).clip(1e-9) / 127
    stored = np.rint(matrix / scales).astype(np.int8) if kind == "int8" else matrix.astype(kind)
    graph.initializer.remove(weight)
    graph.initializer.append(numpy_helper.from_array(stored, short))
    if kind == "float16":
        yield helper.make_node("Cast", [short], [name], to=onnx.TensorProto.FLOAT)
        return
    graph.initializer.append(numpy_helper.from_array(scales, f"{name}.scales"))
    yield helper.make_node("Cast", [short], [f"{short}.cast"], to=onnx.TensorProto.FLOAT)
    yield helper.make_node("Mul", [f"{short}.cast", f"{name}.scales"], [name])


class DecoderGraph(nn.Module):
    """The computation of the decoder's graph: some target tokens after others with given keys."""

    def __init__(self, model: VanillaTransformerForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_attention_mask: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        source: Sequence[torch.Tensor],
        past: Sequence[torch.Tensor],
    ) -> tuple[torch.Tensor, ...]:
        """Returns logits and alignment, then keys and values of source and target, by layer."""
        # All positions of the source are new in the first call, and none is later.
        new = self.project(encoder_hidden_states[:, source[0].shape[2] :])
        length = encoder_hidden_states.shape[1]
        source = [torch.cat(pair, 2)[:, :, :length] for pair in zip(source, new, strict=True)]
        layers = zip(past[::2], past[1::2], source[::2], source[1::2], strict=True)
        cache = EncoderDecoderCache(layers)
        cache.is_updated = dict.fromkeys(range(len(source) // 2), True)  # no source is read again
        output = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=cast(Any, encoder_hidden_states)),
            attention_mask=encoder_attention_mask,
            decoder_input_ids=input_ids,
            past_key_values=cache,
            use_cache=True,
            output_attentions=True,
        )
        aligned = aligning_weights(self.model.config, output.cross_attentions)
        kept: Any = cache.self_attention_cache.layers
        past = [tensor for layer in kept for tensor in (layer.keys, layer.values)]
        return output.logits, aligned, *source, *past

    def project(self, states: torch.Tensor) -> list[torch.Tensor]:
        """Returns the keys and values of the source, layer by layer."""
        layers: Any = self.model.model.decoder.layers
        cross = [layer.encoder_attn for layer in layers]
        return [a.split_heads(each(states)) for a in cross for each in (a.k_proj, a.v_proj)]


class EncoderGraph(nn.Module):
    """The computation of the encoder's graph."""

    def __init__(self, model: VanillaTransformerForConditionalGeneration) -> None:
        super().__init__()
        self.encoder = model.model.encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        """Returns the states of the last layer, whatever else the config asks for."""
        return self.encoder(input_ids, attention_mask=attention_mask).last_hidden_state


def graph_logits(folder: Path, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Runs the graphs of an export on onnxruntime, with an empty cache."""
    encoder, decoder = (
        onnxruntime.InferenceSession(next((folder / FOLDER).glob(f"{name}*.onnx")))
        for name in (ENCODER, DECODER)
    )
    ids, mask = (inputs[name].numpy() for name in ("input_ids", "attention_mask"))
    (states,) = encoder.run(None, {"input_ids": ids, "attention_mask": mask})
    feeds = {
        "input_ids": inputs["decoder_input_ids"].numpy(),
        "encoder_attention_mask": mask,
        "encoder_hidden_states": states,
    }
    for entry in decoder.get_inputs():
        if entry.name not in feeds:  # keys or values of no token
            _, heads, _, head_dim = entry.shape
            feeds[entry.name] = states[:, :0].reshape(len(ids), heads, 0, head_dim)
    return torch.from_numpy(decoder.run(["logits"], feeds)[0])


def _export_graphs(model: VanillaTransformerForConditionalGeneration, folder: Path) -> None:
    """Traces both graphs on small random input of which every size is dynamic."""
    model = copy.deepcopy(model).cpu().type(torch.float32)
    model.train(False)  # no dropout in the graphs
    model.set_attn_implementation("sdpa")
    layers = model.config.decoder_layers
    ids, mask = torch.zeros(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long)
    encoder, decoder = EncoderGraph(model), DecoderGraph(model)
    # Torch and onnxruntime tell about their own tracing.
    with torch.no_grad(), without_messages(), warnings.catch_warnings(action="ignore"):
        states = encoder(ids, mask)
        source = decoder.project(states[:, :5])  # sizes that differ, so that each is dynamic
        past = [each[:, :, :3] for each in source]
        _save_graph(
            encoder,
            (ids, mask),
            ({0: _BATCH, 1: _SOURCE}, {0: _BATCH, 1: _SOURCE}),
            ["input_ids", "attention_mask"],
            ["last_hidden_state"],
            folder / f"{ENCODER}.onnx",
        )
        _save_graph(
            decoder,
            (ids[:, :4], mask, states, source, past),
            (
                {0: _BATCH, 1: _TARGET},
                {0: _BATCH, 1: _SOURCE},
                {0: _BATCH, 1: _SOURCE},
                [{0: _BATCH, 2: _KNOWN}] * len(source),
                [{0: _BATCH, 2: _PAST}] * len(past),
            ),
            [
                *("input_ids", "encoder_attention_mask", "encoder_hidden_states"),
                *_names_of("past_key_values", layers),
            ],
            ["logits", "alignment", *_names_of("present", layers)],
            folder / f"{DECODER}.onnx",
        )


def _save_graph(
    module: nn.Module,
    arguments: tuple[Any, ...],
    shapes: tuple[Any, ...],
    inputs: list[str],
    outputs: list[str],
    path: Path,
) -> None:
    program: Any = torch.onnx.export(
        module.eval(),
        arguments,
        dynamo=True,
        dynamic_shapes=shapes,
        input_names=inputs,
        output_names=outputs,
        opset_version=OPSET,
        verbose=False,
    )
    ClearMetadataAndDocStringPass()(program.model)  # it quotes the code that was traced, with paths
    program.save(path)


def _graph_path(folder: Path, name: str, kind: str) -> Path:
    return folder / FOLDER / f"{name}{TYPES[kind][1]}.onnx"


def _write_config(folder: Path, fields: Mapping[str, Any], kind: str) -> None:
    content = {**fields, _JS_CONFIG: {"dtype": TYPES[kind][0]}}
    (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _names_of(prefix: str, layers: int) -> list[str]:
    rows = product(STACKS, range(layers), ("key", "value"))
    return [f"{prefix}.{layer}.{stack}.{kind}" for stack, layer, kind in rows]
