"""Several models with one vocabulary, whose probabilities are averaged at each token."""

from collections.abc import Sequence
from math import exp, log
from typing import Any

import torch
from transformers import DynamicCache, EncoderDecoderCache, LogitsProcessor, LogitsProcessorList

from vanilla_transformer.inference.engines import Ids, TransformersEngine
from vanilla_transformer.search import Search

_SETTINGS_OF_OTHER_PROCESSORS = (
    "do_sample",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "exponential_decay_length_penalty",
    "guidance_scale",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "sequence_bias",
    "watermarking_config",
)


class EnsembleEngine(TransformersEngine):
    """Computes with the mean of the probabilities of several models.

    Args:
        models: Models with one vocabulary. The first one drives the search.
        tokenizer: Their tokenizer, which `stop_strings` needs.
    """

    def __init__(self, models: Sequence[Any], tokenizer: Any = None) -> None:
        super().__init__(models[0], "ensemble", tokenizer)
        self.members = [TransformersEngine(model) for model in models]

    def problems(self, search: Search) -> list[str]:
        """Lists the settings that would change the probabilities of one model only."""
        named = ((name, getattr(search.settings, name)) for name in _SETTINGS_OF_OTHER_PROCESSORS)
        return [
            f"`{name}` is {value!r}"
            for name, value in named
            if value is True or (value and value != 1)  # True == 1
        ]

    def token_scores(
        self, sources: Sequence[Ids], targets: Sequence[Ids], batch_tokens: int
    ) -> list[list[float]]:
        """Computes the log of the mean probabilities; see `Engine.token_scores`."""
        found = [member.token_scores(sources, targets, batch_tokens) for member in self.members]
        return [
            [log(sum(map(exp, values)) / len(values)) for values in zip(*rows, strict=True)]
            for rows in zip(*found, strict=True)
        ]

    def _generate_batch(self, inputs: dict[str, torch.Tensor], search: Search) -> torch.Tensor:
        others = [member.model for member in self.members[1:]]
        processor = MeanProbabilities(others, inputs)
        sequences: torch.Tensor = self.model.generate(
            **inputs,
            **self._generate_arguments(search),
            logits_processor=LogitsProcessorList([processor]),
        )
        return sequences


class MeanProbabilities(LogitsProcessor):
    """Replaces the scores of a search by the log of the mean probabilities of several models.

    Args:
        others: The models besides the one that searches.
        inputs: `input_ids` and `attention_mask` of the sources, of shape (batch, source_len).
    """

    def __init__(self, others: Sequence[Any], inputs: dict[str, torch.Tensor]) -> None:
        self.others = others
        self.mask = inputs["attention_mask"]
        self.encoded = [model.get_encoder()(**inputs, return_dict=True) for model in others]
        self.caches = [EncoderDecoderCache(DynamicCache(), DynamicCache()) for _ in others]
        self.seen: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Computes the mean.

        Args:
            input_ids: Tokens so far, of shape (rows, length); rows / batch rows belong to a source.
            scores: Logits or log-probabilities of the model that searches, of shape (rows, vocab).
                Tokens that are forbidden there, with -inf, stay forbidden.

        Returns:
            Log-probabilities of shape (rows, vocab).
        """
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
        mean = torch.stack(log_probabilities).logsumexp(0) - log(len(log_probabilities))
        return mean.masked_fill(scores == -torch.inf, -torch.inf)

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


def check_vocabularies(paths: Sequence[str], tokenizers: Sequence[Any]) -> None:
    """Checks that models can be averaged.

    Args:
        paths: Where the models lie, for the message.
        tokenizers: The tokenizer of each.

    Raises:
        ValueError: If their vocabularies differ.
    """
    first = _all_ids(tokenizers[0])
    for path, tokenizer in zip(paths[1:], tokenizers[1:], strict=True):
        if _all_ids(tokenizer) != first:
            raise ValueError(
                f"{path!r} has another vocabulary than {paths[0]!r}: only models with one "
                "vocabulary can be averaged."
            )


def _all_ids(tokenizer: Any) -> list[dict[str, int]]:
    if getattr(tokenizer, "separate_vocabularies", False):
        return [tokenizer.get_vocab(), tokenizer.target_tokenizer().get_vocab()]
    return [tokenizer.get_vocab()]
