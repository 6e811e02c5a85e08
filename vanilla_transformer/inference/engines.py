"""The engines that compute outputs by transformers: one model, or an ensemble."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import log
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)

from vanilla_transformer.inference.constrained import TermIds, WordJoins, with_terms
from vanilla_transformer.model.configuration_vanilla_transformer import aligning_layer
from vanilla_transformer.model.evaluation import banned_ids, evaluation_mode
from vanilla_transformer.model.inputs import end_tokens_of, shift_right
from vanilla_transformer.search import Search
from vanilla_transformer.tokenizer_sides import target_side, unnamed_ids, vocabulary_of

Ids = Sequence[int]
OnBatch = Callable[[int], object]
"""Is called with the number of its sources after each batch."""

_OF_LOGITS = (
    *("repetition_penalty", "encoder_repetition_penalty"),
    *("exponential_decay_length_penalty", "guidance_scale"),
)
"""Settings whose effect depends on the scale of the logits."""


@dataclass(frozen=True)
class Hypothesis:
    """The target tokens that an engine found for one source.

    Attributes:
        ids: Target tokens, without the start and the end.
        end: The token that ended it. None: it reached the longest length.
        aligned: For each token the index of the source token that it is aligned with. None: the
            engine has not aligned it.
    """

    ids: tuple[int, ...]
    end: int | None
    aligned: tuple[int, ...] | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Its ids with the end that it has."""
        return self.ids if self.end is None else (*self.ids, self.end)


class TransformersEngine:
    """Computes with `model.generate()` of transformers.

    Args:
        tokenizer: The tokenizer, which `stop_strings` needs, and which tells the ids without a
            token: these are never generated. None: all ids have one.
    """

    name = "transformers"

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        self.model, self.tokenizer = model, tokenizer
        rows = model.get_output_embeddings().out_features
        self.unnamed = [] if tokenizer is None else unnamed_ids(tokenizer, rows)

    @cached_property
    def _word_joins(self) -> WordJoins:
        rows = self.model.get_output_embeddings().out_features
        return WordJoins.find(target_side(self.tokenizer), rows)

    def problems(self, search: Search) -> list[str]:
        """Lists the settings of a search that the engine lacks."""
        return []

    def token_problems(self, settings: GenerationConfig) -> list[str]:
        """Lists the end tokens of settings that differ from those of the engine."""
        return []

    def generate(
        self,
        sources: Sequence[Ids],
        search: Search,
        batch_tokens: int,
        align: bool = False,
        on_batch: OnBatch = lambda _: None,
        terms: Sequence[Sequence[TermIds]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Computes `search.n_best` outputs for each source, best first.

        Args:
            sources: Ids of each source, the end included.
            batch_tokens: Largest size of a batch, in tokens with padding.
            align: Whether to align the outputs too, if the engine can do so as it searches.
                This engine cannot: see `alignments`.
            terms: The terms that the outputs of each source must contain, which need a search of
                `search_with_terms`. None: there are none.
        """
        outputs: list[list[Hypothesis]] = [[] for _ in sources]
        arguments: dict[str, Any] = {"generation_config": search.settings}
        if search.settings.stop_strings is not None:
            arguments["tokenizer"] = target_side(self.tokenizer)
        with evaluation_mode(self.model), banned_ids(self.model, self.unnamed):
            for rows in token_batches([len(ids) for ids in sources], batch_tokens):
                inputs = self._pad_sources([sources[row] for row in rows])
                model = self.searching_model(inputs)
                if terms is not None:
                    batch_terms = [terms[row] for row in rows]
                    model = with_terms(model, batch_terms, self._word_joins, search.settings)
                # (batch · n_best, target_len), where each sequence begins with the start
                sequences = model.generate(**inputs, **arguments).tolist()
                hypotheses = iter([hypothesis_of(ids, search.settings) for ids in sequences])
                for row in rows:
                    outputs[row] = list(islice(hypotheses, search.n_best))
                on_batch(len(rows))
        return outputs

    def token_scores(
        self, sources: Sequence[Ids], targets: Sequence[Ids], batch_tokens: int, start: int
    ) -> list[list[float]]:
        """Computes the log-probability in nats of each token of given targets.

        Args:
            targets: Ids of each target, the end included, without the start.
        """
        scores: list[list[float]] = [[] for _ in sources]
        with evaluation_mode(self.model), banned_ids(self.model, self.unnamed):
            for rows, logits, labels in self._forced_outputs(sources, targets, batch_tokens, start):
                chosen = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
                for row, values in zip(rows, chosen.tolist(), strict=True):
                    scores[row] = values[: len(targets[row])]
        return scores

    def alignments(
        self, sources: Sequence[Ids], targets: Sequence[Ids], batch_tokens: int, start: int
    ) -> list[list[int]]:
        """Finds the source token that each target token attends to most.

        The attention is the mean over the heads of cross-attention that `config.alignment_heads`
        names. Without this field these are the heads of `aligning_layer`.
        """
        aligned: list[list[int]] = [[] for _ in sources]
        # No token is aligned with the end of a source.
        tokenizer_end = getattr(self.tokenizer, "eos_token_id", None)
        ends = {*end_tokens_of(self.model.config), tokenizer_end}
        with evaluation_mode(self.model):
            forced = self._forced_outputs(sources, targets, batch_tokens, start, True)
            for rows, weights, _ in forced:
                for row, matrix in zip(rows, weights, strict=True):
                    words = max(len(sources[row]) - (not ends.isdisjoint(sources[row][-1:])), 1)
                    best = matrix[: len(targets[row]), :words].argmax(-1)
                    aligned[row] = best.tolist()
        return aligned

    def _forced_outputs(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        batch_tokens: int,
        start: int,
        output_attentions: bool = False,
    ) -> Iterator[tuple[list[int], torch.Tensor, torch.Tensor]]:
        """Yields rows, logits (or mean attention weights) and labels, batch by batch.

        The caller sets the evaluation mode: a generator that an error leaves behind would
        restore the mode and the gradients of its beginning much later.
        """
        sizes = [max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
        for rows in token_batches(sizes, batch_tokens):
            inputs = self._pad_sources([sources[row] for row in rows])
            ids = [torch.tensor(targets[row]) for row in rows]
            labels = pad_sequence(ids, batch_first=True, padding_value=-100)
            labels = labels.to(self.model.device)
            pad = self.model.config.pad_token_id
            outputs = self.model(  # not with `labels`: no loss is needed
                **inputs,
                decoder_input_ids=shift_right(labels, pad or 0, start),
                use_cache=False,
                output_attentions=output_attentions,
            )
            if output_attentions:
                yield rows, self._aligning_weights(outputs.cross_attentions), labels
            else:
                yield rows, outputs.logits.float(), labels

    def _aligning_weights(self, layers: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the mean weights of the heads that align: (batch, target_len, source_len)."""
        chosen: Any = getattr(self.model.config, "alignment_heads", None)
        if chosen is None:
            return layers[aligning_layer(len(layers))].float().mean(1)
        return torch.stack([layers[layer][:, head].float() for layer, head in chosen]).mean(0)

    def searching_model(self, inputs: dict[str, torch.Tensor]) -> Any:
        """Returns the model whose `generate()` is called for a batch."""
        return self.model

    def _pad_sources(self, sources: Sequence[Ids]) -> dict[str, torch.Tensor]:
        """Makes `input_ids` and `attention_mask` of shape (batch, source_len)."""
        pad = self.model.config.pad_token_id
        ids = [torch.tensor(source) for source in sources]
        masks = [torch.ones_like(row) for row in ids]
        padded = pad_sequence(ids, batch_first=True, padding_value=0 if pad is None else pad)
        device = self.model.device
        return {
            "input_ids": padded.to(device),
            "attention_mask": pad_sequence(masks, batch_first=True).to(device),
        }


def hypothesis_of(sequence: list[int], settings: GenerationConfig) -> Hypothesis:
    """Takes the tokens between the start and the end of a row that `generate()` returned."""
    ends, ids = end_tokens_of(settings), sequence[1:]
    stop = next((i for i, token in enumerate(ids) if token in ends), None)
    if stop is None:
        while settings.stop_strings and ids and ids[-1] == settings.pad_token_id:
            ids.pop()  # padding follows an output that a stop string has ended
        return Hypothesis(tuple(ids), None)
    return Hypothesis(tuple(ids[:stop]), ids[stop])


def is_cut_off(output: Hypothesis, settings: GenerationConfig, longest: int) -> bool:
    """Returns whether an output has the longest length, and the model had not ended it before.

    The end that `forced_eos_token_id` puts there is not the model's.
    """
    forced = settings.forced_eos_token_id is not None
    ended = output.end is not None and not forced
    return not ended and len(output.ids) >= longest - forced


def chosen_scores(
    values: list[float], ids: Ids, settings: GenerationConfig, longest: int | None = None
) -> tuple[float, ...]:
    """Returns the scores of tokens; tokens that the settings force have the probability 1.

    Args:
        ids: The tokens, of which the first may be that of `forced_bos_token_id`.
        longest: Length at which `forced_eos_token_id` puts an end. None: it puts none.
    """
    chosen = list(values)
    if chosen and ids[0] == settings.forced_bos_token_id:
        chosen[0] = 0.0
    if settings.forced_eos_token_id is not None and len(chosen) == longest:
        chosen[-1] = 0.0
    return tuple(chosen)


def token_batches(sizes: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yields the rows of batches of similar length, the longest first: memory runs out early.

    Args:
        batch_tokens: Largest number of tokens of a batch, with padding. A longer row is a batch of
            its own.
    """
    rows = sorted(range(len(sizes)), key=lambda row: -sizes[row])
    while rows:
        count = max(1, batch_tokens // max(sizes[rows[0]], 1))
        yield rows[:count]
        rows = rows[count:]


class EnsembleEngine(TransformersEngine):
    """Averages the probabilities of models with one vocabulary; the first one drives the search."""

    name = "ensemble"

    def __init__(self, models: Sequence[Any], tokenizers: Sequence[Any]) -> None:
        super().__init__(models[0], tokenizers[0])
        self.members = [TransformersEngine(model, tokenizer=self.tokenizer) for model in models]
        first, *others = map(_shared_by_members, models, tokenizers)
        for model, other in zip(models[1:], others, strict=True):
            if differing := [name for name in first if first[name] != other[name]]:
                raise ValueError(
                    f"{model.name_or_path!r} has another {' and '.join(differing)} than "
                    f"{self.model.name_or_path!r}: only models with equal ones can be averaged."
                )

    def problems(self, search: Search) -> list[str]:
        """Lists settings whose effect depends on the scale of the logits, which a mean loses."""
        values = {name: getattr(search.settings, name) for name in _OF_LOGITS}
        return [
            f"`{name}` is {value!r}" for name, value in values.items() if value not in (None, 1)
        ]

    def generate(self, *args: Any, **options: Any) -> list[list[Hypothesis]]:
        """Computes the outputs of the mean."""
        with ExitStack() as stack:
            for member in self.members[1:]:
                stack.enter_context(banned_ids(member.model, member.unnamed))
            return super().generate(*args, **options)

    def token_scores(
        self, sources: Sequence[Ids], targets: Sequence[Ids], batch_tokens: int, start: int
    ) -> list[list[float]]:
        """Computes the log of the mean probabilities."""
        scores = [
            member.token_scores(sources, targets, batch_tokens, start) for member in self.members
        ]
        return [
            (torch.tensor(rows, dtype=torch.float64).logsumexp(0) - log(len(rows))).tolist()
            for rows in zip(*scores, strict=True)  # the scores of a target by each member
        ]

    def searching_model(self, inputs: dict[str, torch.Tensor]) -> Any:
        """Returns a copy of the first model, whose search sees the mean probabilities.

        `generate()` puts processors that it is given behind its own, but what forbids a token must
        see the mean. The copy takes the other order; the model stays as it is.
        """
        mean = MeanProbabilities([member.model for member in self.members[1:]], inputs)
        searching: Any = copy.copy(self.model)
        make_processors = self.model._get_logits_processor
        searching._get_logits_processor = lambda *args, **kwargs: LogitsProcessorList(
            [mean, *make_processors(*args, **kwargs)]
        )
        return searching


class MeanProbabilities(LogitsProcessor):
    """Replaces the scores of a search by the log of the mean probabilities of several models."""

    def __init__(self, others: Sequence[Any], inputs: dict[str, torch.Tensor]) -> None:
        self.others = others
        self.mask = inputs["attention_mask"]
        self.encoded = [model.get_encoder()(**inputs, return_dict=True) for model in others]
        self.caches = [EncoderDecoderCache(DynamicCache(), DynamicCache()) for _ in others]
        self.seen: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns the log of the mean, (rows, vocab); rows / batch rows belong to a source."""
        self._follow_beams(input_ids)
        log_probabilities = [scores.float().log_softmax(-1)]
        for model, encoded, cache in zip(self.others, self.encoded, self.caches, strict=True):
            repeats = len(input_ids) // len(self.mask)
            states = encoded.last_hidden_state.repeat_interleave(repeats, 0)
            outputs = model(
                encoder_outputs=(states,),
                attention_mask=self.mask.repeat_interleave(repeats, 0),
                decoder_input_ids=input_ids[:, cache.get_seq_length() :],
                past_key_values=cache,
                use_cache=True,
            )
            log_probabilities.append(outputs.logits[:, -1].float().log_softmax(-1))
        self.seen = input_ids
        return torch.stack(log_probabilities).logsumexp(0) - log(len(log_probabilities))

    def _follow_beams(self, input_ids: torch.Tensor) -> None:
        """Reorders the caches as the search reordered its rows, which it does not tell.

        A row goes on from a row of the same source with the same tokens; where several have them,
        their caches are equal.
        """
        if self.seen is None:
            return
        repeats = len(input_ids) // len(self.mask)
        prefixes = input_ids[:, : self.seen.shape[1]].unflatten(0, (-1, repeats))
        seen = self.seen.unflatten(0, (-1, repeats))
        is_parent = (prefixes[:, :, None] == seen[:, None]).all(-1)  # (batch, row, earlier row)
        offsets = torch.arange(len(seen), device=input_ids.device)[:, None] * repeats
        parents = (is_parent.int().argmax(-1) + offsets).flatten()
        for cache in self.caches:
            cache.reorder_cache(parents)


def _shared_by_members(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Returns the facts that must be equal in models whose probabilities are averaged."""
    settings = model.generation_config
    return {
        "vocabulary": [vocabulary_of(tokenizer, side) for side in ("source", "target")],
        "decoder_start_token_id": settings.decoder_start_token_id,
        "eos_token_id": end_tokens_of(settings),
    }
