"""Tokens of ids, and the words of a text that they belong to, for every kind of tokenizer.

A fast tokenizer says which part of the text each token is that it encodes. For ids that a model has
generated, and for other tokenizers, it is read from what the first 1, 2, 3, ... ids decode to, or
from the marks of SentencePiece.
"""

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from difflib import SequenceMatcher
from typing import Any, TypeVar

from vanilla_transformer.data.word_alignment import (
    Span,
    spans_of_words,
    words_of_parts,
    words_of_spans,
)

Row = TypeVar("Row")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)

_WORD_BEGIN = "▁"


def in_groups(
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

    That of FSMT would encode them by the vocabulary of the source: a copy has that of the target.

    Args:
        language: Code of the targets' language; see `in_language`.
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


def encode_pairs(
    tokenizer: Any, sources: list[str], targets: list[str], **options: Any
) -> dict[str, Any]:
    """Encodes sources, and targets as `labels`, with the options of the tokenizer."""
    encoded = tokenizer(sources, **options)
    labels = target_side(tokenizer)(text_target=targets, **options)["input_ids"]
    return {**encoded, "labels": labels}


def has_two_vocabularies(tokenizer: Any) -> bool:
    """Returns whether sources and targets are of two vocabularies, in a tokenizer of any kind."""
    flags = ("separate_vocabularies", "separate_vocabs")  # of this package, of Marian
    is_fsmt = type(tokenizer).__name__ == "FSMTTokenizer"
    return is_fsmt or any(getattr(tokenizer, flag, False) for flag in flags)


def vocabulary_of(tokenizer: Any, side: str) -> dict[str, int]:
    """Returns the ids by token of one side.

    The tokenizers of Marian and FSMT have both vocabularies, but fail to return the target's.
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
    """Returns the ids of a matrix of target tokens that have no token: rows that only pad it."""
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
    """Finds the parts of each text that are unknown to the vocabulary.

    A tokenizer that is not fast does not say which these are: they are the characters that are
    unknown alone.
    """
    of_side = target_side(tokenizer) if side == "target" else tokenizer

    def call(texts: list[str]) -> Any:
        argument = {"source": "text", "target": "text_target"}[side]
        return of_side(**{argument: texts}, truncation=False, verbose=False)

    encoded, unknown = call(texts), of_side.unk_token_id
    if getattr(encoded, "encodings", None):
        return [
            [span for index, span in zip(ids, row.offsets, strict=True) if index == unknown]
            if unknown in ids
            else []
            for ids, row in zip(encoded["input_ids"], encoded.encodings, strict=True)
        ]
    characters = sorted({*"".join("".join(texts).split())})
    alone = call(characters)["input_ids"] if characters else []
    missing = {sign for sign, ids in zip(characters, alone, strict=True) if unknown in ids}
    return [
        [(place, place + 1) for place, sign in enumerate(text) if sign in missing] for text in texts
    ]


def unknown_characters(tokenizer: Any, texts: list[str], side: str = "source") -> list[str]:
    """Returns the characters of each text that are unknown to the vocabulary, without white space.

    See `unknown_spans`.
    """
    return [
        "".join("".join(text[begin:end] for begin, end in spans).split())
        for text, spans in zip(texts, unknown_spans(tokenizer, texts, side), strict=True)
    ]


def count_characters(text: str) -> int:
    """Counts the characters of a text that are no white space."""
    return sum(map(len, text.split()))


def words_of_encoding(
    tokenizer: Any,
    texts: Sequence[str],
    encoding: Any,
    side: str,
    truncated: Sequence[bool] | None = None,
) -> list[list[range]]:
    """Finds the words of the tokens that texts were encoded as.

    Args:
        encoding: What the tokenizer returned for the texts of one side.
        truncated: Whether the tokens of a text were truncated. None: of no text.

    Returns:
        For each text and each of its tokens the indices of its words; none for special tokens.

    Raises:
        ValueError: If the tokenizer is not fast, and its tokens show other words than the text.
    """
    if getattr(encoding, "encodings", None):
        rows = zip(texts, encoding.encodings, strict=True)
        return [words_of_spans(text, row.offsets) for text, row in rows]
    cut = truncated or [False] * len(texts)
    words_of_texts = []
    for text, ids, is_cut in zip(texts, encoding["input_ids"], cut, strict=True):
        parts = _parts_without_offsets(tokenizer, ids, side)
        words = words_of_parts(text)
        number = max((group.stop for group in parts), default=0)
        if number > len(words) or (number < len(words) and not is_cut):
            raise ValueError(
                f"The tokens of {type(tokenizer).__name__} show {number} words in {text!r}, which "
                f"has {len(words)}: with this tokenizer, align tokens instead of words."
            )
        words_of_texts.append(
            [range(words[part[0]], words[part[-1]] + 1) if part else part for part in parts]
        )
    return words_of_texts


def without_first_word(words: Sequence[range]) -> list[range]:
    """Returns the words of tokens, counted on from a tag that was put before the text."""
    return [range(max(word.start - 1, 0), max(word.stop - 1, 0)) for word in words]


def spans_of_encoding(tokenizer: Any, texts: Sequence[str], encoding: Any) -> list[list[Span]]:
    """Finds the spans of the tokens that sources were encoded as.

    A tokenizer that is not fast shows the words of its tokens alone: the span is that of the words.
    """
    if getattr(encoding, "encodings", None):
        return [list(row.offsets) for row in encoding.encodings]
    words = words_of_encoding(tokenizer, texts, encoding, "source")
    return [
        [
            (places[of_token[0]][0], places[of_token[-1]][1]) if of_token else (0, 0)
            for of_token in row
        ]
        for row, places in zip(words, map(spans_of_words, texts), strict=True)
    ]


def matched_spans(tokenizer: Any, texts: Sequence[str], encoding: Any) -> list[list[Span]]:
    """Finds the spans of the tokens that sources were encoded as; no text is refused.

    A token of a tokenizer that is not fast has the span of its letters that stand in the text too;
    an empty one if none does.
    """
    if getattr(encoding, "encodings", None):
        return [list(row.offsets) for row in encoding.encodings]
    special = set(tokenizer.all_special_ids)
    rows = []
    for text, ids in zip(texts, encoding["input_ids"], strict=True):
        tokens = tokens_of_ids(tokenizer, ids, "source")
        letters = [
            "" if index in special else token.replace(_WORD_BEGIN, " ").removesuffix("</w>")
            for index, token in zip(ids, tokens, strict=True)
        ]
        blocks = SequenceMatcher(None, "".join(letters), text, False).get_matching_blocks()
        places = {a + n: b + n for a, b, size in blocks for n in range(size)}
        row, begin = [], 0
        for part in letters:
            known = [places[n] for n in range(begin, begin + len(part)) if n in places]
            row.append((known[0], known[-1] + 1) if known else (0, 0))
            begin += len(part)
        rows.append(row)
    return rows


def words_of_ids(tokenizer: Any, ids: Sequence[int], text: str) -> list[range]:
    """Finds the words of the tokens that a text was decoded from; see `spans_of_ids`.

    Returns:
        For each token the indices of its words; none for special tokens.
    """
    return words_of_spans(text, spans_of_ids(tokenizer, ids, text))


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
    """Returns what each token adds to the part of a text that the tokens before it decode to."""
    spans, begin = [], 0
    for prefix in prefixes:
        differs = (index for index, (a, b) in enumerate(zip(prefix, text, strict=False)) if a != b)
        end = max(begin, next(differs, min(len(prefix), len(text))))
        is_part = end == begin or end < len(prefix)  # of the next character
        spans.append((begin, end + is_part))
        begin = end
    return spans


def _parts_without_offsets(tokenizer: Any, ids: Sequence[int], side: str) -> list[range]:
    """Numbers what white space divides by SentencePiece's marks, or by what tokens decode to."""
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    plain = [number for number, index in enumerate(ids) if index not in special]
    tokens = tokens_of_ids(tokenizer, [ids[number] for number in plain], side)
    begins = [token.startswith(_WORD_BEGIN) for token in tokens]
    if any(begins):
        numbers = [max(sum(begins[: end + 1]) - (begins[0]), 0) for end in range(len(begins))]
        groups = [range(number, number + 1) for number in numbers]
    else:
        text = tokenizer.convert_tokens_to_string(tokens)
        ends = range(1, len(tokens) + 1)
        prefixes = [tokenizer.convert_tokens_to_string(tokens[:end]) for end in ends]
        groups = words_of_spans(text, _spans_of_prefixes(text, prefixes))
    words = [range(0)] * len(ids)
    for number, group in zip(plain, groups, strict=True):
        words[number] = group
    return words
