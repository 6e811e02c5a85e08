"""Means of checkpoints: which checkpoints, whether they fit together, and where the mean goes."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError, safe_open

from vanilla_transformer.files.atomic_files import check_output_directory, replaced_directory
from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.names import METRIC_NAMES, is_error_rate
from vanilla_transformer.training.metrics import deciding_scores
from vanilla_transformer.training.store import FILE_SIZES, TRAINER_STATE, checkpoints_with_state

_WEIGHTS = "model.safetensors"
_NOT_COPIED = (
    *("*.safetensors", "*.safetensors.index.json", "*.pt", "*.pth", "*.bin"),
    *(TRAINER_STATE, FILE_SIZES, "README.md", "*_results.json"),
)
"""The weights of a model, and files that are true of it alone."""
_FREE_TO_DIFFER = {"transformers_version", "_name_or_path"}

Weights = Mapping[str, Any]
"""The open safetensors file that holds each tensor of a saved model, by the tensor's name."""


# Which checkpoints -------------------------------------------------------------------------------


def select_checkpoints(run: str | Path, count: int, metric: str | None = None) -> list[Path]:
    """Selects checkpoints of the training of a run, the best last.

    Args:
        metric: Name of a validation score, with or without "eval_"; see `deciding_scores`.
            Checkpoints without a finite score are left out; of equal scores, the later checkpoint
            is better. None: a later checkpoint is better.
    """
    saved, scored = checkpoints_with_state(run), ""
    if metric is not None and saved:
        name, known = metric.removeprefix("eval_"), ("loss", *METRIC_NAMES)
        if name.split("_")[0] not in known:  # whether a greater one is better is not known
            raise ValueError(f"`metric` {metric!r} is unknown: choose from {', '.join(known)}.")
        greater_is_better = name != "loss" and not is_error_rate(name)
        scored = f" with a score {metric!r}"
        log = saved[-1].state.get("log_history", [])  # of all steps
        _, scores = deciding_scores(log, metric, greater_is_better)
        saved = [checkpoint for checkpoint in saved if checkpoint.step in scores]
        saved.sort(key=lambda checkpoint: (scores[checkpoint.step], checkpoint.step))
    if len(saved) < count:
        raise ValueError(
            f"{str(run)!r} holds {len(saved)} checkpoints{scored}, not {count}: ask for fewer, or "
            "keep more while training (`save_steps`, `save_total_limit`)."
        )
    return [checkpoint.path for checkpoint in saved[-count:]]


# The mean ----------------------------------------------------------------------------------------


def average_weights(directories: Sequence[str | Path]) -> dict[str, torch.Tensor]:
    """Computes the mean of each tensor of saved models, in float64, one tensor at a time.

    The models are in safetensors, in one file or several; their configs and tokenizers must be
    equal. Means have the data type of the saved tensors. Tensors of integers are
    the first model's.
    """
    folders = [Path(directory) for directory in directories]
    with ExitStack() as stack:
        models = [_open_weights(folder, stack) for folder in folders]
        differences = [
            f"\n- {folder.name} and {folders[0].name}: {difference}"
            for folder in folders[1:]
            for difference in _differences(folder, folders[0])
        ]
        if differences:
            raise ValueError(
                "These models cannot be averaged; give checkpoints of one run:"
                + "".join(differences)
            )
        return {name: _average_tensor(name, models) for name in models[0]}


def _open_weights(folder: Path, stack: ExitStack) -> Weights:
    index, files = folder / f"{_WEIGHTS}.index.json", [_WEIGHTS]
    if index.is_file():
        files = sorted(set(read_object(index)["weight_map"].values()))
    opened: dict[str, Any] = {}
    for path in (folder / file for file in files):
        try:
            tensors = stack.enter_context(safe_open(path, framework="pt"))
        except SafetensorError as error:
            raise ValueError(
                f"{str(path)!r} cannot be read ({error}) because it is damaged: save it again."
            ) from error
        opened |= dict.fromkeys(tensors.keys(), tensors)
    if any(".lora_A." in name for name in opened):
        raise ValueError(f"{str(folder)!r} holds adapters: average models that they are merged in.")
    return opened


def _differences(first: Path, second: Path) -> Iterator[str]:
    configs = [read_object(folder / "config.json") for folder in (first, second)]
    for name in sorted({*configs[0], *configs[1]} - _FREE_TO_DIFFER):
        values = [config.get(name) for config in configs]
        if values[0] != values[1]:
            yield f"config field {name} is {values[0]!r} and {values[1]!r}"
    for name in ("tokenizer.json", "target_tokenizer.json"):
        paths = first / name, second / name
        contents = [path.read_bytes() if path.is_file() else b"" for path in paths]
        if contents[0] != contents[1]:
            yield f"{name} differs"


def _average_tensor(name: str, models: Sequence[Weights]) -> torch.Tensor:
    first: torch.Tensor = models[0][name].get_tensor(name)
    if not first.is_floating_point():
        return first
    total = sum((model[name].get_tensor(name).double() for model in models[1:]), first.double())
    return (total / len(models)).to(first.dtype)


def average_checkpoints(
    directories: Sequence[str | Path], output: str | Path, overwrite: bool = False
) -> None:
    """Saves the mean of saved models as a complete model: weights, config, tokenizer and code.

    The config, the tokenizer and the code are the last model's; its card and its scores are not
    true of the mean. With `overwrite`, a saved model in `output` is replaced.
    """
    folders, target = [Path(directory) for directory in directories], Path(output)
    check_output_directory(str(output), overwrite, map(str, folders))
    weights = average_weights(folders)
    names = " ".join(folder.name for folder in folders)
    with replaced_directory(target) as unfinished:
        unfinished.mkdir()
        for path in filter(Path.is_file, folders[-1].iterdir()):
            if not any(map(path.match, _NOT_COPIED)):
                shutil.copy(path, unfinished)
        save_torch_state_dict(weights, unfinished, metadata={"format": "pt", "averaged": names})
