"""Selects checkpoints of a run: the last ones, or the ones with the best validation scores."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from vanilla_transformer.training.checkpoints import (
    checkpoint_step,
    checkpoints,
    read_trainer_state,
)
from vanilla_transformer.training.metrics import METRICS
from vanilla_transformer.training.training_record import (
    of_one_training,
    read_record,
    written_at,
    younger_checkpoint,
)


def last_checkpoints(run: str | Path, count: int) -> list[Path]:
    """Selects the newest checkpoints of a training, the oldest of the selected first.

    Checkpoints that an abandoned training has left in the directory do not count.

    Args:
        run: Output directory of the run.
        count: Number of checkpoints.

    Raises:
        ValueError: If `count` is below 1, the training has fewer checkpoints, or it is not certain
            which checkpoints belong to it.
    """
    found = training_checkpoints(run)
    _check_count(count, len(found), f"{str(run)!r} holds {len(found)} checkpoints")
    return found[-count:]


def best_checkpoints(
    run: str | Path, count: int, metric: str = "loss", greater_is_better: bool | None = None
) -> list[Path]:
    """Selects the checkpoints of a run with the best validation scores, the best last.

    Args:
        run: Output directory of the run. Checkpoints that were not evaluated do not count.
        count: Number of checkpoints.
        metric: Name of the score, with or without "eval_". Of equal scores, the later checkpoint
            is better.
        greater_is_better: Direction of the score. None: the direction is known for losses and for
            the metrics of this package.

    Raises:
        ValueError: If `count` is below 1, the training has fewer checkpoints with a score, the
            direction is unknown, or it is not certain which checkpoints belong to the training.
    """
    found = training_checkpoints(run)
    log: list[dict[str, float]] = []
    if found:  # the newest checkpoint holds the log of all earlier steps
        log = read_trainer_state(found[-1]).get("log_history", [])
    scored = sort_by_score(found, log, metric, greater_is_better)
    available = f"{str(run)!r} holds {len(scored)} checkpoints with a score {metric!r}"
    _check_count(count, len(scored), available)
    return scored[-count:]


def training_checkpoints(run: str | Path) -> list[Path]:
    """Lists the checkpoints of the newest training of a run, the oldest first.

    A training that is resumed from an earlier checkpoint leaves those of the abandoned training in
    the directory; they are not listed.

    Args:
        run: Output directory of the run.

    Raises:
        ValueError: If a younger checkpoint has a lower number and belongs to another training than
            the one with the highest number.
    """
    found = checkpoints(run)
    if not found:
        return []
    processes = read_record(Path(run)).get("processes", [])  # of the training that was finished
    ended = of_one_training(found, processes) if processes else []
    if ended and max(found, key=written_at) in ended:
        return ended
    if (path := younger_checkpoint(found)) is not None:
        raise ValueError(
            f"{path.name} in {str(run)!r} is younger than {found[-1].name} and belongs to another "
            "training: name the checkpoints to average one by one, or move the others away."
        )
    return of_one_training(found, read_record(found[-1]).get("processes", []))


def sort_by_score(
    found: Sequence[Path],
    log: Sequence[Mapping[str, float]],
    metric: str,
    greater_is_better: bool | None = None,
) -> list[Path]:
    """Sorts the checkpoints that have a finite score, the best last.

    Args:
        found: Checkpoints of one run.
        log: Log of the run: one mapping per entry, with the step under "step".
        metric: Name of the score, with or without "eval_". Of equal scores, the later checkpoint
            is better.
        greater_is_better: Direction of the score. None: the direction is known for losses and for
            the metrics of this package.

    Raises:
        ValueError: If the direction is unknown.
    """
    logged, name = f"eval_{metric.removeprefix('eval_')}", metric.rpartition("_")[2]
    if greater_is_better is None:
        if name != "loss" and name not in METRICS:
            raise ValueError(
                f"The direction of `metric` {metric!r} is unknown: say whether greater is better."
            )
        greater_is_better = name != "loss" and not METRICS[name].lower_is_better
    sign = 1 if greater_is_better else -1
    scores = {
        int(entry["step"]): sign * entry[logged]
        for entry in log
        if logged in entry and math.isfinite(entry[logged])
    }
    scored = [path for path in found if checkpoint_step(path) in scores]
    return sorted(scored, key=lambda path: (scores[checkpoint_step(path)], checkpoint_step(path)))


def _check_count(count: int, found: int, available: str) -> None:
    if count < 1:
        raise ValueError(f"`count` is {count}: select at least 1 checkpoint.")
    if found < count:
        raise ValueError(
            f"{available}, not {count}: ask for fewer, or keep more while training (`save_steps`, "
            "`save_total_limit`)."
        )
