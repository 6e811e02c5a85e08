"""The data of a run, one entry for each corpus; needs no heavy package."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from vanilla_transformer.data.filters import active_filters
from vanilla_transformer.files.text_files import suffix_of
from vanilla_transformer.language_tags import Languages, standard_tag
from vanilla_transformer.rules import Rule, check_rules, refuse

INLINE = ("keep", "drop")
"""Treatments of the codes of inline elements of a .tmx, such as `<ph>&lt;br/&gt;</ph>`."""
SPLITS = ("train", "validation", "test")


def _is_no_list(value: Any, sizes: tuple[int, ...] = (2,)) -> bool:
    """Returns whether a value is no list of so many texts or numbers above 0."""
    return not (
        isinstance(value, list)
        and len(value) in sizes
        and all(item > 0 if type(item) is int else isinstance(item, str) for item in value)
    )


def is_table(files: Sequence[str]) -> bool:
    """Returns whether the files of a split are one table, which has columns."""
    return len(files) == 1 and suffix_of(files[0]) != ".tmx"


RULES = (
    Rule(
        ("name",),
        lambda value, _: value in ("low", "high"),
        "`{name}` {value!r} is that of an end of an interval (bleu_{value}): give another one.",
    ),
    Rule(
        ("weight",),
        lambda value, _: not (isinstance(value, int | float) and value > 0),
        "`{name}` {value!r} must be a number above 0: leave the corpus out, or give it a share.",
    ),
    Rule(
        ("tag",),
        lambda value, _: str(value).split() != [value],
        "`{name}` {value!r} must be one word, such as <bt>.",
    ),
    Rule(
        ("languages",),
        lambda value, _: _is_no_list(value),
        "`{name}` {value!r} must name the source and the target, such as [en, de].",
    ),
    Rule(
        ("columns",),
        lambda value, _: _is_no_list(value, (2, 3)),
        "`{name}` {value!r} must name the source and the target, such as [1, 2], and the document "
        "as a third one.",
    ),
    Rule(
        ("inline",),
        lambda value, _: value not in INLINE,
        f"`{{name}}` {{value!r}} is unknown: choose from {', '.join(INLINE)}.",
    ),
    Rule(
        ("dataset",),
        lambda value, options: not isinstance(value, str) or options.train is not None,
        "`{name}` {value!r} must be one name, without `train`.",
    ),
    Rule(
        SPLITS,
        lambda value, _: not isinstance(value, str) and _is_no_list(value),
        "`{name}` {value!r} must be one file of pairs, or a list of two text files.",
    ),
    Rule(
        ("columns",),
        lambda _, corpus: (
            not corpus.dataset
            and any(map(corpus.paths, SPLITS))
            and not any(map(is_table, map(corpus.paths, SPLITS)))
        ),
        "`{name}` {value!r} have no effect: two text files and a .tmx have none. Leave them out.",
    ),
)


@dataclass(frozen=True)
class Corpus:
    """One entry of `corpora`, or data that other options name.

    Attributes:
        name: Its name in messages, scores and the card: by default the name of the first file. "":
            other options name the data, of which filters drop only empty pairs.
        train: Training pairs: a file (.tsv, .tmx, .csv, .json, .jsonl, .parquet), or a list of two
            text files. All but .parquet also with .gz; text, .tsv and .tmx also with .zst.
        validation: Validation pairs, in the same form.
        test: Test pairs, in the same form.
        dataset: Data set of the Hub or directory of one, in place of the files.
        dataset_config: Name of its configuration on the Hub.
        columns: Source, target and perhaps the document: numbers of columns of a .tsv from 1 on;
            or names, such as `translation.en` for a part of a column.
        languages: The codes of source and target, which columns of the data overrule.
        tag: Token that is put before each source.
        weight: Share of the pairs of an epoch, in relation to the other weights.
        filters: Limits of filters by name, or False for none.
        inline: Whether the codes of inline elements of a .tmx are kept or dropped.
    """

    name: str = ""
    train: str | list[str] | None = None
    validation: str | list[str] | None = None
    test: str | list[str] | None = None
    dataset: str | None = None
    dataset_config: str | None = None
    columns: list[Any] | None = None
    languages: Languages | None = None
    tag: str | None = None
    weight: float | None = None
    filters: dict[str, Any] | bool | None = None
    inline: str = "keep"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads an entry."""
        try:
            values = json.loads(text)
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise ValueError(
                f"`corpora` holds {text!r}: give each entry as `name: value`, in a list."
            )
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(
                    f"`corpora` has the unknown name {name!r}: choose from {', '.join(known)}."
                )
        corpus = cls(**{**values, "name": cls(**values).label})
        try:
            check_rules(RULES, corpus)
            has_files = any(getattr(corpus, name) for name in (*SPLITS, "dataset"))
            refuse(
                (not has_files, "it names no files: set `train`."),
                (
                    corpus.weight is not None and not corpus.may_have("train"),
                    "`weight` is a share of the training: set `train`.",
                ),
            )
            active_filters(corpus.filters)
            for tag in corpus.languages or ():
                standard_tag(tag)
        except ValueError as error:
            raise ValueError(f"`corpora`, {corpus.label}: {error}") from None
        return corpus

    @property
    def label(self) -> str:
        """Its name in messages."""
        if self.name:
            return str(self.name)
        named = next((value for name in (*SPLITS, "dataset") if (value := getattr(self, name))), "")
        first = Path(str(named[0] if isinstance(named, list) else named)).name
        return first.split(".")[0] or "an entry without files"

    def paths(self, split: str) -> list[str]:
        """Returns the files of a split."""
        named = getattr(self, split)
        return [named] if isinstance(named, str) else list(named or ())

    def may_have(self, split: str) -> bool:
        """Returns whether files of a split are named, or a data set, which may have it."""
        return bool(self.dataset or self.paths(split))

    def limits(self, split: str) -> dict[str, float | bool]:
        """Returns the limits of the filters of a split, by name."""
        if split != "train" or not self.name:
            return {"empty": True}
        return active_filters(self.filters)

    def check_languages(self) -> None:
        """Refuses a .tmx without the languages of both sides."""
        for path in (path for split in SPLITS for path in self.paths(split)):
            if suffix_of(path) == ".tmx" and None in (self.languages or (None,)):
                raise ValueError(
                    f"{path} needs `languages`, such as [en, de] (or `source_language` and "
                    "`target_language`)."
                )


def read_entries(texts: Sequence[str]) -> list[Corpus]:
    """Reads the entries of `corpora`, and checks that names of their scores differ."""
    corpora = [Corpus.from_json(text) for text in texts]
    names = [corpus.name for corpus in corpora]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"`corpora` has two entries {repeated[0]!r}: give them a `name` each.")
    for split in SPLITS[1:]:
        scored = [corpus for corpus in corpora if corpus.may_have(split)]
        directions = {each.name: "-".join(map(str, each.languages or ())) for each in scored}
        for name in directions:
            if name in (other for key, other in directions.items() if key != name):
                raise ValueError(f"`corpora`: {name!r} is the direction of others, too: rename it.")
    return corpora


def shares_of(
    corpora: Sequence[Corpus], sizes: Mapping[str, float], temperature: float | None
) -> dict[str, float] | None:
    """Returns the share of each corpus in the pairs of an epoch; None: the share of its size.

    Args:
        sizes: Number of training pairs of each corpus that has any, by its name.
        temperature: T of the shares n^(1/T) for n pairs; None: the weights decide.
    """
    weights = {corpus.name: corpus.weight for corpus in corpora}
    if temperature is not None:
        raw = {name: size ** (1 / temperature) for name, size in sizes.items()}
    elif any(weights.values()):  # a weight is above 0
        raw = {name: weights[name] or 1.0 for name in sizes}
    else:
        return None
    return {name: value / sum(raw.values()) for name, value in raw.items()}
