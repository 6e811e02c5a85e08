"""The checkpoints of a training and the directory of its run: what is there, and what goes on.

A directory holds one training. The order of its checkpoints is that of their numbers; the times of
files do not count. A checkpoint is whole if it has its list of checksums, which is written last,
and all files are as listed. A run is finished if its directory is whole in the same sense.
"""

import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from accelerate.state import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.utils import logging

from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.file_contents import content_digest, read_object
from vanilla_transformer.names import NOAM, SCHEDULES_OF_A_SCORE
from vanilla_transformer.rules import refuse

logger = logging.get_logger(__name__)

TRAINER_STATE = "trainer_state.json"
"""File with the state of Trainer: in a checkpoint, and in the directory of a run at its end."""

CHECKSUMS = "checksums.sha256"
"""List of the files of a folder, in the form that `sha256sum --check` reads."""

RESULTS = "all_results.json"
"""File with the figures of a run."""

_NEVER_READ = (CHECKSUMS, "training_args.bin", "README.md")
_NEVER_EDITED = (".safetensors", "tokenizer.json", RESULTS, TRAINER_STATE)
_SUFFIXES_OF_A_RUN = (".bin", ".json", ".md", ".py", ".safetensors")
_REMEDY = (
    "A training cannot resume from it: use an earlier checkpoint, or train its model further, in "
    "another directory, with `--model_name_or_path`."
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
    def record(self) -> dict[str, Any]:
        """What `TrainingRecord` has saved; empty if another program wrote the checkpoint."""
        return _saved_attributes(self.state.get("stateful_callbacks", {}), "TrainingRecord")

    def is_of(self, run: Path) -> bool:
        """Whether it lies in the directory of a run."""
        return self.path.resolve().parent == run.resolve()


def _saved_attributes(callbacks: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the attributes of a callback in a Trainer's state; empty if it was not in use."""
    saved = callbacks.get(name)
    return dict(saved.get("attributes", {})) if isinstance(saved, dict) else {}


def list_checkpoints(run: str | Path) -> list[Checkpoint]:
    """Lists the directories checkpoint-N of a run, whole or not, sorted by N."""
    paths = [path for path in Path(run).glob("checkpoint-*") if path.is_dir()]
    numbered = [path for path in paths if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(map(Checkpoint, numbered), key=lambda checkpoint: checkpoint.step)


def complete_checkpoints(run: str | Path) -> list[Checkpoint]:
    """Lists the checkpoints of a run that have a state, sorted by their numbers.

    Raises:
        ValueError: If they are of two trainings.
    """
    complete = [checkpoint for checkpoint in list_checkpoints(run) if checkpoint.state]
    _check_one_training(complete)
    return complete


def _check_one_training(checkpoints: Sequence[Checkpoint]) -> None:
    """Refuses checkpoints of two trainings, whose numbers do not tell which ones are newer."""
    names = {checkpoint.record.get("training"): checkpoint.path for checkpoint in checkpoints}
    names.pop(None, None)  # of another program, or cut off
    if len(names) > 1:
        first, second, *_ = names.values()
        raise ValueError(
            f"{str(first)!r} and {second.name} belong to two trainings: move those of one away."
        )


# Whether a checkpoint is whole -------------------------------------------------------------------


def write_checksums(folder: Path) -> None:
    """Writes the checksums of the files in a folder, but not of those in folders below it."""
    files = sorted(path for path in folder.iterdir() if path.name not in _NEVER_READ)
    lines = (f"{content_digest(path)}  {path.name}\n" for path in files if path.is_file())
    write_atomic(folder / CHECKSUMS, "".join(lines))


def changed_files(folder: Path, suffixes: tuple[str, ...] = ("",)) -> list[str]:
    """Lists the files that are no longer as they were when their checksums were written.

    Args:
        folder: Directory of a checkpoint. Without checksums, no file counts as changed.
        suffixes: Ends of the names of the files that are checked.

    Returns:
        Names of changed and missing files; that of the list itself if it is damaged.
    """
    if not (listed := folder / CHECKSUMS).is_file():
        return []
    lines = listed.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = [line.partition("  ") for line in lines]
    if not rows or any(len(row[0]) != 64 or Path(row[2]).name != row[2] for row in rows):
        return [CHECKSUMS]
    digests = {name: digest for digest, _, name in rows if name.endswith(suffixes)}
    return sorted(
        name
        for name, digest in digests.items()
        if not (folder / name).is_file() or content_digest(folder / name) != digest
    )


def _find_problem(checkpoint: Checkpoint, needs_list: bool) -> str:
    """Returns why a training cannot resume exactly from a checkpoint; "" if it can."""
    path = checkpoint.path
    missing = [] if checkpoint.state else [TRAINER_STATE]
    if not any(path.glob("global_step*")):  # DeepSpeed keeps its states in a folder of its own
        # Trainer goes on without these, and says nothing. FSDP and several processes number them.
        names = ("optimizer.pt", "rng_state.pth", "scheduler.pt")
        missing += [name for name in names if not any(path.glob(f"{Path(name).stem}*"))]
    if needs_list and not (path / CHECKSUMS).is_file():
        missing.append(CHECKSUMS)
    if missing:
        return f"{str(path)!r} is an incomplete checkpoint: it lacks {', '.join(missing)}."
    if changed := changed_files(path):
        return (
            f"{str(path)!r} is a damaged checkpoint: after it was saved, {', '.join(changed)} "
            f"changed (if you made the change, delete {CHECKSUMS} and name this checkpoint)."
        )
    return ""


# Which checkpoint goes on ------------------------------------------------------------------------


def resumed_checkpoint(args: TrainingArguments, name: str | bool) -> Checkpoint | None:
    """Decides which whole checkpoint a training goes on from; None: its directory holds none.

    Args:
        name: Directory of a checkpoint; it may have no list of checksums. True: the newest whole
            one in the output directory. Others are then passed over with a warning.

    Raises:
        ValueError: If the named checkpoint, or each one that was whole once, is incomplete or
            damaged; or if the output directory holds checkpoints of two trainings, or later ones
            than the named one.
    """
    run = Path(str(args.output_dir))
    if name is True:
        return _newest_whole(list_checkpoints(run))
    chosen = Checkpoint(Path(str(name)))
    if problem := _find_problem(chosen, needs_list=False):
        raise ValueError(f"{problem} {_REMEDY}")
    if chosen.is_of(run):
        complete = complete_checkpoints(run)
        if later := [c.path.name for c in complete if c.step > chosen.step]:
            raise ValueError(
                f"`resume_from_checkpoint` is {chosen.path.name}, but {str(run)!r} also holds "
                f"{', '.join(later)}: move what is later away, or choose another `output_dir`. A "
                "directory holds one training."
            )
    return chosen


def _newest_whole(listed: Sequence[Checkpoint]) -> Checkpoint | None:
    _check_one_training(listed)
    problems = list[str]()
    for checkpoint in reversed(listed):
        if not (problem := _find_problem(checkpoint, needs_list=True)):
            return checkpoint
        logger.warning(f"{problem} It is passed over.")
        is_of_others = checkpoint.state and not checkpoint.record
        if is_of_others or (checkpoint.path / CHECKSUMS).is_file():
            problems.append(problem)  # it was whole once
    if problems:
        raise ValueError(f"{problems[0]} {_REMEDY}")
    return None


# The directory of a run --------------------------------------------------------------------------


@dataclass(frozen=True)
class OutputDirectory:
    """The output directory of a run, decided once, before anything is loaded.

    Attributes:
        checkpoint: Checkpoint that the training resumes from, in this directory or another, which
            has been checked; None: the training starts at step 0.
        overwritten: Whether the directory has contents, which are deleted when the training starts.
    """

    folder: Path
    checkpoint: Checkpoint | None
    overwritten: bool


def resolve_output_directory(args: TrainingArguments, overwrite: bool) -> OutputDirectory:
    """Decides whether a run resumes, overwrites or starts, and makes sure that nothing gets lost.

    Nothing is written or deleted.

    Raises:
        ValueError: If the directory is not empty and is neither resumed nor overwritten, if it is
            resumed and holds other files but no checkpoint, or under the conditions of
            `resumed_checkpoint`.
    """
    folder, choice = Path(str(args.output_dir)), str(args.resume_from_checkpoint or False)
    newest, checkpoint = choice.lower() == "true", None
    if choice.lower() != "false":
        checkpoint = resumed_checkpoint(args, newest or choice)
    resumes_here = newest or (checkpoint is not None and checkpoint.is_of(folder))
    contents = sorted(folder.iterdir()) if folder.exists() else []
    of_a_run = [path.name for path in contents if path.suffix in _SUFFIXES_OF_A_RUN]
    replaces = bool(contents) and not resumes_here
    refuse(
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
    return OutputDirectory(folder, checkpoint, replaces)


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


def finished_figures(directory: OutputDirectory, inputs: Mapping[str, Any]) -> dict[str, float]:
    """Returns the figures of a finished run; empty if something is left to do.

    Args:
        inputs: How long the run trains, what it trains on and what it scores with.
    """
    folder, checkpoint = directory.folder, directory.checkpoint
    is_written = (folder / CHECKSUMS).is_file()
    if checkpoint is None or not checkpoint.is_of(folder) or not is_written:
        return {}
    if changed := changed_files(folder, _NEVER_EDITED):
        logger.warning(
            f"The run in {str(folder)!r} was finished, but {', '.join(changed)} changed since: it "
            "is completed again from its last checkpoint."
        )
        return {}
    ended = Checkpoint(folder)  # its state was written at the end of the run
    saved = ended.record.get("inputs", {})
    # The defaults that a run has chosen yield to the options that are given now.
    changes = {name for name, value in inputs.items() if saved.get(name) != value} - {"defaults"}
    is_left = ended.state["global_step"] < checkpoint.step
    return {} if changes or is_left else read_object(folder / RESULTS)


# What a resumption must find equal ---------------------------------------------------------------

_KEPT = (
    *("optim", "learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("muon_learning_rate", "muon_momentum", "lr_scheduler_kwargs", "metric_for_best_model"),
)
"""What a training takes from its checkpoint: another value is an error."""
_FOLLOWED = (
    *("lr_scheduler_type", "warmup_steps", "max_grad_norm", "gradient_accumulation_steps"),
    *("number of processes", "max_tokens", "seed", "max_source_length", "max_target_length"),
    *("train data", "shares of the corpora", "validation data", "test data", "search settings"),
)
"""What a resumed training takes anew: another value is a warning."""


def _check_changes(current: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Refuses or reports what has changed since a checkpoint was saved; of options, both values.

    What the checkpoint does not have has not changed.
    """
    changed = [
        name
        for name in (*_KEPT, *_FOLLOWED)
        if name in current and name in saved and current[name] != saved[name]
    ]
    labels = (
        name if " " in name else f"`{name}` ({saved[name]}, now {current[name]})"
        for name in changed
    )
    sentence = f"Since the checkpoint was saved, {', '.join(labels)} changed."
    if {*changed} & {*_KEPT}:
        raise ValueError(
            f"{sentence} A resumed training keeps what its checkpoint has: give the former value, "
            "or train the model further, in another directory, with `--model_name_or_path`."
        )
    if changed:
        logger.warning(f"{sentence} The rest of the run differs from that of an uninterrupted one.")


def _tracked_options(args: TrainingArguments) -> dict[str, Any]:
    """Returns the options that decide the course of a training, by their names."""
    options = {name: vars(args)[name] for name in (*_KEPT, *_FOLLOWED) if name in vars(args)}
    options = {name: getattr(value, "value", value) for name, value in options.items()}
    options["seed"] = args.seed if args.data_seed is None else args.data_seed
    options["number of processes"] = args.world_size
    options["lr_scheduler_kwargs"] = args.lr_scheduler_kwargs or {}
    if options["lr_scheduler_type"] in (NOAM, *SCHEDULES_OF_A_SCORE):  # they keep their options
        warmup = {"warmup_steps": options.pop("warmup_steps")}
        options["lr_scheduler_kwargs"] = {**warmup, **options["lr_scheduler_kwargs"]}
    if (watched := options.pop("metric_for_best_model")) is not None:
        options["metric_for_best_model"] = watched.removeprefix("eval_")
    return options


class TrainingRecord(TrainerCallback, ExportableState):
    """Keeps the time and the loss of a training, and what decides its course, in the checkpoints.

    It completes each checkpoint, and only then deletes older ones.

    Attributes:
        training: Random name of the training, which a resumption keeps.
        first_step: The step after which the record begins; 0 unless the checkpoint had none.
        seconds: Time of the training up to the last call of `update`.
        loss: Sum of the losses of all steps up to the last call of `update`.
        inputs: What decides the course of the training, by name: the options, and what the run
            adds, such as digests of its texts.
        folder: Directory of the checkpoint that is being saved.
    """

    def __init__(self) -> None:
        self.training, self.first_step = "", 0
        self.seconds = self.loss = self._loss_before = 0.0
        self.inputs: dict[str, Any] = {}
        self.folder = Path()
        self._began = time.monotonic()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restores the record of the checkpoint, if the run is resumed; called by Trainer."""
        states, step = cast("dict[str, Any]", state.stateful_callbacks), state.global_step
        saved = _saved_attributes(states, "TrainingRecord") if step else {}
        self.training = saved.get("training") or secrets.token_hex(8)
        self.first_step = saved.get("first_step", 0 if saved else step)
        self.inputs |= _tracked_options(args)
        _check_changes(self.inputs, saved.get("inputs", {}))
        self.seconds, self.loss = saved.get("seconds", 0.0), saved.get("loss", 0.0)
        self._began, self._loss_before = time.monotonic() - self.seconds, self.loss
        states["TrainingRecord"] = self.state()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Completes a checkpoint by its checksums; called by Trainer after the other callbacks."""
        PartialState().wait_for_everyone()  # each process writes files of its own
        if args.should_save:
            write_checksums(self.folder)
            if args.save_total_limit:
                best = state.best_model_checkpoint
                _delete_old_checkpoints(self.folder, args.save_total_limit, best)

    def update(self, loss: float) -> None:
        """Brings the record up to date with the sum of the losses of this process's steps."""
        self.seconds = time.monotonic() - self._began
        self.loss = self._loss_before + loss

    def state(self) -> dict[str, Any]:
        """Returns what the checkpoint keeps; called by Trainer."""
        names = ("training", "first_step", "seconds", "loss", "inputs")
        return {"args": {}, "attributes": {name: getattr(self, name) for name in names}}


def _delete_old_checkpoints(newest: Path, limit: int, best: str | None) -> None:
    """Keeps so many checkpoints of a run: the newest ones, and the best one in any case.

    Those with larger numbers than the newest one count as the oldest: they are what a killed
    process has left of its steps.
    """
    last, kept = Checkpoint(newest).step, {newest.resolve(), Path(best or newest).resolve()}
    listed = list_checkpoints(newest.parent)
    others = [checkpoint for checkpoint in listed if checkpoint.path.resolve() not in kept]
    others.sort(key=lambda checkpoint: (checkpoint.step <= last, checkpoint.step))
    for checkpoint in others[: max(0, len(listed) - limit)]:
        shutil.rmtree(checkpoint.path, ignore_errors=True)
