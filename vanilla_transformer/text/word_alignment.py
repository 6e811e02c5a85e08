"""Links between the words of two texts: Pharaoh's format, and token links.

A word is one of `aligner_words`: with a no-break space, `10 000` is one word. A link (source,
target) names two words, or two tokens, by their indices from 0. Pharaoh's format writes the links
of a pair of texts on one line: `0-0 1-2 2-1`.
"""

import re
from collections.abc import Iterable, Sequence

from vanilla_transformer.text.edits import Span
from vanilla_transformer.text.words import aligner_words

Link = tuple[int, int]
Links = tuple[Link, ...]

_LINK = re.compile(r"([0-9]+)-([0-9]+)")


def parse_links(line: str) -> Links:
    """Parses a line in Pharaoh's format, such as "0-0 1-2": the links in order, each once."""
    links = set()
    for part in line.split():
        match = _LINK.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no link: give pairs of word numbers such as 0-0 1-2.")
        links.add((int(match[1]), int(match[2])))
    return tuple(sorted(links))


def format_links(links: Iterable[Link]) -> str:
    """Writes pairs (source, target) in Pharaoh's format, such as "0-0 1-2"."""
    return " ".join(f"{source}-{target}" for source, target in links)


def words_of_spans(text: str, spans: Sequence[Span]) -> list[range]:
    """Finds the words that tokens belong to.

    Returns:
        For each token the indices of its words: usually one; none for a token without text or of
        white space only; several where a token spans white space.
    """
    word_at = [-1] * len(text)
    for index, (begin, end) in enumerate(aligner_words(text)):
        word_at[begin:end] = [index] * (end - begin)
    ranges = []
    for begin, end in spans:
        inside = [index for index in word_at[begin:end] if index >= 0]
        ranges.append(range(inside[0], inside[-1] + 1) if inside else range(0))
    return ranges


def word_links(
    token_links: Iterable[Link], source: Sequence[range], target: Sequence[range]
) -> Links:
    """Links two words where any of their tokens are linked, in order.

    `words_of_spans` returns the words of each token.
    """
    return tuple(
        sorted(
            {
                (s, t)
                for source_token, target_token in token_links
                for s in source[source_token]
                for t in target[target_token]
            }
        )
    )


def token_links(links: Iterable[Link], source: Sequence[range], target: Sequence[range]) -> Links:
    """Links all tokens of words that are linked, in order (Garg et al. 2019).

    `words_of_spans` returns the words of each token. A word without tokens gives no link.
    """
    source_tokens, target_tokens = _tokens_by_word(source), _tokens_by_word(target)
    linked: set[Link] = set()
    for word, target_word in links:
        linked.update(
            (s, t) for s in source_tokens.get(word, ()) for t in target_tokens.get(target_word, ())
        )
    return tuple(sorted(linked))


def _tokens_by_word(words: Sequence[range]) -> dict[int, list[int]]:
    tokens: dict[int, list[int]] = {}
    for token, indices in enumerate(words):
        for word in indices:
            tokens.setdefault(word, []).append(token)
    return tokens
