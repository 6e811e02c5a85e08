"""The report: a student beside its teacher, in scores, speed and size."""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from datasets import Dataset
from huggingface_hub import ModelCard

from vanilla_transformer.columns import with_languages
from vanilla_transformer.distil.journal import Journal, describe_use
from vanilla_transformer.distil.options import DistilOptions
from vanilla_transformer.distil.teachers import Teacher
from vanilla_transformer.files.atomic_files import write_atomic
from vanilla_transformer.files.loading import load_model
from vanilla_transformer.files.text_files import short_line
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.progress import without_messages
from vanilla_transformer.run.comparison import (
    SIGNIFICANT,
    MetricComparison,
    ModelComparison,
    compare_outputs,
    describe_comparison,
)
from vanilla_transformer.run.model_size import bytes_in_8_bits
from vanilla_transformer.run.score_tokenizers import choose_score_tokenizers

_TIMED = 32  # texts whose time is measured
_FAR = 0.9
"""Share of its teacher's score below which a student is far from it. Chosen, not measured."""


@dataclass(frozen=True)
class Report:
    """A student beside its teacher."""

    references: str  # "by people", or "answers of the teacher"
    comparison: ModelComparison  # of the student, the teacher and the unchanged sources
    unanswered: int  # texts of the test that are left out, because the teacher has failed
    right_texts: int  # texts of the test that equal a reference
    right_texts_changed: Mapping[str, int]  # how many of them each model changes
    seconds: Mapping[str, float]  # for a text: "student one by one", "teacher together", ...
    bytes_in_8_bits: int  # of the student
    tokens: Sequence[int]  # that the teacher has read, and written
    cost: float | None  # of these tokens; None: it is not known
    texts: Mapping[str, int]  # of each split, and those that are left out
    failed: Mapping[str, str]  # the reason, by text
    dropped: Mapping[str, tuple[str, str]]  # the reason and the answer, by text


def make_report(
    options: DistilOptions,
    journal: Journal,
    references: Mapping[str, Sequence[str]],
    counts: Mapping[str, int],
    dropped: Mapping[str, tuple[str, str]],
) -> Report:
    """Compares a student with its teacher.

    Args:
        references: The references of each text of the test: by people, or labels.
        counts, dropped: See `Report.texts` and `Report.dropped`.
    """
    metrics, student = options.chosen_metrics, Translator.from_pretrained(options.student)
    texts = [text for text in references if text in journal.answers]
    lists = [references[text] for text in texts]
    rows = Dataset.from_dict({"source": texts, "target": [each[0] for each in lists]})
    rows = with_languages(rows, (None, options.target_language))
    tokenizers = choose_score_tokenizers(rows, metrics)
    outputs = {"student": student.translate(texts)}
    if options.test is not None:
        outputs["teacher"] = [journal.answers[text] for text in texts]
    outputs["copying"] = texts
    right = [index for index, text in enumerate(texts) if text in references[text]]
    return Report(
        references="answers of the teacher" if options.test is None else "by people",
        comparison=compare_outputs(texts, outputs, lists, metrics, tokenizers),
        unanswered=len(references) - len(texts),
        right_texts=len(right),
        right_texts_changed={
            name: sum(texts[index] != made[index] for index in right)
            for name, made in outputs.items()
            if right
        },
        seconds=_measure(journal.teacher, student, texts[:_TIMED]),
        bytes_in_8_bits=bytes_in_8_bits(load_model(str(options.student), "cpu")[0]),
        tokens=journal.tokens,
        cost=journal.cost(journal.tokens),
        texts=counts,
        failed=journal.failed,
        dropped=dropped,
    )


def _measure(teacher: Teacher, student: Translator, texts: list[str]) -> dict[str, float]:
    """Returns the seconds for a text, one by one and together, of a student and a local teacher."""
    ways: dict[str, Callable[[list[str]], Any]] = {"student": student.translate}
    if not teacher.is_remote:
        ways["teacher"] = lambda texts: deque(teacher.answer(texts), maxlen=0)
    seconds = defaultdict[str, float](float)
    with without_messages():  # the same texts have had their messages
        for answer in ways.values():
            answer(texts[:1])  # the first call takes longer
        for kind, parts in (("one by one", [[text] for text in texts]), ("together", [texts])):
            for part in parts:
                for name, answer in ways.items():
                    began = perf_counter()
                    answer(part)
                    seconds[f"{name} {kind}"] += (perf_counter() - began) / len(texts)
    return dict(seconds)


def describe_report(report: Report) -> Iterator[str]:
    """Yields the lines of a report for people."""
    scores, seconds = report.comparison.scores, report.seconds
    count = f"{len(report.comparison.sources):,} texts"
    if report.unanswered:
        count += f" (without {report.unanswered:,} on which the teacher has failed)"
    yield f"Test: {count}; references: {report.references}."
    yield from describe_comparison(scores)
    for name, changed in report.right_texts_changed.items():
        yield f"{name}: {changed:,} of {report.right_texts:,} right texts changed wrongly"
    yield from judge_student(scores)
    for kind in ("one by one", "together"):
        student, teacher, ratio = seconds[f"student {kind}"], seconds.get(f"teacher {kind}"), ""
        if teacher:
            ratio = f", {student / teacher:.2f} of its teacher's {1000 * teacher:,.1f}"
        yield f"Texts {kind}: {1000 * student:,.1f} ms a text{ratio}."
    yield f"Size in 8 bits: {report.bytes_in_8_bits / 10**6:,.1f} MB."
    if use := describe_use(report.tokens, report.cost):
        yield f"Teacher: {', '.join(use)}."
    dropped = report.dropped
    yield f"Answers dropped: {len(dropped):,}; texts without an answer: {len(report.failed):,}."
    for reason, total in Counter(reason for reason, _ in dropped.values()).most_common():
        text, answer = next((t, answer) for t, (own, answer) in dropped.items() if own == reason)
        yield f"  {reason}: {total:,}, e.g. {short_line(text, 60)} -> {short_line(answer, 60)}"


def judge_student(scores: Mapping[str, MetricComparison]) -> Iterator[str]:
    """Says whether a student is better than copying and near its teacher, and what would help."""
    metric, of_metric = next(iter(scores.items()))
    values = {name: row[metric] for name, row in of_metric.models.items()}
    if metric in ERROR_RATES:  # None is an infinite rate; nothing is worse than 100
        values = {name: 100 - min(100 if v is None else v, 100) for name, v in values.items()}
    test = next(test for test in of_metric.pairs if test.models == ["student", "copying"])
    is_better = values["student"] > values["copying"] and test.p_value < SIGNIFICANT
    is_far = values["student"] < _FAR * values.get("teacher", 100)
    if not is_better:
        yield "The student is no better than copying its sources."
    if is_far:
        yield f"The student is far below its teacher in {metric}."
    if is_far or not is_better:
        yield "More texts, more `--minutes` or a larger `--size` would help."


def write_report(report: Report, options: DistilOptions) -> None:
    """Writes the report into `report.json`, and onto the card of the student."""
    content = {name.replace("_", " "): value for name, value in asdict(report).items()}
    write_atomic(options.folder / "report.json", json.dumps(content, indent=1, ensure_ascii=False))
    path = options.student / "README.md"
    card: Any = ModelCard(path.read_text(encoding="utf-8"))
    body = card.text.partition("\n## Distillation\n")[0].rstrip()
    lines = "\n".join(describe_report(report))
    card.text = f"{body}\n\n## Distillation\n\n```text\n{lines}\n```\n"
    write_atomic(path, str(card))
