"""Writes a comparison of models as one HTML page, which needs no other file."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.run.comparison import SIGNIFICANT, ModelComparison, score_with_interval

_TEMPLATE = Path(__file__).parent / "comparison_page.html"


def comparison_page(comparison: ModelComparison) -> str:
    """Returns the page: the scores, those of each corpus, and all outputs side by side."""
    models, metric = comparison.models, comparison.text_metric
    count = f"{len(comparison.sources):,}"
    about = (
        f"{count} texts. Scores have their 95% interval in brackets. A p-value is that of "
        f"sacrebleu's paired bootstrap: below {SIGNIFICANT}, a difference is usually called "
        f"significant. The score of an output by itself is {metric}."
    )
    tables = [_scores_table("All texts", comparison.scores)]
    for part in comparison.groups:
        title = f"Corpus: {part['corpus']} ({len(part['rows']):,} texts)"
        tables.append(f"<details><summary>{escape(title)}</summary>")
        tables.append(_scores_table("", part["scores"]) + "</details>")
    sign = 1 if metric not in ERROR_RATES else -1
    orders = [("n 1", "as in the file"), ("gap -1", "largest difference first")]
    orders += [(f"s{i} {sign}", f"worst of {name} first") for i, name in enumerate(models)]
    if len(models) == 2:
        orders.append((f"change {sign}", f"{models[1]} worse than {models[0]} first"))
        orders.append((f"change {-sign}", f"{models[1]} better than {models[0]} first"))
    groups: list[list[str]] = [[] for _ in comparison.sources]
    for number, part in enumerate(comparison.groups):
        for row in part["rows"]:
            groups[row].append(str(number))
    shown = [(str(i), f"corpus: {part['corpus']}") for i, part in enumerate(comparison.groups)]
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(" and ".join(models)),
        about=escape(about),
        tables="\n".join(tables),
        orders=_option_tags(orders),
        shown=_option_tags(shown),
        heads="".join(f"<th>{escape(name)}</th>" for name in models),
        rows="\n".join(_text_row(comparison, row, member) for row, member in enumerate(groups)),
    )


def _option_tags(options: Iterable[tuple[str, str]]) -> str:
    return "".join(f'<option value="{escape(v)}">{escape(text)}</option>' for v, text in options)


def _scores_table(title: str, scores: dict[str, Any]) -> str:
    """Writes a row for each metric and model, with the p-values against the other models."""
    rows = ["<tr><th>metric</th><th>model</th><th>score</th><th>against the others</th></tr>"]
    for metric, compared in scores.items():
        for name, values in compared["models"].items():
            tests = [
                f"p = {pair['p_value']:.3f} ({escape(other)})"
                for pair in compared["pairs"]
                if name in pair["models"]
                for other in pair["models"]
                if other != name
            ]
            score = score_with_interval(values[metric], values["interval"])
            rows.append(
                f"<tr><td>{metric}</td><td>{escape(name)}</td>"
                f'<td class="number">{score}</td><td>{", ".join(tests)}</td></tr>'
            )
        signature = escape(compared["signature"])
        line = f"{metric}: {compared['better']} is better. <code>{signature}</code>"
        rows.append(f'<tr><td colspan="4"><small>{line}</small></td></tr>')
    heading = f"<h2>{escape(title)}</h2>\n" if title else ""
    return f"{heading}<table>{''.join(rows)}</table>"


def _text_row(comparison: ModelComparison, row: int, groups: Sequence[str]) -> str:
    """Writes a text, its references, and the outputs with their own scores."""
    scores = [comparison.text_scores[name][row] for name in comparison.models]
    gap, change = max(scores) - min(scores), scores[-1] - scores[0]
    data: dict[str, object] = {"n": row, "gap": f"{gap:.4f}", "change": f"{change:.4f}"}
    data |= {f"s{i}": f"{score:.4f}" for i, score in enumerate(scores)}
    data["groups"] = " ".join(groups)
    attributes = " ".join(f'data-{name}="{value}"' for name, value in data.items())
    references = "<br>".join(map(escape, comparison.references[row]))
    outputs = "".join(
        f"<td>{escape(comparison.predictions[name][row])}<br><small>{score:.1f}</small></td>"
        for name, score in zip(comparison.models, scores, strict=True)
    )
    return (
        f'<tr {attributes}><td class="number">{row + 1}</td>'
        f"<td>{escape(comparison.sources[row])}</td><td>{references}</td>{outputs}"
        f'<td class="number">{gap:.1f}</td></tr>'
    )
