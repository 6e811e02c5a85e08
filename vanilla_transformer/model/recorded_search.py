"""Greedy and beam search on a GPU, whose step is recorded as a CUDA graph and then replayed.

A step of `generate()` starts some hundred small kernels from Python; on a GPU they take longer to
start than to compute. Here all that a step reads and writes has a fixed place, and nothing in a
step depends on a Python number, so that one graph serves every step. The tokens are those of
transformers' greedy and beam search, whose formulas are kept.

Shapes: rows = batch · beams; room is the number of tokens for which the cache has place.
"""

import threading
from collections.abc import Callable
from typing import Any, cast

import torch
from transformers import (
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    GenerationConfig,
    LogitsProcessorList,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    StoppingCriteriaList,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
)
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticLayer
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from .decoding_cache import GrowingCache
from .graphs import Recorder, runs_recordable_code
from .inputs import end_tokens_of

Process = Callable[[torch.Tensor], torch.Tensor]
"""Changes logits or log-probabilities, (rows, vocab)."""

_ROOM = 64
"""Tokens for which the cache has place at first; it is doubled as needed."""
_PLAIN_STEPS = 1
"""Steps that are not recorded at first. To record one takes no longer than one of these."""
_UNLIKELY = -1e9
_ARGUMENTS = {
    *("attention_mask", "decoder_attention_mask", "encoder_outputs", "cache"),
    *("use_cache", "logits_to_keep"),
}
_MORE_OUTPUTS = ("return_dict_in_generate", "do_sample", "is_assistant", "prefill_chunk_size")
_PARTS_OF_SEARCH = (
    *("_get_top_k_continuations", "_get_running_beams_for_next_iteration"),
    *("_update_finished_beams", "prepare_inputs_for_generation"),
)
"""Methods of a search that a caller may replace on a model."""

_ACTS_AT: dict[type, Callable[[Any, int], bool]] = {
    ForcedBOSTokenLogitsProcessor: lambda _, length: length == 1,
    ForcedEOSTokenLogitsProcessor: lambda processor, length: length == processor.max_length - 1,
    SuppressTokensAtBeginLogitsProcessor: lambda processor, length: length == processor.begin_index,
    MinLengthLogitsProcessor: lambda processor, length: length < processor.min_length,
    MinNewTokensLengthLogitsProcessor: lambda processor, length: (
        length < processor.prompt_length_to_skip + processor.min_new_tokens
    ),
}
"""Processors that change nothing but at some lengths: steps of these are not replayed."""

_of_thread = threading.local()  # threads search at the same time


def can_record(
    model: Any,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    settings: GenerationConfig,
    arguments: dict[str, Any],
) -> bool:
    """Returns whether a search runs on a GPU, has steps of fixed shapes, and returns tokens alone.

    Args:
        arguments: The other arguments of transformers' `_sample` or `_beam_search`.
    """
    cache = arguments.get("cache")
    mask = arguments.get("decoder_attention_mask")
    return (
        is_on_gpu(model)
        and isinstance(cache, EncoderDecoderCache)
        and isinstance(cache.self_attention_cache, GrowingCache)
        and cache.get_seq_length() == 0
        and model.config._attn_implementation == "sdpa"  # others make masks with the processor
        and (mask is None or mask.dim() == 2)
        and not any(value for name, value in arguments.items() if name not in _ARGUMENTS)
        and not any(getattr(settings, name) for name in _MORE_OUTPUTS)
        and (settings.num_beams > 1 or settings.num_return_sequences == 1)
        and all(_is_of_settings(criterion, settings) for criterion in criteria)
        and all(type(x) in _ACTS_AT or _constant(x) for x in processors)
        and not any(name in vars(model) for name in _PARTS_OF_SEARCH)
        and runs_recordable_code(model)
    )


def is_on_gpu(model: Any) -> bool:
    """Returns whether a model computes on a GPU, where it takes long to start kernels."""
    return bool(model.device.type == "cuda")


def _is_of_settings(criterion: Any, settings: GenerationConfig) -> bool:
    """Returns whether a criterion stops where the settings say, and not where a caller says."""
    if type(criterion) is MaxLengthCriteria:
        return bool(criterion.max_length == settings.max_length)
    return type(criterion) is EosTokenCriteria and (
        criterion.eos_token_id is settings._eos_token_tensor
    )


def _constant(processor: Any) -> Process | None:
    """Returns what a processor does, if it is the same at each step."""
    if type(processor) is NoBadWordsLogitsProcessor:  # it looks for longer words only in the ids
        is_constant = all(len(ids) == 1 for ids in processor.sequence_bias)
        return (lambda scores: processor(None, scores)) if is_constant else None
    if type(processor) is not SuppressTokensLogitsProcessor:
        return None
    ids = processor.suppress_tokens
    return lambda scores: scores.index_fill(-1, ids.to(scores.device), -torch.inf)


def _recorder_of(device: torch.device) -> Recorder:
    recorders = _of_thread.__dict__.setdefault("recorders", {})
    if device not in recorders:
        recorders[device] = Recorder(device)
    return cast(Recorder, recorders[device])


def recorded_search(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    settings: Any,
    arguments: dict[str, Any],
) -> torch.Tensor:
    """Searches as `_sample` and `_beam_search` of transformers do, if `can_record` says so."""
    outputs = model._prefill(input_ids, settings, arguments)
    state: Any = (_Greedy if settings.num_beams == 1 else _Beams)(input_ids, settings)
    decoder = _Decoder(model, arguments, input_ids.shape[1])
    is_open = torch.ones(1, dtype=torch.bool).pin_memory()
    was_copied = torch.cuda.Event()
    recorder = _recorder_of(input_ids.device)
    constant = [*filter(None, map(_constant, logits_processor))]
    graph: Any = None
    plain_steps, lacks_memory = 0, False

    def process(scores: torch.Tensor) -> torch.Tensor:
        for change in constant:
            scores = change(scores)
        return scores

    def process_at(length: int) -> Process:
        return lambda scores: logits_processor(state.rows(length), scores)

    def step(process: Process) -> None:
        logits = decoder.decode(state.last_tokens)
        decoder.reorder(state.advance(logits, decoder.count, process))

    first = input_ids.shape[1]
    parents = state.advance(outputs.logits[:, -1], decoder.count, process_at(first))
    decoder.reorder(parents)
    del outputs
    for length in range(first + 1, settings.max_length):
        if length > decoder.room:
            decoder.grow(min(max(_ROOM, 2 * length - 2), settings.max_length - 1))
            graph, plain_steps = None, min(plain_steps, _PLAIN_STEPS - 1)
        if any(type(x) in _ACTS_AT and _ACTS_AT[type(x)](x, length) for x in logits_processor):
            step(process_at(length))
        else:
            if graph is None and plain_steps >= _PLAIN_STEPS and not lacks_memory:
                try:
                    graph = recorder.record(lambda: step(process))
                except torch.OutOfMemoryError:
                    lacks_memory = True
            if graph is None:
                step(process)
                plain_steps += 1
            else:
                graph.replay()
        # Whether to stop is read one step late, so that the device has always work.
        was_copied.synchronize()
        if not is_open.item():
            break
        is_open.copy_(state.is_open, non_blocking=True)
        was_copied.record()
    return cast(torch.Tensor, state.result())


class _Layer(StaticLayer):
    """Keys and values of a layer, into which each call writes one token at a counted place."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, count: torch.Tensor) -> None:
        super().__init__(keys.shape[2])
        self.keys, self.values, self.cumulative_length = keys, values, count
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the token; returns the whole room."""
        keys: Any = self.keys
        values: Any = self.values
        keys.index_copy_(2, self.cumulative_length, key_states)
        values.index_copy_(2, self.cumulative_length, value_states)
        return keys, values


class _Decoder:
    """The decoder after the first call of a search, one token of each row at a time.

    Attributes:
        count: The number of tokens in the cache, of shape (1,).
    """

    def __init__(self, model: Any, arguments: dict[str, Any], length: int) -> None:
        self.model, self.encoded = model, arguments["encoder_outputs"]
        cache = arguments["cache"]
        self.sources = cache.cross_attention_cache
        layers = cache.self_attention_cache.layers
        # (2 · layers, rows, key_value_heads, room, head_dim)
        self.states = torch.stack([x for layer in layers for x in (layer.keys, layer.values)])
        self.room = length
        self.count = torch.full((1,), length, device=self.states.device)
        self.source_mask = arguments.get("attention_mask")
        if self.source_mask is not None and self.source_mask.dim() == 2:
            hidden = self.source_mask[:, None, None] == 0  # (rows, 1, 1, source_len)
            self.source_mask = self.mask_of(hidden) if bool(hidden.any()) else None
        mask = arguments.get("decoder_attention_mask")
        mask = self.count.new_ones(1, length) if mask is None else mask
        self.padding = mask[:, None, None] == 0  # (rows or 1, 1, 1, room)

    def mask_of(self, hidden: torch.Tensor) -> torch.Tensor:
        """Makes a mask of numbers; each layer would convert a boolean one anew."""
        mask = torch.zeros_like(hidden, dtype=self.states.dtype)
        return mask.masked_fill(hidden, -torch.inf)

    def grow(self, room: int) -> None:
        """Makes place for more tokens; called before the first `decode`."""
        more = room - self.room
        self.room = room
        self.states = torch.nn.functional.pad(self.states, (0, 0, 0, more))
        parts = self.states.unbind(0)
        layers: list[Any] = [
            _Layer(keys, values, self.count)
            for keys, values in zip(parts[::2], parts[1::2], strict=True)
        ]
        self.cache = EncoderDecoderCache(Cache(layers=layers), self.sources)
        self.padding = torch.nn.functional.pad(self.padding, (0, more), value=False)

    def decode(self, tokens: torch.Tensor) -> torch.Tensor:
        """Computes the logits, (rows, vocab), after one more token of each row, (rows,)."""
        places = torch.arange(self.room, device=self.count.device)
        hidden = self.padding | (places > self.count)
        outputs = self.model(
            encoder_outputs=self.encoded,
            attention_mask=self.source_mask,
            decoder_input_ids=tokens[:, None],
            decoder_attention_mask=self.mask_of(hidden),
            past_key_values=self.cache,
            use_cache=True,
            return_dict=True,
        )
        self.count.add_(1)
        logits: torch.Tensor = outputs.logits[:, -1]
        return logits

    def reorder(self, parents: torch.Tensor | None) -> None:
        """Gives each row the past of another one, (rows,). None: all keep theirs."""
        if parents is not None:
            self.states.copy_(self.states.index_select(1, parents))


class _Greedy:
    """The most probable token of each row; a row that has ended gets padding.

    Attributes:
        last_tokens: Of shape (rows,).
        is_open: Whether a row has not ended, of shape (1,).
    """

    def __init__(self, input_ids: torch.Tensor, settings: Any) -> None:
        rows, self.prompt = input_ids.shape
        device, ends = input_ids.device, end_tokens_of(settings)
        self.ends = torch.tensor(ends, dtype=torch.long, device=device)
        pad = ends[:1] if settings.pad_token_id is None else [settings.pad_token_id]
        self.pad = torch.tensor(pad, device=device)
        self.sequences = input_ids.new_zeros(rows, settings.max_length)
        self.sequences[:, : self.prompt] = input_ids
        self.last_tokens = input_ids[:, -1].clone()
        self.unfinished = torch.ones(rows, dtype=torch.bool, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)  # of new tokens
        self.is_open = torch.ones(1, dtype=torch.bool, device=device)

    def rows(self, length: int) -> torch.Tensor:
        """Returns the tokens so far, (rows, length)."""
        return self.sequences[:, :length]

    def advance(self, logits: torch.Tensor, count: torch.Tensor, process: Process) -> None:
        """Adds a token to each row, at the place `count`."""
        tokens = process(logits.float()).argmax(-1)
        if len(self.ends):
            tokens = torch.where(self.unfinished, tokens, self.pad)
        self.last_tokens.copy_(tokens)
        self.sequences.index_copy_(1, count, tokens[:, None])
        self.lengths.add_(self.unfinished)
        self.unfinished.logical_and_((tokens[:, None] != self.ends).all(-1))
        self.is_open.copy_(self.unfinished.any())

    def result(self) -> torch.Tensor:
        """Returns all tokens, up to the end of the longest row."""
        return self.sequences[:, : self.prompt + int(self.lengths.max())]


class _Beams:
    """Transformers' beam search; names of its variables in the comments.

    Attributes:
        last_tokens: Of shape (rows,).
        is_open: Whether the search goes on, of shape (1,). After that results do not change.
    """

    def __init__(self, input_ids: torch.Tensor, settings: Any) -> None:
        self.settings, self.beams = settings, settings.num_beams
        self.prompt = input_ids.shape[1]
        device, ends = input_ids.device, end_tokens_of(settings)
        self.ends = torch.tensor(ends, dtype=torch.long, device=device)
        self.kept = max(2, 1 + len(self.ends)) * self.beams
        fill = settings.pad_token_id or ends[0] if ends else -1  # the end for a padding of 0
        shape = (len(input_ids) // self.beams, self.beams)
        self.running = torch.full((*shape, settings.max_length), fill, device=device)
        self.running[:, :, : self.prompt] = input_ids.unflatten(0, shape)
        self.last_tokens = input_ids[:, -1].clone()
        self.running_scores = torch.zeros(shape, device=device)
        self.running_scores[:, 1:] = _UNLIKELY  # at first, all beams of a source are equal
        self.ended = self.running.clone()  # sequences
        self.ended_scores = torch.full(shape, _UNLIKELY, device=device)  # beam_scores
        self.has_ended = torch.zeros(shape, dtype=torch.bool, device=device)  # is_sent_finished
        self.lengths = torch.zeros(shape, dtype=torch.long, device=device)  # new tokens of `ended`
        # is_early_stop_heuristic_unsatisfied
        self.improvable = torch.ones(shape[0], 1, dtype=torch.bool, device=device)
        self.is_open = torch.ones(1, dtype=torch.bool, device=device)
        # By what the score of so many new tokens is divided.
        longest = settings.max_length - self.prompt
        divisors = [1.0] + [n**settings.length_penalty for n in range(1, longest + 1)]
        self.divisors = torch.tensor(divisors, device=device)
        self.order = torch.arange(self.kept, device=device)
        self.offsets = torch.arange(shape[0], device=device)[:, None] * self.beams

    def rows(self, length: int) -> torch.Tensor:
        """Returns the tokens so far, (rows, length)."""
        return self.running[:, :, :length].flatten(0, 1)

    def advance(self, logits: torch.Tensor, count: torch.Tensor, process: Process) -> torch.Tensor:
        """Chooses the beams that go on, with a token more at the place `count`.

        Returns:
            For each row, the row from which it goes on.
        """
        settings, beams = self.settings, self.beams
        scores = process(logits.float().log_softmax(-1))
        vocab = scores.shape[-1]
        scores = scores.unflatten(0, (-1, beams)) + self.running_scores[:, :, None]
        scores, best = scores.flatten(1).topk(self.kept)  # (batch, kept)
        parents, tokens = best // vocab, best % vocab
        candidates = _take(self.running, parents)
        candidates.index_copy_(2, count, tokens[..., None])
        ends = (tokens[..., None] == self.ends).any(-1) | (count + 1 >= settings.max_length)

        # Those that go on.
        going_on = scores + ends * _UNLIKELY
        chosen = going_on.topk(beams).indices  # (batch, beams)
        self.running.copy_(_take(candidates, chosen))
        self.running_scores.copy_(_take(going_on, chosen))
        self.last_tokens.copy_(_take(tokens, chosen).flatten())
        parents = (_take(parents, chosen) + self.offsets).flatten()

        # Those that have ended; the best of them and of those before.
        new = count + 1 - self.prompt
        has_ended = ends & (self.order < beams)
        scores = scores / self.divisors.index_select(0, new)
        if settings.early_stopping is True:
            scores = scores + self.has_ended.all(-1, keepdim=True) * _UNLIKELY
        scores = scores + ~self.improvable * _UNLIKELY
        scores = scores + ~has_ended * _UNLIKELY
        scores = torch.cat([self.ended_scores, scores], 1)
        best = torch.where(self.is_open, scores.topk(beams).indices, self.order[:beams])
        self.ended.copy_(_take(torch.cat([self.ended, candidates], 1), best))
        self.ended_scores.copy_(_take(scores, best))
        lengths = torch.cat([self.lengths, new.expand_as(tokens)], 1)
        self.lengths.copy_(_take(lengths, best))
        self.has_ended.copy_(_take(torch.cat([self.has_ended, has_ended], 1), best))

        # Whether a beam that goes on can still be better.
        if settings.early_stopping == "never" and settings.length_penalty > 0:
            hoped = self.divisors[-1]
        else:
            hoped = self.divisors.index_select(0, new)
        hoped = self.running_scores[:, :1] / hoped
        worst = self.ended_scores.amin(1, keepdim=True)
        worst = worst.expand_as(self.has_ended).masked_fill(~self.has_ended, _UNLIKELY)
        self.improvable.logical_and_((hoped > worst).any(-1, keepdim=True))
        is_open = self.improvable.any() & ~ends.all()
        if settings.early_stopping is True:
            is_open = is_open & ~self.has_ended.all()
        self.is_open.logical_and_(is_open)
        return cast(torch.Tensor, parents)

    def result(self) -> torch.Tensor:
        """Returns the best of each source, up to the end of the longest one."""
        count = self.settings.num_return_sequences
        longest = self.prompt + int(self.lengths[:, :count].max())
        return self.ended[:, :count, :longest].flatten(0, 1)


def _take(values: torch.Tensor, beams: torch.Tensor) -> torch.Tensor:
    """Takes beams: (batch, beams, ...), (batch, taken) -> (batch, taken, ...)."""
    if values.dim() == 3:
        beams = beams[..., None]
    return values.take_along_dim(beams, 1)
