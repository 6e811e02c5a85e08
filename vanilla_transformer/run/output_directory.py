"""The directory that a run writes to: what it resumes, what it overwrites, and what it keeps."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.training.checkpoints import TRAINER_STATE
from vanilla_transformer.training.checksums import CHECKSUMS
from vanilla_transformer.training.resumption import (
    ResumptionNeeds,
    check_checkpoint,
    newest_checkpoint,
)

logger = logging.get_logger(__name__)

_SUFFIXES_OF_A_RUN = (".bin", ".json", ".md", ".py", ".safetensors")
_INPUT_OPTIONS = ("_path", "_file", "_source", "_target", "dataset_name")
_INPUTS_OF_TRAINING = ("guided_alignment", "generation_config", "deepspeed", "fsdp_config")


@dataclass(frozen=True)
class OutputDirectory:
    """The output directory of a run.

    Attributes:
        folder: The directory.
        checkpoint: Checkpoint that the training resumes from, in this directory or another; None:
            the training starts at step 0.
        overwritten: Whether the contents of the directory are deleted when the training starts.
    """

    folder: Path
    checkpoint: str | None
    overwritten: bool


def resolve_output_directory(arguments: RunArguments) -> OutputDirectory:
    """Decides whether a run resumes, overwrites or starts, and makes sure that nothing gets lost.

    Nothing is written or deleted. Only the first process checks whether the directory is in use.

    Args:
        arguments: Options of the run.

    Returns:
        The decisions.

    Raises:
        ValueError: If the directory is not empty and is neither resumed nor overwritten, if
            overwriting would delete what the run needs, if it is resumed and holds other files but
            no checkpoint, or under the conditions of `newest_checkpoint` and `check_checkpoint`.
        FileNotFoundError: If the given checkpoint does not exist.
    """
    training = arguments.training
    folder, overwrite = Path(str(training.output_dir)), arguments.model.overwrite
    if os.path.lexists(folder) and not folder.is_dir():
        what = "a link to nothing" if folder.is_symlink() and not folder.exists() else "a file"
        raise ValueError(f"`output_dir` {str(folder)!r} is {what}: choose another name.")
    has_mean = arguments.averaging.ema_decay is not None
    needs = ResumptionNeeds(has_mean, num_processes=training.world_size)
    checkpoint, resumes_here = None, False
    resume = str(training.resume_from_checkpoint or False)
    if resume.lower() == "true":
        checkpoint, resumes_here = _newest_checkpoint(folder, needs), True
    elif resume.lower() != "false":
        check_checkpoint(resume, needs)
        checkpoint = resume
        resumes_here = Path(resume).resolve().parent == folder.resolve()
    if resumes_here and overwrite:
        raise ValueError(
            f"`overwrite` deletes what `output_dir` {str(folder)!r} holds, and "
            "`resume_from_checkpoint` continues it: leave one of them out."
        )
    _check_is_writable(folder)
    in_use = folder.exists() and any(folder.iterdir())
    if training.process_index == 0 and in_use and not resumes_here:
        if not overwrite:
            raise ValueError(
                f"`output_dir` {str(folder)!r} is not empty: continue its training with "
                "`--resume_from_checkpoint True`, delete its contents with `--overwrite`, or "
                "choose another directory."
            )
        _check_inputs_are_elsewhere(arguments, checkpoint, folder.resolve())
    return OutputDirectory(folder, checkpoint, overwrite and not resumes_here)


def _check_is_writable(folder: Path) -> None:
    """Refuses a directory that cannot be written to, before the training and not after it."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(
            f"`output_dir` {str(folder)!r} cannot be written to ({str(existing)!r} is read-only "
            "for this user): choose another directory."
        )


def _newest_checkpoint(folder: Path, needs: ResumptionNeeds) -> str | None:
    """Returns the newest complete checkpoint; None: the directory holds no checkpoint yet."""
    if (newest := newest_checkpoint(folder, needs)) is not None:
        return str(newest)
    if (folder / "config.json").exists():
        raise ValueError(
            f"`output_dir` {str(folder)!r} holds a model but no checkpoint to resume from: "
            "fine-tune the model with `--model_name_or_path`, in another directory."
        )
    paths = sorted(folder.iterdir()) if folder.exists() else []
    if foreign := [path.name for path in paths if path.suffix in _SUFFIXES_OF_A_RUN]:
        raise ValueError(
            f"`output_dir` {str(folder)!r} holds no checkpoint to resume from, but other files "
            f"({', '.join(foreign[:3])}), of the kinds that a new training writes: choose "
            "another directory."
        )
    logger.warning(f"{str(folder)!r} holds no checkpoint yet: the training starts at step 0.")
    return None


def _check_inputs_are_elsewhere(
    arguments: RunArguments, checkpoint: str | None, folder: Path
) -> None:
    """Refuses to overwrite a directory that holds an input of the run."""
    options = {**vars(arguments.data), **vars(arguments.model), **vars(arguments.tokenizer)}
    options = {name: value for name, value in options.items() if name.endswith(_INPUT_OPTIONS)}
    options |= {name: getattr(arguments.training, name) for name in _INPUTS_OF_TRAINING}
    paths = {
        f"`{name}`": Path(value)
        for name, value in options.items()
        if isinstance(value, str | os.PathLike) and Path(value).exists()
    }
    paths["the working directory"] = Path.cwd()
    if checkpoint is not None:
        paths["`resume_from_checkpoint`"] = Path(checkpoint)
    if arguments.recipe is not None:
        paths["the recipe"] = arguments.recipe
    for what, path in paths.items():
        if path.resolve().is_relative_to(folder):
            raise ValueError(
                f"`overwrite` would delete {what} ({str(path)!r}): choose another `output_dir`."
            )


@contextmanager
def overwritten_contents(directory: OutputDirectory, is_main: bool) -> Iterator["FormerContents"]:
    """Keeps the contents of an overwritten directory until a run has something to replace them.

    They are deleted when the first training step begins, or when the block ends. If an error ends
    the block earlier, what the run has added is deleted instead.

    Args:
        directory: Output directory.
        is_main: Whether this is the first process; only this process deletes files.

    Yields:
        A callback for the Trainer, which deletes the contents at the first step.
    """
    overwrites = is_main and directory.overwritten and directory.folder.is_dir()
    former = FormerContents(directory.folder.resolve() if overwrites else None)
    try:
        yield former
    except BaseException:
        former.delete_additions()
        raise
    former.delete()


class FormerContents(TrainerCallback):
    """The files that were in a directory before a run began.

    They stay where they are until they are deleted, so that a process that is killed before then
    leaves the directory as it was.

    Args:
        folder: The directory; None: nothing is deleted.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files, self._folders = _contents_of(folder) if folder else ({}, set[Path]())

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Deletes the contents, because all checks have passed; called by Trainer."""
        self.delete()

    def delete(self) -> None:
        """Deletes the former contents for good, and keeps what the run has written since."""
        if self._folder is None:
            return
        now, _ = _contents_of(self._folder)
        # Checkpoints first lose the files that complete them: none is ever resumed by mistake.
        last_written = (CHECKSUMS, TRAINER_STATE)
        for path in sorted(self._files, key=lambda path: path.name not in last_written):
            if now.get(path) == self._files[path]:
                path.unlink()
        _delete_empty(self._folders)
        self._folder = None

    def delete_additions(self) -> None:
        """Deletes what the run has written, unless the former contents are already deleted."""
        if self._folder is None:
            return
        files, folders = _contents_of(self._folder)
        for path in files.keys() - self._files.keys():
            path.unlink()
        _delete_empty(folders - self._folders)


def _contents_of(folder: Path) -> tuple[dict[Path, tuple[int, int]], set[Path]]:
    """Returns the files below a folder, with numbers that change when one is written, and folders.

    A link to a folder counts as a file.
    """
    files, folders = {}, set[Path]()
    for root, folder_names, file_names in os.walk(folder):
        for path in (Path(root, name) for name in [*folder_names, *file_names]):
            if path.is_dir() and not path.is_symlink():
                folders.add(path)
            else:
                status = path.lstat()
                files[path] = (status.st_ino, status.st_mtime_ns)
    return files, folders


def _delete_empty(folders: set[Path]) -> None:
    """Deletes those of the folders that are empty, the deepest first."""
    for path in sorted(folders, key=lambda path: -len(path.parts)):
        if not any(path.iterdir()):
            path.rmdir()
