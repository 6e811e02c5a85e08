"""A table that is made shard by shard, in one process or several, in a folder that outlives a kill.

Each shard is an Arrow file of at most `ROWS_OF_A_SHARD` rows. An index, which is written last,
lists them.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
from datasets import Dataset, concatenate_datasets
from datasets.table import MemoryMappedTable
from numpy.typing import NDArray
from torch.utils import data

from vanilla_transformer.files.atomic_files import explained_full_disk, replaced_file, write_atomic
from vanilla_transformer.files.file_contents import read_object, text_digest
from vanilla_transformer.files.tables import write_tables

ROWS_OF_A_SHARD = 65_536
INDEX = "index.json"
LENGTHS = "lengths.npy"
"""File with the number of tokens of each side of each pair, in 16 or 32 bits."""
SIDES = ("input_ids", "labels")

_FACTS = b"vanilla_transformer"  # in the metadata of a shard

MakeShard = Callable[[range], tuple[pa.Table, dict[str, Any]]]
"""Makes the shard of some rows, and facts that its index keeps. It is pickled where no fork is."""


@dataclass(frozen=True)
class Shards:
    """The shards of a folder.

    Attributes:
        key: A digest of everything that the shards were made from.
        shards: For each shard "rows", and the facts of its maker.
    """

    folder: Path
    key: str
    shards: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the index of a folder."""
        content = read_object(folder / INDEX)
        return cls(folder, content["key"], content["shards"])

    @classmethod
    def of(cls, rows: Dataset) -> Self | None:
        """Returns the shards of a data set; None: it has none, or only a part of them."""
        files = [Path(str(file["filename"])) for file in rows.cache_files]
        if not files or rows._indices is not None or not (files[0].parent / INDEX).is_file():
            return None
        shards = cls.read(files[0].parent)
        own = [_shard_path(shards.folder, number) for number in range(len(shards.shards))]
        # `datasets` writes changed rows into the same folder.
        is_whole = files == own and len(rows) == sum(shard["rows"] for shard in shards.shards)
        return shards if is_whole else None

    def lengths(self) -> NDArray[Any]:
        """Returns the lengths in tokens, of shape (pairs, 2), on the disk: source and target."""
        lengths: NDArray[Any] = np.load(self.folder / LENGTHS, mmap_mode="r")
        return lengths

    def open(self) -> Dataset:
        """Opens the shards, without reading them, as one data set."""
        parts = []
        for number in range(len(self.shards)):
            table = MemoryMappedTable.from_file(str(_shard_path(self.folder, number)))
            parts.append(Dataset(table, fingerprint=text_digest(f"{self.key} {number}")))
        return concatenate_datasets(parts)

    def are_whole(self, rows: int) -> bool:
        """Returns whether the lengths of all rows are there too."""
        return (self.folder / LENGTHS).is_file() and len(self.lengths()) == rows


def make_shards(
    folder: Path,
    key: str,
    rows: int,
    make: MakeShard,
    num_proc: int | None = None,
    tell: Callable[[int], None] = lambda _: None,
) -> Shards:
    """Makes the shards that a folder lacks, and its index.

    Args:
        folder: The folder. It is made; shards with the same key in it are kept.
        key: A digest of everything that the shards are made from.
        tell: Takes the number of rows that are done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = Shards.read(folder) if (folder / INDEX).is_file() else None
    if known is not None and known.key != key:
        raise ValueError(
            f"{str(folder)!r} was made of other texts, with another tokenizer, other lengths or "
            "another version of this package: give the options that it was made with, or another "
            "directory."
        )
    spans = [
        range(start, min(start + ROWS_OF_A_SHARD, rows))
        for start in range(0, rows, ROWS_OF_A_SHARD)
    ]
    shards = [_read_shard(_shard_path(folder, number), key) for number in range(len(spans))]
    missing = [number for number, shard in enumerate(shards) if shard is None]
    if known is not None and not missing and known.are_whole(rows):
        return known  # the folder may be one that nobody writes to
    tasks: Any = [(_shard_path(folder, number), spans[number]) for number in missing]
    done = rows - sum(len(span) for _, span in tasks)
    processes = min(num_proc or 1, len(tasks))
    made = data.DataLoader(
        tasks,
        batch_size=None,
        collate_fn=partial(_write_shard, make, key),
        num_workers=processes if processes > 1 else 0,
        worker_init_fn=_without_threads,
    )
    with explained_full_disk(folder):
        for number, shard in zip(missing, made, strict=True):
            if isinstance(shard, Exception):
                raise shard
            shards[number] = shard
            done += shard["rows"]
            tell(done)
        _write_lengths(folder, len(spans))
    whole = [shard for shard in shards if shard is not None]
    write_atomic(folder / INDEX, json.dumps({"key": key, "shards": whole}, indent=1) + "\n")
    return Shards(folder, key, whole)


def _without_threads(_: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # each process has a core of its own


def _shard_path(folder: Path, number: int) -> Path:
    return folder / f"{number:05}.arrow"


def _write_shard(make: MakeShard, key: str, task: tuple[Path, range]) -> dict[str, Any] | Exception:
    """Writes the shard of some rows; returns its facts for the index, or an error."""
    path, rows = task
    try:
        table, facts = make(rows)
        facts = {"rows": len(rows), **facts}
        described = {**table.schema.metadata, _FACTS: json.dumps({"key": key, **facts})}
        schema = table.schema.with_metadata(described)
        content = table.replace_schema_metadata(schema.metadata).combine_chunks()
        write_tables(path, schema, [content])
    except Exception as error:  # the loader would raise it with the traceback of a worker
        return error
    return facts


def _read_shard(path: Path, key: str) -> dict[str, Any] | None:
    """Returns the facts of a shard; None: it is missing, cut off, or of another key."""
    try:
        with pa.memory_map(str(path)) as stream:
            table = pa.ipc.open_stream(stream).read_all()
            facts: dict[str, Any] = json.loads(table.schema.metadata[_FACTS])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None
    if facts.pop("key") != key or facts["rows"] != table.num_rows:
        return None
    return facts


def _write_lengths(folder: Path, count: int) -> None:
    """Writes the lengths of all pairs in one file that can be mapped into memory."""
    parts = []
    for number in range(count):
        table = MemoryMappedTable.from_file(str(_shard_path(folder, number))).table
        sides = np.stack([np.diff(table[name].chunk(0).offsets) for name in SIDES], axis=1)
        parts.append(sides.astype(np.min_scalar_type(int(sides.max(initial=0)) | 256)))
    with replaced_file(folder / LENGTHS) as part, part.open("wb") as stream:
        np.save(stream, np.concatenate(parts))
