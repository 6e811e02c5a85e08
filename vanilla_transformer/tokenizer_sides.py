"""The sides of a tokenizer of any kind: source and target, their vocabularies and ids."""

from collections.abc import Sequence
from copy import copy
from typing import Any


def target_side(tokenizer: Any, language: str | None = None) -> Any:
    """Returns the tokenizer that encodes and decodes targets; no call of it changes the given one.

    FSMT's would encode targets by the vocabulary of the source: its copy has the target's.

    Args:
        language: The code of the targets' language; see `in_language`.
    """
    if getattr(tokenizer, "separate_vocabularies", False):
        return tokenizer.target_tokenizer()
    if _is_of_fsmt(tokenizer):
        copied = copy(tokenizer)
        copied.encoder = vocabulary_of(tokenizer, "target")
        copied.src_lang = tokenizer.tgt_lang
        return copied
    from vanilla_transformer.model.directions import in_language  # it loads transformers

    return in_language(tokenizer, language)


def _is_of_fsmt(tokenizer: Any) -> bool:
    """Returns whether a tokenizer counts a second vocabulary, of which its calls make no use."""
    return hasattr(tokenizer, "tgt_vocab_size")


def call_tokenizer(tokenizer: Any, side: str, texts: Any, **options: Any) -> Any:
    """Encodes a text, or several, of the "source" or the "target", of any length."""
    argument = {"source": "text", "target": "text_target"}[side]
    return tokenizer(**{argument: texts}, verbose=False, **options)


def ids_of_texts(tokenizer: Any, side: str, texts: list[str]) -> list[list[int]]:
    """Returns the ids of texts of any length."""
    if hasattr(tokenizer, "batch_ids"):  # of this package, in less time than a call
        ids: list[list[int]] = tokenizer.batch_ids(texts, side=side)
        return ids
    ids = call_tokenizer(tokenizer, side, texts, truncation=False)["input_ids"]
    return ids


def has_two_vocabularies(tokenizer: Any) -> bool:
    """Returns whether a tokenizer of any kind has two vocabularies, for sources and targets."""
    flags = ("separate_vocabularies", "separate_vocabs")  # of this package, of Marian
    return _is_of_fsmt(tokenizer) or any(getattr(tokenizer, flag, False) for flag in flags)


def vocabulary_of(tokenizer: Any, side: str) -> dict[str, int]:
    """Returns the ids by token of one side.

    The tokenizers of Marian and FSMT have both vocabularies, but do not return the target's.
    """
    if side == "target" and hasattr(tokenizer, "get_tgt_vocab"):
        return {token: index for index, token in tokenizer.decoder.items()}
    side_tokenizer = target_side(tokenizer) if side == "target" else tokenizer
    vocabulary: dict[str, int] = side_tokenizer.get_vocab()
    return vocabulary


def vocabularies_of(config: Any, tokenizer: Any) -> tuple[list[str], list[str]]:
    """Returns the tokens of a model's rows on both sides; rows without one get a made-up one."""
    tokens = []
    for side, name in (("source", "vocab_size"), ("target", "decoder_vocab_size")):
        size = getattr(config, name)
        by_id = {index: token for token, index in vocabulary_of(tokenizer, side).items()}
        if by_id and max(by_id) >= size:
            raise ValueError(
                f"The tokenizer has the id {max(by_id)}, but the model has {size} rows: give the "
                "tokenizer that the model was trained with."
            )
        tokens.append([by_id.get(index, f"<row{index}>") for index in range(size)])
    return tokens[0], tokens[1]


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
    # With two vocabularies, the tokenizers of FSMT and Marian take all ids for target ids.
    names = {index: token for token, index in tokenizer.get_vocab().items()}
    return [names.get(index, token) for index, token in zip(ids, tokens, strict=True)]


def ids_of_target_tokens(tokenizer: Any, tokens: Sequence[str]) -> list[int]:
    """Returns the ids of tokens that `tokens_of_ids` returned for the target."""
    if hasattr(tokenizer, "get_tgt_vocab"):  # FSMT and Marian look them up in the source's
        ids = vocabulary_of(tokenizer, "target")
        return [ids.get(token, tokenizer.unk_token_id) for token in tokens]
    target_ids: list[int] = target_side(tokenizer).convert_tokens_to_ids(list(tokens))
    return target_ids
