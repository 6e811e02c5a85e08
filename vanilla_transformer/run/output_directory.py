"""The directory that a run writes: nothing in it is lost, and a killed run goes on from it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.training.checkpoints import is_complete, numbered_checkpoints

logger = logging.get_logger(__name__)


def check_output_directory(arguments: RunArguments) -> str | None:
    """Makes sure that no earlier work will be lost; of several processes the first one does.

    Args:
        arguments: Of the run.

    Returns:
        The checkpoint to resume from, or None.

    Raises:
        ValueError: If the directory holds something, and neither resuming nor overwriting was asked
            for; if overwriting would delete what the run needs; if there is a model and no
            checkpoint to resume from, or the checkpoint asked for is not complete.
        FileNotFoundError: If the checkpoint asked for does not exist.
    """
    training = arguments.training
    folder, resume = Path(str(training.output_dir)), training.resume_from_checkpoint
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`output_dir` {str(folder)!r} is a file: choose another name.")
    checkpoint = None
    if resume and str(resume).lower() != "false":
        checkpoint = _checkpoint_to_resume(folder, str(resume))
        if _goes_on_there(arguments):
            return checkpoint
    if training.process_index == 0 and folder.exists() and any(folder.iterdir()):
        if not arguments.model.overwrite_output_dir:
            raise ValueError(
                f"`output_dir` {str(folder)!r} is not empty: go on with its training by "
                "`--resume_from_checkpoint True`, delete its contents by `--overwrite_output_dir "
                "True`, or choose another directory."
            )
        _check_nothing_needed_is_deleted(arguments, folder.resolve())
    return checkpoint


def _goes_on_there(arguments: RunArguments) -> bool:
    """Tells whether the training that the output directory holds is resumed."""
    training = arguments.training
    resume, folder = training.resume_from_checkpoint, Path(str(training.output_dir)).resolve()
    named = str(resume or False).lower()
    return named == "true" or (named != "false" and Path(str(resume)).resolve().parent == folder)


def _check_nothing_needed_is_deleted(arguments: RunArguments, folder: Path) -> None:
    options = {**vars(arguments.data), **vars(arguments.model), **vars(arguments.tokenizer)}
    endings = ("_path", "_file", "_source", "_target", "dataset_name")
    inputs = {n: value for n, value in options.items() if value is not None and n.endswith(endings)}
    paths = {f"`{name}`": Path(value) for name, value in inputs.items() if Path(value).exists()}
    paths["the working directory"] = Path.cwd()
    if (resume := arguments.training.resume_from_checkpoint) and Path(str(resume)).exists():
        paths["`resume_from_checkpoint`"] = Path(str(resume))
    if arguments.recipe is not None:
        paths["the arguments file"] = arguments.recipe
    for what, path in paths.items():
        if path.resolve().is_relative_to(folder):
            raise ValueError(
                f"`overwrite_output_dir` would delete {what} ({str(path)!r}): choose another "
                "`output_dir`."
            )


def _checkpoint_to_resume(folder: Path, resume: str) -> str | None:
    if resume.lower() != "true":
        if not Path(resume).is_dir():
            raise FileNotFoundError(f"`resume_from_checkpoint` {resume!r} does not exist.")
        if not is_complete(Path(resume)):
            raise ValueError(
                f"`resume_from_checkpoint` {resume!r} is no complete checkpoint: the run was "
                "stopped while it was written. Use an earlier one, or `True` for the newest."
            )
        return resume
    for path in reversed(numbered_checkpoints(folder)):
        if is_complete(path):
            return str(path)
        logger.warning(f"{str(path)!r} is not complete and is passed over.")
    if (folder / "config.json").exists():
        raise ValueError(
            f"`output_dir` {str(folder)!r} holds a model, and no checkpoint to resume from: train "
            "it on by `--model_name_or_path`, in another directory."
        )
    logger.warning(f"There is no checkpoint in {str(folder)!r} yet: training starts anew.")
    return None


@contextmanager
def overwritten_output_directory(arguments: RunArguments) -> Iterator[TrainerCallback]:
    """Sets aside what `overwrite_output_dir` allows to delete, and deletes it when it may be.

    That is when the first step of the training begins, or the block ends. If an error ends it
    before, everything is put back.

    Args:
        arguments: Of the run.

    Yields:
        What tells that the training began: a callback for its trainer.
    """
    training = arguments.training
    folder = Path(str(training.output_dir)).resolve()
    overwrites = arguments.model.overwrite_output_dir and not _goes_on_there(arguments)
    if training.process_index or not overwrites or not folder.is_dir():
        yield TrainerCallback()
        return
    aside = _SetAside(folder)
    try:
        yield aside
    except BaseException:
        aside.put_back()
        raise
    aside.delete()


class _SetAside(TrainerCallback):
    """The former content of a directory, in one beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = Path(mkdtemp(dir=folder.parent, prefix=f"{folder.name}.overwritten-"))
        _move_content(folder, self.place)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Deletes it, since nothing can be refused any more; called by Trainer."""
        self.delete()

    def delete(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    def put_back(self) -> None:
        if self.place.exists():
            _delete_content(self.folder)
            _move_content(self.place, self.folder)
            self.place.rmdir()


def _move_content(origin: Path, target: Path) -> None:
    for path in origin.iterdir():
        path.rename(target / path.name)


def _delete_content(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
