"""Measures how well the quality of outputs tells their chrF, on (source, target) pairs.

The language is the last part of each file's name, as in `test.en-de.tsv`. Prints a row of the table
of docs/better.md for each file, and draws the outputs of the first one in ten groups.

    python scripts/experiments/quality_bins.py model_cards/program-texts test.en-de.tsv \
        --picture docs/pictures/quality.png
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu import CHRF
from terms import read_pairs

from vanilla_transformer import Translator
from vanilla_transformer.inference.quality import rank_correlation
from vanilla_transformer.inspection.figures import new_figure
from vanilla_transformer.run.calibration import share_of_worst

Floats = NDArray[np.float64]


def measure(model: Translator, path: Path) -> Floats:
    """Returns quality, mean log-probability of a token and chrF, (3, outputs)."""
    pairs, language = read_pairs(path), path.name.split(".tsv")[0].rpartition("-")[2]
    sources = [pair.source for pair in pairs]
    outputs = model.translate(sources, tgt_lang=language, return_scores=True)
    metric = CHRF()
    rows = [
        (
            output.quality,
            np.mean(output.token_scores),
            metric.sentence_score(output.text, [pair.target]).score,
        )
        for output, pair in zip(outputs, pairs, strict=True)
        if output.quality is not None
    ]
    return np.array(rows).T


def in_groups(quality: Floats, values: Floats) -> list[tuple[float, Floats]]:
    """Returns the mean quality and the values of ten groups of outputs."""
    groups = np.array_split(np.argsort(quality, kind="stable"), 10)
    return [(float(quality[group].mean()), values[group]) for group in groups]


def describe(quality: Floats, mean: Floats, values: Floats) -> str:
    """Returns a row of the table."""
    error = np.mean([abs(told - group.mean()) for told, group in in_groups(quality, values)])
    cells: list[str] = [f"{len(values):,}"]
    cells += [f"{rank_correlation(list(told), list(values)):.2f}" for told in (quality, mean)]
    cells += [f"{share_of_worst(list(told), list(values)):.0%}" for told in (quality, mean)]
    return f"| {' | '.join([*cells, f'{error:.1f}'])} |"


def draw(quality: Floats, values: Floats) -> Any:
    """Draws the chrF of the outputs of each group: mean, and half and nine tenths of them."""
    figure = new_figure((6, 4), dpi=150)
    axes = figure.subplots()
    groups = in_groups(quality, values)
    told = [mean for mean, _ in groups]
    for parts, width in (((5, 95), 1), ((25, 75), 5)):
        low, high = np.array([np.percentile(group, parts) for _, group in groups]).T
        axes.vlines(told, low, high, color="#a5b4fc", linewidth=width)
    axes.plot(told, [group.mean() for _, group in groups], "o", color="#4338ca")
    axes.plot((0, 100), (0, 100), color="gray", linewidth=0.8, linestyle="--")
    axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="quality, mean of a tenth", ylabel="chrF")
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the rows, and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("model", help="directory of a calibrated model")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    model = Translator.from_pretrained(options.model)
    for number, path in enumerate(options.files):
        quality, mean, values = measure(model, path)
        print(path.name, describe(quality, mean, values), flush=True)
        if options.picture and not number:
            draw(quality, values).savefig(options.picture, pil_kwargs={"optimize": True})


if __name__ == "__main__":
    main()
