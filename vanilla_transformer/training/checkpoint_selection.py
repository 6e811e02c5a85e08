"""Selects checkpoints of a run: the last ones, or the ones with the best validation scores."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from vanilla_transformer.training.checkpoints import TRAINER_STATE, checkpoint_step, checkpoints
from vanilla_transformer.training.metrics import METRICS


def last_checkpoints(run: str | Path, count: int) -> list[Path]:
    """Selects the newest checkpoints of a run, the oldest of the selected first.

    Args:
        run: Output directory of the run.
        count: Number of checkpoints.

    Raises:
        ValueError: If `count` is below 1, or the run has fewer checkpoints.
    """
    found = checkpoints(run)
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
        ValueError: If `count` is below 1, the run has fewer checkpoints with a score, or the
            direction is unknown.
    """
    found = checkpoints(run)
    log: list[dict[str, float]] = []
    if found:  # the newest checkpoint holds the log of all earlier steps
        state = json.loads((found[-1] / TRAINER_STATE).read_text(encoding="utf-8"))
        log = state["log_history"]
    scored = sort_by_score(found, log, metric, greater_is_better)
    available = f"{str(run)!r} holds {len(scored)} checkpoints with a score {metric!r}"
    _check_count(count, len(scored), available)
    return scored[-count:]


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
