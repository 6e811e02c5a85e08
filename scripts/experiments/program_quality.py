"""Calibrates the quality of a model on whole catalogues of programs, and measures it on others.

Every second program is learnt from, by name; the others are told. Prints a row of the table of
docs/better.md for each language, and one for all outputs. With --save, the calibration goes beside
the model: so the one of model_cards/program-texts was made.

    python scripts/experiments/program_quality.py model_cards/program-texts catalogues \
        --languages de fr es ja zh_CN --without sphinx thonny --save

The directory holds `PROGRAM/LANGUAGE.po`, or `.po.gz`. Programs that the model is trained on are
left out by --without.
"""

import argparse
import gzip
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from quality_bins import describe
from sacrebleu import CHRF

from vanilla_transformer import Translator
from vanilla_transformer.documents.marked_text import MarkedText
from vanilla_transformer.documents.places import FileText
from vanilla_transformer.documents.po import PoFile
from vanilla_transformer.documents.translation import plan_marked
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.quality import Calibration, Outcome
from vanilla_transformer.inference.results import Features

LEARNT, TOLD = 110, 30
"""Messages of a catalogue that are learnt from, or told, at most."""


class Row(NamedTuple):
    """An output: its features, chrF, language, and the mean log-probability of a token."""

    features: Features
    chrf: float
    language: str
    mean: float


def read_rows(model: Translator, paths: Sequence[Path], language: str, most: int) -> Iterator[Row]:
    """Translates messages that a person has translated, as in a document."""
    metric, pairs = CHRF(), list[tuple[str, str]]()
    for path in paths:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        own = [
            (pair.source, pair.target)
            for pair in PoFile(content).pairs
            if pair.source.strip() and pair.target.strip() and not pair.is_doubtful
        ]
        pairs += Random(2).sample(own, min(most, len(own)))
    marked = [FileText(MarkedText(source)) for source, _ in pairs]
    planned = plan_marked(model, marked, TranslateOptions(target_language=language, scores=True))
    outputs = [row[0] for row in model.run(planned.job)]
    texts = planned.place_tags(outputs)
    for output, text, (_, target) in zip(outputs, texts, pairs, strict=True):
        if output.features:
            chrf = metric.sentence_score(text.plain, [target]).score
            mean = float(np.mean(output.token_scores or [0.0]))
            yield Row(output.features, chrf, language, mean)


def main(argv: Sequence[str] | None = None) -> None:
    """Fits the calibration, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("catalogues", type=Path)
    parser.add_argument("--languages", nargs="+", required=True, help="names of files, such as de")
    parser.add_argument("--without", nargs="+", default=[], help="programs that are left out")
    parser.add_argument("--save", action="store_true", help="write the calibration")
    options = parser.parse_args(argv)
    model = Translator.from_pretrained(options.model)
    programs = sorted({*(path.name for path in options.catalogues.iterdir() if path.is_dir())})
    programs = [name for name in programs if name not in options.without]
    learnt, told = list[Row](), dict[str, list[Row]]()
    for name in options.languages:
        language = name.partition("_")[0]
        files = [
            [
                path
                for program in half
                for path in (options.catalogues / program).glob(f"{name}.po*")
            ]
            for half in (programs[::2], programs[1::2])
        ]
        learnt += read_rows(model, files[0], language, LEARNT)
        told[language] = [*read_rows(model, files[1], language, TOLD)]
    fitted = Calibration.fit([Outcome(*row[:3]) for row in learnt])
    assert fitted is not None
    print(f"learnt from {len(learnt):,} outputs")
    for language, rows in [*told.items(), ("all", [*chain.from_iterable(told.values())])]:
        quality = np.array([fitted.expected(row.features, row.language) for row in rows])
        mean, chrf = (np.array([getattr(row, each) for row in rows]) for each in ("mean", "chrf"))
        print(f"| {language} {describe(quality, mean, chrf)}")
    if options.save:
        fitted.save(Path(options.model))


if __name__ == "__main__":
    main()
