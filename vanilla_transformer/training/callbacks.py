"""Callbacks of a training: early stopping, epochs of subwords, signals, pushes, overwriting."""

import signal
from math import inf
from pathlib import Path
from typing import Any, cast

import torch
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerState
from transformers.dynamic_module_utils import custom_object_save
from transformers.trainer_jit_checkpoint import CheckpointManager

from vanilla_transformer.batches.subwords import SampledSubwords
from vanilla_transformer.files.atomic_files import LOCK
from vanilla_transformer.training.metrics import deciding_scores, scores_by_step
from vanilla_transformer.training.store import FILE_SIZES, TRAINER_STATE, OutputDirectory


class EarlyStopping(EarlyStoppingCallback):
    """Stops a training without progress, as in transformers; the count survives an interruption.

    A metric that tells nothing does not stop it: then a better chrF (see `deciding_scores`) and a
    lower loss are progress.

    A resumed run uses its own patience, which may differ from the patience of the interrupted run.
    A run that had already stopped trains no further step.
    """

    _first_step = 0  # of the training, whose evaluation by `eval_on_start` judges no step of it

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begins a count, or restores the checkpoint's; called by Trainer."""
        super().on_train_begin(args, state, control, **kwargs)  # type: ignore[no-untyped-call]
        self.early_stopping_patience_counter = 0  # a Trainer may train several times
        self._first_step = state.global_step
        counts, name = state.stateful_callbacks, type(self).__name__
        if state.global_step and isinstance(saved := counts.get(name), dict):
            count = saved["attributes"]["early_stopping_patience_counter"]
            self.early_stopping_patience_counter = count
        counts[name] = self.state()
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True

    def check_metric_value(self, args: Any, state: TrainerState, *_: Any) -> None:
        """Counts the evaluations in a row without a better score; called on each evaluation."""
        if state.global_step == self._first_step:
            return
        watched = str(args.metric_for_best_model).removeprefix("eval_")
        name, scores = deciding_scores(state.log_history, watched, args.greater_is_better)
        followed = [scores]
        if name != watched:
            followed.append(scores_by_step(state.log_history, "loss", -1))
        threshold = cast(float, self.early_stopping_threshold)
        is_better = any(
            scores.pop(state.global_step, -inf) > max(scores.values(), default=-inf) + threshold
            for scores in followed
        )
        count = self.early_stopping_patience_counter
        self.early_stopping_patience_counter = 0 if is_better else count + 1


class SubwordEpochs(TrainerCallback):
    """Passes the epoch of the training on to `SampledSubwords`."""

    def __init__(self, rows: SampledSubwords) -> None:
        self.rows = rows

    def on_epoch_begin(self, args: Any, state: TrainerState, *_: Any, **__: Any) -> None:
        """Sets the epoch; called by Trainer."""
        self.rows.set_epoch(int(state.epoch or 0))


class CheckpointOnSignal(TrainerCallback):
    """Saves a checkpoint at the end of the step in which SIGTERM arrives, and stops.

    The callback of transformers may save before a step has ended, when random numbers for this step
    are already drawn; its resumed training then differs. This one asks the Trainer for a checkpoint
    of the usual kind. With several processes, one signal stops all of them at the same step.
    """

    def __init__(self, manager: CheckpointManager) -> None:
        self.jit_manager = manager
        self.has_stopped = False

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Forgets an earlier signal; called by Trainer."""
        self.has_stopped = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Asks for a checkpoint, and for the end of the training; called by Trainer."""
        asked = torch.tensor(float(self.jit_manager.is_checkpoint_requested), device=args.device)
        if args.world_size > 1:
            torch.distributed.all_reduce(asked)
        if asked:
            self.has_stopped = control.should_save = control.should_training_stop = True

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Restores the handler of the signal; called by Trainer."""
        self.jit_manager.is_checkpoint_requested = False
        handler = self.jit_manager._original_sigterm_handler
        if handler is not None:
            signal.signal(signal.SIGTERM, handler)


PICKLES = ("*.bin", "*.ckpt", "*.joblib", "*.pickle", "*.pkl", "*.pt", "*.pth")
"""Patterns of file names that may hold pickled objects, such as Trainer's `training_args.bin`."""


class CompletePushes(TrainerCallback):
    """Adds the model's code to the pushes of Trainer while it trains, and excludes pickle files.

    For a checkpoint, Trainer pushes weights and config without the code that they need, and with
    `training_args.bin`, a pickle file that holds all arguments, including the token of the Hub.
    Before each push, this callback saves the code to the output directory, and a `.gitignore` that
    the Hub respects.
    """

    def on_push_begin(self, args: Any, state: TrainerState, *_: Any, **given: Any) -> None:
        """Completes the output directory; called by Trainer before it collects files to push."""
        if not state.is_world_process_zero:
            return
        folder, model = Path(str(args.output_dir)), given["model"]
        custom_object_save(getattr(model, "module", model), folder)
        ignored = folder / ".gitignore"
        rules = ignored.read_text(encoding="utf-8").splitlines() if ignored.is_file() else []
        rules += [rule for rule in PICKLES if rule not in rules]
        ignored.write_text("\n".join(rules) + "\n", encoding="utf-8")


class OverwriteGuard(TrainerCallback):
    """Deletes the former contents of a directory, but not before a run replaces them.

    The files are deleted when the first training step begins, or by `delete`: a process that is
    killed before then leaves them as they were.
    """

    def __init__(self, directory: OutputDirectory, is_main: bool) -> None:
        overwrites = is_main and directory.overwritten
        former = directory.folder.rglob("*") if overwrites else ()
        self._former = [path for path in former if path.name != LOCK]

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Deletes the contents, because all checks have passed; called by Trainer."""
        self.delete()

    def delete(self) -> None:
        """Deletes the former contents for good, and keeps files that the run has added since."""
        # Checkpoints first lose the files that complete them: none is ever resumed by mistake.
        # Folders come after their contents.
        last = (FILE_SIZES, TRAINER_STATE)
        self._former.sort(key=lambda path: (path.name not in last, -len(path.parts)))
        for path in self._former:
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            else:
                path.unlink(missing_ok=True)
        self._former = []
