"""The figures of a run in its output directory: the files *_results.json."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from transformers.utils import logging

from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.file_contents import read_object

logger = logging.get_logger(__name__)

_PARTS = ("train", "eval", "test")


def save_results(folder: Path, figures: Mapping[str, float]) -> None:
    """Writes the figures of a run; files with the figures of former weights are deleted.

    Each file is written whole or not at all. A figure that is not finite becomes null, and a
    warning names it.

    Args:
        folder: Output directory.
        figures: All figures of the run up to now: train_*, eval_* and test_*.
    """
    written = {name: _finite_or_none(name, value) for name, value in figures.items()}
    for part in _PARTS:
        path = folder / f"{part}_results.json"
        own = {name: value for name, value in written.items() if name.startswith(f"{part}_")}
        if own:
            write_atomic(path, _as_text(own))
        else:
            path.unlink(missing_ok=True)
    write_atomic(folder / "all_results.json", _as_text(written))


def read_results(folder: Path) -> dict[str, float]:
    """Reads the figures of a run.

    Args:
        folder: Output directory.

    Returns:
        The content of all_results.json; empty if there is none, or, with a warning, if it is
        damaged.
    """
    path = folder / "all_results.json"
    if not path.is_file():
        return {}
    try:
        return read_object(path)
    except ValueError as error:
        logger.warning(f"{error} It is damaged and is written anew.")
        return {}


def _finite_or_none(name: str, value: float) -> float | None:
    if math.isfinite(value):
        return value
    logger.warning(f"The figure {name} is {value}: it is written as null.")
    return None


def _as_text(figures: Mapping[str, float | None]) -> str:
    return json.dumps(figures, indent=4, sort_keys=True, allow_nan=False) + "\n"
