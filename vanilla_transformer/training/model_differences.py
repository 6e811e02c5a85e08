"""Lists how saved models differ in more than the values of their weights."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from vanilla_transformer.data.file_contents import read_object


class TensorFile(Protocol):
    """An open safetensors file, which reads one tensor at a time."""

    def get_tensor(self, name: str, /) -> torch.Tensor:
        """Reads a tensor."""

    def get_slice(self, name: str, /) -> Any:
        """Returns a handle that knows the type and the shape of a tensor."""


Weights = Mapping[str, TensorFile]
"""The open safetensors file that holds each tensor of a saved model, by the tensor's name."""

_FREE_TO_DIFFER = {"transformers_version", "_name_or_path"}


def list_differences(folders: Sequence[Path], models: Sequence[Weights]) -> Iterator[str]:
    """Yields each difference of a model from the first one.

    Configs, tokenizers, and names, types and shapes of tensors must agree. Tensors of integers must
    be equal.

    Args:
        folders: Directories of the models.
        models: Their weights, in the same order.

    Raises:
        ValueError: If a directory has no config.json.
    """
    for folder, model in zip(folders[1:], models[1:], strict=True):
        pair = f"{folder.name} and {folders[0].name}"
        for difference in (
            *_config_differences(_read_config(folder), _read_config(folders[0])),
            *_tokenizer_differences(folder, folders[0]),
            *_tensor_differences(model, models[0]),
        ):
            yield f"{pair}: {difference}"


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(
            f"{str(folder)!r} holds no config.json, so it is not a saved model: check the path."
        )
    return read_object(path)


def _config_differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    for name in sorted((one.keys() | other.keys()) - _FREE_TO_DIFFER):
        if one.get(name) != other.get(name):
            yield f"config field {name} is {one.get(name)!r} and {other.get(name)!r}"


def _tokenizer_differences(one: Path, other: Path) -> Iterator[str]:
    for name in ("tokenizer.json", "target_tokenizer.json"):
        paths = one / name, other / name
        contents = [path.read_bytes() if path.is_file() else b"" for path in paths]
        if contents[0] != contents[1]:
            yield f"{name} differs"


def _tensor_differences(one: Weights, other: Weights) -> Iterator[str]:
    for name in sorted(one.keys() ^ other.keys()):
        yield f"only one of them has {name}"
    for name in sorted(one.keys() & other.keys()):
        slices = [weights[name].get_slice(name) for weights in (one, other)]
        kinds = [(piece.get_dtype(), piece.get_shape()) for piece in slices]
        is_float = kinds[0][0].startswith(("F", "BF"))
        if kinds[0] != kinds[1]:
            yield f"{name} is {kinds[0][0]} {kinds[0][1]} and {kinds[1][0]} {kinds[1][1]}"
        elif not (is_float or torch.equal(*(w[name].get_tensor(name) for w in (one, other)))):
            yield f"{name} holds integers that differ"
