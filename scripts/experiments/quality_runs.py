"""Clocks and scores the checkpoints of one training, in a process; for `time_to_quality.py`.

The clock is the processor time of the process and its children, with their imports. Scoring comes
after the training and costs it nothing.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import vanilla_transformer  # noqa: F401 - registers the Auto classes
from vanilla_transformer.commands.train import ENVIRONMENT
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.training.metrics import score_texts

HERE = Path(__file__).parent
_POLL_SECONDS = 0.2


def completed_checkpoints(run: Path) -> list[int]:
    """Returns the steps of the complete checkpoints of a run, in order."""
    states = run.glob("checkpoint-*/trainer_state.json")  # the file that is written last
    return sorted(int(path.parent.name.removeprefix("checkpoint-")) for path in states)


@dataclass(frozen=True)
class HeldOut:
    """The texts on which checkpoints are scored.

    Attributes:
        references: One or several references of each.
        metric: One of `names.METRIC_NAMES`.
        max_length: Longest output in tokens.
    """

    sources: list[str]
    references: list[list[str]]
    metric: str
    num_beams: int
    max_length: int

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric counts errors."""
        return self.metric in ERROR_RATES

    def reaches(self, score: float, target: float) -> bool:
        """Whether a score is as good as the target."""
        return score <= target if self.lower_is_better else score >= target

    @property
    def search(self) -> dict[str, Any]:
        """Arguments of `generate`: the same for all systems, whatever was saved with a model."""
        of_beams = {"early_stopping": True, "length_penalty": 1.0}
        return {
            "num_beams": self.num_beams,
            "max_length": self.max_length,
            "do_sample": False,
            **(of_beams if self.num_beams > 1 else {}),
        }

    def score(self, outputs: Sequence[str]) -> float:
        """Scores an output for each source, in percent."""
        return float(score_texts(self.metric, outputs, self.references)[self.metric])


@dataclass(frozen=True)
class Curve:
    """Scores of one system over processor time.

    Attributes:
        seconds: Processor seconds at each checkpoint.
        total_seconds: Processor seconds of the whole training.
    """

    system: str
    seconds: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    total_seconds: float = 0.0

    def seconds_to(self, target: float, held_out: HeldOut) -> float | None:
        """Returns the processor seconds of the first checkpoint that reaches a score."""
        for seconds, score in zip(self.seconds, self.scores, strict=True):
            if held_out.reaches(score, target):
                return seconds
        return None


def run_clocked(
    command: Sequence[str],
    folder: Path,
    threads: int,
) -> dict[int, float]:
    """Runs a training, and notes its processor time whenever a checkpoint is complete.

    The result is kept in `folder/clock.json`, which a second call returns.

    Args:
        command: Program and arguments. It saves checkpoints in `folder/run`.

    Returns:
        Processor seconds by step; those of the whole training under the step -1.

    Raises:
        RuntimeError: If the process fails, or the folder holds a training that was stopped.
    """
    record = folder / "clock.json"
    if record.is_file():
        known = json.loads(record.read_text(encoding="utf-8"))
        return {int(step): seconds for step, seconds in known.items()}
    if completed_checkpoints(folder / "run"):
        raise RuntimeError(f"{folder} holds a training that was stopped: delete the folder.")
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        **ENVIRONMENT,  # as `vanilla-transformer train` sets it for its own training
    }
    seconds: dict[int, float] = {}
    before = children_seconds()
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        watched = psutil.Process(process.pid)
        try:
            while process.poll() is None:
                spent = _processor_seconds(watched, seconds)
                for step in completed_checkpoints(folder / "run"):
                    seconds.setdefault(step, spent)
                seconds[-1] = spent
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()  # where this program is interrupted
            process.wait()
    seconds[-1] = children_seconds() - before  # with what came after the last look
    for step in completed_checkpoints(folder / "run"):
        seconds.setdefault(step, seconds[-1])
    if process.returncode:
        tail = (folder / "log.txt").read_text(encoding="utf-8")[-2000:]
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}: {tail}")
    record.write_text(json.dumps(seconds), encoding="utf-8")
    return seconds


def children_seconds() -> float:
    """Returns the processor time of all processes that this one, or its children, waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _processor_seconds(process: psutil.Process, seconds: dict[int, float]) -> float:
    """Returns the processor time of a process and its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # it has just ended
        return seconds.get(-1, 0.0)
    return times.user + times.system + times.children_user + times.children_system


def score_checkpoints(
    system: str,
    folder: Path,
    clock: dict[int, float],
    held_out: HeldOut,
) -> Curve:
    """Returns the curve of a run's checkpoints; scores are kept in `folder/scores.json`."""
    record = folder / "scores.json"
    known: dict[str, float] = json.loads(record.read_text()) if record.is_file() else {}
    curve = Curve(system, total_seconds=clock[-1])
    search = f"{held_out.metric} {json.dumps(held_out.search)}"
    for step in sorted(step for step in clock if step >= 0):
        key = f"{step} {search}"
        if key not in known:
            known[key] = score_model(folder / "run" / f"checkpoint-{step}", held_out)
            record.write_text(json.dumps(known), encoding="utf-8")
            print(f"{system}, step {step}: {held_out.metric} {known[key]:.2f}", file=sys.stderr)
        curve.steps.append(step)
        curve.seconds.append(clock[step])
        curve.scores.append(known[key])
    return curve


def score_model(path: Path, held_out: HeldOut) -> float:
    """Scores a saved model of transformers, ours among them, with the search of `held_out`."""
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    translator = Translator.from_model(model, tokenizer)
    return held_out.score(translator.translate(held_out.sources, **held_out.search))
