"""The mean of saved models: of the last or the best checkpoints of a run."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError, safe_open
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from transformers.utils import logging

from vanilla_transformer.training.checkpoints import TRAINER_STATE, checkpoints, step
from vanilla_transformer.training.metrics import METRICS

logger = logging.get_logger(__name__)

_WEIGHTS = "model.safetensors"
_NOT_COPIED = ("*.safetensors", "*.safetensors.index.json", "*.pt", "*.pth", "*.bin", TRAINER_STATE)
_FREE_TO_DIFFER = {"transformers_version", "_name_or_path"}


# Choosing checkpoints ---------------------------------------------------------------------------


def last_checkpoints(run: str | Path, count: int) -> list[Path]:
    """Chooses the newest checkpoints of a run, the oldest of them first.

    Args:
        run: Its output directory.
        count: How many.

    Raises:
        ValueError: If there are fewer, or `count` is below 1.
    """
    return _enough(checkpoints(run), run, count, "checkpoints")[-count:]


def best_checkpoints(
    run: str | Path, count: int, metric: str = "loss", greater_is_better: bool | None = None
) -> list[Path]:
    """Chooses the checkpoints of a run that scored best on the validation data, the best last.

    Args:
        run: Its output directory. Checkpoints that were not evaluated do not count.
        count: How many.
        metric: Name of the score, with or without "eval_"; ties go to the later checkpoint.
        greater_is_better: The direction; None: known for losses and this package's scores.

    Raises:
        ValueError: If fewer were scored, `count` is below 1, or the direction is unknown.
    """
    metric, found = _eval_name(metric), checkpoints(run)
    greater = _greater_is_better(metric, greater_is_better)
    scores = _scores(_log_of(found[-1]) if found else [], metric)
    scored = _by_score(found, scores, greater)
    return _enough(scored, run, count, f"checkpoints with a score {metric!r}")[-count:]


def _by_score(found: Sequence[Path], scores: Mapping[int, float], greater: bool) -> list[Path]:
    """Sorts the checkpoints that have a score, the best last, and of equal ones the newest."""
    scored = [path for path in found if step(path) in scores]
    sign = 1 if greater else -1
    return sorted(scored, key=lambda path: (sign * scores[step(path)], step(path)))


def _greater_is_better(metric: str, given: bool | None) -> bool:
    name = metric.rpartition("_")[2]
    if given is not None:
        return given
    if name == "loss":
        return False
    if name not in METRICS:
        raise ValueError(f"`metric` {metric!r} is not known here: say whether greater is better.")
    return not METRICS[name].lower_is_better


def _eval_name(metric: str) -> str:
    return metric if metric.startswith("eval_") else f"eval_{metric}"


def _log_of(checkpoint: Path) -> list[dict[str, float]]:
    """Reads the log of a checkpoint, which holds what was logged before it."""
    state = json.loads((checkpoint / TRAINER_STATE).read_text(encoding="utf-8"))
    return list(state["log_history"])


def _scores(log: Sequence[Mapping[str, float]], metric: str) -> dict[int, float]:
    """Finds the scores by step; those that are no number do not count."""
    scores = {int(row["step"]): row[metric] for row in log if metric in row}
    return {number: score for number, score in scores.items() if math.isfinite(score)}


def _enough(found: list[Path], run: str | Path, count: int, what: str) -> list[Path]:
    if count < 1:
        raise ValueError(f"`count` is {count}: average at least 1 checkpoint.")
    if len(found) < count:
        raise ValueError(
            f"{str(run)!r} holds {len(found)} {what}, not {count}: ask for fewer, or keep more "
            "while training (`save_steps`, `save_total_limit`)."
        )
    return found


# Averaging --------------------------------------------------------------------------------------


def average_checkpoints(
    directories: Sequence[str | Path], output: str | Path, overwrite: bool = False
) -> None:
    """Writes the mean of saved models as a model of its own, with all that belongs to it.

    Means are taken in float64. Config, tokenizer, code and the like are those of the last one.

    Args:
        directories: Saved models or checkpoints, in safetensors, one file or several.
        output: Directory to write.
        overwrite: Whether to replace what it holds.

    Raises:
        ValueError: If the models differ in more than their weights (all differences are listed),
            one is no saved model, or `output` is in use: with `overwrite` by more than a model.
    """
    folders, target = [Path(directory) for directory in directories], Path(output)
    if any(folder.resolve() == target.resolve() for folder in folders):
        raise ValueError(f"The output {str(target)!r} is one of the models: choose another.")
    if target.exists() and any(target.iterdir()):
        if not overwrite:
            raise ValueError(f"{str(target)!r} is not empty: choose another, or add --overwrite.")
        _check_may_be_replaced(target, folders)
    weights = average_weights(folders)
    names = " ".join(folder.name for folder in folders)
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as unfinished:
        made = Path(unfinished, "model")
        shutil.copytree(folders[-1], made, ignore=_ignored)
        save_torch_state_dict(weights, made, metadata={"format": "pt", "averaged": names})
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)


def _check_may_be_replaced(target: Path, folders: Sequence[Path]) -> None:
    """Refuses to delete anything but a saved model that nobody needs."""
    whole = target.resolve()
    needed = [folder for folder in [*folders, Path.cwd()] if folder.resolve().is_relative_to(whole)]
    if needed:
        raise ValueError(f"{str(target)!r} holds {str(needed[0])!r}: choose another output.")
    if not (target / "config.json").is_file() or checkpoints(target):
        raise ValueError(
            f"{str(target)!r} holds more than a saved model, and --overwrite would delete it all: "
            "choose another output."
        )


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Names what belongs to the training, or to the weights of one model alone."""
    folders = {name for name in names if Path(folder, name).is_dir()}
    return folders | shutil.ignore_patterns(*_NOT_COPIED)(folder, names)


def average_weights(directories: Sequence[str | Path]) -> dict[str, torch.Tensor]:
    """Computes the mean of each tensor of saved models, in float64, one tensor at a time.

    Args:
        directories: Of the models, at least one.

    Returns:
        The means by name, in the type of the tensors. Integers, which must be equal, stay.

    Raises:
        ValueError: As `average_checkpoints`.
    """
    if not directories:
        raise ValueError("No model is given: name at least one directory.")
    with ExitStack() as stack:
        models = [_open_weights(Path(directory), stack) for directory in directories]
        problems = list(_differences([Path(directory) for directory in directories], models))
        if problems:
            listed = "\n".join(f"- {problem}" for problem in problems)
            raise ValueError(
                f"These models cannot be averaged; give checkpoints of one run:\n{listed}"
            )
        return {name: _mean(name, models) for name in models[0]}


def _open_weights(folder: Path, stack: ExitStack) -> dict[str, Any]:
    """Opens the files of a model; returns the file of each tensor by the tensor's name."""
    index = folder / f"{_WEIGHTS}.index.json"
    files = [_WEIGHTS]
    if index.is_file():
        files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    opened: dict[str, Any] = {}
    for path in (folder / file for file in files):
        if not path.is_file():
            raise ValueError(f"{str(folder)!r} holds no {path.name}: it is no saved model.")
        try:
            tensors = stack.enter_context(safe_open(path, framework="pt"))
        except SafetensorError as error:
            raise ValueError(f"{str(path)!r} cannot be read ({error}): it is damaged.") from error
        opened |= dict.fromkeys(tensors.keys(), tensors)
    return opened


def _mean(name: str, models: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    first: torch.Tensor = models[0][name].get_tensor(name)
    if not first.is_floating_point():
        return first
    total = first.double()
    for model in models[1:]:
        total += model[name].get_tensor(name).double()
    return (total / len(models)).to(first.dtype)


def _differences(folders: Sequence[Path], models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for folder, model in zip(folders[1:], models[1:], strict=True):
        pair = f"{folder.name} and {folders[0].name}"
        yield from (f"{pair}: {text}" for text in _unlike_files(folder, folders[0]))
        for name in sorted(model.keys() ^ models[0].keys()):
            yield f"{pair}: only one of them has {name}"
        for name in sorted(model.keys() & models[0].keys()):
            if text := _unlike_tensors(name, model[name], models[0][name]):
                yield f"{pair}: {name} {text}"


def _unlike_files(one: Path, other: Path) -> Iterator[str]:
    configs = [_read_config(folder) for folder in (one, other)]
    for name in sorted(configs[0].keys() | configs[1].keys()):
        values = [config.get(name) for config in configs]
        if values[0] != values[1] and name not in _FREE_TO_DIFFER:
            yield f"config field {name} is {values[0]!r} and {values[1]!r}"
    for name in ("tokenizer.json", "target_tokenizer.json"):
        texts = [
            path.read_bytes() if path.is_file() else b"" for path in (one / name, other / name)
        ]
        if texts[0] != texts[1]:
            yield f"{name} differs"


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{str(folder)!r} holds no config.json: it is no saved model.")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _unlike_tensors(name: str, one: Any, other: Any) -> str:
    slices = [tensors.get_slice(name) for tensors in (one, other)]
    kinds = [(piece.get_dtype(), piece.get_shape()) for piece in slices]
    if kinds[0] != kinds[1]:
        return f"is {kinds[0][0]} {kinds[0][1]} and {kinds[1][0]} {kinds[1][1]}"
    if kinds[0][0].startswith(("F", "BF")):
        return ""
    equal = torch.equal(one.get_tensor(name), other.get_tensor(name))
    return "" if equal else "holds integers that differ"


# Callback --------------------------------------------------------------------------------------


class AverageCheckpoints(TrainerCallback):
    """Gives the model, when its training ends, the mean weights of checkpoints of its run.

    What is evaluated and saved afterwards is the average, also where `load_best_model_at_end` chose
    another. Checkpoints of another training that lie in the same directory do not count. Vaswani et
    al. §6.1 average the last 5 checkpoints of a base model, 20 of a big one.

    Args:
        count: How many checkpoints; where there are fewer, those that there are.
        best: Whether they are the best ones by `metric_for_best_model` (or the loss), not the last.

    Raises:
        ValueError: If `count` is below 1; when the training begins, if it will not keep the
            checkpoints (`save_total_limit`), if they hold adapters alone (peft), or if the weights
            are spread over processes.
    """

    def __init__(self, count: int, best: bool = False) -> None:
        if count < 1:
            raise ValueError(f"`count` is {count}: average at least 1 checkpoint.")
        self.count, self.best = count, best
        self._steps = set[int]()  # of the checkpoints of this training

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Checks that there will be something to average; called by Trainer."""
        refuse_spread_weights("AverageCheckpoints", "use scripts/average.py afterwards")
        if hasattr(model, "peft_config"):
            raise ValueError(
                "AverageCheckpoints averages whole models, and the checkpoints of this one hold "
                "its adapters alone: train it without, or merge the adapters first."
            )
        if args.save_strategy == SaveStrategy.NO:
            raise ValueError(
                "Checkpoints cannot be averaged with `save_strategy` 'no': set another."
            )
        if self.best and args.eval_strategy == IntervalStrategy.NO:
            raise ValueError(
                "The best checkpoints need scores: set `eval_strategy`, as for saving."
            )
        self._check_limit(args)
        found = map(step, checkpoints(str(args.output_dir)))
        self._steps = {number for number in found if number <= state.global_step}

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Notes that a checkpoint is of this training; called by Trainer."""
        self._steps.add(state.global_step)

    def _check_limit(self, args: TrainingArguments) -> None:
        """Refuses a limit by which Trainer would delete checkpoints that are to be averaged."""
        limit = args.save_total_limit
        if limit is None:
            return
        if self.best:
            raise ValueError(
                f"`save_total_limit` is {limit}: it keeps the last checkpoints and the best one, "
                f"not the {self.count} best ones that are to be averaged; leave it out."
            )
        # Trainer keeps the best one in place of the oldest, also without load_best_model_at_end.
        needed = self.count + (args.metric_for_best_model is not None)
        if limit < needed:
            raise ValueError(
                f"`save_total_limit` is {limit}: {self.count} checkpoints are to be averaged; set "
                f"it to at least {needed}, or leave it out."
            )

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Loads the average; called by Trainer."""
        AcceleratorState().wait_for_everyone()  # the main process may still be writing the last one
        chosen = self._choose(args, state)
        if not chosen:
            logger.warning("There is no checkpoint to average: the model stays as it is.")
            return
        if len(chosen) < self.count:
            logger.warning(f"Only {len(chosen)} of {self.count} checkpoints are there to average.")
        names = ", ".join(path.name for path in chosen)
        logger.info(f"The model gets the mean weights of {names}.")
        weights = average_weights(chosen)
        with torch.no_grad():
            for name, value in model.state_dict(keep_vars=True).items():
                if name in weights:  # of tied weights, one is saved
                    value.copy_(weights[name])

    def _choose(self, args: TrainingArguments, state: TrainerState) -> list[Path]:
        found = [path for path in checkpoints(str(args.output_dir)) if step(path) in self._steps]
        if self.best:
            metric = _eval_name(args.metric_for_best_model or "loss")
            direction = args.greater_is_better if args.metric_for_best_model else None
            scores = _scores(state.log_history, metric)
            found = _by_score(found, scores, _greater_is_better(metric, direction))
        return found[-self.count :]


def refuse_spread_weights(name: str, remedy: str) -> None:
    """Refuses a training whose weights are spread over processes.

    Args:
        name: What needs whole weights.
        remedy: What to do instead.

    Raises:
        ValueError: Under FSDP, DeepSpeed or Megatron.
    """
    spread = (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)
    if AcceleratorState._shared_state and AcceleratorState().distributed_type in spread:
        raise ValueError(
            f"{name} needs whole weights in each process, not FSDP or DeepSpeed: {remedy}."
        )
