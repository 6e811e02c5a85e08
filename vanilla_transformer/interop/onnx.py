"""Exports a model to ONNX, and generates with the exported graphs on onnxruntime.

This module needs the extra `onnx`. A directory holds two graphs, the config, the generation config
and the tokenizer:

- `encoder.onnx` takes `input_ids` and `attention_mask`, both (batch, source_len). It returns
  `last_hidden_state` of shape (batch, source_len, d_model) and, for each decoder layer N, the keys
  and values of the source: `source_key.N` and `source_value.N`.
- `decoder.onnx` takes `input_ids` of shape (batch, target_len), `encoder_attention_mask` of shape
  (batch, source_len), these keys and values, and those of earlier target tokens: `past_key.N` and
  `past_value.N`. It returns `logits` of shape (batch, target_len, vocab), and `present_key.N` and
  `present_value.N`, which hold the new tokens too. Before the first token, past_len is 0.

Keys and values are (batch, key_value_heads, length, head_dim). All other sizes are dynamic: batch,
source_len, target_len and past_len. The graphs are float32, of the opset `OPSET`.
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
from torch import nn
from torch.export import Dim
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from vanilla_transformer.interop.comparison import Exported, compare_models
from vanilla_transformer.interop.funnel import check_agreement
from vanilla_transformer.interop.tokenizers import save_plain_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.decoding_cache import named, takes_cache
from vanilla_transformer.model.generation import TwoVocabularyGeneration
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

OPSET = 20
"""Version of ONNX's set of operators that the graphs use."""

ENCODER_FILE, DECODER_FILE = "encoder.onnx", "decoder.onnx"

_WITHOUT_EFFECT = ("return_dict", "cache_position", "use_cache")
"""Arguments that `generate()` passes, and that change nothing that the graphs compute."""

_BATCH, _SOURCE, _TARGET = Dim("batch"), Dim("source_len"), Dim("target_len")
_PAST = Dim("past_len", min=0)


def export_to_onnx(
    model: VanillaTransformerForConditionalGeneration, tokenizer: Any, output_dir: str | Path
) -> Exported:
    """Writes the graphs of a model, its configs and its tokenizer, and compares both.

    Args:
        model: The model. It is in float32 afterwards.
        tokenizer: Its tokenizer. None: it has none.
        output_dir: Directory to write.

    Returns:
        How far the graphs are from the model, and what a user must know about the tokenizer.

    Raises:
        ValueError: If the graphs compute something else than the model.
    """
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    _export_graphs(model, folder)
    fields = {name: value for name, value in model.config.to_dict().items() if name != "auto_map"}
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    model.generation_config.save_pretrained(folder)
    notes = () if tokenizer is None else save_plain_tokenizer(tokenizer, folder)
    comparison = compare_models(model, OnnxModel.load(folder))
    check_agreement(comparison)
    return Exported("OnnxModel", comparison, notes)


class EncoderGraph(nn.Module):
    """What `encoder.onnx` computes: the encoder, and the source's keys and values."""

    def __init__(self, model: VanillaTransformerForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Returns the states, then the key and the value of each decoder layer."""
        stacks: Any = self.model.model
        states = stacks.encoder(input_ids, attention_mask=attention_mask).last_hidden_state
        cross = [layer.encoder_attn for layer in stacks.decoder.layers]
        projections = (each(states) for attn in cross for each in (attn.k_proj, attn.v_proj))
        pairs = zip(projections, (attn for attn in cross for _ in range(2)), strict=True)
        return states, *(attn.split_heads(projected) for projected, attn in pairs)


class DecoderGraph(nn.Module):
    """What `decoder.onnx` computes: some target tokens after others, whose keys are given."""

    def __init__(self, model: VanillaTransformerForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_attention_mask: torch.Tensor,
        source: Sequence[torch.Tensor],
        past: Sequence[torch.Tensor],
    ) -> tuple[torch.Tensor, ...]:
        """Returns the logits, then the keys and values of all target tokens, layer by layer."""
        cache = EncoderDecoderCache(_cache_of(past), _cache_of(source))
        cache.is_updated = dict.fromkeys(range(len(source) // 2), True)
        # The source is in the cache: only the shape of its states counts.
        outline = source[0][:, 0, :, :1].expand(-1, -1, self.model.config.d_model)
        output = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=outline),
            attention_mask=encoder_attention_mask,
            decoder_input_ids=input_ids,
            past_key_values=cache,
            use_cache=True,
        )
        return output.logits, *_tensors_of(cache.self_attention_cache)


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
            path: The directory.
            providers: Where onnxruntime computes, in the order of preference.
            threads: Number of threads of an operator. None: onnxruntime chooses.

        Returns:
            The model.

        Raises:
            FileNotFoundError: If a graph is missing.
        """
        folder, options = Path(path), onnxruntime.SessionOptions()
        if threads is not None:
            options.intra_op_num_threads = threads
        sessions = []
        for name in (ENCODER_FILE, DECODER_FILE):
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{str(path)!r} holds no {name}: give a directory that "
                    "`vanilla-transformer export --to onnx` wrote."
                )
            session = onnxruntime.InferenceSession(str(folder / name), options, list(providers))
            sessions.append(session)
        model = cls(VanillaTransformerConfig.from_pretrained(folder), *sessions)
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

    def _validate_generation_mode(self, mode: Any, generation_config: Any, others: Any) -> None:
        """Refuses options of `generate()` that the model refuses, or that need its layers."""
        if generation_config.assistant_early_exit is not None:
            raise ValueError(
                f"`assistant_early_exit` is {generation_config.assistant_early_exit}, but the "
                "exported graphs are whole: leave it out, or use the original model."
            )
        base = cast(Any, super())
        base._validate_generation_mode(mode, generation_config, others)

    def _prepare_cache_for_generation(  # type: ignore[override]  # the base class names all arguments
        self, *args: Any
    ) -> None:
        """Makes transformers' own cache: the graphs return it whole after each token."""
        make: Any = GenerationMixin._prepare_cache_for_generation
        make(self, *args)

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        """Returns the encoder, which `generate()` calls once."""
        return self.encoder

    @takes_cache
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
            encoder_outputs: What the encoder returned.
            past_key_values: Keys and values of earlier tokens; this call puts its own there.
            use_cache: Whether to return them.
            **kwargs: Options that have no effect, such as `return_dict`.

        Returns:
            `logits` of shape (batch, target_len, vocab), and `past_key_values`.

        Raises:
            ValueError: If something is asked for that the graphs do not compute.
        """
        _check_arguments(kwargs)
        if decoder_input_ids is None:
            raise ValueError("`decoder_input_ids` is missing: give them, or call `generate`.")
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask)
        if attention_mask is None:
            attention_mask = torch.ones(encoder_outputs.last_hidden_state.shape[:2]).long()
        cache = past_key_values
        if cache is None:
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        if not cache.cross_attention_cache.get_seq_length():
            source = [each.contiguous() for each in encoder_outputs.source_states.unbind(1)]
            _fill_cache(cache.cross_attention_cache, source)
        feeds = {"input_ids": decoder_input_ids, "encoder_attention_mask": attention_mask}
        feeds |= _feeds_of("source", _tensors_of(cache.cross_attention_cache))
        feeds |= _feeds_of("past", self._past_of(cache, len(decoder_input_ids)))
        logits, *present = _run_graph(self.decoder_session, feeds)
        _fill_cache(cache.self_attention_cache, present)
        return Seq2SeqLMOutput(
            logits=cast(Any, logits),
            **named(None if use_cache is False else cache),
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
        )

    def _past_of(self, cache: EncoderDecoderCache, batch: int) -> list[torch.Tensor]:
        """Returns keys and values of earlier target tokens; without any, they have no length."""
        if cache.self_attention_cache.get_seq_length():
            return _tensors_of(cache.self_attention_cache)
        source = _tensors_of(cache.cross_attention_cache)
        return [each.new_empty(batch, each.shape[1], 0, each.shape[3]) for each in source]


class OnnxEncoder(nn.Module):
    """`encoder.onnx` as a module."""

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
            **kwargs: As in `OnnxModel.forward`.

        Returns:
            `last_hidden_state`, and `source_states`: the keys and values of all layers, of shape
            (batch, 2 * layers, key_value_heads, source_len, head_dim). `generate()` repeats both
            for the beams.

        Raises:
            ValueError: As `OnnxModel.forward`.
        """
        _check_arguments(kwargs)
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        states, *source = _run_graph(
            self.session, {"input_ids": input_ids, "attention_mask": attention_mask}
        )
        output = BaseModelOutput(last_hidden_state=cast(Any, states))
        output["source_states"] = torch.stack(source, dim=1)
        return output


def _export_graphs(model: VanillaTransformerForConditionalGeneration, folder: Path) -> None:
    """Traces both graphs on small random input of which every size is dynamic."""
    model = copy.deepcopy(model).cpu().type(torch.float32)
    model.train(False)
    model.set_attn_implementation("sdpa")
    layers = model.config.decoder_layers
    ids, mask = torch.zeros(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.long)
    encoder, decoder = EncoderGraph(model), DecoderGraph(model)
    with torch.no_grad(), _without_messages():
        _, *source = encoder(ids, mask)
        past = [each[:, :, :3] for each in source]
        _save_graph(
            encoder,
            (ids, mask),
            ({0: _BATCH, 1: _SOURCE}, {0: _BATCH, 1: _SOURCE}),
            ["input_ids", "attention_mask"],
            ["last_hidden_state", *_names_of("source", layers)],
            folder / ENCODER_FILE,
        )
        _save_graph(
            decoder,
            (ids[:, :4], mask, source, past),
            (
                {0: _BATCH, 1: _TARGET},
                {0: _BATCH, 1: _SOURCE},
                [{0: _BATCH, 2: _SOURCE}] * len(source),
                [{0: _BATCH, 2: _PAST}] * len(past),
            ),
            [
                "input_ids",
                "encoder_attention_mask",
                *_names_of("source", layers),
                *_names_of("past", layers),
            ],
            ["logits", *_names_of("present", layers)],
            folder / DECODER_FILE,
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
    program.save(path)


@contextmanager
def _without_messages() -> Iterator[None]:
    """Hides what torch says about its own tracing."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _run_graph(session: Any, feeds: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Runs a graph; inputs that it does not read, and was exported without, are left out."""
    known = {entry.name for entry in session.get_inputs()}
    arrays = {name: value.cpu().numpy() for name, value in feeds.items() if name in known}
    return [torch.from_numpy(array) for array in session.run(None, arrays)]


def _names_of(prefix: str, layers: int) -> list[str]:
    return [f"{prefix}_{part}.{index}" for index in range(layers) for part in ("key", "value")]


def _feeds_of(prefix: str, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(zip(_names_of(prefix, len(tensors) // 2), tensors, strict=True))


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
