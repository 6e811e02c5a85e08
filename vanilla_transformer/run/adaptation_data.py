"""The pairs of an adaptation: read, filtered, and split so that no test is in the training data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from datasets import Dataset

from vanilla_transformer.data.arguments import SPLITS, DataArguments
from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.corpora import describe_report, entries_of, reports_of, tags_of
from vanilla_transformer.data.corpus_entries import shares_of
from vanilla_transformer.data.parallel_data import files_of_split, load_parallel_data
from vanilla_transformer.progress import print_message
from vanilla_transformer.rules import is_given
from vanilla_transformer.run.adapt_options import AdaptArguments
from vanilla_transformer.run.parsing import parse_arguments

GENERAL = "general"
"""The corpus that keeps the model from forgetting; a recipe may have an entry of this name."""
GENERAL_VALIDATION, GENERAL_TEST = f"{GENERAL}-validation", f"{GENERAL}-test"
_LEAST_PAIRS = 50


class Pair(NamedTuple):
    """A pair of lines, and the document that it belongs to; "": it is not known."""

    source: str
    target: str
    document: str = ""


@dataclass(frozen=True)
class Splits:
    """The pairs of an adaptation.

    Attributes:
        training: The training pairs by corpus; the own ones come first.
        held_out: "validation" and "test", and with general pairs "general-validation" and
            "general-test".
        weights: The weights of the corpora that have one.
        options: The options of the data that the training takes too, by name.
        tags: What sources of the corpora begin with.
    """

    training: dict[str, list[Pair]]
    held_out: dict[str, list[Pair]]
    weights: dict[str, float]
    options: dict[str, Any]
    tags: list[str]

    def write(self, folder: Path) -> None:
        """Writes two text files for each corpus and each split."""
        folder.mkdir(exist_ok=True)
        for number, (name, pairs) in enumerate(self.training.items()):
            _write_pairs(folder / _file_stem(number, name), pairs)
        for name, pairs in self.held_out.items():
            _write_pairs(folder / name, pairs)

    def entries(self, folder: Path) -> list[dict[str, Any]]:
        """Returns the entries of `corpora` for the training, with the written files."""
        entries = []
        for number, name in enumerate(self.training):
            entry: dict[str, Any] = {"name": name, "filters": False}
            entry["train"] = text_files(folder / _file_stem(number, name))
            held_out = GENERAL_VALIDATION if name == GENERAL else "validation"
            if held_out in self.held_out and (number == 0 or name == GENERAL):
                entry["validation"] = text_files(folder / held_out)
            if name in self.weights:
                entry["weight"] = self.weights[name]
            entries.append(entry)
        return entries


def _file_stem(number: int, name: str) -> str:
    return name if name == GENERAL else f"train-{number + 1}" if number else "train"


def text_files(stem: Path) -> list[str]:
    """Returns the files of source and target."""
    return [f"{stem}.{side}" for side in ("source", "target")]


def _write_pairs(stem: Path, pairs: Iterable[Pair]) -> None:
    for number, path in enumerate(text_files(stem)):
        write_atomic(Path(path), "".join(f"{pair[number]}\n" for pair in pairs))


def data_options(options: AdaptArguments) -> DataArguments:
    """Returns the options of the own data: of the recipe, or for the files.

    Raises:
        ValueError: If the recipe holds other options, or an entry is wrong.
    """
    if options.recipe is None:
        splits = {name: getattr(options, name) for name in ("validation", "test")}
        return DataArguments(corpora=[options.entry("own", options.files, **splits)])
    arguments = parse_arguments([options.recipe])
    known = {one.name for one in fields(DataArguments)}
    if others := [name for name in arguments.given if name not in known]:
        raise ValueError(
            f"The recipe {options.recipe!r} sets {', '.join(others)}: `adapt` takes the data of a "
            "recipe alone; give its other options in the command."
        )
    return arguments.data


def files_of(data: DataArguments) -> list[str]:
    """Returns the files that options name."""
    own = [path for split in SPLITS for path in files_of_split(data, split)]
    return own + [
        path for corpus in entries_of(data) for split in SPLITS for path in corpus.paths(split)
    ]


def split_data(options: AdaptArguments) -> Splits:
    """Reads and filters the pairs, and splits off validation and test where none are given.

    They come from the first corpus, as whole documents where these are known. Pairs of their
    sources leave the training; so do those of their targets in the other corpora, which may be
    translations of the same text. Own pairs replace general ones of their source.

    Raises:
        ValueError: If there are too few pairs, or as `load_parallel_data`.
    """
    data, chance = data_options(options), Random(options.seed)
    loaded = load_parallel_data(data)
    if "train" not in loaded:
        raise ValueError(f"The recipe {options.recipe!r} names no training data: give some.")
    for report in reports_of(loaded["train"]):
        print_message(describe_report(report))
    training, tags = _by_corpus(loaded["train"]), tags_of(data)
    general = training.pop(GENERAL, None)
    if general is not None and (options.general or options.general_texts):
        raise ValueError("The recipe has general pairs: leave out `general` and `general_texts`.")
    first = next(iter(training), "")
    _check_number(training.get(first, []), f"pairs in the corpus {first!r}", "give more")
    held_out = dict[str, list[Pair]]()
    for name in ("validation", "test"):
        given = _by_corpus(loaded[name]) if name in loaded else {}
        if GENERAL in given:
            held_out[f"{GENERAL}-{name}"] = given.pop(GENERAL)
        if given:
            held_out[name] = [pair for pairs in given.values() for pair in pairs]
    for name in ("validation", "test"):
        if name not in held_out:
            held_out[name], training[first] = _split_off(training[first], options.held_out, chance)
            _drop_held_out(training, held_out[name], tags)
    training = {name: pairs for name, pairs in training.items() if pairs}
    limits = ("corpora_temperature", "max_source_length", "max_target_length")
    passed = {name: value for name in limits if (value := getattr(data, name)) is not None}
    splits = Splits(training, held_out, _weights_of(options, data, training), passed, tags)
    if GENERAL in splits.weights:
        passed.pop("corpora_temperature", None)
    if options.general:
        entry = options.entry(GENERAL, options.general)
        general = _pairs_of(load_parallel_data(DataArguments(corpora=[entry]))["train"])
    if general is not None:
        general = without_own(general, (*training.values(), *held_out.values()))
        for name in (GENERAL_TEST, GENERAL_VALIDATION):
            if name not in held_out:
                held_out[name], general = _split_off(general, options.held_out, chance)
        if options.general:
            count = options.general_count(sum(map(len, training.values())))
            general = chance.sample(general, min(len(general), count))
        training[GENERAL] = general
    return splits


def _weights_of(
    options: AdaptArguments, data: DataArguments, own: dict[str, list[Pair]]
) -> dict[str, float]:
    """Returns the weights of the recipe; that of general pairs without one makes their share.

    Few general pairs are then used several times in an epoch.
    """
    entries = entries_of(data)
    has_share = bool(options.general or options.general_texts) or (
        data.corpora_temperature is None
        and any(one.name == GENERAL and one.weight is None for one in entries)
    )
    if not has_share:
        if is_given(options, "general_share"):
            raise ValueError(
                f"`general_share` {options.general_share} has no effect: the recipe "
                f"{options.recipe!r} has no entry {GENERAL!r} without a weight."
            )
        return {one.name: one.weight for one in entries if one.weight is not None}
    sizes: dict[str, float] = {name: len(pairs) for name, pairs in own.items()}
    shares = shares_of(entries, sizes, data.corpora_temperature) or sizes
    share = options.general_share
    return {**shares, GENERAL: sum(shares.values()) * share / (1 - share)}


def _by_corpus(rows: Dataset) -> dict[str, list[Pair]]:
    names = rows["corpus"] if "corpus" in rows.column_names else ["own"] * len(rows)
    found: dict[str, list[Pair]] = {}
    for name, pair in zip(names, _pairs_of(rows), strict=True):
        found.setdefault(name, []).append(pair)
    return found


def _pairs_of(rows: Dataset) -> list[Pair]:
    sides = ([" ".join(text.split()) for text in rows[side]] for side in ("source", "target"))
    documents = rows["document"] if "document" in rows.column_names else [""] * len(rows)
    return [Pair(*values) for values in zip(*sides, documents, strict=True)]


def _check_number(pairs: Sequence[Pair], what: str, remedy: str) -> None:
    if len(pairs) < _LEAST_PAIRS:
        raise ValueError(f"There are only {len(pairs)} {what}: {remedy}.")


def without_own(general: list[Pair], own: Iterable[list[Pair]]) -> list[Pair]:
    """Returns the general pairs without the sources of own pairs."""
    sources = {pair.source.casefold() for pairs in own for pair in pairs}
    general = [pair for pair in general if pair.source.casefold() not in sources]
    _check_number(
        general,
        "general pairs whose source is not one of your own",
        "give other texts, or leave them out",
    )
    return general


def _split_off(pairs: list[Pair], count: int, chance: Random) -> tuple[list[Pair], list[Pair]]:
    """Splits off whole documents, or all pairs of some sources: at most a tenth of all pairs.

    A document that is too large stays, unless all are: then the smallest one is taken.
    """
    count = max(1, min(count, len(pairs) // 10))
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.document or pair.source.casefold(), []).append(pair)
    if len(groups) < 3:
        raise ValueError(
            f"The pairs come from {len(groups)} documents, too few to keep one for a validation "
            "and one for a test: name two columns, or give `validation` and `test`."
        )
    chosen, size = set[str](), 0
    for name in chance.sample(list(groups), len(groups)):
        if size + len(groups[name]) <= count:
            chosen.add(name)
            size += len(groups[name])
    chosen = chosen or {min(groups, key=lambda name: len(groups[name]))}
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for pair in pairs:
        parts[(pair.document or pair.source.casefold()) not in chosen].append(pair)
    return parts


def _drop_held_out(
    training: dict[str, list[Pair]], held_out: Sequence[Pair], tags: Sequence[str]
) -> None:
    """Drops training pairs whose source is held out, or outside of the first corpus the target."""

    def source_of(pair: Pair) -> str:
        tag, _, rest = pair.source.partition(" ")
        return (rest if tag in tags else pair.source).casefold()

    sources = {source_of(pair) for pair in held_out}
    targets = {pair.target.casefold() for pair in held_out}
    for number, (name, pairs) in enumerate(training.items()):
        training[name] = [
            pair
            for pair in pairs
            if source_of(pair) not in sources
            and (number == 0 or pair.target.casefold() not in targets)
        ]
