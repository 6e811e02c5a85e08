"""The options of a request, declared once for Python, the command line and the server.

This file imports nothing heavy.

The command `translate`, the fields of the server's requests to `/v1/generate`, the keywords of
`Translator.translate` and the table of docs/translating.md are made from `TranslateOptions`.
`NAMES` has the names that differ.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import regex

from vanilla_transformer.options import (
    BatchOptions,
    GenerationOptions,
    LanguageOptions,
    SearchOptions,
    option,
    range_of,
    range_problem,
    same_option,
)
from vanilla_transformer.rules import refuse

_CANDIDATES = 16
"""Number of outputs that minimum risk compares, unless another one is given."""

Metric = Callable[[str, str], float]
"""Returns the similarity of an output and a reference, higher for better."""

NAMES: Mapping[str, Mapping[str, str]] = {
    "Python": {
        "source_language": "src_lang",
        "target_language": "tgt_lang",
        **{
            name: f"return_{name}"
            for name in ("scores", "tokens", "alignment", "word_alignment", "links", "marks")
        },
    },
    "/translate": {
        "source_language": "source",
        "target_language": "target",
        "n_best": "alternatives",
        "scores": "quality",
    },
}
"""The names of options in Python and in `/translate`, where they differ from the fields."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The details that a request returns besides the texts; see `Translation`."""

    scores: bool = option("return scores, scores of tokens, and the quality of outputs", False)
    tokens: bool = option("return the tokens of outputs", False)
    alignment: bool = option("return pairs (source token, target token)", False)
    word_alignment: bool = option("return pairs (source word, target word)", False)
    links: bool = option("return where linked tokens are in the texts", False)
    marks: bool = option("return where outputs have kept parts and terms", False)

    @property
    def details(self) -> "OutputOptions":
        """These options alone."""
        names = [declared.name for declared in fields(OutputOptions)]
        return OutputOptions(**{name: getattr(self, name) for name in names})

    @property
    def linked(self) -> bool:
        """Whether tokens are to be aligned."""
        return self.alignment or self.word_alignment or self.links

    @property
    def has_details(self) -> bool:
        """Whether more than texts is returned."""
        return self.linked or self.scores or self.tokens or self.marks


def compile_patterns(patterns: Iterable[str]) -> tuple[Any, ...]:
    """Compiles the patterns of further kept parts; a text is one pattern."""
    patterns = [patterns] if isinstance(patterns, str) else patterns
    try:
        return tuple(map(regex.compile, patterns))
    except regex.error as error:
        raise ValueError(f"{error.pattern!r} is no regular expression: {error}.") from error


def _pattern(text: str) -> str:
    """Checks a regular expression, and returns it."""
    compile_patterns([text])
    return text


@dataclass(frozen=True, kw_only=True)
class KeptOptions:
    """The options of the parts of sources that outputs keep."""

    keep_patterns: list[str] = option(
        "keep in outputs also the parts that this regular expression matches; may be repeated",
        [],
        flag="--keep-pattern",
        action="append",
        type=_pattern,
        metavar="REGEX",
    )


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(LanguageOptions, KeptOptions, GenerationOptions, OutputOptions):
    """The options of a request: its languages, its search, and its demands on outputs."""

    _argument_group_name = "outputs (defaults of the search: as saved with the model)"

    n_best: int | None = option("outputs per text", ge=1)
    minimum_risk: str | Metric | None = option(
        "choose among several outputs the one that is most similar to the others", choices=("chrf",)
    )
    candidates: int | None = option(
        f"outputs per text that minimum risk compares (default: {_CANDIDATES})", ge=1
    )
    keep: bool = option(
        "put placeholders, addresses, paths, options, names of code, emoji and unknown characters "
        "into an output that lacks them",
        True,
    )
    glossary: Any = option(
        "terms that outputs must have: a .tsv of source and target, and optionally 1 or 0 for "
        "`case` and `exact` (docs/better.md)",
        type=os.path.abspath,  # workers have another working directory
        metavar="FILE",
    )
    in_sentences: bool = option("translate each sentence alone, as in a document", False)
    batch_tokens: int | None = same_option(BatchOptions, "batch_tokens")

    def __post_init__(self) -> None:
        refuse(
            (
                self.candidates is not None and self.minimum_risk is None,
                "`candidates` has no effect without `minimum_risk`: give both, or `n_best`.",
            ),
            (
                self.keep_patterns and not self.keep,
                "`keep_patterns` has no effect without `keep`: leave one of them out.",
            ),
        )

    @property
    def num_candidates(self) -> int | None:
        """Number of outputs of a text among which one is chosen. None: `n_best` are returned."""
        return None if self.minimum_risk is None else self.candidates or _CANDIDATES

    @classmethod
    def of(cls, **keywords: Any) -> Self:
        """Makes options of the keywords of `Translator.translate`, by their names there.

        Other names are settings of the search, by their names in `GenerationConfig`; `Search`
        checks their ranges.
        """
        if other := next((name for name in NAMES["Python"] if name in keywords), None):
            raise ValueError(f"`{other}` is called `{NAMES['Python'][other]}` here.")
        given = {_FIELD_OF[name]: keywords.pop(name) for name in _FIELD_OF.keys() & keywords.keys()}
        for name in given.keys() - SearchOptions.__dataclass_fields__.keys():
            value = given[name]
            if value is not None and (problem := range_problem(value, range_of(cls, name))):
                raise ValueError(f"`{name}` is {value}, which {problem}.")
        return cls(**given, generation=list(keywords.items()))


_FIELD_OF: Mapping[str, str] = {
    NAMES["Python"].get(declared.name, declared.name): declared.name
    for declared in fields(TranslateOptions)
    if declared.name != "generation"
}
"""The fields of `TranslateOptions` by their names in Python."""
