"""The directory that a run writes to: what it resumes, what it overwrites, and what it keeps."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.training.checkpoints import is_complete, numbered_checkpoints

logger = logging.get_logger(__name__)

_INPUT_OPTIONS = ("_path", "_file", "_source", "_target", "dataset_name")


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
            overwriting would delete what the run needs, if it holds a model but no checkpoint to
            resume from, or if the given checkpoint is incomplete.
        FileNotFoundError: If the given checkpoint does not exist.
    """
    training = arguments.training
    folder, overwrite = Path(str(training.output_dir)), arguments.model.overwrite
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`output_dir` {str(folder)!r} is a file: choose another name.")
    checkpoint, resumes_here = None, False
    resume = str(training.resume_from_checkpoint or False)
    if resume.lower() == "true":
        checkpoint, resumes_here = _newest_checkpoint(folder), True
    elif resume.lower() != "false":
        checkpoint = _check_checkpoint(resume)
        resumes_here = Path(resume).resolve().parent == folder.resolve()
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


def _newest_checkpoint(folder: Path) -> str | None:
    """Returns the newest complete checkpoint; None: the directory holds no checkpoint yet."""
    for path in reversed(numbered_checkpoints(folder)):
        if is_complete(path):
            return str(path)
        logger.warning(f"The checkpoint {str(path)!r} is incomplete and is skipped.")
    if (folder / "config.json").exists():
        raise ValueError(
            f"`output_dir` {str(folder)!r} holds a model but no checkpoint to resume from: "
            "fine-tune the model with `--model_name_or_path`, in another directory."
        )
    logger.warning(f"{str(folder)!r} holds no checkpoint yet: the training starts at step 0.")
    return None


def _check_checkpoint(path: str) -> str:
    if not Path(path).is_dir():
        raise FileNotFoundError(
            f"`resume_from_checkpoint` {path!r} does not exist: check the path, or give `True` for "
            "the newest checkpoint."
        )
    if not is_complete(Path(path)):
        raise ValueError(
            f"`resume_from_checkpoint` {path!r} is an incomplete checkpoint, because the run was "
            "stopped while it was written: use an earlier one, or `True` for the newest."
        )
    return path


def _check_inputs_are_elsewhere(
    arguments: RunArguments, checkpoint: str | None, folder: Path
) -> None:
    """Refuses to overwrite a directory that holds an input of the run."""
    options = {**vars(arguments.data), **vars(arguments.model), **vars(arguments.tokenizer)}
    paths = {
        f"`{name}`": Path(value)
        for name, value in options.items()
        if name.endswith(_INPUT_OPTIONS) and value is not None and Path(value).exists()
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
def overwritten_contents(directory: OutputDirectory, is_main: bool) -> Iterator[TrainerCallback]:
    """Sets the contents of an overwritten directory aside while a run starts.

    They are deleted when the first training step begins, or when the block ends. If an error ends
    the block earlier, they are put back.

    Args:
        directory: Output directory.
        is_main: Whether this is the first process; only this process moves files.

    Yields:
        A callback for the Trainer, which deletes the contents at the first step.
    """
    folder = directory.folder.resolve()
    if not is_main or not directory.overwritten or not folder.is_dir():
        yield TrainerCallback()
        return
    former = _FormerContents(folder)
    try:
        yield former
    except BaseException:
        former.put_back()
        raise
    former.delete()


class _FormerContents(TrainerCallback):
    """The former contents of a directory, in a temporary directory beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = Path(mkdtemp(dir=folder.parent, prefix=f"{folder.name}.overwritten-"))
        for path in folder.iterdir():
            path.rename(self.place / path.name)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Deletes the contents, because all checks have passed; called by Trainer."""
        self.delete()

    def delete(self) -> None:
        """Deletes the former contents for good."""
        shutil.rmtree(self.place, ignore_errors=True)

    def put_back(self) -> None:
        """Restores the directory, unless the former contents are already deleted."""
        if not self.place.exists():
            return
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        for path in self.place.iterdir():
            path.rename(self.folder / path.name)
        self.place.rmdir()
