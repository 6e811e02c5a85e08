"""Computes the mean of the weights of saved models."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.training.model_differences import TensorFile, Weights, list_differences

_WEIGHTS = "model.safetensors"


def average_weights(directories: Sequence[str | Path]) -> dict[str, torch.Tensor]:
    """Computes the mean of each tensor of saved models, in float64, one tensor at a time.

    Args:
        directories: Directories of the models, at least one.

    Returns:
        The means by name, in the data type of the saved tensors. Tensors of integers, which must be
        equal in all models, stay as they are.

    Raises:
        ValueError: If the models differ in more than their weights (the error lists all
            differences), or a directory is not a saved model.
    """
    if not directories:
        raise ValueError("No model is given: name at least one directory.")
    folders = [Path(directory) for directory in directories]
    with ExitStack() as stack:
        models = [_open_weights(folder, stack) for folder in folders]
        if differences := list(list_differences(folders, models)):
            listed = "\n".join(f"- {difference}" for difference in differences)
            raise ValueError(
                f"These models cannot be averaged; give checkpoints of one run:\n{listed}"
            )
        return {name: _average_tensor(name, models) for name in models[0]}


def _open_weights(folder: Path, stack: ExitStack) -> dict[str, TensorFile]:
    """Opens the weight files of a model; returns the file of each tensor by the tensor's name."""
    index = folder / f"{_WEIGHTS}.index.json"
    files = [_WEIGHTS]
    if index.is_file():
        files = sorted(set(read_object(index)["weight_map"].values()))
    opened: dict[str, TensorFile] = {}
    for path in (folder / file for file in files):
        if not path.is_file():
            raise ValueError(
                f"{str(folder)!r} holds no {path.name}, so it is not a saved model: check the path."
            )
        try:
            tensors = stack.enter_context(safe_open(path, framework="pt"))
        except SafetensorError as error:
            raise ValueError(
                f"{str(path)!r} cannot be read ({error}) because it is damaged: save it again."
            ) from error
        opened |= dict.fromkeys(tensors.keys(), tensors)
    return opened


def _average_tensor(name: str, models: Sequence[Weights]) -> torch.Tensor:
    first = models[0][name].get_tensor(name)
    if not first.is_floating_point():
        return first
    total = first.double()
    for model in models[1:]:
        total += model[name].get_tensor(name).double()
    return (total / len(models)).to(first.dtype)
