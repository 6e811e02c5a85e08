"""The span of each token in its text, and its words, for every kind of tokenizer.

A fast tokenizer tells the span of each token that it encodes. For others, the letters of the tokens
are looked for in the text. Spans of generated ids are found by decoding the first 1, 2, 3, ... ids.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any
from unicodedata import is_normalized

import regex

from vanilla_transformer.text.edits import Span, meets
from vanilla_transformer.text.words import words_of_spans
from vanilla_transformer.tokenizer_sides import call_tokenizer, target_side, tokens_of_ids

_WORD_BEGIN = "▁"
_LETTER = regex.compile(r"\X")


def unknown_spans(tokenizer: Any, texts: list[str], side: str = "source") -> list[list[Span]]:
    """Finds the parts of each text that the vocabulary lacks, as whole letters.

    A slow tokenizer does not report spans: each character is encoded alone, to see if it is known.
    """
    side_tokenizer = target_side(tokenizer) if side == "target" else tokenizer
    call = partial(call_tokenizer, side_tokenizer, side, truncation=False)
    encoded = call(texts)
    unknown = side_tokenizer.unk_token_id
    if getattr(encoded, "encodings", None):
        rows = [
            [span for index, span in zip(ids, row.offsets, strict=True) if index == unknown]
            for ids, row in zip(encoded["input_ids"], encoded.encodings, strict=True)
        ]
    else:
        characters = sorted({*"".join("".join(texts).split())})
        alone = call(characters)["input_ids"] if characters else []
        missing = {sign for sign, ids in zip(characters, alone, strict=True) if unknown in ids}
        rows = [[(at, at + 1) for at, sign in enumerate(text) if sign in missing] for text in texts]
    return [_whole_letters(*row) if row[1] else [] for row in zip(texts, rows, strict=True)]


def _whole_letters(text: str, spans: list[Span]) -> list[Span]:
    """Widens spans to the letters that are written as several characters, such as w and U+0301."""
    written = (letter for letter in _LETTER.finditer(text) if not is_normalized("NFC", letter[0]))
    composed = [letter.span() for letter in written]
    widened: list[Span] = []
    for span in spans:
        touched = [span, *(other for other in composed if meets(span, [other]))]
        widened.append((min(begin for begin, _ in touched), max(end for _, end in touched)))
    return list(dict.fromkeys(widened))


def words_of_encoding(
    tokenizer: Any, texts: Sequence[str], encoding: Any, side: str
) -> list[list[range]]:
    """Returns the indices of the words of each token of encoded texts; special tokens have none."""
    spans = spans_of_encoding(tokenizer, texts, encoding, side)
    return list(map(words_of_spans, texts, spans))


def without_first_word(words: Sequence[range]) -> list[range]:
    """Returns the words of tokens without the tag before the text, which is their first word."""
    return [range(max(word.start - 1, 0), max(word.stop - 1, 0)) for word in words]


def spans_of_encoding(
    tokenizer: Any, texts: Sequence[str], encoding: Any, side: str
) -> list[list[Span]]:
    """Returns the spans of the tokens of encoded texts; special tokens have an empty one.

    The token of a slow tokenizer has the span of its letters in the text. A token without letters
    has the span between its neighbours, or that of the next letter.

    Args:
        encoding: The tokenizer's result for the texts of one side.
    """
    if getattr(encoding, "encodings", None):
        return [list(row.offsets) for row in encoding.encodings]
    return [
        _spans_of_letters(tokenizer, text, ids, side)
        for text, ids in zip(texts, encoding["input_ids"], strict=True)
    ]


def _spans_of_letters(tokenizer: Any, text: str, ids: Sequence[int], side: str) -> list[Span]:
    """Returns the spans of the tokens of one text, by the letters that tokens and text share."""
    special = set(tokenizer.all_special_ids)
    written = [
        "" if token_id in special else token.replace(_WORD_BEGIN, " ").replace("</w>", " ")
        for token_id, token in zip(ids, tokens_of_ids(tokenizer, ids, side), strict=True)
    ]
    spaced = f" {text}"
    blocks = SequenceMatcher(None, "".join(written), spaced, autojunk=False).get_matching_blocks()
    pairs = ((own + n, other + n) for own, other, size in blocks for n in range(size))
    in_text = {own: other - 1 for own, other in pairs if not spaced[other].isspace()}
    spans: list[Span] = []
    begin = 0
    for letters in written:
        own = range(begin, begin + len(letters))
        known = [in_text[position] for position in own if position in in_text]
        spans.append((known[0], known[-1] + 1) if known else (0, 0))
        begin += len(letters)
    # Special tokens stand for no text, but the unknown token does.
    silent = special - {tokenizer.unk_token_id}
    return _with_spans_of_gaps(text, spans, [token_id not in silent for token_id in ids])


def _with_spans_of_gaps(text: str, spans: list[Span], have_text: list[bool]) -> list[Span]:
    """Returns spans in which a token with text, but without letters of it, has the gap there."""
    spans = list(spans)
    for index, has_text in enumerate(have_text):
        if spans[index] == (0, 0) and has_text:
            before = max((end for _, end in spans[:index]), default=0)
            after = next((begin for begin, end in spans[index:] if end), len(text))
            is_blank = not text[before:after].strip()  # as before a "▁" of its own
            spans[index] = (after, after + 1) if is_blank else (before, after)
    return spans


def spans_of_ids(tokenizer: Any, ids: Sequence[int], text: str) -> list[Span]:
    """Returns the spans of the tokens of a decoded text; special tokens have an empty one.

    So has a lone "▁", whose word may be aligned with another word. A token that is a part of a
    character has the span of the character.
    """
    special = set(tokenizer.all_special_ids)
    prefixes = [list(ids[:end]) for end in range(1, len(ids) + 1)]
    decoded = tokenizer.batch_decode(prefixes, skip_special_tokens=True) if prefixes else []
    spans = _spans_of_prefixes(text, decoded)
    return [(0, 0) if index in special else span for index, span in zip(ids, spans, strict=True)]


def _spans_of_prefixes(text: str, prefixes: Sequence[str]) -> list[Span]:
    """Returns the span that each token adds to the text of the earlier tokens."""
    spans, begin = [], 0
    for prefix in prefixes:
        pairs = enumerate(zip(prefix, text, strict=False))
        differing = (index for index, (own, other) in pairs if own != other)
        end = max(begin, next(differing, min(len(prefix), len(text))))
        is_part = end < len(prefix)  # the token ends within a character
        spans.append((begin, end + 1 if is_part else end))
        begin = end
    return spans
