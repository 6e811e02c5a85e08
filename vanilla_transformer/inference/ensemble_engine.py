"""The engine of an ensemble: the mean of the probabilities of models with one vocabulary."""

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from math import log
from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache, LogitsProcessor, LogitsProcessorList

from vanilla_transformer.inference.engine import Hypothesis, Ids
from vanilla_transformer.inference.transformers_engine import TransformersEngine
from vanilla_transformer.model.evaluation import banned_ids
from vanilla_transformer.model.inputs import end_tokens_of
from vanilla_transformer.search import Search
from vanilla_transformer.tokenizer_sides import vocabulary_of

_OF_LOGITS = (
    "repetition_penalty",
    "encoder_repetition_penalty",
    "exponential_decay_length_penalty",
    "guidance_scale",
)
"""Settings whose effect depends on the scale of the logits."""


class EnsembleEngine(TransformersEngine):
    """Averages the probabilities of its models; the first one drives the search, and aligns."""

    name = "ensemble"

    def __init__(self, models: Sequence[Any], tokenizers: Sequence[Any]) -> None:
        super().__init__(models[0], tokenizers[0])
        self.members = [TransformersEngine(model, tokenizer=self.tokenizer) for model in models]
        expected, *others = map(_shared_by_members, models, tokenizers)
        for model, found in zip(models[1:], others, strict=True):
            if differing := [name for name in expected if expected[name] != found[name]]:
                raise ValueError(
                    f"{model.name_or_path!r} has another {' and '.join(differing)} than "
                    f"{self.model.name_or_path!r}: only models with equal ones can be averaged."
                )

    def problems(self, search: Search) -> list[str]:
        """Lists settings that need the scale of the logits, which a mean loses."""
        given = {name: getattr(search.settings, name) for name in _OF_LOGITS}
        return [f"`{name}` is {value!r}" for name, value in given.items() if value not in (None, 1)]

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
        scores = [each.token_scores(sources, targets, batch_tokens, start) for each in self.members]
        return [
            (torch.tensor(members, dtype=torch.float64).logsumexp(0) - log(len(members))).tolist()
            for members in zip(*scores, strict=True)  # of one target
        ]

    def searching_model(self, inputs: dict[str, torch.Tensor]) -> Any:
        """Returns a copy of the first model, whose search sees the mean probabilities.

        `generate()` runs given processors after its own, but those that forbid tokens must see the
        mean. The copy runs the mean first; the model stays as it is.
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
