"""Writes a comparison of models as one HTML page, which needs no other file."""

from pathlib import Path

from jinja2 import Template

from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.run.comparison import SIGNIFICANT, ModelComparison, score_with_interval

_TEMPLATE = Path(__file__).parent / "comparison_page.html"


def comparison_page(comparison: ModelComparison) -> str:
    """Returns the page: the scores, those of each corpus, and all outputs side by side."""
    models, sign = comparison.models, -1 if comparison.text_metric in ERROR_RATES else 1
    orders = [("n 1", "as in the file"), ("gap -1", "largest difference first")]
    orders += [(f"s{i} {sign}", f"worst of {name} first") for i, name in enumerate(models)]
    if len(models) == 2:
        orders.append((f"change {sign}", f"{models[1]} worse than {models[0]} first"))
        orders.append((f"change {-sign}", f"{models[1]} better than {models[0]} first"))
    groups: list[list[int]] = [[] for _ in comparison.sources]
    for number, part in enumerate(comparison.groups):
        for row in part["rows"]:
            groups[row].append(number)
    text = _TEMPLATE.read_text(encoding="utf-8")
    template: Template = Template(text, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return template.render(
        comparison=comparison,
        orders=orders,
        groups=groups,
        significant=SIGNIFICANT,
        with_interval=score_with_interval,
    )
