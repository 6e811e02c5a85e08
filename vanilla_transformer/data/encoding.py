"""Turns text into token ids."""

from pathlib import Path
from typing import Any, TypeVar

import datasets
from datasets import Dataset, DatasetDict
from transformers import BatchEncoding, PreTrainedTokenizerBase
from transformers.utils import logging

from vanilla_transformer.data.disk_space import explained_full_disk

logger = logging.get_logger(__name__)

D = TypeVar("D", Dataset, DatasetDict)


def encode(
    data: D,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
    num_proc: int | None = None,
) -> D:
    """Encodes pairs of texts as token ids; a warning counts the texts that are truncated.

    Args:
        data: A data set, or several splits, with the text columns "source" and "target".
        tokenizer: Encodes the source as `text` and the target as `text_target`.
        max_source_length: Largest number of tokens of a source, special tokens included. None: no
            limit.
        max_target_length: The same for a target.
        num_proc: Number of processes. None: the current process does the work.

    Returns:
        New data with the same rows and the columns "input_ids", "attention_mask", "labels" and
        "length" (number of tokens of source and target together), without the text columns.

    Raises:
        OSError: If the disk of the cache is full.
    """
    if isinstance(data, DatasetDict):
        options = max_source_length, max_target_length, num_proc
        return DatasetDict({name: encode(rows, tokenizer, *options) for name, rows in data.items()})
    limits = {"source": max_source_length, "target": max_target_length}
    with explained_full_disk(Path(datasets.config.HF_DATASETS_CACHE)):
        encoded = data.map(
            _encode_batch,
            batched=True,
            fn_kwargs={"tokenizer": tokenizer, "limits": limits},
            remove_columns=data.column_names,
            num_proc=num_proc,
            desc="Tokenizing",
        )
    for side, limit in limits.items():
        if truncated := sum(encoded[f"{side}_truncated"][:]):
            logger.warning(
                f"The tokenizer truncated {truncated} of {len(data)} {side} texts to {limit} "
                "tokens."
            )
    return encoded.remove_columns([f"{side}_truncated" for side in limits])


def _encode_batch(
    batch: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase, limits: dict[str, int | None]
) -> dict[str, list[Any]]:
    source, source_truncated = _encode_side(batch["source"], tokenizer, "text", limits["source"])
    target, target_truncated = _encode_side(
        batch["target"], tokenizer, "text_target", limits["target"]
    )
    pairs = zip(source["input_ids"], target["input_ids"], strict=True)
    return {
        "input_ids": source["input_ids"],
        "attention_mask": source["attention_mask"],
        "labels": target["input_ids"],
        "length": [len(source_ids) + len(target_ids) for source_ids, target_ids in pairs],
        "source_truncated": source_truncated,
        "target_truncated": target_truncated,
    }


def _encode_side(
    texts: list[str], tokenizer: PreTrainedTokenizerBase, argument: str, limit: int | None
) -> tuple[BatchEncoding, list[bool]]:
    """Encodes the texts of one side; returns the encoding, and which texts lost tokens."""
    options: dict[str, Any] = {argument: texts, "return_attention_mask": True, "verbose": False}
    if not limit:
        return tokenizer(**options, truncation=False), [False] * len(texts)
    encoding = tokenizer(**options, truncation=True, max_length=limit)
    # Only a text that fills the limit can have lost tokens: it is encoded again, without a limit.
    full = [index for index, ids in enumerate(encoding["input_ids"]) if len(ids) >= limit]
    options = {**options, argument: [texts[index] for index in full]}
    whole = tokenizer(**options, truncation=False)["input_ids"] if full else []
    truncated = {index for index, ids in zip(full, whole, strict=True) if len(ids) > limit}
    return encoding, [index in truncated for index in range(len(texts))]
