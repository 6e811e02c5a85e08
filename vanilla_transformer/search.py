"""The search for outputs: saved settings and a caller's options, resolved once for all."""

from collections.abc import Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Self

from transformers import GenerationConfig

from vanilla_transformer.model.generation import DEFAULT_MAX_LENGTH, chosen_settings
from vanilla_transformer.options import SearchOptions, range_of, range_problem

_RANGES: dict[str, Mapping[str, Any]] = {
    **{name: range_of(SearchOptions, name) for name in SearchOptions.__dataclass_fields__},
    "num_return_sequences": {"ge": 1},
    "max_length": {"ge": 2},
}
_COUNTS = ("num_beams", "num_return_sequences", "max_new_tokens", "max_length")
"""Settings that count in every search, so that a saved one must be right too."""
OF_SAMPLING = (
    *("temperature", "top_k", "top_p", "top_h", "min_p", "typical_p"),
    *("epsilon_cutoff", "eta_cutoff"),
)
"""Settings without effect on a search that samples no tokens."""
_OF_RESULTS = ("return_dict_in_generate", *GenerationConfig.extra_output_flags)
"""Settings that only add to the results of `generate()`, of which the tokens alone are read."""


class SearchError(ValueError):
    """An option of the search is wrong."""


@dataclass(frozen=True)
class Search:
    """The search of one call, with nothing left to decide.

    Attributes:
        settings: All settings of `generate()`. Nothing changes them.
        num_beams: Beam width; 1 is greedy search or sampling.
        n_best: Number of outputs for each source.
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
        options: Mapping[str, Any],
        *,
        candidates: int | None = None,
        config: Any = None,
    ) -> Self:
        """Combines the settings that are saved with a model with the settings of a call.

        A beam search stops when `num_beams` outputs are complete, as in most toolkits for
        translation, unless `early_stopping` says otherwise. Settings that a greedy search has
        saved, or a Trainer that fills in all defaults, do not decide about a beam search.

        Args:
            saved: The settings of the model; they are not changed. None: there are none.
            options: Settings that differ, by their names in `GenerationConfig`; None keeps one. The
                number of outputs per source, "num_return_sequences", is never a saved one.
            candidates: Number of outputs among which one is chosen: samples, or a beam of this
                width. None: all outputs are wanted.
            config: The config of the model, which limits the length. None: nothing does.

        Raises:
            SearchError: If an option is unknown or out of range, or transformers refuses it.
        """
        options = {name: value for name, value in options.items() if value is not None}
        base = GenerationConfig() if saved is None else chosen_settings(saved)
        _check_values(options, base)
        if candidates is not None and "num_return_sequences" in options:
            raise SearchError("Give `n_best` or `minimum_risk`: the latter chooses one output.")
        settings = copy(base)  # `base` is a copy itself
        for name, value in options.items():
            setattr(settings, name, value)
        n_best = options.get("num_return_sequences", 1) if candidates is None else candidates
        if "num_beams" not in options:
            settings.num_beams = _default_beams(settings, options, n_best, candidates is not None)
        max_new_tokens = _set_lengths(settings, base, options, learned_positions(config))
        was_greedy, num_beams = (base.num_beams or 1) == 1, settings.num_beams or 1
        penalty = settings.length_penalty
        settings.num_beams = num_beams
        if num_beams == 1:
            settings.early_stopping = False
            if not was_greedy and "length_penalty" not in options:
                # transformers saves none beside one beam, and warns of a given one, which then
                # counts for scores and second searches alone.
                settings.length_penalty = None
        elif "early_stopping" not in options and (was_greedy or settings.early_stopping is None):
            settings.early_stopping = True
        settings.num_return_sequences = n_best
        for name in _OF_RESULTS:
            setattr(settings, name, False)
        _check_together(settings, options, n_best)
        return cls(
            settings=settings,
            num_beams=num_beams,
            n_best=n_best,
            max_new_tokens=max_new_tokens,
            length_penalty=1.0 if penalty is None else float(penalty),
            do_sample=bool(settings.do_sample),
        )

    @classmethod
    def of_training(cls, args: Any, saved: GenerationConfig | None, config: Any) -> Self:
        """Combines saved settings with settings of a training, such as `generation_num_beams`."""
        names = ("num_beams", "max_length", "length_penalty")
        options = {name: getattr(args, f"generation_{name}", None) for name in names}
        return cls.resolve(saved, options, config=config)

    def capped_by_reference_length(self, length: int) -> Self:
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

    def without_repetition(self, tokens: int) -> Self | None:
        """Returns the search in which no group of so many tokens comes a second time.

        None: the search draws, or forbids repeated tokens itself.
        """
        if self.do_sample or self.settings.no_repeat_ngram_size:
            return None
        settings = deepcopy(self.settings)
        settings.no_repeat_ngram_size, settings.renormalize_logits = tokens, True
        return replace(self, settings=settings)

    def with_outputs(self, count: int) -> Self:
        """Returns the search for at least so many outputs of each source."""
        settings, count = deepcopy(self.settings), max(count, self.num_beams, self.n_best)
        settings.num_return_sequences = count
        if not self.do_sample:
            settings.num_beams = count
            settings.early_stopping = settings.renormalize_logits = True
            settings.length_penalty = self.length_penalty
        return replace(self, settings=settings, num_beams=settings.num_beams, n_best=count)

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
        deepcopy(kept).validate(strict=True)
        return kept


def learned_positions(config: Any) -> int | None:
    """Returns the number of learned positions, in tokens; None: positions of any length."""
    learned = getattr(config, "position_embedding_type", None) == "learned"
    return config.max_position_embeddings if learned else None


def start_token_of(settings: GenerationConfig) -> int | None:
    """Returns the token that `generate()` begins targets with; None: the settings name none."""
    start: int | None = settings.decoder_start_token_id
    return settings.bos_token_id if start is None else start


def needed_start(settings: GenerationConfig) -> int:
    """Returns the token before a target; settings of models for many languages may lack it."""
    start = start_token_of(settings)
    if start is None:
        raise ValueError(
            "`decoder_start_token_id` is None, and so is `bos_token_id`: give the id of the token "
            "that targets begin with, or set it in generation_config.json."
        )
    return start


def _check_values(options: Mapping[str, Any], base: GenerationConfig) -> None:
    """Refuses unknown options, and numbers out of range."""
    fields = [name for name in vars(base) if not name.startswith("_")]
    for name in options.keys() - set(fields):
        close = [f"did you mean {match!r}?" for match in get_close_matches(name, fields, 1)]
        close.append("use a field of `GenerationConfig`, such as num_beams.")
        raise SearchError(f"Unknown search option {name!r}: {close[0]}")
    for name, limits in _RANGES.items():
        value = options.get(name, getattr(base, name) if name in _COUNTS else None)
        if value is not None and limits and (problem := range_problem(value, limits)):
            saved = "" if name in options else " in the saved settings"
            raise SearchError(f"`{name}` is {value}{saved}, which {problem}.")


def _default_beams(
    settings: GenerationConfig, options: Mapping[str, Any], n_best: int, chooses: bool
) -> int:
    """Returns the beam width of a call that names none: samples have one, others enough beams."""
    if settings.do_sample and (chooses or "do_sample" in options):
        return 1
    if chooses:
        return n_best
    return max(settings.num_beams or 1, 1 if settings.do_sample else n_best)


def _set_lengths(
    settings: GenerationConfig,
    base: GenerationConfig,
    options: Mapping[str, Any],
    positions: int | None,
) -> int:
    """Names each length as the saved settings do, and returns the longest output in new tokens.

    `generate()` fills in None from the model, and prefers new tokens to lengths, which count the
    start token too. So a length that is given takes the name of the saved one.
    """
    longest = settings.max_length or DEFAULT_MAX_LENGTH
    is_newer = "max_length" in options and "max_new_tokens" not in options
    if settings.max_new_tokens is not None and not is_newer:
        longest = settings.max_new_tokens + 1
    if positions is not None:
        longest = min(longest, positions)
    by_new_tokens = base.max_new_tokens is not None
    settings.max_length = None if by_new_tokens else longest
    settings.max_new_tokens = longest - 1 if by_new_tokens else None
    if "min_length" in options and base.min_new_tokens is not None:
        settings.min_length, settings.min_new_tokens = None, options["min_length"] - 1
    return longest - 1


def _check_together(settings: GenerationConfig, options: Mapping[str, Any], n_best: int) -> None:
    """Refuses given settings without effect, more outputs than are kept, and what is no search."""
    num_beams = settings.num_beams or 1
    for name in OF_SAMPLING:
        if name in options and not settings.do_sample:
            raise SearchError(f"`{name}` has no effect without sampling: give `do_sample`, too.")
    if n_best > num_beams and (num_beams > 1 or not settings.do_sample):
        raise SearchError(
            f"{n_best} outputs are wanted (`n_best` or `candidates`), but the search keeps "
            f"{num_beams}: give `num_beams` of at least that number, or sample with one beam."
        )
    try:
        settings.validate(user_set_attributes=set(options))
    except ValueError as error:
        raise SearchError(" ".join(str(error).split())) from error
