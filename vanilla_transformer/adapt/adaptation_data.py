"""The data of an adaptation: its pairs in splits, and what they are mixed with."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unicodedata import normalize

from datasets import Dataset

from vanilla_transformer.adapt.options import GENERAL, AdaptArguments
from vanilla_transformer.columns import languages_of_rows
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.cased_copies import add_cased_copies
from vanilla_transformer.data.corpus_entries import shares_of
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.files.atomic_files import write_atomic
from vanilla_transformer.files.file_contents import text_digest
from vanilla_transformer.files.text_files import as_cell, on_one_line, read_lines
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.progress import print_message

GENERAL_VALIDATION, GENERAL_TEST = f"{GENERAL}-validation", f"{GENERAL}-test"
_OF_TRAINING = (
    *("corpora_temperature", "placeholder_share", "terms", "memory"),
    *("max_source_length", "max_target_length"),
)
"""The options of the data that count when the pairs have been read."""
_LEAST_PAIRS = 50  # a tenth of them, split off twice, is still five texts; chosen, not measured


class Pair(NamedTuple):
    """A pair without a tag; the document that it belongs to ("": none), languages, references."""

    source: str
    target: str
    document: str = ""
    source_language: str | None = None
    target_language: str | None = None
    references: list[str] | None = None


_Corpora = dict[str, list[Pair]]
"""The pairs of a split, by the name of their corpus."""


@dataclass(frozen=True)
class Splits:
    """The pairs of an adaptation, by corpus; not every corpus has a tag and a weight."""

    training: _Corpora  # the own pairs come first
    held_out: dict[str, _Corpora]  # "validation", "test", "general-validation", "general-test"
    tag_of: dict[str, str]
    weights: dict[str, float]
    options: dict[str, Any]  # of the data, which the training takes too
    case_augment: float | None  # share of the training pairs that have copies in other case

    @property
    def tags(self) -> list[str]:
        """What sources of the corpora begin with."""
        return list(dict.fromkeys(self.tag_of.values()))

    def add_cased_copies(self, share: float) -> None:
        """Adds copies of a share of the training pairs in other case."""
        for name, pairs in self.training.items():
            rows = Dataset.from_list([pair._asdict() for pair in pairs])
            copied = add_cased_copies(rows, share)
            self.training[name] = [Pair(**row) for row in copied]

    def write(self, folder: Path) -> dict[str, list[dict[str, Any]]]:
        """Writes a file for each corpus of each split.

        Returns:
            The entries of `corpora` that name the files: those of the training, with its
            validation, as "train"; and those of each test, by its name.
        """
        folder.mkdir(exist_ok=True)
        entries: dict[str, dict[str, dict[str, Any]]] = {}
        for split, corpora in {"train": self.training, **self.held_out}.items():
            kind = split.removeprefix(f"{GENERAL}-")
            listed = entries.setdefault(split if kind == "test" else "train", {})
            for number, (name, pairs) in enumerate(corpora.items(), start=1):
                path = folder / (f"{split}-{number}.jsonl" if number > 1 else f"{split}.jsonl")
                rows = ({k: value for k, value in p._asdict().items() if value} for p in pairs)
                write_atomic(path, "".join(f"{json.dumps(row)}\n" for row in rows))
                entry = listed.setdefault(name, {"name": name})
                entry[kind] = str(path)
                if name in self.tag_of:
                    entry["tag"] = self.tag_of[name]
                if kind == "train":
                    entry["filters"] = False
                    entry |= {"weight": self.weights[name]} if name in self.weights else {}
        return {split: list(listed.values()) for split, listed in entries.items()}


def split_data(options: AdaptArguments) -> Splits:
    """Reads and filters the pairs, and splits off validation and test where none are given.

    They come from the first corpus, as whole documents where these are known. Pairs of their
    sources leave the training; so do those of their targets in the other corpora, which may be
    translations of the same text. Own pairs replace general ones of their source.
    """
    data, chance = options.data(), Random(options.seed)
    read = load_parallel_data(replace(data, case_augment=None))  # copies come after the split
    loaded, training = read.splits, _Corpora()
    if "train" in loaded:
        training = _by_corpus(loaded["train"], data)
        for report in read.reports:
            if report.tells_something:
                print_message(report.describe())
    general = training.pop(GENERAL, None)
    if general is not None and options.general_texts:
        raise ValueError("The recipe has general pairs: leave out `general_texts`.")
    first = next(iter(training), "")
    _check_number(training.get(first, []), f"training pairs in the corpus {first!r}", "give more")
    held_out = dict[str, _Corpora]()
    for name in ("validation", "test"):
        corpora = _by_corpus(loaded[name], data) if name in loaded else {}
        if GENERAL in corpora:
            held_out[f"{GENERAL}-{name}"] = {GENERAL: corpora.pop(GENERAL)}
        if corpora:
            held_out[name] = corpora
    for name in ("validation", "test"):
        if name not in held_out:
            part, training[first] = _split_off(training[first], options.held_out, chance)
            held_out[name] = {first: part}
            _drop_held_out(training, part)
    training = {name: pairs for name, pairs in training.items() if pairs}
    passed = {name: value for name in _OF_TRAINING if (value := getattr(data, name)) is not None}
    weights = _weights_of(options, data, training)
    if GENERAL in weights:  # they stand for the temperature
        passed.pop("corpora_temperature", None)
    if general is not None:
        general = _without_own(general, training, held_out)
        for name in (GENERAL_TEST, GENERAL_VALIDATION):
            if name not in held_out:
                part, general = _split_off(general, options.held_out, chance)
                held_out[name] = {GENERAL: part}
        if options.general:
            general = _sample(general, options, training, chance)
        training[GENERAL] = general
    tag_of = {entry.name: entry.tag for entry in data.entries if entry.tag is not None}
    return Splits(training, held_out, tag_of, weights, passed, data.case_augment)


def add_own_outputs(
    splits: Splits, options: AdaptArguments, model: Path, model_digest: str, folder: Path
) -> None:
    """Adds the outputs of the old model for general texts that are no own sources.

    They are in the languages of the first own pair, and kept in the folder, in a file of this model
    and these texts.
    """
    lines = map(as_cell, read_lines(str(options.general_texts)))
    texts = dict.fromkeys(line for line in lines if line.strip())
    pairs = _without_own([Pair(text, "") for text in texts], splits.training, splits.held_out)
    pairs = _sample(pairs, options, splits.training, Random(options.seed))
    sources = [pair.source for pair in pairs]
    first, *_ = next(iter(splits.training.values()))
    source, target = languages = first.source_language, first.target_language
    written = folder / f"{text_digest(json.dumps([model_digest, sources, languages]))[:16]}.tsv"
    if not written.is_file():
        outputs = Translator.from_pretrained(str(model)).translate(
            sources, src_lang=source, tgt_lang=target, progress=True
        )
        rows = (
            f"{text}\t{as_cell(output)}\n" for text, output in zip(sources, outputs, strict=True)
        )
        folder.mkdir(exist_ok=True)
        write_atomic(written, "".join(rows))
    rows_of_file = (line.split("\t") for line in read_lines(str(written)))
    splits.training[GENERAL] = [
        Pair(text, output, "", *languages)
        for text, output in rows_of_file
        if text.strip() and output.strip()
    ]


def _weights_of(options: AdaptArguments, data: DataArguments, own: _Corpora) -> dict[str, float]:
    """Returns the weights of the recipe; that of general pairs without one makes their share.

    Few general pairs are then used several times in an epoch.
    """
    entries = data.entries
    has_share = bool(options.general_texts) or (
        data.corpora_temperature is None
        and any(entry.name == GENERAL and entry.weight is None for entry in entries)
    )
    if not has_share:
        return {entry.name: entry.weight for entry in entries if entry.weight is not None}
    sizes: dict[str, float] = {name: len(pairs) for name, pairs in own.items()}
    shares = shares_of(entries, sizes, data.corpora_temperature) or sizes
    share = options.general_share
    return {**shares, GENERAL: sum(shares.values()) * share / (1 - share)}


def _by_corpus(rows: Dataset, data: DataArguments) -> _Corpora:
    """Returns the pairs of each corpus; their sources are without the tag of the corpus."""
    begins = {entry.name: f"{entry.tag} " for entry in data.entries if entry.tag}
    corpora = _Corpora()
    for row, languages in zip(rows, languages_of_rows(rows), strict=True):
        name = row.get("corpus") or "own"
        source = on_one_line(row["source"]).removeprefix(begins.get(name, ""))
        others = row.get("document") or "", *languages, row.get("references")
        corpora.setdefault(name, []).append(Pair(source, on_one_line(row["target"]), *others))
    return corpora


def _comparable(text: str) -> str:
    """Returns what two texts share that differ in case, white space or Unicode form only."""
    return " ".join(normalize("NFC", text).casefold().split())


def _check_number(pairs: Sequence[Pair], what: str, remedy: str) -> None:
    if len(pairs) < _LEAST_PAIRS:
        raise ValueError(f"There are only {len(pairs)} {what}: {remedy}.")


def _without_own(
    general: list[Pair], training: _Corpora, held_out: dict[str, _Corpora]
) -> list[Pair]:
    """Returns the general pairs without the sources of own pairs."""
    own = (pairs for corpora in (training, *held_out.values()) for pairs in corpora.values())
    sources = {_comparable(pair.source) for pairs in own for pair in pairs}
    general = [pair for pair in general if _comparable(pair.source) not in sources]
    _check_number(
        general,
        "general pairs whose source is not one of your own",
        "give other texts, or leave them out",
    )
    return general


def _sample(
    general: list[Pair], options: AdaptArguments, own: _Corpora, chance: Random
) -> list[Pair]:
    """Returns as many general pairs as make up their share beside the own ones, or all of them."""
    share = options.general_share
    count = round(sum(map(len, own.values())) * share / (1 - share))
    return chance.sample(general, min(len(general), count))


def _split_off(pairs: list[Pair], count: int, chance: Random) -> tuple[list[Pair], list[Pair]]:
    """Splits off whole documents, or all pairs of some sources: at most a tenth of all pairs.

    A document that is too large stays, unless all are: then the smallest one is taken.
    """
    count = max(1, min(count, len(pairs) // 10))
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.document or _comparable(pair.source), []).append(pair)
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
        parts[(pair.document or _comparable(pair.source)) not in chosen].append(pair)
    return parts


def _drop_held_out(training: _Corpora, held_out: Sequence[Pair]) -> None:
    """Drops training pairs whose source is held out, or outside of the first corpus the target."""
    sources = {_comparable(pair.source) for pair in held_out}
    targets = {_comparable(pair.target) for pair in held_out}
    for index, (name, pairs) in enumerate(training.items()):
        training[name] = [
            pair
            for pair in pairs
            if _comparable(pair.source) not in sources
            and (index == 0 or _comparable(pair.target) not in targets)
        ]
