"""Tokens of ids, and the words of a text that they belong to, for every kind of tokenizer.

A fast tokenizer tells the span of each token that it encodes. For other tokenizers, the letters of
the tokens are looked for in the text. The spans of ids that a model has generated are read from the
texts that the first 1, 2, 3, ... ids decode to.
"""

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from difflib import SequenceMatcher
from functools import partial
from typing import Any, TypeVar
from unicodedata import is_normalized

import regex

from vanilla_transformer.text.word_alignment import Span, words_of_spans

Row = TypeVar("Row")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)

_WORD_BEGIN = "▁"
_LETTER = regex.compile(r"\X")


def map_grouped(
    rows: Sequence[Row], keys: Sequence[Key], compute: Callable[[Key, list[Row]], list[Result]]
) -> list[Result]:
    """Computes the rows of each key together; returns the results in the order of the rows."""
    groups: dict[Key, list[int]] = {}
    for number, key in enumerate(keys):
        groups.setdefault(key, []).append(number)
    results: dict[int, Result] = {}
    for key, numbers in groups.items():
        of_key = compute(key, [rows[number] for number in numbers])
        results |= zip(numbers, of_key, strict=True)
    return [results[number] for number in range(len(rows))]


def target_side(tokenizer: Any, language: str | None = None) -> Any:
    """Returns the tokenizer that encodes and decodes targets; no call of it changes the given one.

    FSMT's would encode targets by the vocabulary of the source: its copy has the target's.

    Args:
        language: The code of the targets' language; see `in_language`.
    """
    if getattr(tokenizer, "separate_vocabularies", False):
        return tokenizer.target_tokenizer()
    if type(tokenizer).__name__ != "FSMTTokenizer":
        from vanilla_transformer.model.directions import in_language  # it loads transformers

        return in_language(tokenizer, language)
    copied = copy(tokenizer)
    copied.encoder = vocabulary_of(tokenizer, "target")
    copied.src_lang = tokenizer.tgt_lang
    return copied


def call_tokenizer(tokenizer: Any, side: str, texts: Any, **options: Any) -> Any:
    """Encodes a text, or several, of the "source" or the "target", of any length."""
    argument = {"source": "text", "target": "text_target"}[side]
    return tokenizer(**{argument: texts}, verbose=False, **options)


def encode_pairs(
    tokenizer: Any, sources: list[str], targets: list[str], **options: Any
) -> dict[str, Any]:
    """Encodes sources, and targets as `labels`, with the options of the tokenizer."""
    encoded = tokenizer(sources, **options)
    labels = target_side(tokenizer)(text_target=targets, **options)["input_ids"]
    return {**encoded, "labels": labels}


def has_two_vocabularies(tokenizer: Any) -> bool:
    """Returns whether a tokenizer of any kind has two vocabularies, for sources and targets."""
    flags = ("separate_vocabularies", "separate_vocabs")  # of this package, of Marian
    is_fsmt = type(tokenizer).__name__ == "FSMTTokenizer"
    return is_fsmt or any(getattr(tokenizer, flag, False) for flag in flags)


def vocabulary_of(tokenizer: Any, side: str) -> dict[str, int]:
    """Returns the ids by token of one side.

    The tokenizers of Marian and FSMT have both vocabularies, but do not return the target's.
    """
    vocabulary: dict[str, int]
    if side == "target" and hasattr(tokenizer, "get_tgt_vocab"):
        vocabulary = {token: index for index, token in tokenizer.decoder.items()}
    elif side == "target":
        vocabulary = target_side(tokenizer).get_vocab()
    else:
        vocabulary = tokenizer.get_vocab()
    return vocabulary


def unnamed_ids(tokenizer: Any, rows: int) -> list[int]:
    """Returns the ids of a target matrix without a token: rows that pad it to a size."""
    return sorted({*range(rows)} - {*vocabulary_of(tokenizer, "target").values()})


def tokens_of_ids(tokenizer: Any, ids: Sequence[int], side: str) -> list[str]:
    """Returns the tokens of ids of one side."""
    if getattr(tokenizer, "separate_vocabularies", False):
        tokens: list[str] = tokenizer.convert_ids_to_tokens(list(ids), side=side)
        return tokens
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    if side == "target":
        return tokens
    # With two vocabularies, the tokenizers of FSMT and Marian take all ids for those of targets.
    names = {index: token for token, index in tokenizer.get_vocab().items()}
    return [names.get(index, token) for index, token in zip(ids, tokens, strict=True)]


def ids_of_target_tokens(tokenizer: Any, tokens: Sequence[str]) -> list[int]:
    """Returns the ids of tokens that `tokens_of_ids` returned for the target."""
    if hasattr(tokenizer, "get_tgt_vocab"):  # FSMT and Marian look them up in the source's
        ids = vocabulary_of(tokenizer, "target")
        return [ids.get(token, tokenizer.unk_token_id) for token in tokens]
    target_ids: list[int] = target_side(tokenizer).convert_tokens_to_ids(list(tokens))
    return target_ids


def unknown_spans(tokenizer: Any, texts: list[str], side: str = "source") -> list[list[Span]]:
    """Finds the parts of each text that are unknown to the vocabulary, whole letters.

    A tokenizer that is not fast does not tell them: a character is unknown if it alone is.
    """
    of_side = target_side(tokenizer) if side == "target" else tokenizer
    call = partial(call_tokenizer, of_side, side, truncation=False)
    encoded, unknown = call(texts), of_side.unk_token_id
    if getattr(encoded, "encodings", None):
        return [
            _whole_letters(
                text,
                [span for index, span in zip(ids, row.offsets, strict=True) if index == unknown],
            )
            if unknown in ids
            else []
            for text, ids, row in zip(texts, encoded["input_ids"], encoded.encodings, strict=True)
        ]
    characters = sorted({*"".join("".join(texts).split())})
    alone = call(characters)["input_ids"] if characters else []
    missing = {sign for sign, ids in zip(characters, alone, strict=True) if unknown in ids}
    return [
        _whole_letters(
            text, [(index, index + 1) for index, sign in enumerate(text) if sign in missing]
        )
        for text in texts
    ]


def _whole_letters(text: str, spans: list[Span]) -> list[Span]:
    """Widens spans to the letters that are written as several characters, such as w and U+0301."""
    letters = (match for match in _LETTER.finditer(text) if spans)
    composed = [m.span() for m in letters if not is_normalized("NFC", m[0])]
    widened = []
    for begin, end in spans:
        parts = [(begin, end), *(part for part in composed if begin < part[1] and part[0] < end)]
        widened.append((min(part[0] for part in parts), max(part[1] for part in parts)))
    return list(dict.fromkeys(widened))


def count_characters(text: str) -> int:
    """Counts the characters of a text that are no white space."""
    return sum(map(len, text.split()))


def words_of_encoding(
    tokenizer: Any, texts: Sequence[str], encoding: Any, side: str
) -> list[list[range]]:
    """Finds the words of the tokens that texts were encoded as; see `spans_of_encoding`.

    Returns:
        For each text and each of its tokens the indices of its words; none for special tokens.
    """
    spans = spans_of_encoding(tokenizer, texts, encoding, side)
    return list(map(words_of_spans, texts, spans))


def without_first_word(words: Sequence[range]) -> list[range]:
    """Returns the words of tokens, counted on from a tag that was put before the text."""
    return [range(max(word.start - 1, 0), max(word.stop - 1, 0)) for word in words]


def spans_of_encoding(
    tokenizer: Any, texts: Sequence[str], encoding: Any, side: str
) -> list[list[Span]]:
    """Finds the spans of the tokens that texts were encoded as; no text is refused.

    A token of a tokenizer that is not fast has the span of its letters in the text. A token without
    letters has the span between the tokens beside it, or else of the next letter.

    Args:
        encoding: The tokenizer's result for the texts of one side.

    Returns:
        The span of each token; an empty one for special tokens.
    """
    if getattr(encoding, "encodings", None):
        return [list(row.offsets) for row in encoding.encodings]
    silent = set(tokenizer.all_special_ids)
    rows = []
    for text, ids in zip(texts, encoding["input_ids"], strict=True):
        tokens = tokens_of_ids(tokenizer, ids, side)
        letters = [
            "" if index in silent else token.replace(_WORD_BEGIN, " ").replace("</w>", " ")
            for index, token in zip(ids, tokens, strict=True)
        ]
        spaced = f" {text}"
        blocks = SequenceMatcher(None, "".join(letters), spaced, False).get_matching_blocks()
        pairs = ((a + n, b + n) for a, b, size in blocks for n in range(size))
        in_text = {of_token: index - 1 for of_token, index in pairs if not spaced[index].isspace()}
        spans: list[Span] = []
        begin = 0
        for part in letters:
            known = [in_text[n] for n in range(begin, begin + len(part)) if n in in_text]
            spans.append((known[0], known[-1] + 1) if known else (0, 0))
            begin += len(part)
        for number, (index, span) in enumerate(zip(ids, spans, strict=True)):
            if span == (0, 0) and (index not in silent or index == tokenizer.unk_token_id):
                before = max((end for _, end in spans[:number]), default=0)
                behind = next((begin for begin, end in spans[number:] if end), len(text))
                is_blank = not text[before:behind].strip()  # as before a "▁" of its own
                spans[number] = (behind, behind + 1) if is_blank else (before, behind)
        rows.append(spans)
    return rows


def spans_of_ids(tokenizer: Any, ids: Sequence[int], text: str) -> list[Span]:
    """Finds the spans of the tokens that a text was decoded from, without special tokens.

    Returns:
        The span of each token; an empty one for special tokens. A token that is a part of a
        character has the span of that character.
    """
    special = set(tokenizer.all_special_ids)
    prefixes = [list(ids[:end]) for end in range(1, len(ids) + 1)]
    decoded = tokenizer.batch_decode(prefixes, skip_special_tokens=True) if prefixes else []
    spans = _spans_of_prefixes(text, decoded)
    return [(0, 0) if index in special else span for index, span in zip(ids, spans, strict=True)]


def _spans_of_prefixes(text: str, prefixes: Sequence[str]) -> list[Span]:
    """Returns the span that each token adds to the text of the tokens before it."""
    spans, begin = [], 0
    for prefix in prefixes:
        differs = (index for index, (a, b) in enumerate(zip(prefix, text, strict=False)) if a != b)
        end = max(begin, next(differs, min(len(prefix), len(text))))
        is_part = end == begin or end < len(prefix)  # of the next character
        spans.append((begin, end + is_part))
        begin = end
    return spans
