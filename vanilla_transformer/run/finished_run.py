"""Recognises a run that is finished, so that its resume command changes nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.utils import logging

from vanilla_transformer.run.plan import RunPlan
from vanilla_transformer.run.results import read_results
from vanilla_transformer.training.callbacks import EarlyStopping
from vanilla_transformer.training.checkpoints import (
    TRAINER_STATE,
    checkpoint_step,
    read_trainer_state,
)
from vanilla_transformer.training.checksums import changed_files
from vanilla_transformer.training.training_record import leads_to, read_record

logger = logging.get_logger(__name__)

_NEVER_EDITED = (".safetensors", "tokenizer.json", "_results.json", TRAINER_STATE)
_SCORED_INPUTS = {
    "validation": "validation data",
    "test": "test data",
    "search": "search settings",
}
_PREFIXES = {"validation": "eval", "test": "test"}


def finished_figures(plan: RunPlan, max_steps: int, inputs: Mapping[str, Any]) -> dict[str, float]:
    """Returns the figures of a run that its output directory holds complete.

    Args:
        plan: Plan of the run.
        max_steps: Number of steps of its training.
        inputs: What it trains on and scores with, as its record keeps it.

    Returns:
        The figures of all_results.json; empty if something is left to do.
    """
    folder, checkpoint = plan.directory.folder, plan.directory.checkpoint
    if checkpoint is None or Path(checkpoint).resolve().parent != folder.resolve():
        return {}
    state = read_trainer_state(folder)  # written at the end of a run
    is_same = bool(state) and leads_to(Path(checkpoint), folder)
    if not is_same or state["global_step"] < checkpoint_step(Path(checkpoint)):
        return {}
    if state["global_step"] < max_steps and not _has_stopped_early(state, plan):
        return {}
    if changed := changed_files(folder, _NEVER_EDITED):
        logger.warning(
            f"The run in {str(folder)!r} was finished, but {', '.join(changed)} changed since: it "
            "is completed again from its last checkpoint."
        )
        return {}
    saved = read_record(folder).get("inputs", {})
    changed = [name for name in inputs.keys() & saved.keys() if inputs[name] != saved[name]]
    if scored := sorted(_SCORED_INPUTS.keys() & set(changed)):
        logger.warning(
            f"The run in {str(folder)!r} was finished with other "
            f"{' and '.join(_SCORED_INPUTS[name] for name in scored)}: its last checkpoint is "
            "scored again."
        )
        return {}
    if "train" in changed:
        logger.warning(f"The run in {str(folder)!r} was finished with other training data.")
    figures = read_results(folder)
    wanted = {"train_loss"}
    for split, prefix in _PREFIXES.items():
        if split in plan.splits:
            wanted |= {f"{prefix}_{name}" for name in ("loss", *plan.metrics)}
    is_complete = wanted <= figures.keys() and (folder / "README.md").is_file()
    return figures if is_complete else {}


def _has_stopped_early(state: dict[str, Any], plan: RunPlan) -> bool:
    """Returns whether the training has used up the patience that this run has too."""
    patience = plan.training.early_stopping_patience
    saved = state.get("stateful_callbacks", {}).get(EarlyStopping.__name__)
    if patience is None or not isinstance(saved, dict):
        return False
    return int(saved["attributes"]["early_stopping_patience_counter"]) >= patience
