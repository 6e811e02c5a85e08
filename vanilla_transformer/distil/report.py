"""The report: a student beside its teacher, in scores, speed and size."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from datasets import Dataset
from huggingface_hub import ModelCard

from vanilla_transformer.columns import with_languages
from vanilla_transformer.distil.labels import Labels
from vanilla_transformer.distil.options import Options
from vanilla_transformer.files.atomic_files import write_atomic
from vanilla_transformer.files.loading import load_model
from vanilla_transformer.files.text_files import short_line
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.progress import without_messages
from vanilla_transformer.run.comparison import SIGNIFICANT, compare_outputs, describe_comparison
from vanilla_transformer.run.model_size import bytes_in_8_bits
from vanilla_transformer.run.score_tokenizers import choose_score_tokenizers

_TIMED = 32  # texts whose time is measured
_FAR = 0.9
"""Share of its teacher's score below which a student is far from it. Chosen, not measured."""


def make_report(
    options: Options, labels: Labels, model: Path, references: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Compares a student with its teacher.

    Args:
        references: Those of each text of the test: by people, or answers of the teacher.
    """
    texts, student = list(references), Translator.from_pretrained(model)
    rows = Dataset.from_dict({"source": texts, "target": [each[0] for each in references.values()]})
    rows = with_languages(rows, (None, options.target_language))
    tokenizers = choose_score_tokenizers(rows, options.scores)
    outputs = {"student": student.translate(texts)}
    if options.test is not None:
        outputs["teacher"] = [labels.answers.get(text, "") for text in texts]
    outputs["copying"] = texts
    compared = compare_outputs(
        texts, outputs, list(map(list, references.values())), options.scores, tokenizers
    )
    right = [index for index, text in enumerate(texts) if text in references[text]]
    changed = {
        name: sum(texts[index] != made[index] for index in right)
        for name, made in outputs.items()
        if right
    }
    return {
        "references": "answers of the teacher" if options.test is None else "by people",
        "comparison": asdict(compared),
        "right texts": len(right),
        "right texts changed": changed,
        "seconds": _measure(labels, student, texts[:_TIMED]),
        "bytes in 8 bits": bytes_in_8_bits(load_model(str(model), "cpu")[0]),
        "tokens": labels.tokens,
        "cost": labels.cost(labels.tokens).removeprefix(", "),
    }


def _measure(labels: Labels, student: Translator, texts: list[str]) -> dict[str, float]:
    """Returns the seconds for a text, one by one and together; a local teacher has them, too."""
    ways: dict[str, Callable[[list[str]], Any]] = {"student": student.translate}
    if not labels.teacher.is_remote:
        ways["teacher"] = lambda texts: deque(labels.teacher.answer(texts), maxlen=0)
    seconds = defaultdict[str, float](float)
    with without_messages():  # which the outputs of the test have had
        for answer in ways.values():
            answer(texts[:1])  # the first call makes ready
        for kind, parts in (("one by one", [[text] for text in texts]), ("together", [texts])):
            for part in parts:
                for name, answer in ways.items():
                    began = perf_counter()
                    answer(part)
                    seconds[f"{name} {kind}"] += (perf_counter() - began) / len(texts)
    return dict(seconds)


def describe_report(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of a report for people."""
    scores = report["comparison"]["scores"]
    count = len(report["comparison"]["sources"])
    yield f"Test: {count:,} texts; references: {report['references']}."
    yield from describe_comparison(scores)
    for name, count in report["right texts changed"].items():
        yield f"{name}: {count:,} of {report['right texts']:,} right texts changed wrongly"
    yield from _verdict(scores)
    times = report["seconds"]
    for kind in ("one by one", "together"):
        ratio = ""
        if teacher := times.get(f"teacher {kind}"):
            ratio = (
                f", {times[f'student {kind}'] / teacher:.2f} of its teacher's {1000 * teacher:,.1f}"
            )
        yield f"Texts {kind}: {1000 * times[f'student {kind}']:,.1f} ms a text{ratio}."
    yield f"Size in 8 bits: {report['bytes in 8 bits'] / 10**6:,.1f} MB."
    if report["cost"]:
        yield f"Teacher: {report['cost']}."
    dropped = report["dropped"]
    yield f"Answers dropped: {len(dropped):,}; texts without an answer: {len(report['failed']):,}."
    for reason, count in Counter(reason for reason, _ in dropped.values()).most_common():
        text, answer = next((t, answer) for t, (own, answer) in dropped.items() if own == reason)
        yield f"  {reason}: {count:,}, e.g. {short_line(text, 60)} -> {short_line(answer, 60)}"


def _verdict(scores: Mapping[str, Any]) -> Iterator[str]:
    """Says whether a student is of use, and what would help."""
    metric, of_metric = next(iter(scores.items()))
    values = {name: row[metric] or 0 for name, row in of_metric["models"].items()}
    if metric in ERROR_RATES:
        values = {name: 100 - value for name, value in values.items()}
    pair = next(p for p in of_metric["pairs"] if p["models"] == ["student", "copying"])
    is_better = values["student"] > values["copying"] and pair["p_value"] < SIGNIFICANT
    is_far = values["student"] < _FAR * values.get("teacher", 100)
    if not is_better:
        yield "The student is no better than copying its sources."
    if is_far:
        yield f"The student is far below its teacher in {metric}."
    if is_far or not is_better:
        yield "More texts, more `--minutes` or a larger `--size` would help."


def write_card(report: Mapping[str, Any], model: Path) -> None:
    """Adds the report to the card of the model."""
    path = model / "README.md"
    card: Any = ModelCard(path.read_text(encoding="utf-8"))
    body = card.text.partition("\n## Distillation\n")[0].rstrip()
    lines = "\n".join(describe_report(report))
    card.text = f"{body}\n\n## Distillation\n\n```text\n{lines}\n```\n"
    write_atomic(path, str(card))
