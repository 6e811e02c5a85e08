"""Adapts a saved model to a file of pairs, and tells whether it has become better.

Everything is in the output directory: `before` (a model of another system, converted), `trimmed`
and `grown` (with another vocabulary), `data`, `training`, the comparison, and `model`: the adapted
model, or the old one if the adapted one is not significantly better.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.atomic_files import replaced_directory, write_atomic
from vanilla_transformer.data.corpora import corpus_rows
from vanilla_transformer.data.corpus_entries import Corpus
from vanilla_transformer.data.file_contents import content_digest, read_object
from vanilla_transformer.data.filters import pair_key
from vanilla_transformer.data.text_files import read_lines
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.grown_vocabulary import grow_vocabulary
from vanilla_transformer.interop.recognition import recognised_kind
from vanilla_transformer.interop.vocabulary import trim_vocabulary
from vanilla_transformer.names import ERROR_RATES, MODEL_TYPE
from vanilla_transformer.progress import print_message
from vanilla_transformer.run import training_run
from vanilla_transformer.run.adapt_options import AdaptArguments
from vanilla_transformer.run.comparison import SIGNIFICANT, Comparison, describe_scores
from vanilla_transformer.run.comparison_page import comparison_page
from vanilla_transformer.run.evaluation import compare_models
from vanilla_transformer.run.parsing import parse_arguments

_EXAMPLES = 5
_LEAST_PAIRS = 50
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Adapted:
    """What an adaptation has led to.

    Attributes:
        model: Directory of the model to use.
        is_better: Whether it is the adapted one: significantly better on the own test set.
        own: The comparison on the own test set.
        general: The comparison on the general test set; None: there is none.
    """

    model: Path
    is_better: bool
    own: Comparison
    general: Comparison | None


def check_adaptation(options: AdaptArguments) -> dict[str, Any]:
    """Checks files and output directory, and returns what identifies the adaptation.

    Raises:
        FileNotFoundError: If the model or a file does not exist.
        ValueError: If the directory holds something else than this adaptation.
    """
    contents = [content_digest(path) for path in options.existing_files()]
    identity = {**asdict(options), "contents": contents}
    del identity["output_dir"]
    folder, record = Path(options.output_dir), _record_of(options)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        known = read_object(record) if record.is_file() else None
        if known != json.loads(json.dumps(identity)):
            raise ValueError(
                f"`output_dir` {str(folder)!r} is in use, and not by an adaptation with these "
                "options and files: choose another directory."
            )
    return identity


def _record_of(options: AdaptArguments) -> Path:
    return Path(options.output_dir) / "adapt.json"


def adapt(options: AdaptArguments) -> Adapted:
    """Adapts a model; a run that was interrupted goes on with the same options.

    Raises:
        FileNotFoundError: As `check_adaptation`.
        ValueError: As `check_adaptation`, if there are too few pairs, and as a training.
    """
    identity, folder = check_adaptation(options), Path(options.output_dir)
    data = _split_data(options)  # before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(_record_of(options), json.dumps(identity, indent=1))
    before = _converted_model(options)
    if options.general_texts:
        data["general"] = _own_outputs(options, before, data)
    for name, pairs in data.items():
        print_message(f"{name}: {len(pairs):,} pairs")
        _write_pairs(folder / "data", name, pairs)
    start = _model_with_vocabulary(options, before, "general" in data)
    after = folder / "training"
    _train_model(options, start, after, "general" in data)
    own, general = (
        compare_models(
            [str(before), str(after)],
            DataArguments(
                test_source=str(folder / "data" / f"{name}.source"),
                test_target=str(folder / "data" / f"{name}.target"),
            ),
            metrics=options.metrics,
        )
        if name in data
        else None
        for name in ("test", "general-test")
    )
    assert own is not None
    is_better = _significant_gain(own, options.metrics[0]) > 0
    _write_reports(folder, own, general)
    with replaced_directory(folder / "model") as unfinished:
        _copy_model(after if is_better else before, unfinished)
    return Adapted(folder / "model", is_better, own, general)


# Data ---------------------------------------------------------------------------------------------


def _split_data(options: AdaptArguments) -> dict[str, Pairs]:
    """Reads and filters the pairs, and splits off validation and test where none are given.

    All pairs of a source go to the same split, and own pairs replace general ones of their source:
    no source of a test is trained on.
    """
    chance = Random(options.seed)
    data: dict[str, Pairs] = {
        name: _read_pairs(options.pairs_of(getattr(options, name), filtered=False))
        for name in ("validation", "test")
        if getattr(options, name)
    }
    held_out = frozenset(pair_key(*pair) for pairs in data.values() for pair in pairs)
    rest = _read_pairs(options.pairs_of(options.files), held_out)
    for name in ("validation", "test"):
        if name not in data:
            data[name], rest = _split_off(rest, options.held_out, chance)
    data["train"] = rest
    if options.general:
        held_out |= {pair_key(*pair) for name in ("validation", "test") for pair in data[name]}
        own = {source.casefold() for pairs in data.values() for source, _ in pairs}
        general = _read_pairs(options.pairs_of(options.general), held_out)
        general = [pair for pair in general if pair[0].casefold() not in own]
        if len(general) < _LEAST_PAIRS:
            raise ValueError(
                f"`general` {options.general} has {len(general)} pairs with other sources than "
                "your own pairs, which are too few: give other texts, or leave the option out."
            )
        data["general-test"], general = _split_off(general, options.held_out, chance)
        data["general"] = chance.sample(general, min(len(general), _general_count(options, rest)))
    return data


def _general_count(options: AdaptArguments, own: Sequence[Any]) -> int:
    """Returns how many general pairs make up their share."""
    return round(len(own) * options.general_share / (1 - options.general_share))


def _read_pairs(corpus: Corpus, held_out: frozenset[int] = frozenset()) -> Pairs:
    rows = corpus_rows(corpus, "train", held_out)
    pairs = [
        (" ".join(row.source.split()), " ".join(row.target.split()))
        for row in rows
        if not row.reason
    ]
    if len(pairs) < (1 if corpus.filters is False else _LEAST_PAIRS):
        raise ValueError(
            f"{', '.join(corpus.paths('train'))}: the filters leave {len(pairs)} pairs, which are "
            "too few: give more."
        )
    return pairs


def _split_off(pairs: Pairs, count: int, chance: Random) -> tuple[Pairs, Pairs]:
    """Splits off the pairs of some sources: about `count`, and at most a tenth of all."""
    count = min(count, len(pairs) // 10)
    sources = list(dict.fromkeys(source.casefold() for source, _ in pairs))
    chosen = set(chance.sample(sources, min(count, len(sources) // 2)))
    parts: tuple[Pairs, Pairs] = ([], [])
    for pair in pairs:
        parts[pair[0].casefold() not in chosen].append(pair)
    return parts


def _own_outputs(options: AdaptArguments, model: Path | str, data: dict[str, Pairs]) -> Pairs:
    """Returns general texts that are held out nowhere, with the outputs of the old model."""
    path = Path(options.output_dir) / "data" / "general"
    if Path(f"{path}.target").is_file():  # of an interrupted run
        return list(zip(read_lines(f"{path}.source"), read_lines(f"{path}.target"), strict=True))
    texts = [" ".join(line.split()) for line in read_lines(str(options.general_texts))]
    used = {source.casefold() for name in ("validation", "test") for source, _ in data[name]}
    texts = list(dict.fromkeys(text for text in texts if text and text.casefold() not in used))
    count = min(len(texts), _general_count(options, data["train"]))
    texts = Random(options.seed).sample(texts, count)
    outputs = Translator.from_pretrained(str(model)).translate(texts, progress=True)
    outputs = [" ".join(text.split()) for text in outputs]
    return [pair for pair in zip(texts, outputs, strict=True) if all(pair)]


def _write_pairs(folder: Path, name: str, pairs: Pairs) -> None:
    folder.mkdir(exist_ok=True)
    for number, side in enumerate(("source", "target")):
        write_atomic(folder / f"{name}.{side}", "".join(f"{pair[number]}\n" for pair in pairs))


# Models -------------------------------------------------------------------------------------------


def _converted_model(options: AdaptArguments) -> Path | str:
    """Returns the old model, converted if it is one of another system."""
    config, converted = Path(options.model) / "config.json", Path(options.output_dir) / "before"
    is_saved = config.is_file() and read_object(config).get("model_type") == MODEL_TYPE
    if is_saved or not Path(options.model).exists():  # or a name on the Hub
        return options.model
    if not (converted / "config.json").is_file():
        done = convert(recognised_kind(options.model), options.model, converted, overwrite=True)
        print_message(f"{options.model} is converted. {done.outcome}")
    return converted


def _model_with_vocabulary(
    options: AdaptArguments, before: Path | str, has_general: bool
) -> Path | str:
    """Returns the model that the training starts from, with its vocabulary trimmed and grown."""
    folder, start = Path(options.output_dir), before
    names = ("train", "validation", *(["general"] if has_general else []))
    sources, targets = (
        [str(folder / "data" / f"{name}.{side}") for name in names] for side in ("source", "target")
    )
    if options.trim:
        trimmed = folder / "trimmed"
        if not trimmed.exists():
            print_message(trim_vocabulary(str(start), str(trimmed), sources, targets).describe())
        start = trimmed
    if options.add:
        grown = folder / "grown"
        if not grown.exists():
            grow_vocabulary(str(start), str(grown), [*sources, *targets], options.add)
        start = grown
    return start


def _train_model(
    options: AdaptArguments, start: Path | str, output_dir: Path, has_general: bool
) -> dict[str, float]:
    data = Path(options.output_dir) / "data"
    entries = [
        {"name": name, "train": [str(data / f"{name}.{side}") for side in ("source", "target")]}
        for name in ("train", *(["general"] if has_general else []))
    ]
    given = {
        "model_name_or_path": start,
        "output_dir": output_dir,
        "validation_source": data / "validation.source",
        "validation_target": data / "validation.target",
        "learning_rate": options.learning_rate,
        "warmup_steps": 0.05,
        "num_train_epochs": options.epochs,
        "max_tokens": options.max_tokens,
        "early_stopping_patience": options.patience,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "save_total_limit": 2,
        "load_best_model_at_end": True,
        "seed": options.seed,
    }
    if output_dir.exists():
        given["resume_from_checkpoint"] = True
    words = [f"--{name}={value}" for name, value in given.items()]
    words += ["--metrics", *options.metrics]
    words += ["--corpora", *(json.dumps({**entry, "filters": False}) for entry in entries)]
    arguments = parse_arguments(words)
    training_run.show_messages(arguments)
    return training_run.run(arguments)


def _copy_model(source: Path | str, folder: Path) -> None:
    """Copies a model to a new directory, without checkpoints; a name on the Hub is saved."""
    folder.mkdir(exist_ok=True)
    if not Path(source).is_dir():
        from huggingface_hub import snapshot_download

        source = snapshot_download(str(source))
    for path in Path(source).iterdir():
        if path.is_file():
            shutil.copy(path, folder)


# The comparison -----------------------------------------------------------------------------------


def _significant_gain(found: Comparison, metric: str) -> float:
    """Returns by how much the second model is better than the first; 0: not significantly."""
    (pair,) = found.scores[metric]["pairs"]
    gain = float(pair["difference"] or 0) * (-1 if metric in ERROR_RATES else 1)
    return gain if pair["p_value"] < SIGNIFICANT else 0.0


def _write_reports(folder: Path, own: Comparison, general: Comparison | None) -> None:
    for name, found in (("own", own), ("general", general)):
        if found is not None:
            write_atomic(folder / f"{name}.html", comparison_page(found))
            text = json.dumps(asdict(found), indent=1, ensure_ascii=False, allow_nan=False)
            write_atomic(folder / f"{name}.json", text)


def describe_adaptation(done: Adapted) -> Iterator[str]:
    """Yields the lines of a report: scores before and after, examples, and what they mean."""
    for title, found in (("Own test set", done.own), ("General test set", done.general)):
        if found is not None:
            yield f"{title} ({len(found.sources):,} texts):"
            yield from (f"  {line}" for line in describe_scores(found.scores))
    yield from _describe_examples(done.own)
    metric = done.own.text_metric
    (pair,) = done.own.scores[metric]["pairs"]
    if done.is_better:
        yield f"The adapted model is significantly better in {metric} (p = {pair['p_value']:.3f})."
    else:
        p = f"p = {pair['p_value']:.3f}"
        yield f"No significant difference for the better in {metric} ({p}): the old model is kept."
    if done.is_better and done.general is not None and _significant_gain(done.general, metric) < 0:
        yield "It is significantly worse on the general test set: raise `--general-share`."
    yield f"The model to use: {done.model}. All outputs: {done.model.parent / 'own.html'}."


def _describe_examples(found: Comparison) -> Iterator[str]:
    before, after = (found.text_scores[name] for name in found.models)
    sign = -1 if found.text_metric in ERROR_RATES else 1
    gains = sorted(
        (sign * (new - old), row) for row, (old, new) in enumerate(zip(before, after, strict=True))
    )
    for title, chosen in (("better", gains[::-1]), ("worse", gains)):
        rows = [
            row for gain, row in chosen[:_EXAMPLES] if (gain > 0) == (title == "better") and gain
        ]
        if rows:
            yield f"Changed most for the {title}:"
        for row in rows:
            old, new = (found.predictions[name][row] for name in found.models)
            yield f"  {found.sources[row]}: {old} → {new} (wanted: {found.references[row][0]})"
