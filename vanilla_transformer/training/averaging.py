"""Saves the mean of several saved models as a model."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import save_torch_state_dict

from vanilla_transformer.data.atomic_files import replaced_directory
from vanilla_transformer.model.pretrained_model import PROBE_FILE
from vanilla_transformer.training.checkpoints import TRAINER_STATE, checkpoints
from vanilla_transformer.training.checksums import CHECKSUMS, changed_files
from vanilla_transformer.training.mean_weights import average_weights

_WEIGHTS = (".safetensors", ".safetensors.index.json")
_NOT_COPIED = (
    *(f"*{end}" for end in _WEIGHTS),
    *("*.pt", "*.pth", "*.bin", TRAINER_STATE, CHECKSUMS, PROBE_FILE),
)


def average_checkpoints(
    directories: Sequence[str | Path], output: str | Path, overwrite: bool = False
) -> None:
    """Saves the mean of saved models as a complete model: weights, config, tokenizer and code.

    Means are computed in float64. All files but the weights are copied from the last model.

    Args:
        directories: Saved models or checkpoints, in safetensors, in one file or several.
        output: Directory to write.
        overwrite: Whether to replace the content of `output`.

    Raises:
        ValueError: If the models differ in more than their weights (the error lists all
            differences), a directory is not a saved model, the weights of a checkpoint are damaged,
            or `output` is in use. With `overwrite`,
            only a saved model that is not one of `directories` is replaced.
    """
    folders, target = [Path(directory) for directory in directories], Path(output)
    if any(folder.resolve() == target.resolve() for folder in folders):
        raise ValueError(f"The output {str(target)!r} is one of the models: choose another.")
    if target.exists() and any(target.iterdir()):
        if not overwrite:
            raise ValueError(f"{str(target)!r} is not empty: choose another, or add --overwrite.")
        _check_replaceable(target, folders)
    for folder in folders:
        if changed := changed_files(folder, _WEIGHTS):
            raise ValueError(
                f"{str(folder / changed[0])!r} is not as it was saved: leave this model "
                f"out (or delete {CHECKSUMS} if you changed the file yourself)."
            )
    weights = average_weights(folders)
    names = " ".join(folder.name for folder in folders)
    with replaced_directory(target) as made:
        shutil.copytree(folders[-1], made, ignore=_files_not_copied)
        save_torch_state_dict(weights, made, metadata={"format": "pt", "averaged": names})


def _check_replaceable(target: Path, folders: Sequence[Path]) -> None:
    """Refuses to delete a directory that is in use, or that is more than a saved model."""
    whole = target.resolve()
    needed = [folder for folder in [*folders, Path.cwd()] if folder.resolve().is_relative_to(whole)]
    if needed:
        raise ValueError(f"{str(target)!r} holds {str(needed[0])!r}: choose another output.")
    if not (target / "config.json").is_file() or checkpoints(target):
        raise ValueError(
            f"{str(target)!r} holds more than a saved model, and --overwrite would delete it all: "
            "choose another output."
        )


def _files_not_copied(folder: str, names: list[str]) -> set[str]:
    """Returns the folders, and the files that belong to the training or to one model's weights."""
    folders = {name for name in names if Path(folder, name).is_dir()}
    return folders | shutil.ignore_patterns(*_NOT_COPIED)(folder, names)
