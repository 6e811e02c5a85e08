"""The directory of a run: what it resumes or overwrites, its figures, whether it is finished."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from vanilla_transformer.data.arguments import SPLITS
from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.corpus_entries import read_entries
from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.rules import refuse
from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.training.callbacks import EarlyStopping
from vanilla_transformer.training.checkpoints import (
    CHECKSUMS,
    TRAINER_STATE,
    Checkpoint,
    changed_files,
    read_checkpoint,
    resumed_checkpoint,
)

logger = logging.get_logger(__name__)

RESULTS = "all_results.json"
"""File with the figures of a run."""

_SUFFIXES_OF_A_RUN = (".bin", ".json", ".md", ".py", ".safetensors")
_NEVER_EDITED = (".safetensors", "tokenizer.json", "_results.json", TRAINER_STATE)


@dataclass(frozen=True)
class OutputDirectory:
    """The output directory of a run, decided once, before anything is loaded.

    Attributes:
        checkpoint: Checkpoint that the training resumes from, in this directory or another, which
            has been checked; None: the training starts at step 0.
        overwritten: Whether the contents of the directory are deleted when the training starts.
    """

    folder: Path
    checkpoint: Checkpoint | None
    overwritten: bool

    @property
    def resumes_here(self) -> bool:
        """Whether the checkpoint is one of this directory."""
        if self.checkpoint is None:
            return False
        return self.checkpoint.path.resolve().parent == self.folder.resolve()


def resolve_output_directory(arguments: RunArguments) -> OutputDirectory:
    """Decides whether a run resumes, overwrites or starts, and makes sure that nothing gets lost.

    Nothing is written or deleted. Only the first process checks whether the directory is in use.

    Raises:
        ValueError: If the directory is not empty and is neither resumed nor overwritten, if
            overwriting would delete what the run needs, if it is resumed and holds other files but
            no checkpoint, or under the conditions of `resumed_checkpoint`.
    """
    training = arguments.training
    folder, overwrite = Path(str(training.output_dir)), arguments.model.overwrite
    checkpoint, choice = None, str(training.resume_from_checkpoint or False)
    newest = choice.lower() == "true"
    if choice.lower() != "false":
        checkpoint = resumed_checkpoint(training, newest or choice)
    directory = OutputDirectory(folder, checkpoint, overwrite)
    resumes_here = newest or directory.resumes_here
    contents = sorted(folder.iterdir()) if folder.exists() else []
    of_a_run = [path.name for path in contents if path.suffix in _SUFFIXES_OF_A_RUN]
    # The other processes may see what the first one has made.
    replaces = contents and not resumes_here and training.process_index == 0
    refuse(
        (
            resumes_here and overwrite,
            f"`overwrite` deletes what `output_dir` {str(folder)!r} holds, and "
            "`resume_from_checkpoint` continues it: leave one of them out.",
        ),
        (
            newest and checkpoint is None and of_a_run,
            f"`output_dir` {str(folder)!r} holds no checkpoint to resume from, but files of the "
            f"types that a new training writes ({', '.join(of_a_run[:3])}): choose another "
            "directory. To train a saved model further, give `--model_name_or_path`.",
        ),
        (
            folder.exists() and not os.access(folder, os.W_OK | os.X_OK),
            f"`output_dir` {str(folder)!r} cannot be written to: choose another directory.",
        ),
        (
            replaces and not overwrite,
            f"`output_dir` {str(folder)!r} is not empty: continue its training with "
            "`--resume_from_checkpoint True`, delete its contents with `--overwrite`, or "
            "choose another directory.",
        ),
    )
    if newest and checkpoint is None:
        logger.warning(f"{str(folder)!r} holds no checkpoint yet: the training starts at step 0.")
    if replaces:
        _check_inputs_are_elsewhere(arguments, folder.resolve())
    return directory


def _check_inputs_are_elsewhere(arguments: RunArguments, folder: Path) -> None:
    """Refuses to overwrite a directory that holds an input of the run."""
    inputs: list[tuple[str, Any]] = [
        (f"`{name}`", value)
        for name, values in arguments.given.items()
        if name != "output_dir"
        for value in (values if isinstance(values, list) else [values])
    ]
    for corpus in read_entries(arguments.data.corpora or ()):
        paths = [corpus.dataset, *(path for split in SPLITS for path in corpus.paths(split))]
        inputs += [("a file of `corpora`", path) for path in paths]
    inputs += [("the working directory", Path.cwd()), ("the recipe", arguments.recipe)]
    for name, value in inputs:
        if not isinstance(value, str | os.PathLike) or not os.path.exists(value):
            continue
        if Path(value).resolve().is_relative_to(folder):
            raise ValueError(
                f"`overwrite` would delete {name} ({str(value)!r}): choose another `output_dir`."
            )


class OverwriteGuard(TrainerCallback):
    """Deletes what was in a directory before a run began, but not before the run replaces it.

    The files are deleted when the first training step begins, or by `delete`: a process that is
    killed before then leaves them as they were.
    """

    def __init__(self, directory: OutputDirectory, is_main: bool) -> None:
        overwrites = is_main and directory.overwritten
        self._former = list(directory.folder.rglob("*")) if overwrites else []

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Deletes the contents, because all checks have passed; called by Trainer."""
        self.delete()

    def delete(self) -> None:
        """Deletes the former contents for good, and keeps what the run has added since."""
        # Checkpoints first lose the files that complete them: none is ever resumed by mistake.
        # Folders come after what they hold.
        last = (CHECKSUMS, TRAINER_STATE)
        self._former.sort(key=lambda path: (path.name not in last, -len(path.parts)))
        for path in self._former:
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            else:
                path.unlink(missing_ok=True)
        self._former = []


# Figures -----------------------------------------------------------------------------------------


def save_results(folder: Path, figures: Mapping[str, float]) -> None:
    """Writes the figures of a run; one that is not finite becomes null, and a warning names it."""
    written: dict[str, float | None] = dict(figures)
    for name, value in figures.items():
        if not math.isfinite(value):
            logger.warning(f"The figure {name} is {value}: it is written as null.")
            written[name] = None
    text = json.dumps(written, indent=4, sort_keys=True, allow_nan=False)
    write_atomic(folder / RESULTS, f"{text}\n")


def read_results(folder: Path) -> dict[str, float]:
    """Reads all_results.json; empty if there is none, or, with a warning, if it is damaged."""
    path = folder / RESULTS
    if not path.is_file():
        return {}
    try:
        return read_object(path)
    except ValueError as error:
        logger.warning(f"{error} It is damaged and is written anew.")
        return {}


def finished_figures(
    directory: OutputDirectory, max_steps: int, patience: int | None, inputs: Mapping[str, Any]
) -> dict[str, float]:
    """Returns the figures of a finished run; empty if something is left to do.

    A run is finished when it has written its checksums, which come last.

    Args:
        patience: Number of evaluations without progress that end the training. None: none do.
        inputs: What the run trains on and scores with.
    """
    folder, checkpoint = directory.folder, directory.checkpoint
    is_written = (folder / CHECKSUMS).is_file()
    if checkpoint is None or not directory.resumes_here or not is_written:
        return {}
    if changed := changed_files(folder, _NEVER_EDITED):
        logger.warning(
            f"The run in {str(folder)!r} was finished, but {', '.join(changed)} changed since: it "
            "is completed again from its last checkpoint."
        )
        return {}
    ended = read_checkpoint(folder)  # its state was written at the end of the run
    step = ended.state["global_step"]
    has_ended = step >= max_steps or _has_stopped_early(ended.state, patience)
    if not has_ended or step < checkpoint.state["global_step"]:
        return {}
    saved = ended.record.get("inputs", {})
    changed_inputs = [name for name, value in inputs.items() if saved.get(name) != value]
    # The defaults that a run has chosen yield to the options that are given now.
    return {} if {*changed_inputs} - {"defaults"} else read_results(folder)


def _has_stopped_early(state: Mapping[str, Any], patience: int | None) -> bool:
    """Returns whether the training has used up the patience that this run has too."""
    saved = state.get("stateful_callbacks", {}).get(EarlyStopping.__name__)
    if patience is None or not isinstance(saved, dict):
        return False
    return int(saved["attributes"]["early_stopping_patience_counter"]) >= patience
