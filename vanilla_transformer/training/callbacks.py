"""Short callbacks of a training: early stopping that resumes, and the epochs of subwords."""

from typing import Any, cast

from transformers import (
    EarlyStoppingCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from vanilla_transformer.data.subwords import SampledSubwords


class EarlyStopping(EarlyStoppingCallback):
    """Stops a training without progress, as in transformers; the count survives an interruption.

    A resumed run uses its own patience, which may differ from that of the interrupted run. A run
    that had already stopped trains no further step.

    Args:
        early_stopping_patience: Number of evaluations without a better score before the training
            stops.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begins a count, or restores that of the checkpoint; called by Trainer."""
        super().on_train_begin(args, state, control, **kwargs)  # type: ignore[no-untyped-call]
        self.early_stopping_patience_counter = 0  # a Trainer may train several times
        counts = cast("dict[str, Any]", state.stateful_callbacks)
        # Earlier versions saved the count under the name of the base class.
        saved = counts.get(type(self).__name__, counts.get("EarlyStoppingCallback"))
        if state.global_step and isinstance(saved, dict):
            count = saved["attributes"]["early_stopping_patience_counter"]
            self.early_stopping_patience_counter = count
        counts[type(self).__name__] = self.state()
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True


class SubwordEpochs(TrainerCallback):
    """Passes the epoch of the training on to `SampledSubwords`.

    Args:
        rows: Training set of the Trainer.
    """

    def __init__(self, rows: SampledSubwords) -> None:
        self.rows = rows

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Sets the epoch; called by Trainer."""
        self.rows.set_epoch(int(state.epoch or 0))
