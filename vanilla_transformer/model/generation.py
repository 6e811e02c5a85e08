"""What the models here change in `generate()`: two vocabularies, early exit, clear refusals.

transformers takes `config.vocab_size` for the number of tokens that a model predicts. Here this is
the source's vocabulary, and the target may have another one.
"""

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedTokenizerBase
from transformers.generation.candidate_generator import (
    AssistedCandidateGenerator,
    CandidateGenerator,
    EarlyExitCandidateGenerator,
    PromptLookupCandidateGenerator,
)
from transformers.generation.stopping_criteria import StoppingCriteriaList, StopStringCriteria
from transformers.generation.utils import GenerationMixin

from .configuration_vanilla_transformer import (
    Rule,
    VanillaTransformerConfig,
    check_rules,
)
from .decoding_cache import decoding_cache_for
from .inputs import check_mask
from .pretrained_model import config_with

DEFAULT_MAX_LENGTH = 256
"""Longest output, in tokens with the start, where nobody has named a length; transformers: 20."""

_ONLY_FILLED = ("num_assistant_tokens_schedule", "assistant_lookbehind", "target_lookbehind")
"""Settings that nobody chooses for these models: the stock Trainer fills them in."""


def chosen_settings(saved: GenerationConfig) -> GenerationConfig:
    """Copies settings without the defaults that a stock Trainer has filled in.

    `Seq2SeqTrainer` writes the default of each setting into the model while it evaluates, and then
    saves them. Nobody chose most of these, so that a default counts as not chosen there: also a
    `max_length` of 20.
    """
    settings = copy.deepcopy(saved)
    defaults = settings._get_default_generation_params()
    if all(getattr(settings, name, None) == defaults[name] for name in _ONLY_FILLED):
        for name, value in defaults.items():
            if getattr(settings, name, None) == value:
                setattr(settings, name, None)
    return settings


class TwoVocabularyGeneration(GenerationMixin):
    """`generate()` for two vocabularies; what cannot be right is refused before it starts."""

    config: VanillaTransformerConfig

    def compute_transition_scores(
        self,
        sequences: torch.Tensor,
        scores: tuple[torch.Tensor, ...],
        beam_indices: torch.Tensor | None = None,
        normalize_logits: bool = False,
    ) -> torch.Tensor:
        """Scores each generated token, of shape (batch · sequences per source, new tokens).

        Args:
            sequences: The generated ids, of shape (batch · sequences per source, target_len).
            scores: One tensor for each generated token, of shape (batch · beams, vocab).
            beam_indices: The beam of each token, of shape (batch · sequences per source, new
                tokens). None: not a beam search.
        """
        config = config_with(self.config, vocab_size=scores[0].shape[-1])
        stand_in = SimpleNamespace(config=config)  # the base class reads only this attribute
        compute: Any = GenerationMixin.compute_transition_scores
        found: torch.Tensor = compute(stand_in, sequences, scores, beam_indices, normalize_logits)
        return found

    def adjust_generation_fn(  # type: ignore[override]  # the base class names all arguments
        self,
        generation_config: Any,
        from_auto_class: Any,
        from_pipeline: Any,
        pretrained_model_name_or_path: Any,
        **kwargs: Any,
    ) -> None:
        """Loads the generation config; `from_pretrained` calls this at its end.

        What a stock Trainer has filled in is dropped.

        Raises:
            ValueError: If the file of a local directory is damaged. The base class would go on with
                other settings.
        """
        if generation_config is None:
            folder = Path(str(pretrained_model_name_or_path), kwargs.get("subfolder") or "")
            _check_generation_file(folder / "generation_config.json")
        base = cast(Any, super())
        base.adjust_generation_fn(
            generation_config,
            from_auto_class,
            from_pipeline,
            pretrained_model_name_or_path,
            **kwargs,
        )
        self.generation_config = chosen_settings(self.generation_config)
        self.name_longest_output()

    def name_longest_output(self) -> None:
        """Sets `max_length` in the settings of an encoder-decoder where they name no length.

        Otherwise `generate()` would stop at 20 tokens, and a stock Trainer would save this number.
        """
        settings, config = self.generation_config, self.config
        named = (settings.max_length, settings.max_new_tokens)
        if config.is_encoder_decoder and named == (None, None):
            learned = config.position_embedding_type == "learned"
            limit = config.max_position_embeddings if learned else DEFAULT_MAX_LENGTH
            settings.max_length = min(DEFAULT_MAX_LENGTH, limit)

    # What `generate()` calls ---------------------------------------------------------------------

    def _prepare_generated_length(  # type: ignore[override]  # the base class names all arguments
        self, generation_config: Any, has_default_max_length: bool, **kwargs: Any
    ) -> Any:
        """Decides the longest output; `max_new_tokens` beside our default needs no warning."""
        if generation_config.max_new_tokens is not None:
            has_default_max_length |= generation_config.max_length == DEFAULT_MAX_LENGTH
        base = cast(Any, super())
        return base._prepare_generated_length(
            generation_config=generation_config,
            has_default_max_length=has_default_max_length,
            **kwargs,
        )

    def _validate_generation_mode(
        self, generation_mode: Any, generation_config: Any, generation_mode_kwargs: Any
    ) -> None:
        """Refuses options of `generate()` that cannot give the right result."""
        check_rules(
            REFUSALS, config=self.config, options=generation_config, others=generation_mode_kwargs
        )
        base = cast(Any, super())
        base._validate_generation_mode(generation_mode, generation_config, generation_mode_kwargs)

    def _expand_inputs_for_generation(self, *args: Any, **kwargs: Any) -> Any:
        """Repeats the inputs for beams and samples.

        The ids of the decoder are complete here. The lengths of their mask and positions are
        checked now, because a static cache gets a mask of four dimensions in place of this one.
        """
        ids, is_whole = kwargs["input_ids"], kwargs.get("cache") is None
        if self.config.is_encoder_decoder:
            check_mask("decoder_attention_mask", kwargs.get("decoder_attention_mask"), ids.shape[1])
        elif is_whole and "inputs_embeds" not in kwargs:
            check_mask("attention_mask", kwargs.get("attention_mask"), ids.shape[1])
            positions = kwargs.get("position_ids")  # made from a mask that may be dropped since
            if positions is not None and positions.shape[-1] != ids.shape[1]:
                raise ValueError(
                    f"`attention_mask` or `position_ids` has the shape {tuple(positions.shape)}, "
                    f"but a row has {ids.shape[1]} tokens: give one value for each."
                )
        return cast(Any, super())._expand_inputs_for_generation(*args, **kwargs)

    def _prepare_cache_for_generation(  # type: ignore[override]  # the base class names all arguments
        self, generation_config: Any, model_kwargs: dict[str, Any], generation_mode: Any, *args: Any
    ) -> None:
        """Makes the cache if the caller gives none: see `decoding_cache`."""
        is_given = model_kwargs.get("cache") is not None
        # An exporter that records the arguments of each call expects the cache of transformers.
        is_recorded = "forward" in vars(self)
        base = cast(Any, super())
        base._prepare_cache_for_generation(generation_config, model_kwargs, generation_mode, *args)
        made = model_kwargs.get("cache")
        if made is not None and not is_given and not is_recorded:
            model_kwargs["cache"] = decoding_cache_for(
                made, generation_config, generation_mode, self.config._attn_implementation
            )

    def _get_logits_processor(self, generation_config: Any, *args: Any, **kwargs: Any) -> Any:
        """Builds the processors of the scores; a watermark colours the target's vocabulary."""
        if generation_config.watermarking_config is not None:
            generation_config = copy.copy(generation_config)
            generation_config.watermarking_config = _TargetWatermark(
                generation_config.watermarking_config, cast(int, self.config.decoder_vocab_size)
            )
        return cast(Any, super())._get_logits_processor(generation_config, *args, **kwargs)

    def _get_candidate_generator(  # type: ignore[override]  # the base class names all arguments
        self, generation_config: Any, **kwargs: Any
    ) -> CandidateGenerator:
        """Builds what guesses tokens: here early exit, and lookup in the target's vocabulary."""
        if generation_config.assistant_early_exit is not None:
            for name in ("target_tokenizer", "assistant_tokenizer"):
                kwargs.pop(name, None)
            kwargs["assistant_model"] = first_layers(self, generation_config.assistant_early_exit)
            return _FirstLayersGenerator(generation_config=generation_config, **kwargs)
        base = cast(Any, super())
        generator: CandidateGenerator = base._get_candidate_generator(generation_config, **kwargs)
        if isinstance(generator, PromptLookupCandidateGenerator):
            generator.vocab_size = cast(int, self.config.decoder_vocab_size)
        return generator

    def _get_stopping_criteria(
        self, generation_config: Any, stopping_criteria: Any, tokenizer: Any = None, **kwargs: Any
    ) -> Any:
        """Builds the criteria that stop `generate()`; stop strings work for any vocabulary."""
        base = cast(Any, super())
        config, criteria = take_stop_strings(generation_config, stopping_criteria, tokenizer)
        return base._get_stopping_criteria(config, criteria, tokenizer=tokenizer, **kwargs)


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


class _TargetWatermark:
    """A watermarking config that builds its processor for the target's vocabulary."""

    def __init__(self, config: Any, vocab_size: int) -> None:
        self.config = config
        self.vocab_size = vocab_size

    def construct_processor(self, vocab_size: int, device: Any) -> Any:
        """Builds the processor; the given size, which is the source's, does not count."""
        return self.config.construct_processor(self.vocab_size, device)


# Early exit --------------------------------------------------------------------------------------


class _FirstLayersGenerator(EarlyExitCandidateGenerator):
    """Guesses tokens with the first layers of the model; the base class would change its config."""

    def get_candidates(self, input_ids: Any, **kwargs: Any) -> Any:
        """Guesses tokens."""
        return AssistedCandidateGenerator.get_candidates(self, input_ids, **kwargs)


def first_layers(model: Any, count: int) -> Any:
    """Returns a model of the first layers of a decoder, which shares all weights with it.

    The final norm and the output projection follow the last of these layers. The given model is
    not changed.

    Raises:
        ValueError: If the model's modules are spread over devices by hooks.
    """
    view: Any = _shallow_copy(model)
    view.model = _shallow_copy(view.model)
    view.model.decoder = _shallow_copy(view.model.decoder)
    changes: dict[str, Any] = {"decoder_layers": count}
    if not model.config.is_encoder_decoder:
        changes["encoder_layers"] = count  # transformers' name of the number of layers
    for module in (view, view.model, view.model.decoder):
        if "forward" in vars(module):
            raise ValueError(
                "`assistant_early_exit` does not work with a model that `device_map` spreads over "
                "devices: load the model on one device."
            )
        module.config = config_with(model.config, **changes)
    view.model.decoder.layers = view.model.decoder.layers[:count]
    return view


def _shallow_copy(module: nn.Module) -> nn.Module:
    """Copies a module but not its parts, which can then be replaced without changing the module."""
    twin = copy.copy(module)
    twin._modules = module._modules.copy()
    return twin


# Stop strings ------------------------------------------------------------------------------------


class StopStrings(StopStringCriteria):
    """Stops a row as soon as its text contains one of the stop strings, for any vocabulary.

    The base class asks the tokenizer for tokens that spell "abcdef". It fails with most
    vocabularies that cannot spell it.
    """

    @staticmethod
    def clean_tokenizer_vocab(
        tokenizer: Any,
        static_prefix: str = "",
        stop_string_matching_mode: str | None = None,
    ) -> tuple[tuple[str | bytes, ...], tuple[int, ...]]:
        """Returns the text of each token, as it follows other text, and the ids of the tokens.

        Args:
            stop_string_matching_mode: "byte_level" or "byte_fallback" if tokens may hold parts of
                characters; their texts are then bytes. None: texts.
        """
        mode, vocabulary = stop_string_matching_mode, tokenizer.get_vocab()
        letters = StopStringCriteria._byte_level_decoder() if mode == "byte_level" else None
        before = _tokens_of_some_text(tokenizer, vocabulary)
        texts: list[str | bytes] = []
        for token in vocabulary:
            text = StopStringCriteria._token_to_bytes(token, mode, letters)
            if text is None:
                text = _text_after(tokenizer, before, token)
                text = text if mode is None else text.encode()
            texts.append(text)
        return tuple(texts), tuple(vocabulary.values())

    def clean_and_embed_tokens_with_cache(
        self, token_list: Any, token_indices: Any, tokenizer: Any
    ) -> Any:
        """Prepares the vocabulary, or takes it from the cache of transformers.

        The tokens only serve as the key of that cache. The decoder is added to the key, because two
        vocabularies with equal tokens may join them in different ways.
        """
        decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
        key = (*token_list, type(self).__name__, repr(decoder))
        prepare: Any = super().clean_and_embed_tokens_with_cache
        return prepare(key, token_indices, tokenizer)


def take_stop_strings(
    config: GenerationConfig, criteria: Any, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[GenerationConfig, Any]:
    """Replaces the stop strings of a generation config by a criterion.

    Args:
        config: What `generate()` was asked for. It is not changed.
        tokenizer: The tokenizer of the model, or None. One with two vocabularies is taken as that
            of the target.

    Returns:
        The config without stop strings, and all criteria. Without stop strings or without a
        tokenizer, they are as they were.
    """
    if config.stop_strings is None or tokenizer is None:
        return config, criteria
    get_target: Any = getattr(tokenizer, "target_tokenizer", lambda: tokenizer)
    stop = StopStrings(get_target(), config.stop_strings)
    config = copy.copy(config)
    config.stop_strings = None
    return config, StoppingCriteriaList([*(criteria or []), stop])


def _tokens_of_some_text(tokenizer: Any, vocabulary: dict[str, int]) -> list[str]:
    """Returns one token that is neither special nor blank, or none if there is no such token."""
    special = set(tokenizer.all_special_tokens)
    for token in sorted(set(vocabulary) - special, key=vocabulary.__getitem__):
        if tokenizer.convert_tokens_to_string([token]).strip(" \ufffd"):
            return [token]
    return []


def _text_after(tokenizer: Any, before: list[str], token: str) -> str:
    """Returns the text that a token adds to a text."""
    start: str = tokenizer.convert_tokens_to_string(before) if before else ""
    whole: str = tokenizer.convert_tokens_to_string([*before, token])
    if whole.startswith(start):
        return whole.removeprefix(start)
    return str(tokenizer.convert_tokens_to_string([token]))


# Refusals ----------------------------------------------------------------------------------------


def _rule_of_two_vocabularies(name: str, neutral: Any, processor: str) -> Rule:
    """Refuses an option that compares ids of the source with ids of the target."""
    return Rule(
        lambda config, options, others: (
            config.is_encoder_decoder
            and not config.share_encoder_decoder_embeddings
            and getattr(options, name) not in (None, neutral)
        ),
        f"`{name}` {{options.{name}}} compares ids of the source with ids of the target, which are "
        "of two vocabularies (`share_encoder_decoder_embeddings` is False): leave it out. If both "
        f"sides do use the same ids, pass transformers' `{processor}` in `logits_processor`.",
    )


def _rule_of_a_token(name: str) -> Rule:
    """Refuses a token that the target's vocabulary does not have; a GPU would end the process."""

    def is_outside(config: Any, options: Any, others: Any) -> bool:
        given = getattr(options, name)
        size = config.decoder_vocab_size if config.is_encoder_decoder else config.vocab_size
        ids = given if isinstance(given, list | tuple) else [given]
        return any(isinstance(one, int) and not 0 <= one < size for one in ids)

    return Rule(
        is_outside,
        f"`{name}` is {{options.{name}}}, but this model's target vocabulary has no such token: "
        "give an id of its tokenizer.",
    )


def _predicts_other_tokens(config: Any, options: Any, others: Any) -> bool:
    """Whether an assistant has another target vocabulary; transformers compares the sources'."""
    assistant = getattr(others.get("assistant_model"), "config", None)
    size = getattr(assistant, "decoder_vocab_size", None)
    return (
        config.is_encoder_decoder
        and size not in (None, config.decoder_vocab_size)
        and cast(Any, assistant).vocab_size == config.vocab_size
    )


REFUSALS: tuple[Rule, ...] = (
    *(
        Rule(
            lambda config, options, others, name=name: (
                getattr(options, name) is not None and getattr(options, name) < 1
            ),
            f"`{name}` must be at least 1, got {{options.{name}}}.",
        )
        for name in ("num_beams", "num_return_sequences")
    ),
    *map(
        _rule_of_a_token,
        ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id"),
    ),
    Rule(
        lambda config, options, others: (
            options.assistant_early_exit is not None
            and not 1 <= options.assistant_early_exit <= config.decoder_layers
        ),
        "`assistant_early_exit` must be a number of the decoder's layers, 1 to "
        "{config.decoder_layers}, got {options.assistant_early_exit}.",
    ),
    # These two read `input_ids` as the beginning of the generated text.
    Rule(
        lambda config, options, others: (
            config.is_encoder_decoder and options.guidance_scale not in (None, 1)
        ),
        "`guidance_scale` {options.guidance_scale} compares two prompts of a language model; a "
        "model with an encoder has none: leave it out.",
    ),
    Rule(
        lambda config, options, others: config.is_encoder_decoder and options.token_healing,
        "`token_healing` repairs the end of a language model's prompt; a model with an encoder has "
        "none: leave it out.",
    ),
    _rule_of_two_vocabularies(
        "encoder_repetition_penalty", 1.0, "EncoderRepetitionPenaltyLogitsProcessor"
    ),
    _rule_of_two_vocabularies(
        "encoder_no_repeat_ngram_size", 0, "EncoderNoRepeatNGramLogitsProcessor"
    ),
    Rule(
        lambda config, options, others: (
            config.is_encoder_decoder
            and not config.share_encoder_decoder_embeddings
            and others.get("assistant_tokenizer") is not None
        ),
        "`assistant_tokenizer` translates between the vocabularies of two models, but this model "
        "has two (`share_encoder_decoder_embeddings` is False): use an assistant with the same "
        "vocabularies.",
    ),
    Rule(
        _predicts_other_tokens,
        "`assistant_model` predicts {others[assistant_model].config.decoder_vocab_size} tokens, "
        "but this model {config.decoder_vocab_size}: use an assistant with the same target "
        "vocabulary.",
    ),
)
"""What `generate()` refuses: options that cannot give the right result with these models."""
