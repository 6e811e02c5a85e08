"""Distils a teacher into a small model: labels, a training, and a report.

The output directory holds everything: `labels` (the journal of the teacher's answers, and the pairs
of each split), `model`, and `report.json`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import ceil
from time import monotonic

from vanilla_transformer.columns import references_of
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.distil.filters import reasons_against
from vanilla_transformer.distil.journal import Journal, are_too_many, describe_use
from vanilla_transformer.distil.options import DistilOptions
from vanilla_transformer.distil.report import Report, make_report, write_report
from vanilla_transformer.distil.sampling import choose_texts
from vanilla_transformer.distil.teachers import Teacher
from vanilla_transformer.files.atomic_files import LOCK, write_atomic
from vanilla_transformer.files.directory_lock import locked_directory
from vanilla_transformer.files.file_contents import content_digest
from vanilla_transformer.files.text_files import as_cell
from vanilla_transformer.progress import print_message
from vanilla_transformer.run import training_run
from vanilla_transformer.run.arguments import RunArguments

LAYERS = {"encoder_layers": 6, "decoder_layers": 2}
_TRIED = 20  # texts of a dry run
_WORD_LIST_SHARE = 0.1
"""If a smaller share of the texts has several words, tokens are characters."""

Pairs = Sequence[tuple[str, str]]


def distil(
    options: DistilOptions, teacher: Teacher, texts: Iterable[str], command: Sequence[str]
) -> Report:
    """Distils a teacher; a run that was interrupted goes on.

    Args:
        command: The words of the command, for the model card.
    """
    with locked_directory(options.folder, True):
        journal, references = _open_journal(options, teacher), _read_test(options)
        splits, counts = choose_texts(texts, [*references], options.held_out, options.max_texts)
        pairs, dropped = _label(options, journal, splits)
        _train(options, pairs, command)
        references = references or {text: [label] for text, label in pairs["test"]}
        report = make_report(options, journal, references, counts, dropped)
        write_report(report, options)
    return report


def try_out(options: DistilOptions, teacher: Teacher, texts: Iterable[str]) -> Iterator[str]:
    """Asks for a few texts; yields them with their answers, and the time and cost of all texts."""
    with locked_directory(options.folder, True):
        journal, references = _open_journal(options, teacher), _read_test(options)
        splits, _ = choose_texts(texts, [*references], options.held_out, options.max_texts)
        left = journal.missing(chain(*splits.values()))
        some = left[:: max(1, len(left) // _TRIED)][:_TRIED]
        before, began = journal.tokens, monotonic()
        journal.ask_once(some)
        seconds, share = monotonic() - began - teacher.start, len(left) / max(1, len(some))
    for text in some:
        failed = f"(failed: {journal.failed.get(text)})"
        yield f"{text}\t{journal.answers.get(text, failed)}"
    seconds = share * max(0.0, seconds) + teacher.start * ceil(len(left) / teacher.chunk)
    paid = [share * (now - then) for now, then in zip(journal.tokens, before, strict=True)]
    needs = ", ".join([f"{seconds / 60:,.1f} minutes", *describe_use(paid, journal.cost(paid))])
    yield f"{len(left):,} texts: {needs}. The answers above are saved."


# The labels ---------------------------------------------------------------------------------------


def _open_journal(options: DistilOptions, teacher: Teacher) -> Journal:
    """Opens the journal of a teacher, in its own directory or in an empty one."""
    folder = options.folder / "labels"
    identity, record = json.dumps(options.identity(), indent=1), folder / "teacher.json"
    is_own = record.is_file() and record.read_text(encoding="utf-8") == identity
    files = (path for path in options.folder.rglob("*") if path.is_file() and path.name != LOCK)
    if not is_own and (other := next(files, None)):
        whose = f"{str(other)!r} is of another teacher, or of no distillation"
        raise ValueError(f"{whose}: choose another directory.")
    folder.mkdir(exist_ok=True)
    write_atomic(record, identity)
    marks = not teacher.keeps_parts and all(options.languages)
    return Journal(folder / "answers.jsonl", teacher, marks, options.price)


def _read_test(options: DistilOptions) -> dict[str, list[str]]:
    """Returns the references by people of each text of the test, if there are any."""
    references: dict[str, list[str]] = {}
    if options.test is None:
        return references
    source, target = options.languages
    data = DataArguments(test_file=options.test, source_language=source, target_language=target)
    rows = load_parallel_data(data).splits["test"]
    for text, own in zip(rows["source"], references_of(rows), strict=True):
        references.setdefault(" ".join(text.split()), []).extend(own)
    return references


def _label(
    options: DistilOptions, journal: Journal, splits: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Pairs], dict[str, tuple[str, str]]]:
    """Labels the texts, and writes the pairs of each split.

    Returns:
        The texts and labels of each split, and the reason and answer of each dropped text.
    """
    texts = [*chain(*splits.values())]
    try:
        journal.ask(texts)
    except KeyboardInterrupt:
        saved = f"{len(journal.answers):,} of {len(texts):,} answers are saved"
        print_message(f"{saved}: the same command goes on from there.")
        raise
    answers = {text: journal.answers[text] for text in texts if text in journal.answers}
    reasons = reasons_against(answers, options.languages)
    labels = {text: answer for text, answer in answers.items() if text not in reasons}
    pairs: dict[str, Pairs] = {
        name: [(text, labels[text]) for text in split if text in labels]
        for name, split in splits.items()
    }
    for name, rows in {**pairs, "failed": [*journal.failed.items()]}.items():
        cells = ((source, as_cell(target.strip())) for source, target in rows)
        content = "".join(f"{source}\t{target}\n" for source, target in cells)
        write_atomic(options.folder / "labels" / f"{name}.tsv", content)
    is_ended = len(answers) + len(journal.failed) < len(texts)  # some were never asked
    if is_ended or are_too_many(len(texts) - len(answers), len(texts)):
        raise ValueError(
            f"{journal.describe_failures()} That is too many: {len(answers):,} of {len(texts):,} "
            "texts have an answer. They are saved, and the same command goes on from there."
        )
    if empty := [name for name, rows in pairs.items() if not rows]:
        raise ValueError(f"No answer is left for {empty[0]}: `--dry-run` shows some.")
    return pairs, {text: (reason, answers[text]) for text, reason in reasons.items()}


# The training -------------------------------------------------------------------------------------


def _train(options: DistilOptions, pairs: Mapping[str, Pairs], command: Sequence[str]) -> None:
    """Trains the model, or goes on with its training if labels and options are the same.

    The record of a training holds what decides it: options and contents, but no paths.
    """
    model, record = options.student, options.folder / "training.json"
    names = ("train", "validation")
    files = {name: str(options.folder / "labels" / f"{name}.tsv") for name in names}
    given = dict(
        source_language=options.source_language,
        target_language=options.target_language,
        metrics=options.chosen_metrics,
        generation_num_beams=1,
        **LAYERS,
        size=options.size,
        minutes=options.minutes,
        seed=options.seed,
    )
    if sum(" " in text for text, _ in pairs["train"]) < _WORD_LIST_SHARE * len(pairs["train"]):
        given["tokenizer_kind"] = "char"
    made_from = json.dumps([given, *map(content_digest, files.values())], indent=1)
    is_same = record.is_file() and record.read_text(encoding="utf-8") == made_from
    if model.exists() and not is_same:
        raise ValueError(
            f"{str(model)!r} was trained on other labels or with other options (the teacher may "
            "have answered more texts since): delete it to train another model with these answers, "
            "or choose another directory."
        )
    write_atomic(record, made_from)
    given["output_dir"], given["resume_from_checkpoint"] = str(model), "True"
    given["corpora"] = [json.dumps({"name": "labels", "filters": False, **files})]
    arguments = RunArguments.of({k: v for k, v in given.items() if v is not None}, command)
    training_run.show_messages(arguments)
    training_run.run(arguments)
