"""Distils a teacher into a small model: its labels, the training, and the report.

All is in the output directory: `labels` (the journal of the teacher's answers, and a table of pairs
for each split), `model`, and `report.json`.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from vanilla_transformer.columns import references_of
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.distil.filters import judged
from vanilla_transformer.distil.labels import Labels, choose_texts
from vanilla_transformer.distil.options import Options
from vanilla_transformer.distil.report import describe_report, make_report, write_card
from vanilla_transformer.distil.teachers import Teacher
from vanilla_transformer.files.atomic_files import LOCK, check_output_directory, write_atomic
from vanilla_transformer.files.directory_lock import locked_directory
from vanilla_transformer.files.file_contents import content_digest
from vanilla_transformer.files.text_files import as_cell
from vanilla_transformer.language_tags import Languages
from vanilla_transformer.progress import print_message
from vanilla_transformer.run import training_run
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.training.metrics import as_lists

LAYERS = {"encoder_layers": 6, "decoder_layers": 2}
_TRIED = 20  # texts of a dry run
_MOST_PHRASES = 0.1  # share of texts of several words, below which tokens are characters


def distil(
    options: Options, teacher: Teacher, texts: Iterable[str], command: Sequence[str]
) -> Iterator[str]:
    """Distils a teacher, and yields lines for people; a run that was interrupted goes on.

    The model card shows the words of the command.
    """
    folder = options.folder / "labels"
    with locked_directory(options.folder, True):
        labels = _open_labels(options, teacher, folder)
        references = {} if options.test is None else _read_test(options.test, options.languages)
        splits, others = choose_texts(texts, [*references], options.held_out, options.max_texts)
        counts = {name: len(split) for name, split in splits.items()} | others
        print_message(f"Texts: {', '.join(f'{name} {n:,}' for name, n in counts.items())}.")
        wanted = [text for split in splits.values() for text in split]
        if options.dry_run:
            yield from _try_out(labels, wanted)
            return
        try:
            labels.ask(wanted)
        except KeyboardInterrupt:
            saved = f"{len(labels.answers):,} of {len(wanted):,} answers are saved"
            print_message(f"{saved}: the same command goes on from there.")
            raise
        answers = {text: labels.answers[text] for text in wanted if text in labels.answers}
        reasons = judged(answers, options.languages)
        accepted = {
            name: [(text, answers[text]) for text in split if reasons.get(text) == ""]
            for name, split in splits.items()
        }
        for name, rows in {**accepted, "failed": [*labels.failed.items()]}.items():
            _write_rows(folder / f"{name}.tsv", rows)
        _check_answers(labels, len(wanted), len(answers), accepted)
        model = _train(options, accepted, command)
        references = references or {text: [answer] for text, answer in accepted["test"]}
        report = make_report(options, labels, model, references)
        dropped = {text: (reason, answers[text]) for text, reason in reasons.items() if reason}
        report |= {"texts": counts, "failed": labels.failed, "dropped": dropped}
        report_file = options.folder / "report.json"
        write_atomic(report_file, json.dumps(report, indent=1, ensure_ascii=False))
        write_card(report, model)
        yield from describe_report(report)
        yield f"The model to use: {model}"


def _open_labels(options: Options, teacher: Teacher, folder: Path) -> Labels:
    """Opens the labels of a teacher, which no other teacher may extend, in a directory of it."""
    identity, record = json.dumps(options.identity(), indent=1), folder / "teacher.json"
    files = [path for path in options.folder.rglob("*") if path.is_file() and path.name != LOCK]
    if files and not (record.is_file() and record.read_text(encoding="utf-8") == identity):
        whose = f"{str(files[0])!r} is of another teacher, or yours"
        raise ValueError(f"{whose}: choose another directory.")
    folder.mkdir(exist_ok=True)
    write_atomic(record, identity)
    marks = not teacher.keeps_parts and all(options.languages)
    return Labels(folder / "answers.jsonl", teacher, marks, options.price)


def _read_test(path: str, languages: Languages) -> dict[str, list[str]]:
    """Returns the references of each text of a test."""
    entry = {"test": path, **({"languages": languages} if all(languages) else {})}
    rows = load_parallel_data(DataArguments(corpora=[json.dumps(entry)])).splits["test"]
    references: dict[str, list[str]] = {}
    for source, own in zip(rows["source"], as_lists(references_of(rows)), strict=True):
        references.setdefault(" ".join(source.split()), []).extend(own)
    return references


def _write_rows(path: Path, rows: Iterable[tuple[str, str]]) -> None:
    cells = ((source, as_cell(target.strip())) for source, target in rows)
    write_atomic(path, "".join(f"{source}\t{target}\n" for source, target in cells))


def _try_out(labels: Labels, wanted: Sequence[str]) -> Iterator[str]:
    """Asks a few texts; yields them with their answers, and what all would take."""
    left = [text for text in wanted if text not in labels.answers]
    some, before, began = left[:: max(1, len(left) // _TRIED)][:_TRIED], labels.tokens, monotonic()
    labels.ask(some)
    share = len(left) / max(1, len(some))
    minutes = (monotonic() - began) * share / 60
    for text in some:
        failed = f"(failed: {labels.failed.get(text)})"
        yield f"{text}\t{labels.answers.get(text, failed)}"
    paid = [share * (now - then) for now, then in zip(labels.tokens, before, strict=True)]
    cost = labels.cost(paid)
    yield f"{len(left):,} texts: {minutes:,.1f} minutes{cost}. The answers above are saved."


def _check_answers(
    labels: Labels, num_texts: int, num_answers: int, accepted: Mapping[str, Sequence[Any]]
) -> None:
    """Ends where a teacher fails too often, or where nothing is left to learn from."""
    if labels.has_failed(num_texts) or num_answers + len(labels.failed) < num_texts:
        raise ValueError(
            f"{labels.describe_failures()} That is too many: {num_answers:,} of {num_texts:,} "
            "texts have an answer. They are saved, and the same command goes on from there."
        )
    if empty := [name for name, rows in accepted.items() if not rows]:
        raise ValueError(f"No answer is left for {empty[0]}: `--dry-run` shows some.")


# The training -------------------------------------------------------------------------------------


def _train(
    options: Options, accepted: Mapping[str, Sequence[tuple[str, str]]], command: Sequence[str]
) -> Path:
    """Trains the model; a training on other labels or with other options begins anew."""
    model, record = options.folder / "model", options.folder / "training.json"
    files = {
        name: str(options.folder / "labels" / f"{name}.tsv") for name in ("train", "validation")
    }
    given = dict(
        output_dir=str(model),
        corpora=[json.dumps({"name": "labels", "filters": False, **files})],
        source_language=options.source_language,
        target_language=options.target_language,
        metrics=options.scores,
        generation_num_beams=1,
        resume_from_checkpoint="True",
        **LAYERS,
        size=options.size,
        minutes=options.minutes,
        seed=options.seed,
    )
    pairs = accepted["train"]
    if sum(" " in text for text, _ in pairs) < _MOST_PHRASES * len(pairs):
        given["tokenizer_kind"] = "char"
    made_from = json.dumps([given, *map(content_digest, files.values())], indent=1)
    if record.is_file() and record.read_text(encoding="utf-8") != made_from:
        check_output_directory(str(model), overwrite=True)
        print_message("The labels or the options have changed: the model is trained anew.")
        shutil.rmtree(model, ignore_errors=True)
    write_atomic(record, made_from)
    arguments = RunArguments.of({k: v for k, v in given.items() if v is not None}, command)
    training_run.show_messages(arguments)
    training_run.run(arguments)
    return model
