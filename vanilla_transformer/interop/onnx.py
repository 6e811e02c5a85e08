"""Exports a model to ONNX, and generates with the exported graphs on onnxruntime.

This module needs the extra `onnx`. A directory holds two graphs in its folder `onnx`, the config,
the generation config and the tokenizer. Names, inputs and outputs are those that transformers.js
reads for an encoder-decoder:

- `encoder_model.onnx` takes `input_ids` and `attention_mask`, both (batch, source_len), and returns
  `last_hidden_state` of shape (batch, source_len, d_model).
- `decoder_model_merged.onnx` takes `input_ids` of shape (batch, target_len), these states as
  `encoder_hidden_states`, the mask as `encoder_attention_mask`, and for each layer N the keys and
  values of earlier calls: `past_key_values.N.decoder.key` and `.value` of the target tokens,
  `past_key_values.N.encoder.key` and `.value` of the source. Before the first token both have the
  length 0. It returns `logits` of shape (batch, target_len, vocab), and all keys and values as
  `present.N...`; those of the source are computed once.

Keys and values are (batch, key_value_heads, length, head_dim). All other sizes are dynamic: batch,
source_len, target_len and past_len. The graphs are of the opset `OPSET`, with float32 weights, or
with 8 bits a weight (`encoder_model_quantized.onnx`, `decoder_model_merged_quantized.onnx`).

transformers.js chooses its code by `model_type`, and knows no type of this package: config.json
names `STAND_IN`, whose graphs have the same interface. All other fields are ours.
"""

import copy
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import onnxruntime
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import nn
from torch.export import Dim
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from vanilla_transformer.data.token_words import unnamed_ids
from vanilla_transformer.interop.funnel import check_agreement
from vanilla_transformer.interop.probe import Exported, compare_models
from vanilla_transformer.interop.tokenizers import save_plain_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.decoding_cache import accepts_both_cache_names
from vanilla_transformer.model.generation import TwoVocabularyGeneration
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.modes import closed_ids
from vanilla_transformer.names import MODEL_TYPE

OPSET = 20
"""Version of ONNX's set of operators that the graphs use."""

FOLDER = "onnx"
"""Sub-folder of the graphs in an export."""

ENCODER, DECODER = "encoder_model", "decoder_model_merged"
"""Names of the graphs, without the suffix for the type of their weights."""

TYPES = {"float32": ("fp32", ""), "int8": ("q8", "_quantized")}
"""The types of weights: the name of each in transformers.js, and its suffix in a file name."""

STAND_IN = "marian"
"""`model_type` of an export: transformers.js loads a class that it knows."""

_JS_CONFIG = "transformers.js_config"

_WITHOUT_EFFECT = ("return_dict", "cache_position", "use_cache")
"""Arguments that `generate()` passes, and that change nothing that the graphs compute."""

# transformers.js reads `batch_size`, and makes every other size of an empty cache 0.
_BATCH, _SOURCE, _TARGET = Dim("batch_size"), Dim("source_len"), Dim("target_len")
_KNOWN, _PAST = Dim("known_source_len", min=0), Dim("past_len", min=0)


def export_to_onnx(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: Any,
    output_dir: str | Path,
    quantization: str | None = None,
) -> Exported:
    """Writes the graphs of a model, its configs and its tokenizer, and compares both.

    Args:
        model: The model. It is in float32 afterwards.
        quantization: Type of the weights, a key of `TYPES`. None: float32.

    Returns:
        How far the graphs are from the model before a quantisation, and what a user must know:
        what a quantisation changes, and notes on the tokenizer.

    Raises:
        ValueError: If the graphs compute something else than the model, or if the config has no
            start of the decoder, without which transformers does not read it.
    """
    if model.config.decoder_start_token_id is None:
        raise ValueError(
            "`decoder_start_token_id` is None, but an export holds that token: set it."
        )
    folder = Path(output_dir)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    fields = {name: value for name, value in model.config.to_dict().items() if name != "auto_map"}
    unnamed = [] if tokenizer is None else unnamed_ids(tokenizer, model.lm_head.out_features)
    with closed_ids(model, unnamed):
        _export_graphs(model, folder / FOLDER)
        _write_config(folder, {**fields, "model_type": STAND_IN}, "float32")
        model.generation_config.save_pretrained(folder)
        notes = () if tokenizer is None else save_plain_tokenizer(tokenizer, folder)
        comparison = compare_models(model, OnnxModel.load(folder))
        check_agreement(comparison)
        if quantization == "int8":
            quantize_graphs(folder)
            rounded = compare_models(model, OnnxModel.load(folder))
            note = (
                f"In 8 bits, the largest difference of two logits is {rounded.difference:.1e}, "
                f"and the greedy output is {'equal' if rounded.equal_output else 'different'}."
            )
            notes = (note, *notes)
    return Exported("OnnxModel", comparison, notes)


def quantize_graphs(folder: Path) -> None:
    """Replaces the graphs of an export in float32 by graphs with 8 bits a weight.

    A graph computes the scales of its other numbers when it runs. Each column of a matrix has a
    scale of its own, and uses 7 of the 8 bits: on processors with AVX2 alone, products of 8 bits
    would not fit into the sums of 16 bits.
    """
    for name in (ENCODER, DECODER):
        graph = _graph_path(folder, name, "float32")
        with _without_messages():
            quantize_dynamic(
                graph,
                _graph_path(folder, name, "int8"),
                per_channel=True,
                reduce_range=True,
                weight_type=QuantType.QInt8,
            )
        graph.unlink()
    _write_config(folder, json.loads((folder / "config.json").read_text(encoding="utf-8")), "int8")


class DecoderGraph(nn.Module):
    """What the decoder's graph computes: some target tokens after others, whose keys are given."""

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
        """Returns the logits, then the keys and values of source and target, layer by layer."""
        # All positions of the source are new in the first call, and none is later.
        new = self.project(encoder_hidden_states[:, source[0].shape[2] :])
        length = encoder_hidden_states.shape[1]
        source = [torch.cat(pair, 2)[:, :, :length] for pair in zip(source, new, strict=True)]
        cache = EncoderDecoderCache(_cache_of(past), _cache_of(source))
        cache.is_updated = dict.fromkeys(range(len(source) // 2), True)
        output = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=cast(Any, encoder_hidden_states)),
            attention_mask=encoder_attention_mask,
            decoder_input_ids=input_ids,
            past_key_values=cache,
            use_cache=True,
        )
        return output.logits, *source, *_tensors_of(cache.self_attention_cache)

    def project(self, states: torch.Tensor) -> list[torch.Tensor]:
        """Returns the keys and values of the source, layer by layer."""
        layers: Any = self.model.model.decoder.layers
        cross = [layer.encoder_attn for layer in layers]
        return [a.split_heads(each(states)) for a in cross for each in (a.k_proj, a.v_proj)]


class EncoderGraph(nn.Module):
    """What the encoder's graph computes."""

    def __init__(self, model: VanillaTransformerForConditionalGeneration) -> None:
        super().__init__()
        self.encoder = model.model.encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        """Returns the states of the last layer."""
        return self.encoder(input_ids, attention_mask=attention_mask).last_hidden_state


class OnnxModel(PreTrainedModel, TwoVocabularyGeneration, GenerationMixin):
    """An exported model on onnxruntime: `generate()` searches as for any model of transformers.

    Load it with `OnnxModel.load(directory)`.
    """

    config: VanillaTransformerConfig
    config_class = VanillaTransformerConfig
    main_input_name = "input_ids"

    def __init__(self, config: VanillaTransformerConfig, encoder: Any, decoder: Any) -> None:
        super().__init__(config)
        self.encoder = OnnxEncoder(encoder)
        self.decoder_session = decoder

    @classmethod
    def load(
        cls,
        path: str | Path,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        threads: int | None = None,
    ) -> "OnnxModel":
        """Loads an exported directory.

        Args:
            providers: Where onnxruntime computes, in the order of preference.
            threads: Number of threads of an operator. None: onnxruntime chooses.
        """
        folder, options = Path(path), onnxruntime.SessionOptions()
        if threads is not None:
            options.intra_op_num_threads = threads
        present = (kind for kind in TYPES if _graph_path(folder, ENCODER, kind).is_file())
        kind = next(present, "float32")
        sessions = [
            onnxruntime.InferenceSession(_graph_path(folder, name, kind), options, list(providers))
            for name in (ENCODER, DECODER)
        ]
        fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        fields.pop(_JS_CONFIG, None)
        config = VanillaTransformerConfig.from_dict({**fields, "model_type": MODEL_TYPE})
        model = cls(config, *sessions)
        model.generation_config = GenerationConfig.from_pretrained(folder)
        model.train(False)
        return model

    @property
    def device(self) -> torch.device:
        """The device of ids and logits: onnxruntime copies to its own where it needs to."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the logits."""
        return torch.float32

    def _prepare_cache_for_generation(  # type: ignore[override]  # the base class names all arguments
        self, *args: Any
    ) -> None:
        """Makes transformers' own cache: the graphs return it whole after each token."""
        make: Any = GenerationMixin._prepare_cache_for_generation
        make(self, *args)

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        """Returns the encoder, which `generate()` calls once."""
        return self.encoder

    @accepts_both_cache_names
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: EncoderDecoderCache | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Computes the logits of target tokens.

        Args:
            input_ids: The source, of shape (batch, source_len); not needed with `encoder_outputs`.
            attention_mask: 1 for a token of the source, 0 for padding. None: no padding.
            decoder_input_ids: The tokens that are not in the cache, of shape (batch, target_len).
            past_key_values: Keys and values of earlier tokens; this call puts its own there.

        Returns:
            `logits` of shape (batch, target_len, vocab), and `past_key_values`.

        Raises:
            ValueError: If something is asked for that the graphs do not compute.
        """
        _check_arguments(kwargs)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask)
        if attention_mask is None:
            attention_mask = torch.ones(encoder_outputs.last_hidden_state.shape[:2]).long()
        cache = past_key_values
        if cache is None:
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        states = encoder_outputs.last_hidden_state
        feeds = {
            "input_ids": decoder_input_ids,
            "encoder_attention_mask": attention_mask,
            "encoder_hidden_states": states,
        }
        parts = {"encoder": cache.cross_attention_cache, "decoder": cache.self_attention_cache}
        for part, cached in parts.items():
            names = _names_of("past_key_values", part, self.config.decoder_layers)
            tensors = _tensors_of(cached)
            if not cached.get_seq_length():
                tensors = self._nothing_cached(names, states)
            feeds |= dict(zip(names, tensors, strict=True))
        logits, *present = _run_graph(self.decoder_session, feeds)
        half = len(present) // 2
        _fill_cache(cache.cross_attention_cache, present[:half])
        _fill_cache(cache.self_attention_cache, present[half:])
        return Seq2SeqLMOutput(
            logits=cast(Any, logits),
            cache=None if use_cache is False else cache,
            encoder_last_hidden_state=states,
        )

    def _nothing_cached(self, names: Sequence[str], states: torch.Tensor) -> list[torch.Tensor]:
        """Returns keys and values of no token, of the shapes that the graph names."""
        shapes = {entry.name: entry.shape for entry in self.decoder_session.get_inputs()}
        return [
            states.new_empty(len(states), shapes[name][1], 0, shapes[name][3]) for name in names
        ]


class OnnxEncoder(nn.Module):
    """The encoder's graph as a module."""

    main_input_name = "input_ids"

    def __init__(self, session: Any) -> None:
        super().__init__()
        self.session = session

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """Encodes the source.

        Args:
            input_ids: Of shape (batch, source_len).
            attention_mask: 1 for a token, 0 for padding. None: no padding.

        Returns:
            `last_hidden_state`.

        Raises:
            ValueError: As `OnnxModel.forward`.
        """
        _check_arguments(kwargs)
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        feeds = {"input_ids": input_ids, "attention_mask": attention_mask}
        (states,) = _run_graph(self.session, feeds)
        return BaseModelOutput(last_hidden_state=cast(Any, states))


def _export_graphs(model: VanillaTransformerForConditionalGeneration, folder: Path) -> None:
    """Traces both graphs on small random input of which every size is dynamic."""
    model = copy.deepcopy(model).cpu().type(torch.float32)
    model.train(False)
    model.set_attn_implementation("sdpa")
    layers = model.config.decoder_layers
    ids, mask = torch.zeros(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long)
    encoder, decoder = EncoderGraph(model), DecoderGraph(model)
    parts = ("encoder", "decoder")
    with torch.no_grad(), _without_messages():
        states = encoder(ids, mask)
        source = decoder.project(states[:, :5])
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
                *(name for part in parts for name in _names_of("past_key_values", part, layers)),
            ],
            ["logits", *(name for part in parts for name in _names_of("present", part, layers))],
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


@contextmanager
def _without_messages() -> Iterator[None]:
    """Hides what torch and onnxruntime say about their own tracing."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _run_graph(session: Any, feeds: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Runs a graph; inputs that it does not read, and was exported without, are left out."""
    known = {entry.name for entry in session.get_inputs()}
    arrays = {name: value.cpu().numpy() for name, value in feeds.items() if name in known}
    return [torch.from_numpy(array) for array in session.run(None, arrays)]


def _names_of(prefix: str, part: str, layers: int) -> list[str]:
    pairs = ((index, kind) for index in range(layers) for kind in ("key", "value"))
    return [f"{prefix}.{index}.{part}.{kind}" for index, kind in pairs]


def _cache_of(tensors: Sequence[torch.Tensor]) -> DynamicCache:
    cache = DynamicCache()
    for index in range(len(tensors) // 2):
        cache.update(tensors[2 * index], tensors[2 * index + 1], index)
    return cache


def _tensors_of(cache: Any) -> list[torch.Tensor]:
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def _fill_cache(cache: Any, tensors: Sequence[torch.Tensor]) -> None:
    """Replaces the content of a cache."""
    new = _cache_of(tensors)
    cache.layers = new.layers


def _check_arguments(others: Mapping[str, Any]) -> None:
    """Refuses what the graphs do not compute, also arguments that nothing here knows."""
    for name, value in others.items():
        if name not in _WITHOUT_EFFECT and value is not None and value is not False:
            raise ValueError(
                f"`{name}` is given, but the exported graphs do not compute with it: leave it out, "
                "or use the original model."
            )
