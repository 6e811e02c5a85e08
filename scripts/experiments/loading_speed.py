"""Measures how long saved models take to load; `benchmark.py load` runs it.

Each load has a process of its own (`load_once.py`). The systems take turns. The first turn does not
count; afterwards the operating system has the files in memory.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmark_models import save_system
from benchmark_reports import Bars, run_in_new_process, shares_of_first

STAGES = {"import": "import", "load": "from_pretrained", "first": "first token"}
_LOAD_ONCE = Path(__file__).with_name("load_once.py")
_CLASSES = {
    "marian": ("transformers", "MarianMTModel"),
    "bart": ("transformers", "BartForConditionalGeneration"),
    "t5": ("transformers", "T5ForConditionalGeneration"),
    "ours": ("vanilla_transformer", "VanillaTransformerForConditionalGeneration"),
}


def measure_loading(options: argparse.Namespace) -> dict[str, Any]:
    """Loads each system in turn.

    Returns:
        Medians by system: `seconds` of each stage, as `wall` and `processor`; `memory_mib`: the
        `peak` of the process, and what is `added` by loading, and until the first token (`ready`);
        `saved_mib`: size of the directory.
    """
    with tempfile.TemporaryDirectory() as folder:
        sizes = {}
        for system in options.systems:
            save_system(system, options, Path(folder, system))
            files = Path(folder, system).rglob("*")
            sizes[system] = sum(file.stat().st_size for file in files) / 2**20
        runs: dict[str, list[Any]] = {system: [] for system in options.systems}
        for repeat in range(options.repeats + 1):
            for system, done in runs.items():
                saved, threads = str(Path(folder, system)), str(options.threads)
                printed = run_in_new_process(_LOAD_ONCE, *_CLASSES[system], saved, threads)
                if repeat:
                    done.append(json.loads(printed))
    return {
        "seconds": {
            stage: {
                clock: {
                    system: statistics.median(run[stage][clock] for run in done)
                    for system, done in runs.items()
                }
                for clock in ("wall", "processor")
            }
            for stage in STAGES
        },
        "memory_mib": {
            part: {
                system: statistics.median(run[part] for run in done)
                for system, done in runs.items()
            }
            for part in ("added", "ready", "peak")
        },
        "saved_mib": sizes,
    }


def format_loading(result: dict[str, Any]) -> str:
    """Formats the result of `measure_loading`.

    Returns:
        A line per system and stage. Ratios are relative to the first system; less is better.
    """
    lines = []
    for stage, title in STAGES.items():
        lines.append(f"{title}: seconds of processor, and by the clock on the wall")
        wall, processor = result["seconds"][stage]["wall"], result["seconds"][stage]["processor"]
        ratios = shares_of_first(processor)
        for system, taken in processor.items():
            times = f"{taken:8.2f} s  x{ratios[system]:.2f}  {wall[system]:8.2f} s"
            lines.append(f"  {system:8}{times}")
    memory = result["memory_mib"]
    ratios = shares_of_first(memory["ready"])
    lines.append("peak memory, beyond the imports: from_pretrained, until the first token; in all")
    for system, ready in memory["ready"].items():
        size = f"{memory['added'][system]:8.0f} MiB  {ready:8.0f} MiB  x{ratios[system]:.2f}"
        whole = f"{memory['peak'][system]:8.0f} MiB   file {result['saved_mib'][system]:.0f} MiB"
        lines.append(f"  {system:8}{size}  {whole}")
    return "\n".join(lines)


def bars_of_loading(result: dict[str, Any]) -> Bars:
    """Returns the ratios of a result, for the picture."""
    bars = {
        f"{title}, time": shares_of_first(result["seconds"][stage]["processor"])
        for stage, title in STAGES.items()
    }
    return {**bars, "memory": shares_of_first(result["memory_mib"]["ready"])}
