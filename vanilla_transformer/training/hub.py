"""Makes the pushes of a training complete, and keeps pickle files out of them."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.dynamic_module_utils import custom_object_save

PICKLES = ("*.bin", "*.ckpt", "*.joblib", "*.pickle", "*.pkl", "*.pt", "*.pth")
"""Patterns of file names that may hold pickled objects, such as Trainer's `training_args.bin`."""


class CompletePushes(TrainerCallback):
    """Adds the model's code to what Trainer pushes while it trains, and excludes pickle files.

    For a checkpoint, Trainer pushes weights and config without the code that they need, and with
    `training_args.bin`, a pickle file that holds all arguments, including the token of the Hub.
    Before each push, this callback saves the code to the output directory, and a `.gitignore` that
    the Hub respects.
    """

    def on_push_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Completes the output directory; called by Trainer before it collects files to push."""
        if not state.is_world_process_zero:
            return
        folder = Path(str(args.output_dir))
        model = kwargs["model"]
        custom_object_save(getattr(model, "module", model), folder)
        ignored = folder / ".gitignore"
        rules = ignored.read_text(encoding="utf-8").splitlines() if ignored.is_file() else []
        rules += [rule for rule in PICKLES if rule not in rules]
        ignored.write_text("\n".join(rules) + "\n", encoding="utf-8")
