"""Turns text into token ids."""

import json
from functools import partial
from logging import INFO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import datasets
from datasets import Dataset, DatasetDict, Features, List, Value
from datasets.fingerprint import Hasher
from transformers import BatchEncoding, PreTrainedTokenizerBase
from transformers.utils import logging

from vanilla_transformer.data.alignment_files import LINKS
from vanilla_transformer.data.atomic_files import explained_full_disk
from vanilla_transformer.data.file_contents import content_digest, read_object, text_digest
from vanilla_transformer.data.token_words import target_side, words_of_encoding
from vanilla_transformer.data.word_alignment import parse_links, token_links
from vanilla_transformer.progress import Progress

logger = logging.get_logger(__name__)

_ORIGIN = ("name_or_path", "is_local", "local_files_only", "auto_map", "_commit_hash")
"""Fields of a saved tokenizer that tell where it comes from."""
_LAST_CALL = ("truncation", "padding")
"""Parts of tokenizer.json that follow the last call of a tokenizer; `encode` sets both."""

D = TypeVar("D", Dataset, DatasetDict)

_FEATURES_WITH_LINKS = Features(
    {
        "input_ids": List(Value("int32")),
        "attention_mask": List(Value("int8")),
        "labels": List(Value("int64")),
        "length": Value("int64"),
        "source_truncated": Value("bool"),
        "target_truncated": Value("bool"),
        LINKS: List(List(Value("int32"))),
        "links_lost": Value("int64"),
    }
)
"""Columns of encoded pairs with links; without this, pairs without links would have no type."""


def encode(
    data: D,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
    num_proc: int | None = None,
) -> D:
    """Encodes pairs of texts as token ids; a warning counts the texts that are truncated.

    Links between words become links between all their tokens. A warning counts the links whose
    tokens are lost with the end of a text.

    Args:
        data: A data set, or several splits, with the text columns "source" and "target", and
            optionally "alignment" (lines of word links in Pharaoh's format).
        tokenizer: Encodes the source as `text` and the target as `text_target`.
        max_source_length: Largest number of tokens of a source, special tokens included. None: no
            limit.
        max_target_length: The same for a target.
        num_proc: Number of processes. None: the current process does the work.

    Returns:
        New data with the same rows and the columns "input_ids", "attention_mask", "labels" and
        "length" (number of tokens of source and target together), without the text columns. With
        links, "alignment" holds pairs of token indices.

    Raises:
        OSError: If the disk of the cache is full.
        ValueError: If a text column is missing, or if there are links, and the tokenizer does not
            show the words of its tokens.
    """
    if isinstance(data, DatasetDict):
        options = max_source_length, max_target_length, num_proc
        return DatasetDict({name: encode(rows, tokenizer, *options) for name, rows in data.items()})
    if missing := [name for name in ("source", "target") if name not in data.column_names]:
        raise ValueError(
            f"The data has the columns {data.column_names}, but not {' and '.join(missing)}: "
            "rename the columns of the texts to source and target."
        )
    limits = {"source": max_source_length, "target": max_target_length}
    tells = num_proc is None and logger.isEnabledFor(INFO)  # datasets shows bars
    with (
        explained_full_disk(Path(datasets.config.HF_DATASETS_CACHE)),
        Progress(len(data), "pairs", work="Encoding", shown=tells, bar=False) as shown,
    ):
        encoded = data.map(
            partial(_encode_batch, shown=shown if tells else None),
            batched=True,
            fn_kwargs={"tokenizer": tokenizer, "limits": limits},
            remove_columns=data.column_names,
            features=_FEATURES_WITH_LINKS if LINKS in data.column_names else None,
            num_proc=num_proc,
            # That of datasets would cover where the tokenizer was loaded from: each resumption of a
            # run would encode its data again, and leave a copy in the cache.
            new_fingerprint=Hasher.hash([data._fingerprint, _tokenizer_digest(tokenizer), limits]),
            desc="Tokenizing",
        )
    for side, limit in limits.items():
        if truncated := sum(encoded[f"{side}_truncated"][:]):
            logger.warning(
                f"The tokenizer truncated {truncated} of {len(data)} {side} texts to {limit} "
                "tokens."
            )
    columns = [f"{side}_truncated" for side in limits]
    if LINKS in data.column_names:
        columns.append("links_lost")
        if lost := sum(encoded["links_lost"][:]):
            logger.warning(
                f"{lost} links of words are left out: truncation leaves no token of a word."
            )
    return encoded.remove_columns(columns)


def _tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Returns a digest of what a tokenizer saves, without where it comes from or its last call."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_warning()  # without a message for each file
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        files: dict[str, Any] = {one.name: content_digest(one) for one in Path(folder).iterdir()}
        for file in files.keys() & {"tokenizer_config.json", "tokenizer.json"}:
            content = read_object(Path(folder, file)).items()
            dropped = (*_ORIGIN, *_LAST_CALL)
            files[file] = {name: value for name, value in content if name not in dropped}
    logging.set_verbosity(verbosity)
    return text_digest(json.dumps(files, sort_keys=True))


def _encode_batch(
    batch: dict[str, list[str]],
    tokenizer: PreTrainedTokenizerBase,
    limits: dict[str, int | None],
    shown: Progress | None = None,
) -> dict[str, list[Any]]:
    source, source_truncated = _encode_side(batch["source"], tokenizer, "text", limits["source"])
    target, target_truncated = _encode_side(
        batch["target"], target_side(tokenizer), "text_target", limits["target"]
    )
    pairs = zip(source["input_ids"], target["input_ids"], strict=True)
    columns: dict[str, list[Any]] = {
        "input_ids": source["input_ids"],
        "attention_mask": source["attention_mask"],
        "labels": target["input_ids"],
        "length": [len(source_ids) + len(target_ids) for source_ids, target_ids in pairs],
        "source_truncated": source_truncated,
        "target_truncated": target_truncated,
    }
    if LINKS in batch:
        words = (
            words_of_encoding(tokenizer, batch["source"], source, "source", source_truncated),
            words_of_encoding(tokenizer, batch["target"], target, "target", target_truncated),
        )
        columns |= _encode_links(batch[LINKS], *words)
    if shown is not None:
        shown.reach(shown.done + len(batch["source"]))
    return columns


def _encode_links(
    lines: list[str], source: list[list[range]], target: list[list[range]]
) -> dict[str, list[Any]]:
    """Returns the links of tokens, and how many links of words each pair has lost."""
    columns: dict[str, list[Any]] = {LINKS: [], "links_lost": []}
    for line, *words in zip(lines, source, target, strict=True):
        links = [(link, token_links([link], *words)) for link in parse_links(line)]
        columns[LINKS].append(sorted({pair for _, found in links for pair in found}))
        columns["links_lost"].append(sum(not found for _, found in links))
    return columns


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
