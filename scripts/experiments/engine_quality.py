r"""Compares the outputs and the scores of `Translator`'s engines on one model and one set of texts.

    python scripts/experiments/engine_quality.py runs/en-de --source test.en --target test.de
    python scripts/experiments/engine_quality.py model_cards/pronounce --metric wer
    python scripts/experiments/engine_quality.py runs/first --ensemble-with runs/second \
        --metric wer --engines transformers

Without files, the texts are words of the pronunciation demo. The first engine is the base: the
table shows the score of each engine, the difference, the share of equal outputs, and the texts per
second of processor time, that of all threads together. All engines compute on the CPU.
"""

import argparse
import os
import time
from collections.abc import Sequence

import torch
from pronunciations import load_cmudict

from vanilla_transformer.data.text_files import read_line_pairs
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.names import METRIC_NAMES
from vanilla_transformer.training.metrics import score_texts

ENGINES = {
    "transformers": ("transformers", "float32"),
    "int8": ("int8", "float32"),
    "ctranslate2": ("ctranslate2", "float32"),
    "ctranslate2-int8": ("ctranslate2", "int8"),
}
"""Engine and `compute_type` by name."""


def main(argv: Sequence[str] | None = None) -> None:
    """Translates with each engine and prints a row for it."""
    options = parse_options(argv)
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # CTranslate2's engine reads it
    sources, references = read_texts(options)
    models = [options.model, *options.ensemble_with]
    first: list[str] = []
    print(f"{len(sources)} texts, beam {options.num_beams}")
    heads = [options.metric, "difference", "equal outputs", "texts per processor second"]
    print(f"| engine | {' | '.join(heads)} |")
    print("|---|---|---|---|---|")
    base = 0.0
    for name in options.engines:
        engine, compute_type = ENGINES[name]
        translator = Translator.from_pretrained(models, engine, "cpu", compute_type)
        translator.translate(sources[:8], num_beams=options.num_beams)  # warms up
        start = time.process_time()
        outputs = translator.translate(sources, num_beams=options.num_beams)
        speed = len(sources) / (time.process_time() - start)
        score = score_texts(options.metric, outputs, references)[options.metric]
        if not first:
            first, base = outputs, score
        equal = sum(one == other for one, other in zip(outputs, first, strict=True))
        share = f"{100 * equal / len(sources):.1f}%"
        print(f"| {name} | {score:.2f} | {score - base:+.2f} | {share} | {speed:.0f} |", flush=True)


def parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="directory of a saved model")
    add(
        "--ensemble-with",
        nargs="+",
        default=[],
        metavar="MODEL",
        help="further models of an ensemble",
    )
    add("--source", metavar="FILE", help="source texts, one per line")
    add("--target", metavar="FILE", help="reference texts, one per line")
    add("--split", choices=("validation", "test"), default="test", help="words of the demo")
    add("--metric", choices=sorted(METRIC_NAMES), default="bleu", help="metric of the table")
    add(
        "--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES), help="what to compare"
    )
    add("--num-beams", type=int, default=4, help="width of the beam; 1 is greedy")
    add("--limit", type=int, help="number of texts")
    add("--threads", type=int, default=1, help="CPU threads")
    options = parser.parse_args(argv)
    if (options.source is None) != (options.target is None):
        parser.error("give --source and --target, or neither")
    return options


def read_texts(options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Returns sources and the references of each."""
    if options.source is None:
        words = load_cmudict()[options.split]
        rows = list(zip(words["source"], words["references"], strict=True))
    else:
        pairs = read_line_pairs(options.source, options.target)
        rows = [(source, [target]) for source, target in pairs]
    rows = rows[: options.limit]
    return [source for source, _ in rows], [list(targets) for _, targets in rows]


if __name__ == "__main__":
    main()
