"""Tables in files of Arrow, and the folder that keeps them from run to run."""

from collections.abc import Iterable
from pathlib import Path

import datasets
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

from vanilla_transformer.files.atomic_files import replaced_file


def cache_folder() -> Path:
    """Returns the folder of this package in the cache of `datasets`."""
    return Path(datasets.config.HF_DATASETS_CACHE, "vanilla_transformer")


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Writes tables to an Arrow file that exists whole or not at all."""
    with (
        replaced_file(path) as part,
        pa.OSFile(str(part), "wb") as stream,
        pa.ipc.new_stream(stream, schema) as writer,
    ):
        for table in tables:
            writer.write_table(table)
