"""What all parts of `benchmark.py` share: turns, memory, limits of the machine, files."""

import argparse
import gc
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers


def time_in_turns(
    actions: dict[str, Callable[[], Any]], repeats: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Returns the seconds of several actions, timed one after the other in each turn.

    As in `timeit`, no garbage is collected while the clock runs: a collection takes as long as many
    texts do, and falls on one action or another by chance. What is in memory before is frozen: the
    collections before each turn pass it over.

    Args:
        actions: Actions by name. Each runs once before the clock starts.
        clock: Returns seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    gc.freeze()
    for repeat in range(repeats + 1):
        for name, action in actions.items():
            gc.collect()
            gc.disable()
            try:
                start = clock()
                action()
                taken = clock() - start
            finally:
                gc.enable()
            if repeat:
                times[name].append(taken)
    gc.unfreeze()
    return times


def ratios_to_first(times: dict[str, list[float]]) -> dict[str, list[float]]:
    """Divides the first action's seconds by those of each action, turn by turn."""
    first = next(iter(times.values()))
    return {
        name: [base / seconds for base, seconds in zip(first, taken, strict=True)]
        for name, taken in times.items()
    }


def speeds_of(times: dict[str, list[float]], amount: int, unit: str) -> dict[str, Any]:
    """Returns speed, speed-up over the first action and its spread, from `time_in_turns`.

    The speed-up is the median over turns: within a turn all actions met the same conditions. The
    spread is the lowest and the highest of all turns.
    """
    ratios = ratios_to_first(times)
    return {
        f"{unit}_per_second": {name: amount / statistics.median(t) for name, t in times.items()},
        "speedup": {name: statistics.median(of_turns) for name, of_turns in ratios.items()},
        "spread": {name: [min(of_turns), max(of_turns)] for name, of_turns in ratios.items()},
    }


def ratio_text(result: dict[str, Any], name: str) -> str:
    """Formats the speed-up of an action and its spread."""
    low, high = result["spread"][name]
    return f"x{result['speedup'][name]:.2f} ({low:.2f} to {high:.2f})"


def clock_of(device: str) -> Callable[[], float]:
    """Returns processor time on the CPU; on a GPU, the time after it has finished its work."""
    return time.process_time if device == "cpu" else _synchronized_clock


def _synchronized_clock() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


# Memory -----------------------------------------------------------------------------------------


def current_memory(device: str = "cpu") -> float:
    """Returns the memory that this process, or its GPU, holds now, in MiB."""
    held = _read_status("VmRSS") if device == "cpu" else None
    return peak_memory(device) if held is None else held  # elsewhere the peak is close enough


def peak_memory(device: str = "cpu") -> float:
    """Returns the peak memory of this process, or its GPU, so far, in MiB."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 2**20
    peak = _read_status("VmHWM")  # getrusage would include the peak of the parent process
    if peak is not None:
        return peak
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def forget_peak() -> None:
    """Starts a new peak of this process from what it holds now.

    Only Linux can do this. Elsewhere the peak goes on to include what happened before.
    """
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def _read_status(field: str) -> float | None:
    """Returns a field of Linux's status of this process, in MiB. None: it does not exist."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    sizes = [int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")]
    return sizes[0] if sizes else None


def run_in_new_process(program: Path, *argv: str) -> str:
    """Runs a program in a process of its own; returns the last line that it prints."""
    command = [sys.executable, str(program), *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise RuntimeError(f"A process that measures failed:\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1]


# The machine ------------------------------------------------------------------------------------


_TURNS = 5  # of a measurement; the median counts


def measure_products(dtype: torch.dtype, device: str = "cpu", size: int = 2048) -> float:
    """Measures how many operations of big matrix products a processor does per second."""
    left, right = torch.rand(2, size, size, device=device).to(dtype).unbind(0)
    (times,) = time_in_turns({"product": lambda: left @ right}, _TURNS, clock_of(device)).values()
    return 2 * size**3 / statistics.median(times)


def measure_bandwidth(device: str = "cpu") -> float:
    """Measures the bytes per processor second that a sum reads: products read fewer."""
    weights = torch.ones(256, 2**18, device=device)  # many times the size of a cache
    (times,) = time_in_turns({"": weights.sum}, _TURNS, clock_of(device)).values()
    return weights.nbytes / statistics.median(times)


def measure_machine(options: argparse.Namespace) -> dict[str, Any]:
    """Describes the machine and measures its limits.

    Returns:
        Names, versions, threads and the load average before the run; `products`: operations per
        second of a big matrix product, by type; `bandwidth`: bytes per second.
    """
    device = getattr(options, "device", "cpu")
    types = [torch.float32, *([torch.bfloat16] if getattr(options, "bf16", False) else [])]
    return {
        "processor": _name_of_processor() if device == "cpu" else torch.cuda.get_device_name(),
        "cores": os.cpu_count(),
        "threads": options.threads,
        "load_average": os.getloadavg()[0],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "products": {str(d).removeprefix("torch."): measure_products(d, device) for d in types},
        "bandwidth": measure_bandwidth(device=device),
    }


def _name_of_processor() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def format_machine(machine: dict[str, Any]) -> str:
    """Formats the result of `measure_machine` in two lines."""
    speeds = [f"{speed / 1e9:.0f} GFLOP/s in {d}" for d, speed in machine["products"].items()]
    return (
        f"{machine['processor']}, cores: {machine['cores']}, threads used: {machine['threads']}, "
        f"load before the run: {machine['load_average']:.1f}, torch {machine['torch']}, "
        f"transformers {machine['transformers']}\n"
        f"limits: matrix products {', '.join(speeds)}; memory {machine['bandwidth'] / 1e9:.1f} GB/s"
    )


# Files ------------------------------------------------------------------------------------------


def write_json(
    path: str, options: argparse.Namespace, machine: dict[str, Any], results: Sequence[Any]
) -> None:
    """Writes the results of a run, with its options and the machine."""
    values = {k: v for k, v in vars(options).items() if not callable(v)}
    content = {"options": values, "machine": machine, "results": results}
    Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
