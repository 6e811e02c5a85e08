"""An exponential moving average of the weights, evaluated and saved in place of the weights."""

import json
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, is_initialized
from accelerate.utils import DistributedType
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import TrainerCallback, TrainerState, TrainingArguments

from vanilla_transformer.files.atomic_files import explained_full_disk
from vanilla_transformer.training.store import Checkpoint

TRAINING_WEIGHTS = "training_weights.safetensors"
"""File of a checkpoint with the training weights, where the model is a running mean."""
_SHARDED = (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)


class ExponentialMovingAverage(TrainerCallback):
    """Keeps an exponential moving average of the weights, which is evaluated and saved.

    After the first step, the average is a copy of the weights. After step t, it moves towards the
    weights by 1 - min(decay, t / (t + 9)), so that the initial weights are soon forgotten.
    Evaluations, checkpoints and the model at the end of the training hold the average. The training
    continues with its own weights, which each checkpoint keeps in training_weights.safetensors. A
    resumed run equals the uninterrupted run bit for bit. Weights must be float32, and whole in each
    process.

    Args:
        decay: Largest share of the average that a step keeps, e.g. 0.999: about the last 1000
            steps.
        checkpoint: Directory that the training is resumed from; `TokenBudgetSeq2SeqTrainer.train`
            sets it. Only needed with the stock Trainer, if the directory is not in `output_dir` and
            not named by `TrainingArguments.resume_from_checkpoint`.
    """

    def __init__(self, decay: float, checkpoint: str | Path | None = None) -> None:
        self.decay, self.checkpoint = decay, checkpoint
        self._names: list[str] = []
        self._weights = nn.ParameterList()  # the parameters of the model
        # The average; or, while the model holds the average, the training weights.
        self._other = AveragedModel(self._weights)
        self._model_holds_average = False

    def on_train_begin(self, args: Any, state: TrainerState, *_: Any, **given: Any) -> None:
        """Starts the average at the weights, or resumes it from a checkpoint; called by Trainer."""
        if is_initialized() and AcceleratorState().distributed_type in _SHARDED:
            raise ValueError(
                "A moving average needs whole weights in each process, which FSDP, DeepSpeed and "
                "Megatron do not keep: train without it."
            )
        optimizer = given.get("optimizer")
        optimizer = getattr(optimizer, "optimizer", optimizer)
        if hasattr(optimizer, "eval"):
            raise ValueError(
                f"A schedule-free optimizer ({type(optimizer).__name__}) evaluates a mean of the "
                "weights already: leave out `ema_decay`, or choose another `optim`."
            )
        named = {name: p for name, p in given["model"].named_parameters() if p.requires_grad}
        if low := sorted(name for name, p in named.items() if p.dtype != torch.float32):
            raise ValueError(
                f"A moving average needs float32 weights, but {low[0]} is {named[low[0]].dtype}: "
                "load the model in float32 (bf16=True still trains it in bfloat16)."
            )
        self._names, self._weights = list(named), nn.ParameterList(named.values())
        self._other = AveragedModel(self._weights, multi_avg_fn=self._move_average)
        self._other.n_averaged.fill_(state.global_step)
        self._model_holds_average = False
        if state.global_step:
            self._load_training_weights(Path(self.checkpoint or _find_checkpoint(args, state)))

    def _load_training_weights(self, checkpoint: Path) -> None:
        """Loads the training weights; the loaded model already holds the average."""
        saved = load_file(checkpoint / TRAINING_WEIGHTS)
        with torch.no_grad():
            for name, parameter in zip(self._names, self._other.parameters(), strict=True):
                parameter.copy_(saved[name])
        self._model_holds_average = True

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Puts the training weights back into the model; called by Trainer."""
        if self._model_holds_average:
            self._swap_weights()

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        """Updates the average, and puts it into the model if needed; called by Trainer."""
        self._other.update_parameters(self._weights)
        self.on_epoch_end(args, state, control)

    def on_epoch_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        """Puts the average into the model before it is evaluated or saved; called by Trainer."""
        if (control.should_evaluate or control.should_save) and not self._model_holds_average:
            self._swap_weights()

    def on_save(self, args: Any, state: TrainerState, *_: Any, **given: Any) -> None:
        """Adds the training weights to a checkpoint; called by Trainer."""
        folder, is_late = _checkpoint_path(args, state), not self._model_holds_average
        if is_late:  # a later callback has asked for the checkpoint
            self._swap_weights()
        if args.should_save:
            weights = zip(self._names, self._other.parameters(), strict=True)
            tensors = {name: weight.detach().contiguous() for name, weight in weights}
            with explained_full_disk(folder):
                if is_late:
                    given["model"].save_pretrained(folder)
                save_file(tensors, folder / TRAINING_WEIGHTS, metadata={"format": "pt"})

    def on_train_end(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        """Leaves the average, or the best model that Trainer loaded, in the model."""
        best_is_loaded = args.load_best_model_at_end and state.best_model_checkpoint is not None
        if not self._model_holds_average and not best_is_loaded:
            self._swap_weights()

    def _move_average(self, averages: Any, weights: Any, _: Any) -> None:
        """Moves the average towards the weights after a step; the first step copies them.

        The decay grows with the number of averaged steps, as in TensorFlow's
        `train.ExponentialMovingAverage`: with a constant decay of 0.999, a third of the average
        would still be the initial weights after 1000 steps.
        """
        steps = int(self._other.n_averaged)  # it is on the CPU
        decay = min(self.decay, (1 + steps) / (10 + steps))
        get_ema_multi_avg_fn(decay)(averages, weights, steps)

    def _swap_weights(self) -> None:
        """Exchanges the weights of the model with the weights that are kept beside it."""
        with torch.no_grad():
            for weight, other in zip(self._weights, self._other.parameters(), strict=True):
                kept = weight.clone()
                weight.copy_(other)
                other.copy_(kept)
        self._model_holds_average = not self._model_holds_average


def _checkpoint_path(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir), f"checkpoint-{state.global_step}")


def _find_checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    """Returns the directory that a state comes from: Trainer does not tell it."""
    for name in (args.resume_from_checkpoint, _checkpoint_path(args, state)):
        logged = Checkpoint(Path(str(name))).state.get("log_history")
        if json.dumps(logged) == json.dumps(state.log_history):
            return Path(str(name))
    raise ValueError(
        f"Give `ExponentialMovingAverage` the `checkpoint` of step {state.global_step}: its folder."
    )
