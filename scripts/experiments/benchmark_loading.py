"""Measures how long saved models take to load; `benchmark.py load` runs it.

Each load has a process of its own, which runs this file:

    python scripts/experiments/benchmark_loading.py MODULE CLASS DIRECTORY THREADS

So nothing but the standard library is imported at the top: the clock starts before the imports.
The systems take turns. The first turn does not count; afterwards the operating system has the files
in memory.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from operator import getitem
from pathlib import Path
from typing import Any

STAGES = {"import": "import", "load": "from_pretrained", "first": "first token"}
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
    from benchmark_models import save_system
    from benchmark_reports import run_in_new_process

    runs: dict[str, list[Any]] = {system: [] for system in options.systems}
    with tempfile.TemporaryDirectory() as folder:
        sizes = {}
        for system in options.systems:
            save_system(system, options, Path(folder, system))
            files = Path(folder, system).rglob("*")
            sizes[system] = sum(file.stat().st_size for file in files) / 2**20
        for repeat in range(options.repeats + 1):
            for system, done in runs.items():
                words = (*_CLASSES[system], str(Path(folder, system)), str(options.threads))
                printed = run_in_new_process(Path(__file__), *words)
                if repeat:
                    done.append(json.loads(printed))

    def medians(*keys: str) -> dict[str, float]:
        """Returns the median of one measurement of each system."""
        return {
            system: statistics.median(reduce(getitem, keys, run) for run in done)
            for system, done in runs.items()
        }

    return {
        "seconds": {
            stage: {clock: medians(stage, clock) for clock in ("wall", "processor")}
            for stage in STAGES
        },
        "memory_mib": {part: medians(part) for part in ("added", "ready", "peak")},
        "saved_mib": sizes,
    }


def format_loading(result: dict[str, Any]) -> str:
    """Formats the result of `measure_loading`.

    Returns:
        A line per system and stage. Ratios are relative to the first system; less is better.
    """
    from benchmark_reports import shares_of_first

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


# The process that loads once ----------------------------------------------------------------------


def _measure(action: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Runs an action; returns its result, and its seconds: `wall`, and `processor`."""
    wall, processor = time.perf_counter(), time.process_time()
    result = action()
    spent = {
        "wall": time.perf_counter() - wall,
        "processor": time.process_time() - processor,
    }
    return result, spent


def load_model(module: str, name: str, folder: str, threads: int) -> dict[str, Any]:
    """Imports a class, loads a model and generates its first token.

    Returns:
        Seconds of the `import`, of the `load` and of the `first` output; peak memory in MiB beyond
        what the imports hold, `added` by loading and until the model is `ready`, after its first
        output, and the `peak` of the process.
    """
    model_class, imported = _measure(lambda: getattr(import_module(module), name))
    import torch
    from benchmark_reports import current_memory, forget_peak, peak_memory

    torch.set_num_threads(threads)
    before = current_memory()
    forget_peak()
    model, loaded = _measure(lambda: model_class.from_pretrained(folder))
    peak = peak_memory()
    source = torch.full((1, 8), 5)  # weights come from the file when they are first used
    _, first = _measure(lambda: model.generate(source, max_new_tokens=1, do_sample=False))
    memory = {"added": peak - before, "ready": peak_memory() - before, "peak": peak_memory()}
    return {"import": imported, "load": loaded, "first": first, **memory}


if __name__ == "__main__":
    class_module, class_name, saved, thread_count = sys.argv[1:]
    print(json.dumps(load_model(class_module, class_name, saved, int(thread_count))))
