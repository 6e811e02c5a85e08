"""The engine of transformers, which computes every search."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from vanilla_transformer.inference.constrained import TermIds, WordJoins, with_terms
from vanilla_transformer.inference.engine import Engine, Hypothesis, Ids, OnBatch
from vanilla_transformer.model.evaluation import aligning_weights, banned_ids, evaluation_mode
from vanilla_transformer.model.inputs import end_tokens_of, shift_right
from vanilla_transformer.search import Search
from vanilla_transformer.tokenizer_sides import target_side, unnamed_ids


class TransformersEngine(Engine):
    """Computes with `model.generate()` of transformers.

    No other engine aligns given targets, or searches for terms.

    Args:
        tokenizer: The tokenizer, which `stop_strings` needs. Ids without a token are never
            generated. None: all ids have one.
    """

    name = "transformers"

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.vocab_size = model.get_output_embeddings().out_features
        self.unnamed = [] if tokenizer is None else unnamed_ids(tokenizer, self.vocab_size)

    @property
    def device_type(self) -> str:
        """As for `Engine`."""
        return str(self.model.device.type)

    @cached_property
    def _word_joins(self) -> WordJoins:
        return WordJoins.find(target_side(self.tokenizer), self.vocab_size)

    def generate(
        self,
        sources: Sequence[Ids],
        search: Search,
        batch_tokens: int,
        align: bool = False,
        on_batch: OnBatch = lambda _: None,
        terms: Sequence[Sequence[TermIds]] | None = None,
    ) -> list[list[Hypothesis]]:
        """As for `Engine`; `align` has no effect: `alignments` aligns outputs.

        Args:
            terms: The terms that the outputs of each source must contain, which need a search of
                `search_with_terms`. None: there are none.
        """
        outputs: list[list[Hypothesis]] = [[] for _ in sources]
        arguments: dict[str, Any] = {"generation_config": search.settings}
        if search.settings.stop_strings is not None:
            arguments["tokenizer"] = target_side(self.tokenizer)
        with evaluation_mode(self.model), banned_ids(self.model, self.unnamed):
            for indices in token_batches([len(ids) for ids in sources], batch_tokens):
                inputs = self._pad_sources([sources[index] for index in indices])
                model = self.searching_model(inputs)
                if terms is not None:
                    batch_terms = [terms[index] for index in indices]
                    model = with_terms(model, batch_terms, self._word_joins, search.settings)
                # (batch · n_best, target_len), where each sequence begins with the start
                sequences = model.generate(**inputs, **arguments).tolist()
                hypotheses = iter([hypothesis_of(ids, search.settings) for ids in sequences])
                for index in indices:
                    outputs[index] = list(islice(hypotheses, search.n_best))
                on_batch(len(indices))
        return outputs

    def token_scores(
        self, sources: Sequence[Ids], targets: Sequence[Ids], batch_tokens: int, start: int
    ) -> list[list[float]]:
        """As for `Engine`."""
        scores: list[list[float]] = [[] for _ in sources]
        with evaluation_mode(self.model), banned_ids(self.model, self.unnamed):
            forced = self._forced_outputs(sources, targets, batch_tokens, start)
            for indices, outputs, labels in forced:
                logits = outputs.logits.float()
                chosen = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
                for index, values in zip(indices, chosen.tolist(), strict=True):
                    scores[index] = values[: len(targets[index])]
        return scores

    def alignments(
        self, sources: Sequence[Ids], targets: Sequence[Ids], batch_tokens: int, start: int
    ) -> list[list[int]]:
        """Finds the source token that each target token attends to most: see `aligning_weights`."""
        aligned: list[list[int]] = [[] for _ in sources]
        # No token is aligned with the end of a source.
        tokenizer_end = getattr(self.tokenizer, "eos_token_id", None)
        ends = {*end_tokens_of(self.model.config), tokenizer_end}
        with evaluation_mode(self.model):
            forced = self._forced_outputs(
                sources, targets, batch_tokens, start, output_attentions=True
            )
            for indices, outputs, _ in forced:
                weights = aligning_weights(self.model.config, outputs.cross_attentions)
                for index, matrix in zip(indices, weights, strict=True):
                    has_end = not ends.isdisjoint(sources[index][-1:])
                    count = max(len(sources[index]) - has_end, 1)
                    aligned[index] = matrix[: len(targets[index]), :count].argmax(-1).tolist()
        return aligned

    def _forced_outputs(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        batch_tokens: int,
        start: int,
        output_attentions: bool = False,
    ) -> Iterator[tuple[list[int], Any, torch.Tensor]]:
        """Yields indices, outputs of the model and labels, batch by batch.

        The caller sets the evaluation mode: a generator that an error leaves behind would
        restore the mode and the gradients of its beginning much later.
        """
        lengths = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
        for indices in token_batches(lengths, batch_tokens):
            inputs = self._pad_sources([sources[index] for index in indices])
            ids = [torch.tensor(targets[index]) for index in indices]
            labels = pad_sequence(ids, batch_first=True, padding_value=-100).to(self.model.device)
            pad = self.model.config.pad_token_id
            outputs = self.model(  # not with `labels`: no loss is needed
                **inputs,
                decoder_input_ids=shift_right(labels, pad or 0, start),
                use_cache=False,
                output_attentions=output_attentions,
            )
            yield indices, outputs, labels

    def searching_model(self, inputs: dict[str, torch.Tensor]) -> Any:
        """Returns the model whose `generate()` is called for a batch."""
        return self.model

    def _pad_sources(self, sources: Sequence[Ids]) -> dict[str, torch.Tensor]:
        """Makes `input_ids` and `attention_mask` of shape (batch, source_len)."""
        pad = self.model.config.pad_token_id
        ids = [torch.tensor(source) for source in sources]
        masks = [torch.ones_like(source) for source in ids]
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


def token_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yields the indices of batches of similar length, the longest first: memory runs out early.

    Args:
        lengths: The number of tokens of each text.
        batch_tokens: Largest number of tokens of a batch, with padding. A longer text is a batch of
            its own.
    """
    indices = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while indices:
        count = max(1, batch_tokens // max(lengths[indices[0]], 1))
        yield indices[:count]
        indices = indices[count:]
