"""Stop strings of `generate()`, for any vocabulary.

The criterion of transformers asks the tokenizer for tokens that spell "abcdef". It fails with most
vocabularies that cannot spell it.
"""

import copy
from typing import Any

from transformers import GenerationConfig, PreTrainedTokenizerBase
from transformers.generation.stopping_criteria import StoppingCriteriaList, StopStringCriteria


class StopStrings(StopStringCriteria):
    """Stops a row as soon as its text contains one of the stop strings.

    Args:
        tokenizer: The tokenizer of the generated ids.
        stop_strings: One or more texts.
    """

    @staticmethod
    def clean_tokenizer_vocab(
        tokenizer: Any,
        static_prefix: str = "",
        stop_string_matching_mode: str | None = None,
    ) -> tuple[tuple[str | bytes, ...], tuple[int, ...]]:
        """Returns the text of each token, as it follows other text, and the ids of the tokens.

        Args:
            tokenizer: The tokenizer of the generated ids.
            static_prefix: Not used.
            stop_string_matching_mode: "byte_level" or "byte_fallback" if tokens may hold parts of
                characters; their texts are then bytes. None: texts.

        Returns:
            Texts and ids, in the same order.
        """
        mode, vocabulary = stop_string_matching_mode, tokenizer.get_vocab()
        letters = StopStringCriteria._byte_level_decoder() if mode == "byte_level" else None
        before = _tokens_of_some_text(tokenizer, vocabulary)
        texts: list[str | bytes] = []
        for token in vocabulary:
            text = StopStringCriteria._token_to_bytes(token, mode, letters)
            if text is None:
                text = _text_after(tokenizer, before, token)
                text = text if mode is None else text.encode()
            texts.append(text)
        return tuple(texts), tuple(vocabulary.values())

    def clean_and_embed_tokens_with_cache(
        self, token_list: Any, token_indices: Any, tokenizer: Any
    ) -> Any:
        """Prepares the vocabulary, or takes it from the cache of transformers.

        The tokens only serve as the key of that cache. The decoder is added to the key, because two
        vocabularies with equal tokens may join them in different ways.

        Args:
            token_list: The tokens.
            token_indices: Their ids.
            tokenizer: The tokenizer.

        Returns:
            What the base class returns.
        """
        decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
        key = (*token_list, type(self).__name__, repr(decoder))
        prepare: Any = super().clean_and_embed_tokens_with_cache
        return prepare(key, token_indices, tokenizer)


def take_stop_strings(
    config: GenerationConfig, criteria: Any, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[GenerationConfig, Any]:
    """Replaces the stop strings of a generation config by a criterion.

    Args:
        config: What `generate()` was asked for. It is not changed.
        criteria: Criteria of the caller, or None.
        tokenizer: The tokenizer of the model, or None. One with two vocabularies is taken as that
            of the target.

    Returns:
        The config without stop strings, and all criteria. Without stop strings or without a
        tokenizer, they are as they were.
    """
    if config.stop_strings is None or tokenizer is None:
        return config, criteria
    get_target: Any = getattr(tokenizer, "target_tokenizer", lambda: tokenizer)
    stop = StopStrings(get_target(), config.stop_strings)
    config = copy.copy(config)
    config.stop_strings = None
    return config, StoppingCriteriaList([*(criteria or []), stop])


def _tokens_of_some_text(tokenizer: Any, vocabulary: dict[str, int]) -> list[str]:
    """Returns one token that is neither special nor blank, or none if there is no such token."""
    special = set(tokenizer.all_special_tokens)
    for token in sorted(set(vocabulary) - special, key=vocabulary.__getitem__):
        if tokenizer.convert_tokens_to_string([token]).strip(" \ufffd"):
            return [token]
    return []


def _text_after(tokenizer: Any, before: list[str], token: str) -> str:
    """Returns the text that a token adds to a text."""
    start: str = tokenizer.convert_tokens_to_string(before) if before else ""
    whole: str = tokenizer.convert_tokens_to_string([*before, token])
    if whole.startswith(start):
        return whole.removeprefix(start)
    return str(tokenizer.convert_tokens_to_string([token]))
