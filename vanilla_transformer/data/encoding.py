"""From text to token ids."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from datasets import Dataset, DatasetDict
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

logger = logging.get_logger(__name__)

D = TypeVar("D", Dataset, DatasetDict)


def encode(
    data: D,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
    num_proc: int | None = None,
) -> D:
    """Turn text into token ids, and warn with the number of texts that were truncated.

    Args:
        data: a data set, or splits, with the text columns "source" and "target".
        tokenizer: encodes the source, and the target as `text_target`.
        max_source_length: the most tokens of a source, special tokens included; None for no limit.
        max_target_length: the same for a target.
        num_proc: processes to use; None for this one.

    Returns:
        The same rows with the columns "input_ids", "attention_mask", "labels", and "length" (tokens
        of source and target together). The text columns stay in `data`, which is unchanged.
    """
    if isinstance(data, DatasetDict):
        options = max_source_length, max_target_length, num_proc
        return DatasetDict({name: encode(rows, tokenizer, *options) for name, rows in data.items()})
    limits = {"source": max_source_length, "target": max_target_length}
    encoded = data.map(
        _encode_batch,
        batched=True,
        fn_kwargs={"tokenizer": tokenizer, "limits": limits},
        remove_columns=data.column_names,
        num_proc=num_proc,
        desc="Tokenizing",
    )
    for side, limit in limits.items():
        if cut := sum(encoded[f"{side}_truncated"][:]):
            logger.warning(f"truncated {cut} of {len(data)} {side} texts to {limit} tokens")
    return encoded.remove_columns([f"{side}_truncated" for side in limits])


def _encode_batch(
    batch: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase, limits: dict[str, int | None]
) -> dict[str, Any]:
    encoded, truncated = {}, {}
    for side, argument in (("source", "text"), ("target", "text_target")):
        tokenize = partial(_tokenize, tokenizer, argument)
        encoded[side] = tokenize(batch[side], limits[side])
        truncated[side] = _truncated(
            batch[side], encoded[side]["input_ids"], limits[side], tokenize
        )
    pairs = zip(encoded["source"]["input_ids"], encoded["target"]["input_ids"], strict=True)
    return {
        "input_ids": encoded["source"]["input_ids"],
        "attention_mask": encoded["source"]["attention_mask"],
        "labels": encoded["target"]["input_ids"],
        "length": [len(source) + len(target) for source, target in pairs],
        "source_truncated": truncated["source"],
        "target_truncated": truncated["target"],
    }


def _tokenize(
    tokenizer: PreTrainedTokenizerBase, argument: str, texts: list[str], limit: int | None
) -> Any:
    options = {"truncation": True, "max_length": limit} if limit else {"truncation": False}
    texts_of_side: dict[str, Any] = {argument: texts}
    return tokenizer(**texts_of_side, **options, return_attention_mask=True, verbose=False)


def _truncated(
    texts: list[str],
    ids: Sequence[Sequence[int]],
    limit: int | None,
    tokenize: Callable[[list[str], None], Any],
) -> list[bool]:
    """Tell which texts lost tokens: of those that fill the limit, those that are longer than it."""
    full = [i for i, tokens in enumerate(ids) if limit and len(tokens) >= limit]
    whole = tokenize([texts[i] for i in full], None)["input_ids"] if full else []
    cut = {i for i, tokens in zip(full, whole, strict=True) if len(tokens) > (limit or 0)}
    return [i in cut for i in range(len(texts))]
