"""The directory that a run writes to: what it resumes, what it overwrites, and what it keeps."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from vanilla_transformer.data.arguments import SPLITS
from vanilla_transformer.data.corpus_entries import read_entries
from vanilla_transformer.rules import refuse
from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.training.checkpoints import (
    CHECKSUMS,
    TRAINER_STATE,
    Checkpoint,
    resumed_checkpoint,
)

logger = logging.get_logger(__name__)

_SUFFIXES_OF_A_RUN = (".bin", ".json", ".md", ".py", ".safetensors")
_INPUT_OPTIONS = ("_path", "_file", "_source", "_target", "dataset_name", "prepared")
_INPUTS_OF_TRAINING = ("guided_alignment", "generation_config", "deepspeed", "fsdp_config")


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
        FileNotFoundError: If the given checkpoint does not exist.
    """
    training = arguments.training
    folder, overwrite = Path(str(training.output_dir)), arguments.model.overwrite
    if os.path.lexists(folder) and not folder.is_dir():
        what = "a link to nothing" if folder.is_symlink() and not folder.exists() else "a file"
        raise ValueError(f"`output_dir` {str(folder)!r} is {what}: choose another name.")
    checkpoint, given = None, str(training.resume_from_checkpoint or False)
    newest = given.lower() == "true"
    if given.lower() != "false":
        has_mean = arguments.averaging.ema_decay is not None
        checkpoint = resumed_checkpoint(training, newest or given, has_mean)
    if newest and checkpoint is None:
        _check_has_no_model(folder)
        logger.warning(f"{str(folder)!r} holds no checkpoint yet: the training starts at step 0.")
    directory = OutputDirectory(folder, checkpoint, overwrite)
    resumes_here = newest or directory.resumes_here
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    replaces = folder.exists() and any(folder.iterdir()) and not resumes_here
    replaces = replaces and training.process_index == 0  # the others may see what it has made
    refuse(
        (
            resumes_here and overwrite,
            f"`overwrite` deletes what `output_dir` {str(folder)!r} holds, and "
            "`resume_from_checkpoint` continues it: leave one of them out.",
        ),
        (
            not os.access(existing, os.W_OK | os.X_OK),
            f"`output_dir` {str(folder)!r} cannot be written to ({str(existing)!r} is read-only "
            "for this user): choose another directory.",
        ),
        (
            replaces and not overwrite,
            f"`output_dir` {str(folder)!r} is not empty: continue its training with "
            "`--resume_from_checkpoint True`, delete its contents with `--overwrite`, or "
            "choose another directory.",
        ),
    )
    if replaces:
        _check_inputs_are_elsewhere(arguments, checkpoint, folder.resolve())
    return directory


def _check_has_no_model(folder: Path) -> None:
    """Refuses to resume in a directory without checkpoints where a new training would write."""
    if (folder / "config.json").exists():
        raise ValueError(
            f"`output_dir` {str(folder)!r} holds a model but no checkpoint to resume from: "
            "fine-tune the model with `--model_name_or_path`, in another directory."
        )
    paths = sorted(folder.iterdir()) if folder.exists() else []
    if foreign := [path.name for path in paths if path.suffix in _SUFFIXES_OF_A_RUN]:
        raise ValueError(
            f"`output_dir` {str(folder)!r} holds no checkpoint to resume from, but other files "
            f"({', '.join(foreign[:3])}), of the types that a new training writes: choose "
            "another directory."
        )


def _check_inputs_are_elsewhere(
    arguments: RunArguments, checkpoint: Checkpoint | None, folder: Path
) -> None:
    """Refuses to overwrite a directory that holds an input of the run."""
    topics = arguments.data, arguments.model, arguments.tokenizer, arguments.preparation
    options = {name: value for topic in topics for name, value in vars(topic).items()}
    options = {name: value for name, value in options.items() if name.endswith(_INPUT_OPTIONS)}
    options |= {name: getattr(arguments.training, name) for name in _INPUTS_OF_TRAINING}
    paths = {
        f"`{name}`": Path(value)
        for name, value in options.items()
        if isinstance(value, str | os.PathLike) and Path(value).exists()
    }
    for corpus in read_entries(arguments.data.corpora or ()):
        given = [corpus.dataset, *(path for split in SPLITS for path in corpus.paths(split))]
        paths |= {f"`corpora` {path}": Path(path) for path in given if path and Path(path).exists()}
    teachers = map(Path, arguments.model.teacher or ())
    paths |= {f"`teacher` {path}": path for path in teachers if path.exists()}
    paths["the working directory"] = Path.cwd()
    if checkpoint is not None:
        paths["`resume_from_checkpoint`"] = checkpoint.path
    if arguments.recipe is not None:
        paths["the recipe"] = arguments.recipe
    for what, path in paths.items():
        if path.resolve().is_relative_to(folder):
            raise ValueError(
                f"`overwrite` would delete {what} ({str(path)!r}): choose another `output_dir`."
            )


class OverwriteGuard(TrainerCallback):
    """Deletes what was in a directory before a run began, but not before the run replaces it.

    The files are deleted when the first training step begins, or when the context of the guard
    ends: a process that is killed before then leaves the directory as it was. If an error ends the
    context earlier, what the run has added is deleted instead. Where nothing is overwritten, only
    the state by which a run counts as finished is deleted, when its training goes on.
    """

    def __init__(self, directory: OutputDirectory, is_main: bool) -> None:
        overwrites = is_main and directory.overwritten and directory.folder.is_dir()
        self._folder = directory.folder.resolve() if overwrites else None
        self._files, self._folders = _contents_of(self._folder) if self._folder else ({}, set())
        self._finished = directory.folder / TRAINER_STATE if is_main else None

    def __enter__(self) -> Self:
        """Returns the guard, as a callback for the Trainer."""
        return self

    def __exit__(self, *error: object) -> None:
        """Deletes the former contents, or after an error what has been added to them."""
        if self._folder is not None and any(error):
            files, folders = _contents_of(self._folder)
            for path in files.keys() - self._files.keys():
                path.unlink()
            _delete_empty(folders - self._folders)
        elif not any(error):
            self.delete()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Deletes the contents, because all checks have passed; called by Trainer."""
        self.delete()
        if self._finished is not None:
            self._finished.unlink(missing_ok=True)
            self._finished = None

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
