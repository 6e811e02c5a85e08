r"""Trains and scores one model for all translation directions among several languages.

    python scripts/experiments/many_directions.py prepare --data data/multi30k \
        --languages en de fr --output-dir runs/six-texts
    vanilla-transformer train scripts/recipes/multi30k-six.yaml --output_dir runs/six \
        --train_source runs/six-texts/train.source.gz \
        --train_target runs/six-texts/train.target.gz \
        --validation_source runs/six-texts/val.source.gz \
        --validation_target runs/six-texts/val.target.gz
    python scripts/experiments/many_directions.py evaluate --model runs/six \
        --data data/multi30k --languages en de fr --split test_2016_flickr

The data are files SPLIT.LANGUAGE.gz whose lines are translations of each other. Each source begins
with a word for the target language, such as "2de" (Johnson et al. 2017, https://arxiv.org/abs/1611.04558).
`prepare` writes the training texts of all directions, and validation texts with an equal share of
each direction. `evaluate` prints the BLEU of each direction.
"""

import argparse
import gzip
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vanilla_transformer.data.text_files import read_line_pairs
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.training.metrics import METRICS


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the texts, or scores a model.

    Args:
        argv: Arguments. None: those of the process.
    """
    options = parse_options(argv)
    if options.program == "prepare":
        prepare(options)
    else:
        evaluate(options)


def parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line.

    Raises:
        SystemExit: If there are fewer than two languages, or one of them twice.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    programs = parser.add_subparsers(dest="program", required=True)
    first = programs.add_parser("prepare", help="write the texts of all directions")
    first.add_argument("--output-dir", required=True, metavar="DIR", help="texts to write")
    first.add_argument("--validation-pairs", type=int, default=1000, help="of all directions")
    second = programs.add_parser("evaluate", help="score a model in each direction")
    second.add_argument("--model", required=True, metavar="DIR", help="a saved model")
    second.add_argument("--split", default="val", help="first part of the names of the files")
    second.add_argument("--num-beams", type=int, default=5, help="width of the beam; 1 is greedy")
    second.add_argument("--limit", type=int, help="pairs of each direction")
    second.add_argument("--engine", default="auto", help="engine of Translator")
    second.add_argument("--json", metavar="FILE", help="file to write the scores to")
    for one in (first, second):
        one.add_argument("--data", required=True, metavar="DIR", help="SPLIT.LANGUAGE.gz")
        one.add_argument("--languages", nargs="+", required=True, help="two or more")
    options = parser.parse_args(argv)
    if len(set(options.languages)) < max(2, len(options.languages)):
        parser.error("--languages: give two or more different languages")
    return options


def directions(languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields source and target language of each direction."""
    return itertools.permutations(languages, 2)


def read_direction(
    data: str, split: str, source: str, target: str, limit: int | None = None
) -> list[tuple[str, str]]:
    """Reads the pairs of one direction.

    Args:
        data: Directory of the files.
        split: First part of their names.
        source: Source language.
        target: Target language.
        limit: Number of pairs. None: all.

    Returns:
        Sources that begin with the word for the target language, and targets.

    Raises:
        ValueError: If the files have different numbers of lines.
    """
    files = [str(Path(data, f"{split}.{language}.gz")) for language in (source, target)]
    pairs = list(read_line_pairs(files[0], files[1]))  # whole files: this compares their lengths
    return [(f"2{target} {text}", translation) for text, translation in pairs[:limit]]


def prepare(options: argparse.Namespace) -> None:
    """Writes train.source.gz, train.target.gz, val.source.gz and val.target.gz."""
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    found = list(directions(options.languages))
    share = max(1, options.validation_pairs // len(found))
    for split, limit in (("train", None), ("val", share)):
        rows = [
            row
            for source, target in found
            for row in read_direction(options.data, split, source, target, limit)
        ]
        for number, side in enumerate(("source", "target")):
            with gzip.open(folder / f"{split}.{side}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{row[number]}\n" for row in rows)
        print(f"{split}: {len(rows)} pairs of {len(found)} directions in {folder}")


def evaluate(options: argparse.Namespace) -> None:
    """Scores a model in each direction, and prints a table."""
    translator = Translator.from_pretrained(options.model, options.engine)
    scores: dict[str, float] = {}
    print(f"| {options.split} | BLEU |\n|---|---|")
    for source, target in directions(options.languages):
        rows = read_direction(options.data, options.split, source, target, options.limit)
        outputs = translator.translate([text for text, _ in rows], num_beams=options.num_beams)
        references = [[translation] for _, translation in rows]
        result: Any = METRICS["bleu"]().compute(predictions=outputs, references=references)
        scores[f"{source}-{target}"] = float(result["bleu"])
        print(f"| {source}→{target} | {scores[f'{source}-{target}']:.2f} |", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(scores, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
