"""A running mean of the weights while a model trains, evaluated and saved instead of them."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vanilla_transformer.training.averaging import refuse_spread_weights

_RAW_WEIGHTS = "training_weights.safetensors"


class ExponentialMovingAverage(TrainerCallback):
    """Keeps a running mean of the weights, which is what gets evaluated and saved.

    After each step the mean moves by (1 - decay) towards the weights. Evaluations, checkpoints and
    the model at the end of the training hold the mean; training goes on with weights of its own,
    which a checkpoint keeps in training_weights.safetensors. A resumed run is the same to the bit.

    Args:
        decay: What the mean keeps of itself at each step, e.g. 0.999: about the last 1000 steps.
        checkpoint: Directory that the training is resumed from, if it is not in `output_dir` and
            not named by `TrainingArguments.resume_from_checkpoint`.

    Raises:
        ValueError: If `decay` is not in (0, 1); when the training begins, if weights are not
            float32 or are spread over processes, if a resumed checkpoint holds no running mean, or
            with `enable_jit_checkpoint`, whose checkpoints would hold none.
    """

    def __init__(self, decay: float, checkpoint: str | Path | None = None) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"`decay` is {decay}: it must be between 0 and 1, e.g. 0.999.")
        self.decay, self.checkpoint = decay, checkpoint
        self._names: list[str] = []
        self._weights = nn.ParameterList()
        self._other = AveragedModel(self._weights)  # the mean, or while that is in use the weights
        self._in_use = False  # whether the model holds the mean
        self._saved_step = -1

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Starts from the model, or goes on from a checkpoint; called by Trainer."""
        refuse_spread_weights("ExponentialMovingAverage", "train without it")
        if getattr(args, "enable_jit_checkpoint", False):
            raise ValueError(
                "`enable_jit_checkpoint` saves without telling ExponentialMovingAverage, and could "
                "not be resumed: leave one of them out."
            )
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if low := sorted(name for name, p in named.items() if p.dtype != torch.float32):
            raise ValueError(
                f"A running mean needs float32 weights, {low[0]} is {named[low[0]].dtype}: load "
                "the model in float32 (bf16=True trains it in bfloat16 all the same)."
            )
        self._names, self._weights = list(named), nn.ParameterList(named.values())
        self._other = AveragedModel(
            self._weights, multi_avg_fn=get_ema_multi_avg_fn(self.decay), use_buffers=False
        )
        self._in_use, self._saved_step = False, -1
        if state.global_step:
            self._resume(self._checkpoint_of(args, state))

    def _checkpoint_of(self, args: TrainingArguments, state: TrainerState) -> Path:
        named = self.checkpoint or args.resume_from_checkpoint
        if named is not None and Path(named).is_dir():
            return Path(named)
        return _checkpoint_path(args, state)

    def _resume(self, checkpoint: Path) -> None:
        """Reads the weights in training; the model, as loaded, holds the mean."""
        path = checkpoint / _RAW_WEIGHTS
        if not path.is_file():
            raise ValueError(
                f"{str(path)!r} does not exist: give ExponentialMovingAverage the `checkpoint` "
                "that the training is resumed from; one that was saved without it cannot be used."
            )
        saved = load_file(path)
        with torch.no_grad():
            for name, parameter in zip(self._names, self._means(), strict=True):
                parameter.copy_(saved[name])
        self._other.n_averaged.fill_(1)  # or the next step would begin a new mean
        self._in_use = True

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Gives the model its weights in training back; called by Trainer."""
        if self._in_use:
            self._swap()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Moves the mean, and gives it to the model for what follows; called by Trainer."""
        self._other.update_parameters(self._weights)
        self.on_epoch_end(args, state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Gives the model the mean if it is evaluated or saved now; called by Trainer."""
        if (control.should_evaluate or control.should_save) and not self._in_use:
            self._swap()
        if control.should_save:
            self._save(args, state)

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Completes a checkpoint that an evaluation or a later callback called for."""
        if not self._in_use:
            self._swap()
            if args.should_save:
                model.save_pretrained(_checkpoint_path(args, state))
        self._save(args, state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leaves the mean in the model, or the best one that Trainer loaded; called by Trainer."""
        best_is_loaded = args.load_best_model_at_end and state.best_model_checkpoint is not None
        if not self._in_use and not best_is_loaded:
            self._swap()

    def _means(self) -> list[torch.Tensor]:
        return list(self._other.module.parameters())

    def _swap(self) -> None:
        with torch.no_grad():
            for weight, other in zip(self._weights, self._means(), strict=True):
                kept = weight.clone()
                weight.copy_(other)
                other.copy_(kept)
        self._in_use = not self._in_use

    def _save(self, args: TrainingArguments, state: TrainerState) -> None:
        """Writes the weights in training, before Trainer's own files make a checkpoint complete."""
        if not args.should_save or self._saved_step == state.global_step:
            return
        self._saved_step = state.global_step
        path = _checkpoint_path(args, state) / _RAW_WEIGHTS
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {name: p.contiguous() for name, p in zip(self._names, self._means(), strict=True)}
        save_file(tensors, path, metadata={"format": "pt"})


def _checkpoint_path(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir), f"checkpoint-{state.global_step}")
