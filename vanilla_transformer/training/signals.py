"""A checkpoint when the process is asked to end (`enable_jit_checkpoint`)."""

import signal
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_jit_checkpoint import CheckpointManager


class CheckpointOnSignal(TrainerCallback):
    """Saves a checkpoint at the end of the step in which SIGTERM arrives, and stops.

    The callback of transformers may save before a step has ended, when random numbers for this step
    are already drawn; its resumed training then differs. This one asks the Trainer for a checkpoint
    of the usual kind. With several processes, one signal stops all of them at the same step.

    Args:
        manager: Receives the signal, for transformers.

    Attributes:
        has_stopped: Whether the signal has ended the training.
    """

    def __init__(self, manager: CheckpointManager) -> None:
        self.jit_manager = manager
        self.has_stopped = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Forgets an earlier signal; called by Trainer."""
        self.has_stopped = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Asks for a checkpoint, and for the end of the training; called by Trainer."""
        asked = torch.tensor(float(self.jit_manager.is_checkpoint_requested), device=args.device)
        if args.world_size > 1:
            torch.distributed.all_reduce(asked)
        if asked:
            self.has_stopped = control.should_save = control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restores the handler of the signal; called by Trainer."""
        self.jit_manager.is_checkpoint_requested = False
        handler = self.jit_manager._original_sigterm_handler
        if handler is not None:
            signal.signal(signal.SIGTERM, handler)
