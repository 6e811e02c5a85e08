"""Measures the peak memory of a training step and of `generate()`; `benchmark.py memory` runs it.

Each measurement has a process of its own, because a process never gives its peak back.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark_models import GENERATING, TRAINED, load_system, save_system
from benchmark_reports import (
    Bars,
    current_memory,
    forget_peak,
    peak_memory,
    run_benchmark,
    shares_of_first,
)
from generation_speed import generator_of, make_sources
from training_speed import measure_step_memory

PARTS = {"train": TRAINED, "generate": GENERATING}


def measure_part(options: argparse.Namespace) -> dict[str, float]:
    """Measures the one system that this process is for.

    Args:
        options: From the command line. `memory_of` names the part and the system, and for
            "generate" the directory of the saved system.

    Returns:
        In MiB: `added` to the loaded model, and the `peak` of the whole process.
    """
    part, system, folder = options.memory_of
    if part == "train":
        return measure_step_memory(system, options.kind, options)
    generate = generator_of(load_system(system, Path(folder), options), options)
    ids, mask = make_sources(options.rows, options)
    generate(ids[:1], mask[:1], 1)  # weights come from the file when they are first used
    before, peak_of_loading = current_memory(), peak_memory()
    forget_peak()
    generate(ids, mask, options.beams)
    return {"added": peak_memory() - before, "peak": max(peak_memory(), peak_of_loading)}


def measure_peaks(part: str, options: argparse.Namespace, argv: Sequence[str]) -> dict[str, Any]:
    """Measures each system of a part in turn.

    Returns:
        The `part`, and medians in MiB by system: `added` to the loaded model, and the `peak` of
        the whole process.
    """
    systems = [system for system in options.systems if system in PARTS[part]]
    runs: dict[str, list[dict[str, float]]] = {system: [] for system in systems}
    with tempfile.TemporaryDirectory() as folder:
        if part == "generate":
            for system in systems:
                save_system(system, options, Path(folder, system))
        for _ in range(options.repeats):
            for system, done in runs.items():
                task = ("--memory-of", part, system, str(Path(folder, system)))
                done.append(json.loads(run_benchmark(*argv, *task)))
    medians = {
        name: {
            system: statistics.median(run[name] for run in done) for system, done in runs.items()
        }
        for name in ("added", "peak")
    }
    return {"part": part, **medians}


def format_peaks(result: dict[str, Any]) -> str:
    """Formats the result of `measure_peaks`.

    Returns:
        A line per system. Ratios are relative to the first system; less is better.
    """
    title = {"train": "a training step", "generate": "generate()"}[result["part"]]
    lines = [f"peak memory of {title}: added to the loaded model, and of the process"]
    added, peak = shares_of_first(result["added"]), shares_of_first(result["peak"])
    for system, own in result["added"].items():
        whole = f"{result['peak'][system]:8.0f} MiB  x{peak[system]:.2f}"
        lines.append(f"  {system:17}{own:8.0f} MiB  x{added[system]:.2f}  {whole}")
    return "\n".join(lines)


def bars_of_peaks(result: dict[str, Any]) -> Bars:
    """Returns the ratios of a result, for the picture."""
    part = result["part"]
    return {
        f"{part}, added": shares_of_first(result["added"]),
        f"{part}, process": shares_of_first(result["peak"]),
    }
