"""What the models here change in `generate()`: two vocabularies, longest output, cache, GPU.

transformers takes `config.vocab_size` for the number of tokens that a model predicts. Here this is
the source's vocabulary, and the target may have another one.
"""

import copy
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from transformers import GenerationConfig
from transformers.generation.utils import GenerationMixin

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .decoding_cache import SourceCache, decoding_cache_for
from .graphs import draws_random_numbers, has_own_forward
from .inputs import check_mask
from .pretrained_model import config_with
from .recorded_search import can_record, is_on_gpu, recorded_search

DEFAULT_MAX_LENGTH = 256
"""Longest output, in tokens with the start, where nobody has named a length; transformers: 20."""

_COMPARE_BOTH_SIDES = {"encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0}
"""Options that look for tokens of the source in the target, with the values that change nothing."""

_TRAINER_DEFAULTS = ("num_assistant_tokens_schedule", "assistant_lookbehind", "target_lookbehind")
"""If all of these hold their defaults, the stock Trainer wrote them."""


def chosen_settings(saved: GenerationConfig) -> GenerationConfig:
    """Copies settings without the defaults that a stock Trainer has filled in.

    `Seq2SeqTrainer` writes the default of each setting into the model while it evaluates, and then
    saves them. Nobody chose most of these, so that a default counts as not chosen there: also a
    `max_length` of 20.
    """
    settings = copy.copy(saved)
    defaults = settings._get_default_generation_params()
    if all(getattr(settings, name, None) == defaults[name] for name in _TRAINER_DEFAULTS):
        for name, value in defaults.items():
            if getattr(settings, name, None) == value:
                setattr(settings, name, None)
    return settings


class VanillaTransformerGeneration(GenerationMixin):
    """The methods of `generate()` that the models here change."""

    config: VanillaTransformerConfig

    def compute_transition_scores(
        self,
        sequences: torch.Tensor,
        scores: tuple[torch.Tensor, ...],
        beam_indices: torch.Tensor | None = None,
        normalize_logits: bool = False,
    ) -> torch.Tensor:
        """Scores each generated token as transformers does: (sequences, new tokens)."""
        config = config_with(self.config, vocab_size=scores[0].shape[-1])
        stand_in = SimpleNamespace(config=config)  # the base class reads only this attribute
        compute: Any = GenerationMixin.compute_transition_scores
        transitions: torch.Tensor = compute(
            stand_in, sequences, scores, beam_indices, normalize_logits
        )
        return transitions

    def adjust_generation_fn(  # type: ignore[override]  # the base class names all arguments
        self, given_settings: Any, is_auto: Any, of_pipeline: Any, path: Any, **kwargs: Any
    ) -> None:
        """Loads the generation config; `from_pretrained` calls this at its end.

        What a stock Trainer has filled in is dropped. A damaged file is refused: the base class
        would go on with other settings.
        """
        if given_settings is None:
            folder = Path(str(path), kwargs.get("subfolder") or "")
            _check_generation_file(folder / "generation_config.json")
        base = cast(Any, super())
        base.adjust_generation_fn(given_settings, is_auto, of_pipeline, path, **kwargs)
        self.generation_config = chosen_settings(self.generation_config)
        self.name_longest_output()

    def name_longest_output(self) -> None:
        """Sets `max_length` in the settings where they name no length.

        Otherwise `generate()` would stop at 20 tokens, and a stock Trainer would save this number.
        """
        settings = self.generation_config
        if settings.max_length is None and settings.max_new_tokens is None:
            settings.max_length = self._default_max_length

    @property
    def _default_max_length(self) -> int:
        learned = self.config.position_embedding_type == "learned"
        limit = self.config.max_position_embeddings if learned else DEFAULT_MAX_LENGTH
        return min(DEFAULT_MAX_LENGTH, limit)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generates as transformers does; a returned cache holds a source for each row.

        The arguments are those of `GenerationMixin.generate`.
        """
        outputs = super().generate(*args, **kwargs)
        sources = getattr(getattr(outputs, "cache", None), "cross_attention_cache", None)
        if isinstance(sources, SourceCache):
            sources.repeat_sources()
        return outputs

    # The searches --------------------------------------------------------------------------------

    def _sample(self, input_ids: torch.Tensor, **arguments: Any) -> Any:  # type: ignore[override]
        """Searches greedily or samples; on a GPU, a greedy search of fixed shapes is recorded."""
        return self._search(cast(Any, super())._sample, input_ids, **arguments)

    def _beam_search(self, input_ids: torch.Tensor, **arguments: Any) -> Any:  # type: ignore[override]
        """Searches with beams; on a GPU, a search of fixed shapes is recorded."""
        return self._search(cast(Any, super())._beam_search, input_ids, **arguments)

    def _search(
        self,
        search: Any,
        input_ids: torch.Tensor,
        *,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **arguments: Any,
    ) -> Any:
        settings = generation_config
        if can_record(self, logits_processor, stopping_criteria, settings, arguments):
            with torch.cuda.device(input_ids.device):
                return recorded_search(self, input_ids, logits_processor, settings, arguments)
        draws = settings.do_sample and is_on_gpu(self)
        with draws_random_numbers() if draws else nullcontext():
            return search(
                input_ids,
                logits_processor=logits_processor,
                stopping_criteria=stopping_criteria,
                generation_config=settings,
                **arguments,
            )

    # What `generate()` calls ---------------------------------------------------------------------

    def _prepare_generated_length(  # type: ignore[override]  # the base class names all arguments
        self, generation_config: Any, has_default_max_length: bool, **kwargs: Any
    ) -> Any:
        """Decides the longest output; `max_new_tokens` beside our default needs no warning."""
        if generation_config.max_new_tokens is not None:
            has_default_max_length |= generation_config.max_length == self._default_max_length
        base = cast(Any, super())
        return base._prepare_generated_length(generation_config, has_default_max_length, **kwargs)

    def _validate_generation_mode(
        self, generation_mode: Any, generation_config: Any, generation_mode_kwargs: Any
    ) -> None:
        """Refuses options that compare ids of the source with ids of another vocabulary."""
        for name, neutral in _COMPARE_BOTH_SIDES.items():
            value = getattr(generation_config, name)
            if not self.config.share_encoder_decoder_embeddings and value not in (None, neutral):
                raise ValueError(
                    f"`{name}` {value} compares ids of the source with ids of the target, which "
                    "are of two vocabularies (`share_encoder_decoder_embeddings` is False): leave "
                    "it out. If both sides do use the same ids, pass transformers' processor in "
                    "`logits_processor`."
                )
        base = cast(Any, super())
        base._validate_generation_mode(generation_mode, generation_config, generation_mode_kwargs)

    def _expand_inputs_for_generation(self, *args: Any, **kwargs: Any) -> Any:
        """Repeats the inputs for beams and samples.

        The ids of the decoder are complete here. The length of their mask is checked now, because
        a static cache gets a mask of four dimensions in place of this one.
        """
        mask = kwargs.get("decoder_attention_mask")
        check_mask("decoder_attention_mask", mask, *kwargs["input_ids"].shape)
        return cast(Any, super())._expand_inputs_for_generation(*args, **kwargs)

    def _prepare_cache_for_generation(  # type: ignore[override]  # the base class names all arguments
        self, generation_config: Any, model_kwargs: dict[str, Any], generation_mode: Any, *args: Any
    ) -> None:
        """Makes the cache if the caller gives none: see `decoding_cache`."""
        is_supplied = model_kwargs.get("cache") is not None
        # An exporter that records the arguments of each call expects the cache of transformers.
        is_recorded = not has_own_forward(cast(Any, self))
        base = cast(Any, super())
        base._prepare_cache_for_generation(generation_config, model_kwargs, generation_mode, *args)
        cache = model_kwargs.get("cache")
        if cache is not None and not is_supplied and not is_recorded:
            model_kwargs["cache"] = decoding_cache_for(
                cache, generation_config, generation_mode, self.config._attn_implementation
            )


def _check_generation_file(file: Path) -> None:
    if not file.is_file():
        return
    try:
        is_object = isinstance(json.loads(file.read_text(encoding="utf-8")), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise ValueError(
            f"{str(file)!r} is damaged, it holds no JSON object: copy it again, or delete it to "
            "generate with the defaults."
        )
