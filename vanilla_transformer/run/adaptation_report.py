"""What an adaptation has led to: scores before and after, sizes and examples, also on the card."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard
from safetensors import safe_open

from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.text_files import short_line
from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.run.comparison import SIGNIFICANT, Comparison, score_with_interval
from vanilla_transformer.run.comparison_page import comparison_page

_EXAMPLES = 5
_LONGEST_TEXT = 200


@dataclass(frozen=True)
class Size:
    """Parameters of a saved model, and bytes of its weights on the disk."""

    parameters: int
    file_bytes: int


def size_of(folder: Path) -> Size:
    """Measures a saved model; what is shared counts once."""
    files = list(folder.glob("*.safetensors"))
    parameters = 0
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            shapes = [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118
            parameters += sum(map(prod, shapes))
    return Size(parameters, sum(file.stat().st_size for file in files))


@dataclass(frozen=True)
class Adapted:
    """What an adaptation has led to.

    Attributes:
        model: Directory of the model to use.
        own: The comparison of the old and the adapted model on the own test set.
        general: That on the general test set; None: there is none.
        seconds: Time of the training.
    """

    model: Path
    own: Comparison
    general: Comparison | None
    seconds: float
    sizes: tuple[Size, Size]

    @property
    def is_better(self) -> bool:
        """Whether the adapted model is significantly better on the own test set."""
        return _significant_gain(self.own, self.own.text_metric) > 0


def _significant_gain(found: Comparison, metric: str) -> float:
    """Returns by how much the second model is better than the first; 0: not significantly."""
    (pair,) = found.scores[metric]["pairs"]
    gain = float(pair["difference"] or 0) * (-1 if metric in ERROR_RATES else 1)
    return gain if pair["p_value"] < SIGNIFICANT else 0.0


def describe_adaptation(done: Adapted) -> Iterator[str]:
    """Yields the lines of a report: scores before and after, examples, and what they mean."""
    yield from _score_table(done)
    yield ""
    yield from _changed_examples(done.own)
    yield from _final_sentences(done)
    yield f"The model to use: {done.model}. All outputs: {done.model.parent / 'own.html'}."


def _score_table(done: Adapted) -> Iterator[str]:
    """Yields the rows of a table, which is both readable text and Markdown."""
    rows = [["test set", "metric", "before", "after", "p"]]
    for title, found in (("own", done.own), ("general", done.general)):
        if found is None:
            continue
        name = f"{title} ({len(found.sources):,} texts)"
        for metric, scores in found.scores.items():
            (pair,) = scores["pairs"]
            cells = [
                score_with_interval(own[metric], own["interval"])
                for own in scores["models"].values()
            ]
            rows.append([name, metric, *cells, f"{pair['p_value']:.3f}"])
    for name, field in (("parameters", "parameters"), ("bytes of weights", "file_bytes")):
        rows.append([name, "", *(f"{getattr(size, field):,}" for size in done.sizes), ""])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        f"Training time: {done.seconds:,.0f} s. In brackets: the 95% interval. "
        "p: of the paired bootstrap; below 0.05, a difference is significant."
    )


def _final_sentences(done: Adapted) -> Iterator[str]:
    metric = done.own.text_metric
    (pair,) = done.own.scores[metric]["pairs"]
    p = f"p = {pair['p_value']:.3f}"
    gain = _significant_gain(done.own, metric)
    if gain > 0:
        yield f"The adapted model is significantly better in {metric} ({p})."
    elif gain < 0:
        yield f"The adapted model is significantly worse in {metric} ({p}): the old model is kept."
    else:
        yield f"No significant difference in {metric} ({p}): the old model is kept."
    if done.is_better and done.general is not None and _significant_gain(done.general, metric) < 0:
        yield "It is significantly worse on the general test set: give more general pairs."


def _changed_examples(found: Comparison) -> Iterator[str]:
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
            outputs = [found.predictions[name][row] for name in found.models]
            texts = (found.sources[row], *outputs, found.references[row][0])
            source, old, new, wanted = (short_line(text, _LONGEST_TEXT) for text in texts)
            yield f"  {source}: {old} → {new} (wanted: {wanted})"


def write_reports(done: Adapted, source: Path, folder: Path) -> None:
    """Writes pages and figures of the comparisons, and the card of the model.

    Args:
        source: Directory that the model comes from.
        folder: Directory of the copy, which gets the card.
    """
    for name, found in (("own", done.own), ("general", done.general)):
        if found is not None:
            write_atomic(done.model.parent / f"{name}.html", comparison_page(found))
            text = json.dumps(asdict(found), indent=1, ensure_ascii=False, allow_nan=False)
            write_atomic(done.model.parent / f"{name}.json", text)
    path = folder / "README.md"
    card: Any = ModelCard(path.read_text(encoding="utf-8") if path.is_file() else "---\n{}\n---\n")
    report = "\n".join([*_score_table(done), "", *_final_sentences(done)])
    text = card.text
    if done.is_better:  # the card of the training
        text = text.replace(f"\n# {source.name}\n", f"\n# {done.model.parent.name}\n", 1)
        text = text.replace(json.dumps(str(source)), json.dumps(str(done.model)), 1)
        card.data.model_name = done.model.parent.resolve().name
        card.data.eval_results = [
            EvalResult(
                task_type=str(card.data.pipeline_tag or "translation"),
                dataset_type="custom",
                dataset_name="own test set",
                dataset_split="test",
                metric_type=metric,
                metric_value=round(scores["models"][done.own.models[1]][metric], 2),
            )
            for metric, scores in done.own.scores.items()
        ]
    card.text = f"{text.rstrip()}\n\n## Adaptation\n\n{report}\n"
    write_atomic(path, str(card))
