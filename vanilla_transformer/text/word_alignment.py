"""Links between the words of two texts: Pharaoh's format, and the links of their tokens.

A word is one of `aligner_words`: with a no-break space, `10 000` is one word. A link (source,
target) has the indices of two words, or two tokens. A line of Pharaoh's format: `0-0 1-2 2-1`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product

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


def links_of_words(
    token_links: Iterable[Link], source_words: Sequence[range], target_words: Sequence[range]
) -> Links:
    """Returns the links of words with linked tokens, in order; see `words_of_spans`."""
    linked = (product(source_words[source], target_words[target]) for source, target in token_links)
    return tuple(sorted({*chain.from_iterable(linked)}))


def links_of_tokens(
    word_links: Iterable[Link], source_words: Sequence[range], target_words: Sequence[range]
) -> Links:
    """Returns the links of all tokens of linked words, in order (Garg et al. 2019)."""
    in_source, in_target = map(_tokens_by_word, (source_words, target_words))
    linked = (product(in_source[source], in_target[target]) for source, target in word_links)
    return tuple(sorted({*chain.from_iterable(linked)}))


def _tokens_by_word(words: Sequence[range]) -> Mapping[int, list[int]]:
    """Returns the indices of the tokens of each word, from the words of each token."""
    tokens = defaultdict[int, list[int]](list)
    for token, indices in enumerate(words):
        for word in indices:
            tokens[word].append(token)
    return tokens
