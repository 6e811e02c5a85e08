"""Chooses the checkpoint that a training resumes from, and checks that it is whole."""

from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging

from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.training.checkpoints import (
    TRAINER_STATE,
    is_complete,
    numbered_checkpoints,
)
from vanilla_transformer.training.checksums import CHECKSUMS, changed_files
from vanilla_transformer.training.training_record import read_record, younger_checkpoint

logger = logging.get_logger(__name__)

TRAINING_WEIGHTS = "training_weights.safetensors"
"""File of a checkpoint with the training weights, where the model is a running mean."""

_WEIGHTS = ("model.safetensors", "adapter_model.safetensors")


@dataclass(frozen=True)
class ResumptionNeeds:
    """What a training needs of the checkpoint that it resumes from.

    Attributes:
        has_mean: Whether the training keeps a running mean of the weights.
        scales_loss: Whether the training scales its loss (fp16 on a device).
        num_processes: Number of processes.
    """

    has_mean: bool = False
    scales_loss: bool = False
    num_processes: int = 1


def newest_checkpoint(run: str | Path, needs: ResumptionNeeds) -> Path | None:
    """Returns the checkpoint that continues a run.

    Checkpoints that lack files, or whose files are not as they were saved, are passed over with a
    warning.

    Args:
        run: Output directory of the run.
        needs: What the training needs of a checkpoint.

    Returns:
        The whole checkpoint with the highest number; None: the run has written none yet.

    Raises:
        ValueError: If checkpoints were written, but none is whole; if a younger checkpoint has a
            lower number and belongs to another training; or if the newest one does not fit `needs`.
    """
    whole, lacking = list[Path](), ""
    for path in numbered_checkpoints(run):
        if missing := missing_files(path, needs):
            if is_complete(path) or (path / CHECKSUMS).is_file():
                lacking = _lacking_message(path, missing)
            logger.warning(f"{_lacking_message(path, missing)} It is passed over.")
        else:
            whole.append(path)
    while whole and (changed := changed_files(whole[-1])):
        lacking = _damage_message(whole.pop(), changed)
        logger.warning(f"{lacking} It is passed over.")
    if not whole:
        if lacking:
            raise ValueError(f"{lacking} {_REMEDY}")
        return None
    highest = whole[-1]
    if (younger := younger_checkpoint(whole)) is not None:
        raise ValueError(
            f"{younger.name} in {str(run)!r} is younger than {highest.name} and belongs to "
            "another training, so the newest checkpoint is not certain: name the one to "
            f"continue, e.g. `--resume_from_checkpoint {younger}`, or move the others away."
        )
    _check_mean(highest, needs)
    return highest


_REMEDY = (
    "A training cannot resume from it: use an earlier checkpoint, or train its model further, in "
    "another directory, with `--model_name_or_path`."
)


def check_checkpoint(checkpoint: str | Path, needs: ResumptionNeeds) -> None:
    """Refuses a checkpoint from which a training cannot resume exactly.

    Args:
        checkpoint: Directory of the checkpoint.
        needs: What the training needs of it.

    Raises:
        FileNotFoundError: If the directory does not exist.
        ValueError: If a file is missing or is not as it was saved, or the model is a running mean
            and the training keeps none.
    """
    path = Path(checkpoint)
    if not path.is_dir():
        raise FileNotFoundError(
            f"`resume_from_checkpoint` {str(path)!r} does not exist: check the path, or give "
            "`True` for the newest checkpoint."
        )
    if missing := missing_files(path, needs):
        raise ValueError(f"{_lacking_message(path, missing)} {_REMEDY}")
    if changed := changed_files(path):
        raise ValueError(f"{_damage_message(path, changed)} {_REMEDY}")
    _check_mean(path, needs)


def missing_files(checkpoint: Path, needs: ResumptionNeeds) -> list[str]:
    """Lists the files that a checkpoint lacks for an exact resumption.

    A checkpoint of another number of processes may be resumed from: a warning says that the
    training then differs.

    Args:
        checkpoint: Directory of the checkpoint.
        needs: What the training needs of it.

    Returns:
        Names of files; empty if the checkpoint is whole.
    """
    missing = [] if is_complete(checkpoint) else [f"{TRAINER_STATE} (written last)"]
    if any(checkpoint.glob("global_step*")):  # DeepSpeed keeps all else in a folder of its own
        return missing
    missing += _missing_weights(checkpoint)
    if not any(checkpoint.glob("optimizer*")):
        missing.append("optimizer.pt")
    wanted = ["scheduler.pt", *_random_state_names(checkpoint, needs.num_processes)]
    wanted += ["scaler.pt"] if needs.scales_loss else []
    wanted += read_record(checkpoint).get("files", [])  # also those that deleting has begun with
    missing += [name for name in wanted if not (checkpoint / name).is_file()]
    if needs.has_mean and not (checkpoint / TRAINING_WEIGHTS).is_file():
        missing.append(f"{TRAINING_WEIGHTS} (its training kept no running mean)")
    return list(dict.fromkeys(missing))


def _missing_weights(checkpoint: Path) -> list[str]:
    index = checkpoint / f"{_WEIGHTS[0]}.index.json"
    if index.is_file():
        try:
            shards = set(read_object(index)["weight_map"].values())
        except (ValueError, KeyError, AttributeError):
            return [index.name]
        return sorted(name for name in shards if not (checkpoint / name).is_file())
    if any((checkpoint / name).is_file() for name in _WEIGHTS):
        return []
    return [] if any(checkpoint.glob("pytorch_model_fsdp*")) else [_WEIGHTS[0]]


def _random_state_names(checkpoint: Path, num_processes: int) -> list[str]:
    """Returns the files that should hold the states of the random numbers."""
    saved_by = read_record(checkpoint).get("num_processes", num_processes)
    if saved_by != num_processes:
        logger.warning(
            f"{str(checkpoint)!r} was saved by {saved_by} processes and is resumed by "
            f"{num_processes}: the training differs from an uninterrupted one."
        )
    if saved_by == 1:
        return ["rng_state.pth"]
    return [f"rng_state_{index}.pth" for index in range(saved_by)]


def _check_mean(checkpoint: Path, needs: ResumptionNeeds) -> None:
    """Refuses to train the running mean on with the state that belongs to other weights."""
    if (checkpoint / TRAINING_WEIGHTS).is_file() and not needs.has_mean:
        raise ValueError(
            f"The model in {str(checkpoint)!r} is a running mean of the weights: resume with the "
            "`--ema_decay` of its training, or train the mean further, in another directory, with "
            "`--model_name_or_path`."
        )


def _lacking_message(checkpoint: Path, missing: list[str]) -> str:
    return f"{str(checkpoint)!r} is an incomplete checkpoint: it lacks {', '.join(missing)}."


def _damage_message(checkpoint: Path, changed: list[str]) -> str:
    return (
        f"{str(checkpoint)!r} is a damaged checkpoint: after it was saved, {', '.join(changed)} "
        f"changed (delete {CHECKSUMS} if you made the change)."
    )
