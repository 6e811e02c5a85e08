"""Pairs that are read and encoded while a model trains: files and data sets of any size."""

import json
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
from datasets import Dataset, DatasetDict, IterableDataset
from datasets.distributed import split_dataset_by_node
from datasets.table import InMemoryTable
from transformers.utils import logging

from vanilla_transformer.data.arguments import LIMITS, DataArguments
from vanilla_transformer.data.encoding import PairEncoder
from vanilla_transformer.data.file_contents import text_digest
from vanilla_transformer.data.file_formats import stream_file, stream_text_pairs
from vanilla_transformer.data.parallel_data import (
    check_text_columns,
    choose_source,
    drop_empty_pairs,
    files_of_split,
    load_parallel_data,
    open_data_set,
    select_text_columns,
    text_columns,
)

logger = logging.get_logger(__name__)

_ROWS_OF_A_CALL = 1000
_PARTS_OF_A_SAMPLE = 16  # files from whose beginnings a sample is taken

Texts = dict[str, list[str]]
"""Texts by side, "source" and "target"."""


class StreamedPairs:
    """Yields the encoded pairs of an epoch; `state_dict` tells where it is, as in `datasets`.

    Pairs with an empty side are skipped, and texts beyond the limits of length are truncated; a
    warning tells the first of each.

    Args:
        rows: The rows of the data, with their own names.
        args: Names the columns of the texts.
        origin: What messages call the data.

    Attributes:
        digest: Digest of the names and sizes of the files; of a data set, of its name.
    """

    def __init__(self, rows: IterableDataset, args: DataArguments, origin: str) -> None:
        self.rows, self.args, self.origin = rows, args, origin
        files = [
            (Path(one).name, Path(one).stat().st_size) for one in files_of_split(args, "train")
        ]
        names = [args.dataset_name, args.dataset_config_name, args.max_train_samples]
        self.digest = text_digest(json.dumps([files, names]))
        self._tokenizer: Any = None
        self._limits: dict[str, int | None] = {}
        self._start: dict[str, Any] | None = None
        self._place: dict[str, Any] | None = None
        self._told = set[str]()

    def encoded_by(
        self, tokenizer: Any, source_limit: int | None, target_limit: int | None
    ) -> Self:
        """Returns a copy that encodes the texts, with at most so many tokens a side."""
        made = copy(self)
        made._tokenizer = tokenizer
        made._limits = {"source": source_limit, "target": target_limit}
        return made

    def share_of(self, process_index: int, num_processes: int) -> Self:
        """Returns the share of one of several processes: files if these divide, or else rows."""
        made = copy(self)
        made.rows = split_dataset_by_node(self.rows, process_index, num_processes)
        return made

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch; from the second on, the files come in another order."""
        self.rows.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any] | None:
        """Returns where the last pair was; None: the epoch begins."""
        return self._place

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Lets the next iteration begin after the pair with a state."""
        self._start = self._place = state
        self.rows.load_state_dict(state and state["rows"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        encode = PairEncoder(self._tokenizer, self._limits)
        before, done = (self._start["rows"], self._start["done"]) if self._start else (None, 0)
        rows = iter(self.rows)
        while chunk := list(islice(rows, _ROWS_OF_A_CALL)):
            after = self.rows.state_dict()
            encoded = encode(self._read_texts(chunk))
            for side in encode.sides:
                if side.truncated:
                    self._warn_once(
                        f"the tokenizer truncates {side.name} texts to {side.limit} tokens"
                    )
            pairs = zip(encoded["input_ids"], encoded["labels"], strict=True)
            for number, (source, target) in enumerate(islice(pairs, done, None), done + 1):
                self._place = {"rows": before, "done": number}
                yield {"input_ids": source, "labels": target}
            before, done = after, 0

    def first_texts(self, count: int) -> Dataset:
        """Returns texts from the beginning of the data, or of up to 16 parts of several files.

        Raises:
            ValueError: If no pair has text on both sides.
        """
        parts = min(self.rows.num_shards, _PARTS_OF_A_SAMPLE)
        tables, left = [], count
        for index in range(parts):
            rows = iter(self.rows.shard(parts, index) if parts > 1 else self.rows)
            wanted = -(-left // (parts - index))
            while wanted and (chunk := list(islice(rows, min(wanted, _ROWS_OF_A_CALL)))):
                tables.append(pa.table(self._read_texts(chunk)))
                wanted, left = wanted - len(tables[-1]), left - len(tables[-1])
        if left == count:
            raise ValueError(
                f"The train split has no pair with text on both sides: check {self.origin}."
            )
        schema = pa.schema(dict.fromkeys(("source", "target"), pa.string()))
        return Dataset(InMemoryTable(pa.concat_tables(one.cast(schema) for one in tables)))

    def _read_texts(self, rows: list[Mapping[str, Any]]) -> Texts:
        """Returns the texts of those rows that have both."""
        names, pairs = text_columns(self.args), []
        for row in rows:
            cells = row.get("translation")
            cells = cells if isinstance(cells, Mapping) else {}
            found = {**row, **{f"translation.{name}": text for name, text in cells.items()}}
            check_text_columns(names, found, lambda cell: isinstance(cell, str | None), self.origin)
            pairs.append([found[name] or "" for name in names])
        kept = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
        if len(kept) < len(pairs):
            self._warn_once("pairs are skipped because a side is empty")
        return {side: [pair[n] for pair in kept] for n, side in enumerate(("source", "target"))}

    def _warn_once(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning(f"{self.origin}: {what}, here and later.")


def stream_parallel_data(args: DataArguments) -> tuple[StreamedPairs, DatasetDict]:
    """Opens the training data as a stream, and loads the other splits.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: As `load_parallel_data`, or if there are no training data.
    """
    if choose_source(args) != "hub":
        without = replace(args, train_file=None, train_source=None, train_target=None)
        left = [one for name in ("validation", "test") for one in files_of_split(args, name)]
        return stream_training_data(args), load_parallel_data(without) if left else DatasetDict()
    opened, others = open_data_set(args, streaming=True), DatasetDict()
    for name in ("validation", "test"):
        if name in opened:
            limit = getattr(args, LIMITS[name])
            title = f"{args.dataset_name} ({name})"
            taken = opened[name] if limit is None else opened[name].take(limit)
            rows = select_text_columns(Dataset.from_list(list(taken)), args, title)
            others[name] = drop_empty_pairs(rows, name, title)
    return stream_training_data(args, opened), others


def stream_training_data(args: DataArguments, opened: Any = None) -> StreamedPairs:
    """Opens the training data as a stream.

    Args:
        opened: The splits of `dataset_name`; None: they are opened.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If there are no training data, or their format is unknown.
    """
    train = None
    if args.dataset_name is not None:
        train = (opened or open_data_set(args, streaming=True)).get("train")
    elif args.train_file is not None:
        train = stream_file(args.train_file)
    elif args.train_source is not None and args.train_target is not None:
        train = stream_text_pairs(args.train_source, args.train_target)
    if train is None:
        raise ValueError("`streaming` reads training data: give them, or leave it out.")
    if args.max_train_samples is not None:
        train = train.take(args.max_train_samples)
    origin = ", ".join(files_of_split(args, "train")) or str(args.dataset_name)
    return StreamedPairs(train, args, origin)
