"""The figures of a run, and whether it is finished, so that its resume command changes nothing."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.utils import logging

from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.run.plan import RunPlan
from vanilla_transformer.training.callbacks import EarlyStopping
from vanilla_transformer.training.checkpoints import TRAINER_STATE, changed_files, read_checkpoint
from vanilla_transformer.training.training_record import ORDER, SCORES, list_changes

logger = logging.get_logger(__name__)

_PARTS = ("train", "eval", "test")
_PREFIXES = {"validation": "eval", "test": "test"}
_NEVER_EDITED = (".safetensors", "tokenizer.json", "_results.json", TRAINER_STATE)


def save_results(folder: Path, figures: Mapping[str, float]) -> None:
    """Writes the figures of a run; files with the figures of former weights are deleted.

    Each file is written whole or not at all. A figure that is not finite becomes null, and a
    warning names it.
    """
    written: dict[str, float | None] = dict(figures)
    for name, value in figures.items():
        if not math.isfinite(value):
            logger.warning(f"The figure {name} is {value}: it is written as null.")
            written[name] = None
    for part in (*_PARTS, "all"):
        path = folder / f"{part}_results.json"
        start = "" if part == "all" else f"{part}_"
        own = {name: value for name, value in written.items() if name.startswith(start)}
        if own or part == "all":
            text = json.dumps(own, indent=4, sort_keys=True, allow_nan=False)
            write_atomic(path, f"{text}\n")
        else:
            path.unlink(missing_ok=True)


def read_results(folder: Path) -> dict[str, float]:
    """Reads all_results.json; empty if there is none, or, with a warning, if it is damaged."""
    path = folder / "all_results.json"
    if not path.is_file():
        return {}
    try:
        return read_object(path)
    except ValueError as error:
        logger.warning(f"{error} It is damaged and is written anew.")
        return {}


def finished_figures(plan: RunPlan, max_steps: int, inputs: Mapping[str, Any]) -> dict[str, float]:
    """Returns the figures of all_results.json; empty if something is left to do.

    `inputs` describes what the run trains on and scores with.
    """
    folder, checkpoint = plan.directory.folder, plan.directory.checkpoint
    if checkpoint is None or not plan.directory.resumes_here:
        return {}
    ended = read_checkpoint(folder)  # its state was written at the end of the run
    step = ended.state.get("global_step", -1)
    if step < checkpoint.state["global_step"] or not ended.is_of_training(
        checkpoint.record.get("training")
    ):
        return {}
    if step < max_steps and not _has_stopped_early(ended.state, plan):
        return {}
    if changed := changed_files(folder, _NEVER_EDITED):
        logger.warning(
            f"The run in {str(folder)!r} was finished, but {', '.join(changed)} changed since: it "
            "is completed again from its last checkpoint."
        )
        return {}
    saved = ended.record.get("inputs", {})
    if changes := list_changes(inputs, saved, SCORES):
        logger.warning(
            f"Since the run in {str(folder)!r} was finished, {changes} changed. {SCORES}"
        )
        return {}
    if changes := list_changes(inputs, saved, ORDER):
        logger.warning(f"Since the run in {str(folder)!r} was finished, {changes} changed.")
    figures = read_results(folder)
    wanted = {"train_loss"}
    for split, prefix in _PREFIXES.items():
        if split in plan.splits:
            wanted |= {f"{prefix}_{name}" for name in ("loss", *plan.metrics)}
    is_complete = wanted <= figures.keys() and (folder / "README.md").is_file()
    return figures if is_complete else {}


def _has_stopped_early(state: Mapping[str, Any], plan: RunPlan) -> bool:
    """Returns whether the training has used up the patience that this run has too."""
    patience = plan.training.early_stopping_patience
    saved = state.get("stateful_callbacks", {}).get(EarlyStopping.__name__)
    if patience is None or not isinstance(saved, dict):
        return False
    return int(saved["attributes"]["early_stopping_patience_counter"]) >= patience
