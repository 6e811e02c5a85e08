"""Means of checkpoints: which checkpoints, whether they fit together, and where the mean goes."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, is_initialized
from accelerate.utils import DistributedType
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from transformers.utils import logging

from vanilla_transformer.data.atomic_files import check_output_directory, replaced_directory
from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.model.pretrained_model import PROBE_FILE
from vanilla_transformer.names import ERROR_RATES, METRIC_NAMES
from vanilla_transformer.rules import refuse
from vanilla_transformer.training.checkpoints import (
    CHECKSUMS,
    TRAINER_STATE,
    Checkpoint,
    changed_files,
    check_one_training,
    complete_checkpoints,
    deciding_scores,
)

logger = logging.get_logger(__name__)

_WEIGHTS = "model.safetensors"
_NOT_COPIED = (
    *("*.safetensors", "*.safetensors.index.json", "*.pt", "*.pth", "*.bin"),
    *(TRAINER_STATE, CHECKSUMS, PROBE_FILE),
)
_FREE_TO_DIFFER = {"transformers_version", "_name_or_path"}

Weights = Mapping[str, Any]
"""The open safetensors file that holds each tensor of a saved model, by the tensor's name."""


# Which checkpoints -------------------------------------------------------------------------------


def select_checkpoints(
    run: str | Path,
    count: int,
    metric: str | None = None,
    greater_is_better: bool | None = None,
) -> list[Path]:
    """Selects checkpoints of the training of a run: its last ones, or those with the best scores.

    Args:
        metric: Name of a validation score, with or without "eval_". None: the last checkpoints,
            the oldest of them first. Otherwise the best ones, the best last; of equal scores, the
            later checkpoint is better.
        greater_is_better: Direction of the score. None: the direction is known for losses and for
            the metrics of this package.

    Raises:
        ValueError: If the training has fewer checkpoints (with a finite score), the direction is
            unknown, or the directory holds checkpoints of two trainings.
    """
    saved = complete_checkpoints(run)
    check_one_training(saved)
    scored = ""
    if metric is not None:  # the newest checkpoint holds the log of all earlier steps
        log = saved[-1].state.get("log_history", []) if saved else []
        saved = sort_by_score(saved, log, metric, greater_is_better)
        scored = f" with a score {metric!r}"
    if len(saved) < count:
        raise ValueError(
            f"{str(run)!r} holds {len(saved)} checkpoints{scored}, not {count}: ask for fewer, or "
            "keep more while training (`save_steps`, `save_total_limit`)."
        )
    return [checkpoint.path for checkpoint in saved[-count:]]


def sort_by_score(
    checkpoints: Sequence[Checkpoint],
    log: Sequence[Mapping[str, float]],
    metric: str,
    greater_is_better: bool | None = None,
) -> list[Checkpoint]:
    """Sorts the checkpoints of one training that have a finite score in its log, the best last.

    A score that tells nothing does not decide: see `deciding_scores`.

    Raises:
        ValueError: If the direction is unknown.
    """
    name = metric.rpartition("_")[2]
    if greater_is_better is None:
        if name != "loss" and name not in METRIC_NAMES:
            raise ValueError(
                f"The direction of `metric` {metric!r} is unknown: say whether greater is better."
            )
        greater_is_better = name != "loss" and name not in ERROR_RATES
    _, scores = deciding_scores(log, metric, greater_is_better)
    scored = [checkpoint for checkpoint in checkpoints if checkpoint.step in scores]
    return sorted(scored, key=lambda checkpoint: (scores[checkpoint.step], checkpoint.step))


# The mean ----------------------------------------------------------------------------------------


def average_weights(directories: Sequence[str | Path]) -> dict[str, torch.Tensor]:
    """Computes the mean of each tensor of saved models, in float64, one tensor at a time.

    Args:
        directories: Saved models in safetensors, in one file or several; at least one.

    Returns:
        The means by name, in the data type of the saved tensors. Tensors of integers, which must be
        equal in all models, stay as they are.

    Raises:
        FileNotFoundError: If a directory is not a saved model.
        ValueError: If configs, tokenizers, or names, types and shapes of tensors differ (the error
            lists all differences).
    """
    folders = [Path(directory) for directory in directories]
    with ExitStack() as stack:
        models = [_open_weights(folder, stack) for folder in folders]
        differences = [
            f"\n- {folder.name} and {folders[0].name}: {difference}"
            for folder, model in zip(folders[1:], models[1:], strict=True)
            for difference in (
                *_file_differences(folder, folders[0]),
                *_tensor_differences(model, models[0]),
            )
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


def _file_differences(first: Path, second: Path) -> Iterator[str]:
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


def _tensor_differences(first: Weights, second: Weights) -> Iterator[str]:
    for name in sorted(first.keys() ^ second.keys()):
        yield f"only one of them has {name}"
    for name in sorted(first.keys() & second.keys()):
        slices = [weights[name].get_slice(name) for weights in (first, second)]
        types = [(piece.get_dtype(), piece.get_shape()) for piece in slices]
        is_float = types[0][0].startswith(("F", "BF"))
        if types[0] != types[1]:
            yield f"{name} is {types[0][0]} {types[0][1]} and {types[1][0]} {types[1][1]}"
        elif not (is_float or torch.equal(*(w[name].get_tensor(name) for w in (first, second)))):
            yield f"{name} holds integers that differ"


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

    All files but the weights are copied from the last model. With `overwrite`, a saved model in
    `output` is replaced.

    Raises:
        NotADirectoryError: If `output` is a file.
        ValueError: Under the conditions of `average_weights` and `check_output_directory`, or if
            the weights of a checkpoint are damaged.
    """
    folders, target = [Path(directory) for directory in directories], Path(output)
    check_output_directory(str(output), overwrite, map(str, folders))
    for folder in folders:
        if changed := changed_files(folder, (".safetensors", ".safetensors.index.json")):
            raise ValueError(
                f"{str(folder / changed[0])!r} is not as it was saved: leave this model "
                f"out (or delete {CHECKSUMS} if you changed the file yourself)."
            )
    weights = average_weights(folders)
    names = " ".join(folder.name for folder in folders)
    with replaced_directory(target) as unfinished:
        copy_without_weights(folders[-1], unfinished)
        save_torch_state_dict(weights, unfinished, metadata={"format": "pt", "averaged": names})


def copy_without_weights(folder: Path, output: Path) -> None:
    """Copies the files of a saved model to a new directory: config, tokenizer, code and card."""

    def files_not_copied(folder: str, names: list[str]) -> set[str]:
        folders = {name for name in names if Path(folder, name).is_dir()}
        return folders | shutil.ignore_patterns(*_NOT_COPIED)(folder, names)

    shutil.copytree(folder, output, ignore=files_not_copied)


# At the end of a training ------------------------------------------------------------------------


def refuse_sharded_weights(feature: str, remedy: str) -> None:
    """Refuses FSDP, DeepSpeed and Megatron for a feature that needs whole weights."""
    sharded = (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)
    if is_initialized() and AcceleratorState().distributed_type in sharded:
        raise ValueError(
            f"{feature} needs whole weights in each process, which FSDP, DeepSpeed and Megatron do "
            f"not keep: {remedy}."
        )


class AverageCheckpoints(TrainerCallback):
    """Sets the weights of the model, at the end of the training, to the mean of checkpoints.

    The average is what is evaluated and saved afterwards, also if `load_best_model_at_end` loads
    another model. Checkpoints of another training in the same directory do not count. Vaswani et
    al. §6.1 average the last 5 checkpoints of a base model and the last 20 of a big one.

    Args:
        count: Number of checkpoints. If the run has fewer, all of them are averaged.
        best: Whether to average the best checkpoints by `metric_for_best_model` (or the loss)
            instead of the last ones.

    Raises:
        ValueError: When the training begins: if it will not keep the checkpoints (`save_strategy`,
            `save_total_limit`), the checkpoints hold only adapters (peft), or the weights are
            sharded over processes.
    """

    def __init__(self, count: int, best: bool = False) -> None:
        self.count, self.best = count, best
        self._steps = set[int]()  # steps at which this training saved a checkpoint

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        """Checks that the training will keep checkpoints to average; called by Trainer."""
        refuse_sharded_weights(
            "AverageCheckpoints", "run `vanilla-transformer average` after the training"
        )
        limit, count = args.save_total_limit, self.count
        # Trainer keeps the best one in place of the oldest, even without load_best_model_at_end.
        needed = count + (args.metric_for_best_model is not None)
        refuse(
            (
                hasattr(model, "peft_config"),
                "AverageCheckpoints averages whole models, not adapters: use a moving average "
                "(`ema_decay`), or merge the adapters first.",
            ),
            (
                args.save_strategy == SaveStrategy.NO,
                "`save_strategy` is 'no', so there will be no checkpoints to average: set it to "
                "steps or epoch.",
            ),
            (
                self.best and args.eval_strategy == IntervalStrategy.NO,
                "`eval_strategy` is 'no', but the best checkpoints need scores: set "
                "`eval_strategy` to the same value as `save_strategy`.",
            ),
            (
                self.best and limit is not None,
                f"`save_total_limit` is {limit}: Trainer then keeps the last checkpoints and the "
                f"best one, not the {count} best ones that are to be averaged; leave it out.",
            ),
            (
                limit is not None and limit < needed,
                f"`save_total_limit` is {limit}, but {count} checkpoints are to be averaged: set "
                f"it to at least {needed}, or leave it out.",
            ),
        )
        self._steps = {  # those of a training that is resumed
            checkpoint.step
            for checkpoint in complete_checkpoints(str(args.output_dir))
            if checkpoint.step <= state.global_step
        }

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Records that a checkpoint belongs to this training; called by Trainer."""
        self._steps.add(state.global_step)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        """Loads the average into the model; called by Trainer."""
        AcceleratorState().wait_for_everyone()  # the main process may still write a checkpoint
        listed = complete_checkpoints(str(args.output_dir))
        saved = [checkpoint for checkpoint in listed if checkpoint.step in self._steps]
        if self.best:
            metric = args.metric_for_best_model
            greater = args.greater_is_better if metric else None
            saved = sort_by_score(saved, state.log_history, metric or "loss", greater)
        chosen = [checkpoint.path for checkpoint in saved[-self.count :]]
        if model is None or not chosen:
            logger.warning("There is no checkpoint to average: the model stays as it is.")
            return
        if len(chosen) < self.count:
            logger.warning(f"The run has only {len(chosen)} of {self.count} checkpoints.")
        names = ", ".join(path.name for path in chosen)
        logger.info(f"The weights of the model become the mean of {names}.")
        weights = average_weights(chosen)
        with torch.no_grad():
            for name, value in model.state_dict(keep_vars=True).items():
                if name in weights:  # only one of several tied weights is saved
                    value.copy_(weights[name])
