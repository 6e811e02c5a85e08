"""How much room encoded pairs take on the disk, estimated before they are read."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from datasets import Dataset, load_dataset_builder
from transformers.utils import logging

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.corpora import arguments_of, entries_of
from vanilla_transformer.data.corpus_entries import suffix_of
from vanilla_transformer.data.filters import ALWAYS_ON
from vanilla_transformer.data.parallel_data import files_of_split
from vanilla_transformer.data.streamed_pairs import StreamedPairs, stream_training_data
from vanilla_transformer.data.text_files import read_lines

logger = logging.get_logger(__name__)

_PAIRS_OF_A_SAMPLE = 100
_LINES_OF_A_SAMPLE = 1000
_BYTES_BESIDE_IDS = 12  # of a pair: two offsets, and its lengths
_FORMATS_WITHOUT_LINES = (".json", ".tmx")


def check_room_before_reading(folder: Path, args: DataArguments) -> None:
    """Refuses a disk that is too small for the training pairs that options name.

    What cannot be known without reading all is left out of the estimate: `.json`, `.tmx`, and data
    sets that do not tell their number of rows. Where filters will drop pairs, a warning takes the
    place of the refusal.

    Raises:
        OSError: If the disk is too small.
    """
    sources = list(_training_sources(args))
    needed = sum(_bytes_of_source(one) for one, _ in sources)
    if not any(is_filtered for _, is_filtered in sources):
        _check_room(folder, needed, "written")
    elif needed > (free := _free_bytes(folder)):
        logger.warning(
            f"Without filters, the encoded data would need about {needed / 1e9:.2f} GB in "
            f"{str(folder)!r}, whose disk has {free / 1e9:.2f} GB left: the preparation goes on, "
            "and ends if what the filters keep has no room."
        )


def check_room_for(folder: Path, pairs: int, sample: Dataset) -> None:
    """Refuses a disk that is too small for so many pairs.

    Raises:
        OSError: If the disk is too small.
    """
    _check_room(folder, pairs * _bytes_of_pair(sample), "encoded")


def _check_room(folder: Path, needed: float, done: str) -> None:
    if needed > (free := _free_bytes(folder)):
        raise OSError(
            f"The encoded data need at least about {needed / 1e9:.2f} GB in {str(folder)!r}, whose "
            f"disk has {free / 1e9:.2f} GB left: make room, or choose another directory. Nothing "
            f"is {done} yet."
        )


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _bytes_of_pair(sample: Dataset) -> float:
    """Returns a low estimate: 6 bytes of text a token, whose id takes 2, and no copy of the texts.

    Args:
        sample: Texts with the columns "source" and "target".
    """
    texts = sample[:_PAIRS_OF_A_SAMPLE]
    size = sum(len(text.encode()) for side in ("source", "target") for text in texts[side])
    return size / 3 / len(texts["source"]) + _BYTES_BESIDE_IDS


def _training_sources(args: DataArguments) -> Iterator[tuple[DataArguments, bool]]:
    """Yields each source of training pairs, and whether filters drop some of them."""
    limit = args.max_train_samples
    for corpus in entries_of(args):
        if (own := arguments_of(corpus, "train")) is not None:
            yield replace(own, max_train_samples=limit), not set(corpus.limits()) <= {*ALWAYS_ON}
    if not args.corpora:
        yield args, False


def _bytes_of_source(args: DataArguments) -> float:
    try:
        stream = stream_training_data(args)
        if (rows := _number_of_rows(args, stream)) is None:
            return 0.0
        pair = _bytes_of_pair(stream.first_texts(_PAIRS_OF_A_SAMPLE))
    except Exception:  # of the data or the network: loading tells it, or can read nevertheless
        return 0.0
    return min(rows, args.max_train_samples or rows) * pair


def _number_of_rows(args: DataArguments, stream: StreamedPairs) -> int | None:
    """Returns about how many rows the training data have; None: it cannot be told."""
    files = files_of_split(args, "train")[:1]
    if args.dataset_name is not None:
        split = (stream.rows.info.splits or {}).get("train")
        if split is not None and split.num_examples:
            return int(split.num_examples)
        builder = load_dataset_builder(args.dataset_name, args.dataset_config_name)
        files = list((builder.config.data_files or {}).get("train", ()))
    found = [_rows_of_file(path) for path in files]
    return None if None in found else sum(filter(None, found))


def _rows_of_file(path: str) -> int | None:
    """Estimates the number of rows of a file by its size and its first lines."""
    if not Path(path).is_file() or suffix_of(path) in _FORMATS_WITHOUT_LINES:
        return None
    if suffix_of(path) == ".parquet":
        return int(pq.read_metadata(path).num_rows)
    lines = "".join(f"{line}\n" for line in islice(read_lines(path), _LINES_OF_A_SAMPLE)).encode()
    size = len(lines)
    if codec := {".gz": "gzip", ".zst": "zstd"}.get(Path(path).suffix):
        size = len(pa.compress(lines, codec))
    return int(Path(path).stat().st_size * lines.count(b"\n") / max(1, size))
