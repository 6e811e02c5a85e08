"""How outputs are searched for: saved settings and a caller's options, resolved once for all."""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import isfinite
from types import SimpleNamespace
from typing import Any, Self

from transformers import GenerationConfig, WatermarkingConfig

from vanilla_transformer.model.generation import DEFAULT_MAX_LENGTH, chosen_settings
from vanilla_transformer.rules import Rule, check_rules

LARGEST_PENALTY = 10
"""Largest length penalty, and with a minus the smallest: beyond, scores leave what numbers hold."""

_OTHER_NAMES = {"num_return_sequences": "n_best"}
"""Fields of `GenerationConfig` that callers know under another name."""
_DEFAULTS: Mapping[str, Any] = GenerationConfig._get_default_generation_params()
"""What `generate()` takes for a setting that is None."""
_SMALLEST = {"num_beams": 1, "num_return_sequences": 1, "max_new_tokens": 1, "max_length": 2}

_OF_SAMPLING = (
    *("temperature", "top_k", "top_p", "min_p", "top_h"),
    *("typical_p", "epsilon_cutoff", "eta_cutoff"),
)
_OF_RESULTS = ("return_dict_in_generate", *GenerationConfig.extra_output_flags)
_ONLY_BEAMS = (
    "{{{name}}} {value!r} changes a beam search only: give {{num_beams}} of at least 2, or leave "
    "it out."
)
_CONTRADICTS = "{{{name}}} {value!r} contradicts {{%s}}, which is given too: give one of them."
_RULES = (
    Rule(
        _OF_SAMPLING,
        lambda value, call: not call.search.do_sample,
        "{{{name}}} {value!r} changes sampling only: add {{do_sample}}, or leave it out.",
    ),
    Rule(("length_penalty",), lambda value, call: call.num_beams == 1, _ONLY_BEAMS),
    Rule(
        ("length_penalty",),
        lambda value, call: abs(value) > LARGEST_PENALTY,
        "{{{name}}} is {value}: give a number from "
        f"-{LARGEST_PENALTY} to {LARGEST_PENALTY}.",
    ),
    Rule(
        ("early_stopping",),
        lambda value, call: call.num_beams == 1 and value is not False,
        _ONLY_BEAMS,
    ),
    Rule(
        ("max_length",),
        lambda value, call: hasattr(call, "max_new_tokens"),
        _CONTRADICTS % "max_new_tokens",
    ),
    Rule(
        ("min_length",),
        lambda value, call: hasattr(call, "min_new_tokens"),
        _CONTRADICTS % "min_new_tokens",
    ),
    Rule(
        _OF_RESULTS,
        lambda value, call: True,
        "{{{name}}} {value!r} changes only what `generate()` returns beside the tokens: leave it "
        "out.",
    ),
    Rule(
        ("num_beams",),
        lambda value, call: call.vocab_size is not None and value > call.vocab_size,
        "{{{name}}} is {value}, but the vocabulary has {options.vocab_size} tokens: give a smaller "
        "number.",
    ),
)
"""What is refused: the options of a call, its `search`, and the `vocab_size` of the model."""


class SearchError(ValueError):
    """An option of the search is wrong, or has no effect.

    Args:
        sentence: The message, with the names of options in braces.
    """

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(self.spelled("`{}`".format))

    def spelled(self, name_of: Callable[[str], str]) -> str:
        """Returns the message with the names of options as a caller spells them.

        Args:
            name_of: Returns how an option is written, such as "--num-beams" for "num_beams".
        """
        return re.sub(
            r"\{(\w+)\}",
            lambda found: name_of(_OTHER_NAMES.get(found[1], found[1])),
            self.sentence,
        )


@dataclass(frozen=True)
class Search:
    """The search of one call, with nothing left to decide.

    Attributes:
        settings: All settings of `generate()`. Nothing changes them.
        num_beams: Beam width; 1 is greedy search or sampling.
        max_new_tokens: Longest output in tokens, the end included.
        length_penalty: Exponent of the length by which scores are divided.
    """

    settings: GenerationConfig
    num_beams: int
    n_best: int
    max_new_tokens: int
    length_penalty: float
    do_sample: bool

    @classmethod
    def resolve(
        cls,
        saved: GenerationConfig | None,
        given: Mapping[str, Any],
        *,
        candidates: int | None = None,
        config: Any = None,
    ) -> Self:
        """Combines the settings that are saved with a model with those of a call.

        A beam search stops when `num_beams` outputs are complete, as in most toolkits for
        translation, unless `early_stopping` says otherwise. What a greedy search has saved, or a
        Trainer that fills in all defaults, does not decide about a beam search.

        Args:
            saved: The settings of the model; they are not changed. None: there are none.
            given: Settings that differ, by their names in `GenerationConfig`; None keeps one. The
                number of outputs per source, "num_return_sequences", is never a saved one.
            candidates: Number of outputs among which one is chosen: samples, or a beam of this
                width. None: all outputs are wanted.
            config: The config of the model, which limits lengths and beams. None: nothing does.

        Raises:
            SearchError: If an option is unknown, out of range, contradicts another one, or has no
                effect in this search.
        """
        given = {name: value for name, value in given.items() if value is not None}
        base = GenerationConfig() if saved is None else chosen_settings(saved)
        _check_values(given, base)
        settings = _with_given(base, given)
        n_best = _number_of_outputs(given, candidates)
        if candidates is not None and "num_beams" not in given:
            settings.num_beams = 1 if settings.do_sample else candidates
        max_new_tokens = _set_lengths(settings, base, given, learned_positions(config))
        was_greedy, num_beams = (base.num_beams or 1) == 1, settings.num_beams or 1
        penalty = settings.length_penalty
        settings.num_beams = num_beams
        if num_beams == 1:
            settings.early_stopping = False
            if not was_greedy:
                settings.length_penalty = None  # transformers saves none beside one beam
        elif "early_stopping" not in given and (was_greedy or settings.early_stopping is None):
            settings.early_stopping = True
        settings.num_return_sequences = n_best
        for name in _OF_RESULTS:  # whatever is saved, the tokens alone are read
            setattr(settings, name, False)
        search = cls(
            settings=settings,
            num_beams=num_beams,
            n_best=n_best,
            max_new_tokens=max_new_tokens,
            length_penalty=1.0 if penalty is None else float(penalty),
            do_sample=bool(settings.do_sample),
        )
        call = SimpleNamespace(**{**given, "num_beams": num_beams})
        call.search, call.vocab_size = search, _vocab_size(config)
        check_rules(_RULES, call, SearchError)
        if n_best > num_beams and (num_beams > 1 or not search.do_sample):
            name, remedy = "candidates", "lower {candidates}, or leave {num_beams} out."
            if candidates is None:
                name = "num_return_sequences"
                remedy = "give {num_beams} of at least that number, or sample with one beam."
            raise SearchError(f"{{{name}}} is {n_best}, but the search keeps {num_beams}: {remedy}")
        return search

    @classmethod
    def of_training(cls, args: Any, saved: GenerationConfig | None, config: Any = None) -> Self:
        """Combines saved settings with the options of a training, such as `generation_num_beams`.

        Raises:
            SearchError: As `resolve`, with the names of the training's options.
        """
        names = ("num_beams", "max_length", "length_penalty")
        given = {name: getattr(args, f"generation_{name}", None) for name in names}
        try:
            return cls.resolve(saved, given, config=config)
        except SearchError as error:
            prefixed = error.spelled(lambda name: f"`{'generation_' * (name in names)}{name}`")
            raise SearchError(prefixed) from error

    def for_references(self, length: int) -> Self:
        """Returns the search with outputs of about twice the length of references at most.

        A model that has learned little often finds no end, and goes on to the longest length.

        Args:
            length: Tokens of the longest reference, the end included.
        """
        longest = 2 * length + 8
        least = self.settings.min_new_tokens or (self.settings.min_length or 1) - 1
        if not least <= longest < self.max_new_tokens:
            return self
        settings = deepcopy(self.settings)
        if settings.max_new_tokens is None:
            settings.max_length = longest + 1
        else:
            settings.max_new_tokens = longest
        return replace(self, settings=settings, max_new_tokens=longest)

    def to_save(self) -> GenerationConfig:
        """Returns the settings as they are saved with a model.

        Raises:
            ValueError: If they contradict each other, so that transformers would not save them.
        """
        kept = deepcopy(self.settings)
        for name in ("num_return_sequences", *_OF_RESULTS):
            setattr(kept, name, None)
        if self.num_beams == 1:
            kept.early_stopping = None
        try:
            deepcopy(kept).validate(strict=True)
        except ValueError as error:
            raise ValueError(
                f"The settings of `generate()` contradict each other ({_one_line(error)}): correct "
                "the file in `generation_config`, or that of the saved model."
            ) from error
        return kept


def learned_positions(config: Any) -> int | None:
    """Returns the number of learned positions, in tokens; None: positions of any length."""
    learned = getattr(config, "position_embedding_type", None) == "learned"
    return config.max_position_embeddings if learned else None


def _vocab_size(config: Any) -> int | None:
    """Returns the number of tokens that an output can hold; None: there is no config."""
    size: int | None = getattr(config, "decoder_vocab_size", None)
    return getattr(config, "vocab_size", None) if size is None else size


def start_token_of(settings: GenerationConfig) -> int | None:
    """Returns the token that `generate()` begins targets with; None: the settings name none."""
    start: int | None = settings.decoder_start_token_id
    return settings.bos_token_id if start is None else start


def _with_given(base: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
    """Returns a copy with other values. `update` would warn of what the rules here refuse."""
    settings = deepcopy(base)
    for name, value in given.items():
        if name == "watermarking_config" and isinstance(value, dict):
            value = WatermarkingConfig.from_dict(value)
        if name != "num_return_sequences":
            setattr(settings, name, value)
    try:
        # With these names it warns of no option without effect: the rules refuse those.
        settings.validate(user_set_attributes={"num_beams", "do_sample"})
    except ValueError as error:
        raise SearchError(_one_line(error)) from error
    return settings


def _number_of_outputs(given: Mapping[str, Any], candidates: int | None) -> int:
    if candidates is None:
        return int(given.get("num_return_sequences", 1))
    if "num_return_sequences" in given:
        raise SearchError(
            "Give {num_return_sequences} or {minimum_risk}, not both: the latter chooses one "
            "output."
        )
    if candidates < 2:
        raise SearchError(f"{{candidates}} is {candidates}: {{minimum_risk}} compares at least 2.")
    return candidates


def _set_lengths(
    settings: GenerationConfig,
    base: GenerationConfig,
    given: Mapping[str, Any],
    positions: int | None,
) -> int:
    """Names each length as the saved settings do, and returns the longest output in new tokens.

    `generate()` fills in what is None from the model, and prefers new tokens to lengths, which
    count the start token too. So a length that is given takes the name of the saved one.
    """
    longest = settings.max_length or DEFAULT_MAX_LENGTH
    if settings.max_new_tokens is not None and "max_length" not in given:
        longest = settings.max_new_tokens + 1
    if positions is not None:
        longest = min(longest, positions)
    if longest < 2:
        raise SearchError(
            f"{{max_position_embeddings}} is {longest}, which leaves no room for a token after the "
            "start token: give at least 2."
        )
    by_new_tokens = base.max_new_tokens is not None
    settings.max_length = None if by_new_tokens else longest
    settings.max_new_tokens = longest - 1 if by_new_tokens else None
    if "min_length" in given and base.min_new_tokens is not None:
        settings.min_length, settings.min_new_tokens = None, given["min_length"] - 1
    return longest - 1


def _check_values(given: Mapping[str, Any], base: GenerationConfig) -> None:
    """Refuses unknown options, and values of another type or out of range."""
    fields = [name for name in vars(base) if not name.startswith("_")]
    for name, value in given.items():
        if name not in fields:
            close = [f"did you mean {found!r}?" for found in get_close_matches(name, fields, 1)]
            close.append("use a field of `GenerationConfig`, such as num_beams.")
            raise SearchError(f"Unknown search option {name!r}: {close[0]}")
        usual = _DEFAULTS.get(name)
        if isinstance(usual, bool) and not isinstance(value, bool) and name != "early_stopping":
            raise SearchError(f"{{{name}}} is {value!r}: give true or false.")
        is_finite = _is_whole(value) or (isinstance(value, float) and isfinite(value))
        if isinstance(usual, float) and not is_finite:
            raise SearchError(f"{{{name}}} is {value!r}: give a finite number.")
        is_count = isinstance(usual, int) or name in _SMALLEST
        if is_count and not isinstance(usual, bool) and not _is_whole(value):
            raise SearchError(f"{{{name}}} is {value!r}: give a whole number.")
    for name, smallest in _SMALLEST.items():
        value = given.get(name, getattr(base, name))
        if value is not None and (not _is_whole(value) or value < smallest):
            where = f"{{{name}}} is" if name in given else f"The saved settings have `{name}`"
            raise SearchError(f"{where} {value!r}: give a whole number of at least {smallest}.")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
