"""Scores a model of one or many target languages on files of (source, target, package) pairs.

The language is the last part of each file's name, as in `test.en-de.tsv`. Prints chrF and BLEU for
each language and package, beside those of the copied source, and in how many outputs all that is
kept is right: placeholders, addresses, paths, options and emoji, of the texts that have some.

    python scripts/experiments/package_scores.py runs/program-texts data/program-texts/test.en-*.tsv
"""

import argparse
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sacrebleu import corpus_bleu, corpus_chrf

from vanilla_transformer import Translator
from vanilla_transformer.text.kept import Copies, kept_spans
from vanilla_transformer.text.languages import score_tokenizer


class Pair(NamedTuple):
    """One line of a file."""

    source: str
    target: str
    package: str


def read_pairs(path: Path) -> list[Pair]:
    """Reads a file, which may be compressed by gzip."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = content.decode("utf-8").removesuffix("\n").split("\n")
    return [Pair(*line.split("\t")[:3]) for line in lines]


def scores(outputs: Sequence[str], targets: Sequence[str], language: str) -> str:
    """Returns chrF and BLEU as two cells of a table."""
    chrf = corpus_chrf(outputs, [targets]).score
    bleu = corpus_bleu(outputs, [targets], tokenize=score_tokenizer(language), force=True).score
    return f"{chrf:.1f} | {bleu:.1f}"


def share_kept(sources: Sequence[str], outputs: Sequence[str]) -> str:
    """Returns the share of outputs with all that is kept, as a cell: right / all."""
    spans = [kept_spans(source) for source in sources]
    right = [
        Copies.find(source, found, output).are_right
        for source, found, output in zip(sources, spans, outputs, strict=True)
        if found
    ]
    return f"{sum(right)} / {len(right)}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("model", help="directory of the model, or its name on the Hub")
    parser.add_argument(
        "files", nargs="+", type=Path, help="files of pairs, such as test.en-de.tsv"
    )
    parser.add_argument("--num-beams", type=int, default=5)
    parser.add_argument("--no-keep", action="store_true", help="leave the outputs as they are")
    options = parser.parse_args()
    translator = Translator.from_pretrained(options.model)
    print("| language | package | pairs | chrF | BLEU | chrF, copied | BLEU, copied | kept right |")
    print("|---|---|---|---|---|---|---|---|")
    for path in options.files:
        language = path.name.removesuffix(".gz").removesuffix(".tsv").rsplit("-", 1)[-1]
        pairs = read_pairs(path)
        sources = [pair.source for pair in pairs]
        outputs = translator.translate(
            sources, num_beams=options.num_beams, keep=not options.no_keep, tgt_lang=language
        )
        packages = list(dict.fromkeys(pair.package for pair in pairs))
        for package in ["all", *packages]:
            rows = [row for row, pair in enumerate(pairs) if package in ("all", pair.package)]
            targets = [pairs[row].target for row in rows]
            computed = scores([outputs[row] for row in rows], targets, language)
            of_rows = [sources[row] for row in rows]
            copied = scores(of_rows, targets, language)
            kept = share_kept(of_rows, [outputs[row] for row in rows])
            print(f"| {language} | {package} | {len(rows)} | {computed} | {copied} | {kept} |")


if __name__ == "__main__":
    main()
