"""Pushing a run to the Hub: complete, and without a pickle file."""

from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi
from transformers import TrainerCallback
from transformers.dynamic_module_utils import custom_object_save

PICKLES = ("*.bin", "*.ckpt", "*.joblib", "*.pickle", "*.pkl", "*.pt", "*.pth")
"""Names of files that may hold pickled objects: Trainer's `training_args.bin` is one."""

_NOT_SHARED = ("_*", "checkpoint-*")
_STRATEGIES = ("end", "every_save")


class CompletePushes(TrainerCallback):
    """Completes what Trainer pushes while it trains, and keeps pickle files out.

    For a checkpoint Trainer pushes weights and config without the code that they need, and with
    `training_args.bin`, a pickle file that holds all arguments (the Hub's token among them). Before
    each push this callback puts the code into the output directory, and a `.gitignore` that the
    Hub respects.
    """

    def on_push_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by Trainer before it gathers the files of a push.

        Args:
            args: Arguments of the training.
            state: Its state.
            control: Not used.
            **kwargs: The `model`, and more.
        """
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir)
        model = kwargs["model"]
        custom_object_save(getattr(model, "module", model), folder)
        ignored = folder / ".gitignore"
        rules = ignored.read_text(encoding="utf-8").splitlines() if ignored.is_file() else []
        rules += [rule for rule in PICKLES if rule not in rules]
        ignored.write_text("\n".join(rules) + "\n", encoding="utf-8")


def check_hub_strategy(training: Any) -> None:
    """Refuses what would push pickle files.

    Args:
        training: The training arguments.

    Raises:
        ValueError: If whole checkpoints shall be pushed.
    """
    strategy = getattr(training.hub_strategy, "value", training.hub_strategy)
    if training.push_to_hub and strategy not in _STRATEGIES:
        raise ValueError(
            f"`hub_strategy` {strategy!r} would push the state of the optimizer, which is a pickle "
            f"file: use one of {', '.join(_STRATEGIES)} and keep checkpoints in `output_dir`."
        )


def push_directory(
    folder: str | Path,
    repo_id: str,
    *,
    token: str | None = None,
    revision: str | None = None,
    message: str = "End of training",
) -> CommitInfo:
    """Pushes a finished run; pickle files stay here, and those on the Hub are deleted.

    Args:
        folder: Output directory of the run.
        repo_id: Name of a repository that exists.
        token: Token of the Hub; None: the saved one.
        revision: Branch; None: the main one.
        message: Of the commit.

    Returns:
        What the Hub says of the commit.
    """
    return HfApi().upload_folder(
        repo_id=repo_id,
        folder_path=folder,
        commit_message=message,
        token=token,
        revision=revision,
        ignore_patterns=[*PICKLES, *_NOT_SHARED],
        delete_patterns=list(PICKLES),
    )
