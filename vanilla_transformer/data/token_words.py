"""Tokens of ids, and the words of a text that they belong to, for every kind of tokenizer.

A fast tokenizer says which part of the text each token is that it encodes. For ids that a model has
generated, and for other tokenizers, it is read from what the first 1, 2, 3, ... ids decode to, or
from the marks of SentencePiece.
"""

from collections.abc import Sequence
from typing import Any

from vanilla_transformer.data.word_alignment import Span, count_words, words_of_spans

_WORD_BEGIN = "▁"


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


def words_of_encoding(
    tokenizer: Any,
    texts: Sequence[str],
    encoding: Any,
    truncated: Sequence[bool] | None = None,
) -> list[list[range]]:
    """Finds the words of the tokens that texts were encoded as.

    Args:
        tokenizer: The tokenizer.
        texts: The texts.
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
    found = []
    for text, ids, is_cut in zip(texts, encoding["input_ids"], cut, strict=True):
        words = _words_without_offsets(tokenizer, ids)
        number = max((one.stop for one in words), default=0)
        if number > count_words(text) or (number < count_words(text) and not is_cut):
            raise ValueError(
                f"The tokens of {type(tokenizer).__name__} show {number} words in {text!r}, which "
                f"has {count_words(text)}: with this tokenizer, align tokens instead of words."
            )
        found.append(words)
    return found


def words_of_ids(tokenizer: Any, ids: Sequence[int], text: str) -> list[range]:
    """Finds the words of the tokens that a text was decoded from, without special tokens.

    Returns:
        For each token the indices of its words; none for special tokens. A token that is a part of
        a character belongs to the word of that character.
    """
    special = set(tokenizer.all_special_ids)
    prefixes = [list(ids[:end]) for end in range(1, len(ids) + 1)]
    decoded = tokenizer.batch_decode(prefixes, skip_special_tokens=True) if prefixes else []
    spans = _spans_of_prefixes(text, decoded)
    spans = [(0, 0) if index in special else span for index, span in zip(ids, spans, strict=True)]
    return words_of_spans(text, spans)


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


def _words_without_offsets(tokenizer: Any, ids: Sequence[int]) -> list[range]:
    """Groups tokens by the marks of SentencePiece, or else by what they decode to."""
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    plain = [number for number, index in enumerate(ids) if index not in special]
    kept = [ids[number] for number in plain]
    tokens = tokenizer.convert_ids_to_tokens(kept)
    begins = [token.startswith(_WORD_BEGIN) for token in tokens]
    if any(begins):
        numbers = [max(sum(begins[: end + 1]) - (begins[0]), 0) for end in range(len(begins))]
        groups = [range(number, number + 1) for number in numbers]
    else:
        text = tokenizer.decode(kept)
        prefixes = [tokenizer.decode(kept[:end]) for end in range(1, len(kept) + 1)]
        groups = words_of_spans(text, _spans_of_prefixes(text, prefixes))
    words = [range(0)] * len(ids)
    for number, group in zip(plain, groups, strict=True):
        words[number] = group
    return words
