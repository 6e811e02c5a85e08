"""Turns text into token ids."""

import json
from collections.abc import Callable
from copy import copy
from functools import partial
from itertools import chain
from logging import INFO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
from datasets import Dataset, DatasetDict, Features, List, Value
from datasets.table import InMemoryTable
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from vanilla_transformer.data.atomic_files import explained_full_disk
from vanilla_transformer.data.file_contents import (
    content_digest,
    read_object,
    rows_digest,
    text_digest,
)
from vanilla_transformer.data.file_formats import LINKS, cache_folder
from vanilla_transformer.data.shards import Shards, make_shards
from vanilla_transformer.data.token_words import target_side, words_of_encoding
from vanilla_transformer.data.word_alignment import parse_links, token_links
from vanilla_transformer.model.tokenization_vanilla_transformer import SPECIAL_TOKENS
from vanilla_transformer.progress import Progress

logger = logging.get_logger(__name__)

_ORIGIN = ("name_or_path", "is_local", "local_files_only", "auto_map", "_commit_hash")
"""Fields of a saved tokenizer that tell where it comes from."""
_LAST_CALL = ("truncation", "padding")
"""Parts of tokenizer.json that follow the last call of a tokenizer; `encode` sets both."""

TEXTS_OF_A_SAMPLE = 100
_BYTES_BESIDE_IDS = 12  # of a pair: two offsets, and its lengths
_FORMAT = 2  # of the shards: with another number, no older ones are used
_ROWS_OF_A_CALL = 1000
_MOST_WORDS = 250_000  # that an encoder remembers

D = TypeVar("D", Dataset, DatasetDict)


def encode(
    data: D,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
    num_proc: int | None = None,
    folder: Path | None = None,
    tell: Callable[[int], None] = lambda _: None,
) -> D:
    """Encodes pairs of texts as token ids; a warning counts the texts that are truncated.

    Links between words become links between all their tokens. A warning counts the links whose
    tokens are lost with the end of a text. Pairs that are in files are encoded into files, shard by
    shard: what is there already is not encoded again.

    Args:
        data: A data set, or several splits, with the text columns "source" and "target", and
            optionally "alignment" (lines of word links in Pharaoh's format).
        tokenizer: Encodes the source as `text` and the target as `text_target`.
        max_source_length: Largest number of tokens of a source, special tokens included. None: no
            limit.
        max_target_length: The same for a target.
        num_proc: Number of processes. None: the current process does the work.
        folder: Folder of the files; each of several splits has a folder in it. None: the cache, or
            memory for texts that are there.
        tell: Takes the number of pairs that are encoded, after each file.

    Returns:
        New data with the same rows and the columns "input_ids" and "labels", without the text
        columns. With links, "alignment" holds pairs of token indices.

    Raises:
        OSError: If the disk is full.
        ValueError: If a text column is missing, or if there are links, and the tokenizer does not
            show the words of its tokens.
    """
    if isinstance(data, DatasetDict):
        options = max_source_length, max_target_length, num_proc
        splits, before = {}, 0
        for name, rows in data.items():
            own = None if folder is None else folder / name
            splits[name] = encode(
                rows, tokenizer, *options, own, partial(lambda start, n: tell(start + n), before)
            )
            before += len(rows)
        return DatasetDict(splits)
    if missing := [name for name in ("source", "target") if name not in data.column_names]:
        raise ValueError(
            f"The data has the columns {data.column_names}, but not {' and '.join(missing)}: "
            "rename the columns of the texts to source and target."
        )
    limits = {"source": max_source_length, "target": max_target_length}
    tells = logger.isEnabledFor(INFO)
    with Progress(len(data), "pairs", work="Encoding", shown=tells, bar=False) as shown:
        sides = {"source": tokenizer, "target": target_side(tokenizer)}
        ids_of = {side: _encoder_of(own, side) for side, own in sides.items()}
        make = partial(_encode_rows, data, sides, ids_of, limits)
        if folder is None and not data.cache_files:
            table, facts = make(range(len(data)), tell=shown.reach)
            encoded, found = Dataset(InMemoryTable(table)), [facts]
        else:
            origin = [_FORMAT, data._fingerprint, tokenizer_digest(tokenizer), limits]
            key = text_digest(json.dumps(origin))
            folder = folder or cache_folder() / key
            if num_proc is None:
                make = partial(make, tell=shown.reach)

            def reach(done: int) -> None:
                shown.reach(done)
                tell(done)

            expected = bytes_of_pair(data)
            shards = make_shards(folder, key, len(data), make, num_proc, reach, expected)
            encoded, found = shards.open(), shards.shards
    _warn_of_losses(found, limits, len(data))
    return encoded


def bytes_of_pair(texts: Dataset) -> float:
    """Returns a low estimate of the bytes of an encoded pair: 6 bytes of text a token of 2 bytes.

    Args:
        texts: Pairs with the columns "source" and "target", whose first ones are looked at.
    """
    first = texts[:TEXTS_OF_A_SAMPLE]
    size = sum(len(text.encode()) for side in ("source", "target") for text in first[side])
    return size / 3 / max(1, len(first["source"])) + _BYTES_BESIDE_IDS


def encoded_digest(texts: Dataset, encoded: Any) -> str:
    """Returns the digest of texts; of those that are encoded in files, it is written there."""
    if not isinstance(encoded, Dataset):  # a stream
        return str(encoded.digest)
    shards = Shards.of(encoded)
    if shards is None:
        return rows_digest(texts)
    digests = [str(one["texts"]) for one in shards.shards]
    return digests[0] if len(digests) == 1 else text_digest(" ".join(digests))


def _warn_of_losses(facts: list[dict[str, Any]], limits: dict[str, int | None], count: int) -> None:
    for side, limit in limits.items():
        if truncated := sum(one["truncated"][side] for one in facts):
            logger.warning(
                f"The tokenizer truncated {truncated} of {count} {side} texts to {limit} tokens."
            )
    if lost := sum(one["links_lost"] for one in facts):
        logger.warning(f"{lost} links of words are left out: truncation leaves no token of a word.")


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Returns a digest of what a tokenizer saves, without where it comes from or its last call."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_warning()  # without a message for each file
    plain: Any = copy(tokenizer)
    plain._auto_class = None  # without the code of this version
    with TemporaryDirectory() as folder, explained_full_disk(Path(folder)):
        plain.save_pretrained(folder)
        files: dict[str, Any] = {one.name: content_digest(one) for one in Path(folder).iterdir()}
        for file in files.keys() & {"tokenizer_config.json", "tokenizer.json"}:
            content = read_object(Path(folder, file)).items()
            dropped = (*_ORIGIN, *_LAST_CALL)
            files[file] = {name: value for name, value in content if name not in dropped}
    logging.set_verbosity(verbosity)
    return text_digest(json.dumps(files, sort_keys=True))


def _encode_rows(
    data: Dataset,
    sides: dict[str, PreTrainedTokenizerBase],
    ids_of: dict[str, Callable[[list[str]], list[list[int]]]],
    limits: dict[str, int | None],
    rows: range,
    tell: Callable[[int], None] = lambda _: None,
) -> tuple[pa.Table, dict[str, Any]]:
    """Encodes some rows; returns them, how much truncation took, and the digest of the texts."""
    ids = Value("uint16" if max(map(len, sides.values())) <= 2**16 else "uint32")
    features = {"input_ids": List(ids), "labels": List(ids)}
    if LINKS in data.column_names:
        features[LINKS] = List(List(Value("int32")))
    schema, tables = Features(features).arrow_schema, []
    truncated, lost = dict.fromkeys(sides, 0), 0
    for start in range(rows.start, rows.stop, _ROWS_OF_A_CALL):
        stop = min(start + _ROWS_OF_A_CALL, rows.stop)
        batch = data[start:stop]
        if LINKS in batch:
            columns, lost_here = _encode_with_links(batch, sides, limits, truncated)
            lost += lost_here
        else:
            columns = _encode_batch(batch, sides, ids_of, limits, truncated)
        tables.append(pa.Table.from_pydict(columns, schema))
        tell(stop)
    texts = rows_digest(data.select(rows))
    facts = {"truncated": truncated, "links_lost": lost, "texts": texts}
    return (pa.concat_tables(tables) if tables else schema.empty_table()), facts


def _encode_batch(
    batch: dict[str, list[str]],
    sides: dict[str, PreTrainedTokenizerBase],
    ids_of: dict[str, Callable[[list[str]], list[list[int]]]],
    limits: dict[str, int | None],
    truncated: dict[str, int],
) -> dict[str, list[Any]]:
    source, target = (
        _cut_to_limit(ids_of[side](batch[side]), batch[side], sides[side], side, limits, truncated)
        for side in sides
    )
    return {"input_ids": source, "labels": target}


def pair_encoder(
    tokenizer: PreTrainedTokenizerBase, limits: dict[str, int | None], truncated: dict[str, int]
) -> Callable[[dict[str, list[str]]], dict[str, list[Any]]]:
    """Returns what encodes pairs of a few texts, given by side, as `encode` does.

    Args:
        tokenizer: As in `encode`.
        limits: Largest number of tokens of each side.
        truncated: Is raised by the number of texts of each side that are truncated.
    """
    sides = {"source": tokenizer, "target": target_side(tokenizer)}
    ids_of = {side: _encoder_of(own, side) for side, own in sides.items()}
    return partial(_encode_batch, sides=sides, ids_of=ids_of, limits=limits, truncated=truncated)


class _WordEncoder:
    """Encodes texts as their words, and remembers these: the ids are those of the tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self.batch_ids = tokenizer.batch_ids
        self.exceptions = ["▁", *(set(tokenizer.get_added_vocab()) - {*SPECIAL_TOKENS})]
        self.end = [tokenizer.eos_token_id]
        self.ids: dict[str, list[int]] = {}

    def __call__(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        is_plain = [not any(one in text for one in self.exceptions) for text in texts]
        others = iter(
            self.batch_ids([text for text, own in zip(texts, is_plain, strict=True) if not own])
        )
        # A space at the begin of a text is that which the tokenizer would put there.
        words = [
            text.removeprefix(" ").split(" ") if own and text else []
            for text, own in zip(texts, is_plain, strict=True)
        ]
        if len(self.ids) > _MOST_WORDS:
            self.ids.clear()
        new = list({word for row in words for word in row}.difference(self.ids))
        found = self.batch_ids([word or " " for word in new])
        self.ids.update((word, ids[:-1]) for word, ids in zip(new, found, strict=True))
        return [
            list(chain.from_iterable(map(self.ids.__getitem__, row))) + self.end
            if own
            else next(others)
            for row, own in zip(words, is_plain, strict=True)
        ]


def _encoder_of(
    tokenizer: PreTrainedTokenizerBase, side: str
) -> Callable[[list[str]], list[list[int]]]:
    """Returns what encodes texts without a limit of length, in the least time."""
    known: Any = tokenizer
    if hasattr(known, "words_are_apart") and known.words_are_apart():
        return _WordEncoder(known)
    if hasattr(known, "batch_ids"):
        return cast("Callable[[list[str]], list[list[int]]]", known.batch_ids)
    return partial(_ids_of_call, tokenizer, side, truncation=False)


def _ids_of_call(
    tokenizer: PreTrainedTokenizerBase, side: str, texts: list[str], **options: Any
) -> list[list[int]]:
    argument = {"source": "text", "target": "text_target"}[side]
    ids: list[list[int]] = tokenizer(**{argument: texts}, verbose=False, **options)["input_ids"]
    return ids


def _cut_to_limit(
    ids: list[list[int]],
    texts: list[str],
    tokenizer: PreTrainedTokenizerBase,
    side: str,
    limits: dict[str, int | None],
    truncated: dict[str, int],
) -> list[list[int]]:
    """Encodes again what is too long, as the tokenizer truncates it, and counts it."""
    if limit := limits[side]:
        long = [index for index, found in enumerate(ids) if len(found) > limit]
        truncated[side] += len(long)
        some = [texts[index] for index in long]
        cut = _ids_of_call(tokenizer, side, some, truncation=True, max_length=limit) if some else []
        for index, found in zip(long, cut, strict=True):
            ids[index] = found
    return ids


def _encode_with_links(
    batch: dict[str, list[str]],
    sides: dict[str, PreTrainedTokenizerBase],
    limits: dict[str, int | None],
    truncated: dict[str, int],
) -> tuple[dict[str, list[Any]], int]:
    """Returns the columns of pairs with links, and how many links are lost."""
    ids, words = [], []
    for side, tokenizer in sides.items():
        options = {{"source": "text", "target": "text_target"}[side]: batch[side], "verbose": False}
        limit = limits[side]
        encoding = tokenizer(**options, truncation=bool(limit), max_length=limit)
        found = whole = encoding["input_ids"]
        if limit:
            whole = _ids_of_call(tokenizer, side, batch[side], truncation=False)
        is_cut = [len(one) < len(other) for one, other in zip(found, whole, strict=True)]
        truncated[side] += sum(is_cut)
        ids.append(found)
        words.append(words_of_encoding(sides["source"], batch[side], encoding, side, is_cut))
    links = _encode_links(batch[LINKS], words[0], words[1])
    lost = sum(links.pop("links_lost"))
    return {"input_ids": ids[0], "labels": ids[1], **links}, lost


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
