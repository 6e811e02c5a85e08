"""How many tags are at the right place in translations, and what splitting texts at tags costs.

    python scripts/experiments/markup_places.py MODEL test.en test.de --learn-from train.en train.de

A pair of tags stands around some words of each source whose place in the reference is known: word
alignment (IBM model 1 in both directions) links them with words beside each other there, and with
no others. Where an output has these words once, the tags are right if they are around them. Prints
this share, and the BLEU of the outputs without tags, for tags that are placed by the alignment of
the model, for those placed at the same share of the words, and for texts that are split at tags,
where the tagged part need only contain the words.
"""

import argparse
import gzip
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
from sacrebleu import corpus_bleu

from vanilla_transformer import Translator
from vanilla_transformer.data.lexical_alignment import WordLexicon
from vanilla_transformer.documents.marked_text import MarkedText, Tag
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.text.token_links import TokenLinks

Span = tuple[int, int]
_LINKED = 0.3
"""Agreement from which on two words are linked."""
_MOST_WORDS = 4


def read_lines(path: Path) -> list[str]:
    """Reads a file of lines, which may be compressed by gzip."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return content.decode("utf-8").removesuffix("\n").split("\n")


def known_places(pair: tuple[str, str], lexicon: WordLexicon) -> list[tuple[Span, Span]]:
    """Finds parts of a source and of its reference that are linked with each other alone."""
    spans = [words.spans(text) for text, words in zip(pair, lexicon.sides, strict=True)]
    links = lexicon.agreements(pair) >= _LINKED  # (source words, target words)
    places = []
    for first in range(len(spans[0])):
        for last in range(first, min(first + _MOST_WORDS, len(spans[0]))):
            rows = links[first : last + 1]
            targets = np.flatnonzero(rows.any(0))
            if not rows.any(1).all() or targets[-1] - targets[0] >= len(targets):
                continue
            if links[:, targets].sum() == rows.sum():
                source = spans[0][first][0], spans[0][last][1]
                places.append((source, (spans[1][targets[0]][0], spans[1][targets[-1]][1])))
    return places


def words_of(text: str) -> list[Span]:
    """Returns the spans of words."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def in_proportion(source: str, output: str) -> TokenLinks:
    """Returns links between words at the same share of their texts."""
    sources, targets = words_of(source), words_of(output)
    aligned = [number * len(sources) // len(targets) for number in range(len(targets))]
    return TokenLinks(sources, targets, aligned)


def enclosed(source: str, span: Span, output: str, links: TokenLinks) -> str:
    """Returns what a pair of tags around a part of a source encloses in its output."""
    marked = MarkedText(source, (Tag(span[0], "", "begin"), Tag(span[1], "", "end")))
    begin, end = place_tags(marked, output, links).tags
    return output[begin.position : end.position]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table; reads the options, or those of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("model", help="directory of the model, or its name on the Hub")
    parser.add_argument("sources", type=Path, help="file of sentences")
    parser.add_argument("references", type=Path, help="file of their translations")
    parser.add_argument(
        "--learn-from",
        type=Path,
        nargs=2,
        metavar=("SOURCES", "REFERENCES"),
        help="files from which words are aligned (default: those that are scored)",
    )
    parser.add_argument("--limit", type=int, default=1000, help="number of sentences")
    parser.add_argument("--num-beams", type=int, default=1)
    parser.add_argument("--target-language", help="that of the outputs, if the model has several")
    options = parser.parse_args(arguments)
    files = options.sources, options.references
    learnt = zip(*map(read_lines, options.learn_from or files), strict=True)
    lexicon = WordLexicon(list(learnt))
    rows, chance = [], Random(1)
    for pair in zip(*map(read_lines, files), strict=True):
        if places := known_places(pair, lexicon):
            rows.append((*pair, *chance.choice(places)))
    rows = rows[: options.limit]
    translator = Translator.from_pretrained(options.model)
    search = {"num_beams": options.num_beams, "tgt_lang": options.target_language}
    outputs = translator.translate([row[0] for row in rows], return_links=True, **search)
    parts = [
        (source[:begin].strip(), source[begin:end], source[end:].strip())
        for source, _, (begin, end), _ in rows
    ]
    of_parts = iter(translator.translate([part for row in parts for part in row], **search))
    split = [tuple(next(of_parts) for _ in row) for row in parts]
    right = dict.fromkeys(("alignment", "proportion", "split"), 0)
    count = 0
    for (source, reference, span, place), output, pieces in zip(rows, outputs, split, strict=True):
        words = reference[slice(*place)]
        if len(re.findall(rf"(?<!\w){re.escape(words)}(?!\w)", output.text)) != 1:
            continue
        count += 1
        by_share = in_proportion(source, output.text)
        right["alignment"] += enclosed(source, span, output.text, output.links) == words
        right["proportion"] += enclosed(source, span, output.text, by_share) == words
        right["split"] += words.lower() in pieces[1].lower()
    whole = bleu([output.text for output in outputs], rows)
    of_split = bleu([" ".join(filter(None, pieces)) for pieces in split], rows)
    print(f"{len(rows)} sentences; {count} outputs have the words of the reference once.\n")
    print("| tags placed by | right | BLEU |\n|---|---|---|")
    for name, score in (("alignment", whole), ("proportion", whole), ("split", of_split)):
        print(f"| {name} | {right[name] / max(count, 1):.1%} | {score:.1f} |")


def bleu(outputs: Sequence[str], rows: Sequence[tuple[str, str, Span, Span]]) -> float:
    """Returns the BLEU of outputs without tags."""
    return float(corpus_bleu(list(outputs), [[row[1] for row in rows]]).score)


if __name__ == "__main__":
    main()
