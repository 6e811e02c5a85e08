"""Terms, placeholders and tags on texts of programs: makes a glossary, and scores a model with it.

    python scripts/experiments/terms.py glossary train.en-de.tsv terms.en-de.tsv
    python scripts/experiments/terms.py score MODEL test.en-de.tsv terms.en-de.tsv

The languages are those of the names of the files of pairs, as in `test.en-de.tsv`. `score` prints
a line without the glossary, one with the terms of each text that its reference has too (as Dinu et
al. 2019 and others do), and one with all terms: how many of the terms that source and reference
have are in the output, in the form of the glossary and in any form; BLEU and chrF; seconds; and in
how many texts all placeholders, addresses, ... are right, of those that have some. A model that is
trained with terms reads them; with `--constrained`, and for others, a search places them.
"""

import argparse
import gzip
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import regex
from sacrebleu import corpus_bleu, corpus_chrf

from vanilla_transformer import Translator
from vanilla_transformer.data.lexical_alignment import WordLexicon
from vanilla_transformer.data.term_rows import aligned_terms
from vanilla_transformer.grouping import map_grouped
from vanilla_transformer.inference.glossaries import as_glossary
from vanilla_transformer.text.kept import Copies, kept_spans
from vanilla_transformer.text.terms import Glossary, Match, Term, missing_targets
from vanilla_transformer.training.metrics import score_tokenizer

_SIZE, _LEAST = 200, 5  # terms, and pairs that have one
_CONSISTENT = 0.7  # share of the pairs with a source term that translate it so
_SHORTEST = 4  # letters of a word that may be a term alone


def languages_of(path: Path) -> tuple[str, str]:
    """Returns the languages that the name of a file tells."""
    stem = path.name.removesuffix(".gz").removesuffix(".tsv")
    source, target = stem.rsplit(".", 1)[-1].split("-")
    return source, target


class Pair(NamedTuple):
    """One line of a file."""

    source: str
    target: str
    package: str


def read_pairs(path: Path) -> list[Pair]:
    """Reads a file of pairs, which may be compressed by gzip."""
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


# Glossaries ---------------------------------------------------------------------------------------


def make_glossary(options: argparse.Namespace) -> None:
    """Writes the most frequent terms of a file of pairs that are translated consistently."""
    _, language = languages_of(options.pairs)
    pairs = [(pair.source, pair.target) for pair in read_pairs(options.pairs)]
    lexicon = WordLexicon(pairs)
    targets: dict[str, Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        for source, target in aligned_terms(pair, lexicon):
            targets[pair[0][slice(*source)].lower()][pair[1][slice(*target)]] += 1
    best = {term: counts.most_common(1)[0] for term, counts in targets.items()}
    fits = [
        (count, term, target)
        for term, (target, count) in best.items()
        if len(term) >= _SHORTEST
        and count >= max(_LEAST, _CONSISTENT * targets[term].total())
        and term != target.lower()  # which a model copies
        and (language != "de" or target[0].isupper())  # a noun
    ]
    rows = sorted(fits, key=lambda row: (-row[0], row[1]))[: options.size]
    lines = (f"{term}\t{target}\n" for _, term, target in rows)
    options.glossary.write_text("".join(lines), encoding="utf-8")
    print(f"{options.glossary}: {len(rows)} terms.")


def has_form(match: Match, output: str) -> bool:
    """Returns whether an output has a term in the form of the glossary."""
    form = regex.escape(match.term.target)
    return regex.search(rf"(?i)(?<!\p{{L}}){form}(?!\p{{L}})", output) is not None


def score(options: argparse.Namespace) -> None:
    """Prints the scores of a model without and with a glossary."""
    source_language, language = languages_of(options.pairs)
    pairs = read_pairs(options.pairs)[: options.limit]
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    glossary, translator = as_glossary(options.glossary), Translator.from_pretrained(options.model)
    if options.constrained:
        translator.reader.reads_terms = False
    asked = [
        [
            match
            for match in glossary.find(pair.source, source_language, kept_spans(pair.source))
            if not missing_targets([match.term], pair.target, language)
        ]
        for pair in pairs
    ]

    def translate(terms: Sequence[Term], texts: list[str]) -> list[str]:
        outputs: list[str] = translator.translate(
            texts,
            num_beams=options.num_beams,
            src_lang=source_language,
            tgt_lang=language,
            glossary=Glossary(terms),
        )
        return outputs

    print("| terms | same form | any form | chrF | BLEU | kept right | seconds |")
    print("|---|---|---|---|---|---|---|")
    given: dict[str, list[Sequence[Term]]] = {
        "none": [()] * len(pairs),
        "of the references": [tuple(match.term for match in of_text) for of_text in asked],
        "all": [glossary.terms] * len(pairs),
    }
    count = sum(map(len, asked))
    for name, of_texts in given.items():
        start = time.perf_counter()
        outputs = map_grouped(sources, of_texts, translate)
        seconds = time.perf_counter() - start
        found = [
            (has_form(match, output), not missing_targets([match.term], output, language))
            for of_text, output in zip(asked, outputs, strict=True)
            for match in of_text
        ]
        same, any_form = (
            f"{sum(column) / max(count, 1):.1%}" for column in zip(*found, strict=True)
        )
        print(
            f"| {name} | {same} | {any_form} of {count} | {scores(outputs, targets, language)} "
            f"| {share_kept(sources, outputs)} | {seconds:.0f} |",
            flush=True,
        )


def main(words: Sequence[str] | None = None) -> None:
    """Reads the options; None: those of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("glossary", help="make a glossary of a file of pairs")
    command.add_argument("pairs", type=Path, help="training pairs, such as train.en-de.tsv")
    command.add_argument("glossary", type=Path, help="file that is written")
    command.add_argument("--size", type=int, default=_SIZE, help="number of terms")
    command.set_defaults(run=make_glossary)
    command = commands.add_parser("score", help="score a model without and with a glossary")
    command.add_argument("model", help="directory of the model, or its name on the Hub")
    command.add_argument("pairs", type=Path, help="test pairs, such as test.en-de.tsv")
    command.add_argument("glossary", type=Path)
    command.add_argument("--constrained", action="store_true", help="let a search place the terms")
    command.add_argument("--num-beams", type=int, default=5)
    command.add_argument("--limit", type=int, help="use the first pairs alone")
    command.set_defaults(run=score)
    options = parser.parse_args(words)
    options.run(options)


if __name__ == "__main__":
    main()
