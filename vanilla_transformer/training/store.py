"""The checkpoints of a training and the directory of its run: their state, and what goes on.

Checkpoints are ordered by their numbers; the times of files do not count. A checkpoint is
whole if it has its list of file sizes, which is written last, and all files have these sizes. A run
is finished if its directory is whole in the same sense.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers.utils import logging

from vanilla_transformer.files.atomic_files import LOCK, foreign_names, write_atomic
from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.rules import refuse

logger = logging.get_logger(__name__)

TRAINER_STATE = "trainer_state.json"
"""File with the state of Trainer: in a checkpoint, and in the directory of a run at its end."""

FILE_SIZES = "file_sizes.json"
"""File with the names and the sizes, in bytes, of the other files of a folder; written last."""

RESULTS = "all_results.json"

RECORD = "training_record"
"""Key of the inputs that decide a training, among the states of the callbacks of Trainer."""

_NEVER_READ = (FILE_SIZES, "training_args.bin", "README.md")
_NEVER_EDITED = (".safetensors", "tokenizer.json", RESULTS, TRAINER_STATE)
_SUFFIXES_OF_A_RUN = (".bin", ".json", ".md", ".py", ".safetensors")
_REMEDY = (
    "A training cannot resume from it: use an earlier checkpoint, or train its model further, in "
    "another directory, with `--model-name-or-path`."
)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, or the directory of a run at its end."""

    path: Path

    @property
    def step(self) -> int:
        """Number of optimizer steps after which a directory checkpoint-N was saved."""
        return int(self.path.name.rpartition("-")[2])

    @cached_property
    def state(self) -> dict[str, Any]:
        """Fields of its trainer_state.json; empty if the file is missing or damaged."""
        try:
            return read_object(self.path / TRAINER_STATE)
        except (OSError, ValueError):
            return {}

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs that decide its training; empty if another program has saved it."""
        return dict(self.state.get("stateful_callbacks", {}).get(RECORD, {}))

    def is_of(self, run: Path) -> bool:
        """Whether it lies in the directory of a run."""
        return self.path.resolve().parent == run.resolve()


def list_checkpoints(run: str | Path) -> list[Checkpoint]:
    """Lists the directories checkpoint-N of a run, whole or not, sorted by N."""
    paths = [path for path in Path(run).glob("checkpoint-*") if path.is_dir()]
    numbered = [path for path in paths if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(map(Checkpoint, numbered), key=lambda checkpoint: checkpoint.step)


def checkpoints_with_state(run: str | Path) -> list[Checkpoint]:
    """Lists the checkpoints of a run that have a state, sorted by their numbers."""
    return [checkpoint for checkpoint in list_checkpoints(run) if checkpoint.state]


# Whether a checkpoint is whole -------------------------------------------------------------------


def write_file_sizes(folder: Path) -> None:
    """Completes a folder: lists its files, but not the files of folders in it."""
    files = (path for path in sorted(folder.iterdir()) if path.name not in _NEVER_READ)
    sizes = {path.name: path.stat().st_size for path in files if path.is_file()}
    write_atomic(folder / FILE_SIZES, json.dumps(sizes, indent=1) + "\n")


def missing_or_cut(folder: Path) -> list[str]:
    """Lists the files that a complete folder has lost, or that have another size than before."""
    sizes = read_object(folder / FILE_SIZES)
    return [
        name
        for name, size in sizes.items()
        if not (path := folder / name).is_file() or path.stat().st_size != size
    ]


def _find_problem(checkpoint: Checkpoint, needs_sizes: bool) -> str:
    """Returns why a training cannot resume exactly from a checkpoint; "" if it can."""
    path = checkpoint.path
    lacking = [] if checkpoint.state else [TRAINER_STATE]
    if not any(path.glob("global_step*")):  # DeepSpeed keeps its states in a folder of its own
        # Trainer goes on without these, and says nothing. FSDP and several processes number them.
        names = ("optimizer.pt", "rng_state.pth", "scheduler.pt")
        lacking += [name for name in names if not any(path.glob(f"{Path(name).stem}*"))]
    if (path / FILE_SIZES).is_file():
        lacking += [name for name in missing_or_cut(path) if name not in lacking]
    elif needs_sizes:
        lacking.append(FILE_SIZES)
    if not lacking:
        return ""
    return f"{str(path)!r} is an incomplete checkpoint: {', '.join(lacking)} missing or cut off."


# Which checkpoint goes on ------------------------------------------------------------------------


def resumed_checkpoint(run: Path, name: str | bool) -> Checkpoint | None:
    """Decides which whole checkpoint a training goes on from; None: its directory holds none.

    Args:
        run: Output directory of the training.
        name: Directory of a checkpoint, of any name; it may have no list of sizes. True: the newest
            whole one of the run. Others are then passed over with a warning.
    """
    if name is True:
        return _newest_whole(list_checkpoints(run))
    chosen = Checkpoint(Path(str(name)))
    if problem := _find_problem(chosen, needs_sizes=False):
        raise ValueError(f"{problem} {_REMEDY}")
    if chosen.is_of(run):
        listed = checkpoints_with_state(run)
        if later := [c.path.name for c in listed if c.step > chosen.state["global_step"]]:
            raise ValueError(
                f"`resume_from_checkpoint` is {chosen.path}, but {str(run)!r} also holds "
                f"{', '.join(later)}: move the later ones away, or choose another `output_dir`."
            )
    return chosen


def _newest_whole(listed: Sequence[Checkpoint]) -> Checkpoint | None:
    problems = list[str]()
    for checkpoint in reversed(listed):
        if not (problem := _find_problem(checkpoint, needs_sizes=True)):
            return checkpoint
        logger.warning(f"{problem} It is passed over.")
        is_of_others = checkpoint.state and not checkpoint.inputs
        if is_of_others or (checkpoint.path / FILE_SIZES).is_file():
            problems.append(problem)  # it was whole once
    if problems:
        raise ValueError(f"{problems[0]} {_REMEDY}")
    return None


def delete_old_checkpoints(newest: Path, limit: int, best: str | None) -> None:
    """Keeps so many checkpoints of a run: the newest ones, and the best one in any case.

    Checkpoints with larger numbers than the newest one count as the oldest: a killed process has
    left them.
    """
    last, kept = Checkpoint(newest).step, {newest.resolve(), Path(best or newest).resolve()}
    listed = list_checkpoints(newest.parent)
    others = [checkpoint for checkpoint in listed if checkpoint.path.resolve() not in kept]
    others.sort(key=lambda checkpoint: (checkpoint.step <= last, checkpoint.step))
    for checkpoint in others[: max(0, len(listed) - limit)]:
        shutil.rmtree(checkpoint.path, ignore_errors=True)


# The directory of a run --------------------------------------------------------------------------


@dataclass(frozen=True)
class OutputDirectory:
    """The output directory of a run, decided once, before anything is loaded."""

    folder: Path
    checkpoint: Checkpoint | None = None  # a whole one, here or elsewhere, that the run resumes
    overwritten: bool = False  # whether it has contents, which the training deletes when it starts


def resolve_output_directory(
    path: str, resumed: str | bool | None, overwrite: bool
) -> OutputDirectory:
    """Decides whether a run resumes, overwrites or starts, and makes sure that nothing gets lost.

    Nothing is written or deleted.

    Args:
        resumed: `resume_from_checkpoint` of the run.
    """
    folder, choice = Path(path), str(resumed or False)
    newest, checkpoint = choice.lower() == "true", None
    if choice.lower() != "false":
        checkpoint = resumed_checkpoint(folder, newest or choice)
    resumes_here = newest or (checkpoint is not None and checkpoint.is_of(folder))
    contents = [path for path in sorted(folder.glob("*")) if path.name != LOCK]
    of_a_run = [path.name for path in contents if path.suffix in _SUFFIXES_OF_A_RUN]
    replaces = bool(contents) and not resumes_here
    others = foreign_names(folder) if replaces else []
    refuse(
        (
            newest and checkpoint is None and of_a_run,
            f"`output_dir` {str(folder)!r} holds no checkpoint to resume from, but files of the "
            f"types that a new training writes ({', '.join(of_a_run[:3])}): choose another "
            "directory. To train a saved model further, give `--model-name-or-path`.",
        ),
        (
            others,
            f"`output_dir` {str(folder)!r} holds {', '.join(map(repr, others[:3]))}, part of no "
            "model, run or export: choose another directory.",
        ),
        (
            replaces and not overwrite,
            f"`output_dir` {str(folder)!r} is not empty: continue its training with "
            "`--resume-from-checkpoint True`, delete its contents with `--overwrite`, or "
            "choose another directory.",
        ),
    )
    return OutputDirectory(folder, checkpoint, replaces)


def finished_figures(directory: OutputDirectory, inputs: Mapping[str, Any]) -> dict[str, float]:
    """Returns the figures of a finished run; empty if something is left to do.

    Args:
        inputs: The length of the training, its data, and the scores.
    """
    folder, checkpoint = directory.folder, directory.checkpoint
    is_complete = (folder / FILE_SIZES).is_file()
    if checkpoint is None or not checkpoint.is_of(folder) or not is_complete:
        return {}
    if lost := [name for name in missing_or_cut(folder) if name.endswith(_NEVER_EDITED)]:
        logger.warning(
            f"The run in {str(folder)!r} was finished, but {', '.join(lost)} changed since: it is "
            "completed again from its last checkpoint."
        )
        return {}
    ended = Checkpoint(folder)  # its state was written at the end of the run
    # The defaults that a run has chosen yield to the options that are given now.
    names = inputs.keys() - {"defaults"}
    is_changed = any(ended.inputs.get(name) != inputs[name] for name in names)
    is_left = ended.state["global_step"] < checkpoint.state["global_step"]
    return {} if is_changed or is_left else read_object(folder / RESULTS)
