"""The characters of texts that a vocabulary lacks: a model can neither read nor write them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vanilla_transformer.text.lines import count_characters
from vanilla_transformer.text.token_words import unknown_spans
from vanilla_transformer.tokenizer_sides import vocabulary_of

MOST_UNKNOWN = 0.05
"""The largest share of unknown characters with which a training makes sense."""
_WORTH_TELLING = 0.001
_SAMPLE = 10_000  # pairs of a split that are looked at, spread over all of it
_MOST_EXAMPLES = 10


def check_characters(tokenizer: Any, splits: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Measures the share of unknown characters in each side of each split.

    A word that the vocabulary lacks may well be of characters that other tokens have.

    Args:
        splits: By name, texts with the columns "source" and "target".

    Returns:
        The shares, in words; "" if each is less than one in a thousand.
    """
    described, largest = [], 0.0
    for name, columns in splits.items():
        shares = []
        for side in ("source", "target"):
            texts = columns[side]
            step = max(len(texts) // _SAMPLE, 1)
            sample = list(texts[::step])  # spread over all of it
            known = set("".join(vocabulary_of(tokenizer, side)))
            unknown = Counter(
                sign
                for text, spans in zip(sample, unknown_spans(tokenizer, sample, side), strict=True)
                for span in spans
                for sign in text[slice(*span)]
                if not (sign.isspace() or sign in known)
            )
            share = unknown.total() / max(sum(map(count_characters, sample)), 1)
            shares.append(f"{side} {share:.2%}")
            largest = max(largest, share)
            if share > MOST_UNKNOWN:
                examples = " ".join(sign for sign, _ in unknown.most_common(_MOST_EXAMPLES))
                raise ValueError(
                    f"{share:.1%} of the characters of the {name} {side}s are not in the "
                    f"vocabulary ({examples}), so a model cannot learn them: train one whose "
                    "vocabulary is made from such texts, is large enough (`vocab_size`), or is of "
                    "the kind byte_bpe, which has each character."
                )
        described.append(f"{name} {', '.join(shares)}")
    if largest < _WORTH_TELLING:
        return ""
    return f"Characters that the vocabulary lacks: {'; '.join(described)}."
