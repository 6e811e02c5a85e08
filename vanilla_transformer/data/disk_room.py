"""How much room encoded pairs take on the disk, estimated before they are read."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from datasets import load_dataset_builder
from datasets.utils.py_utils import size_str
from transformers.utils import logging

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.corpora import arguments_of, entries_of
from vanilla_transformer.data.corpus_entries import suffix_of
from vanilla_transformer.data.encoding import TEXTS_OF_A_SAMPLE, bytes_of_pair
from vanilla_transformer.data.filters import ALWAYS_ON
from vanilla_transformer.data.parallel_data import files_of_split
from vanilla_transformer.data.shards import check_room, free_bytes
from vanilla_transformer.data.streamed_pairs import StreamedPairs, stream_training_data
from vanilla_transformer.data.text_files import read_lines

logger = logging.get_logger(__name__)

_LINES_OF_A_SAMPLE = 1000
_FORMATS_WITHOUT_LINES = (".json", ".tmx")


def check_room_before_reading(folder: Path, args: DataArguments, is_new: bool) -> None:
    """Refuses a disk that is too small for the training pairs that options name.

    What cannot be known without reading all is left out of the estimate: `.json`, `.tmx`, and data
    sets that do not tell their number of rows. Where less may have to be written than is estimated,
    a warning takes the place of the refusal.

    Args:
        folder: Where they will be encoded; it may be missing.
        is_new: Whether it holds none of them. If not, data sets are left out: `datasets` tells by
            itself what has no room, and reads them but once.

    Raises:
        OSError: If the disk is too small.
    """
    sources = [one for one in _training_sources(args) if is_new or one[0].dataset_name is None]
    needed = sum(_bytes_of_source(one) for one, _ in sources)
    if is_new and not any(is_filtered for _, is_filtered in sources):
        check_room(folder, needed, "Nothing is written yet.")
    elif needed > (free := free_bytes(folder)):
        logger.warning(
            f"The encoded data need up to about {size_str(needed)} in {str(folder)!r}, whose disk "
            f"has {size_str(free)} left. This goes on, because filters may drop pairs, and an "
            "earlier run may have encoded them; it ends if the others have no room."
        )


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
        pair = bytes_of_pair(stream.first_texts(TEXTS_OF_A_SAMPLE))
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
