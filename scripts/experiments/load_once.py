"""Loads a saved model once, and prints what this took; `benchmark.py load` starts it.

    python scripts/experiments/load_once.py MODULE CLASS DIRECTORY THREADS

It imports nothing but the standard library before the clock runs.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any


def measure(action: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Runs an action.

    Returns:
        What it returns, and its seconds: `wall`, and `processor`, which leaves out waiting.
    """
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
    model_class, imported = measure(lambda: getattr(import_module(module), name))
    import torch
    from benchmark_reports import current_memory, forget_peak, peak_memory

    torch.set_num_threads(threads)
    before = current_memory()
    forget_peak()
    model, loaded = measure(lambda: model_class.from_pretrained(folder))
    peak = peak_memory()
    source = torch.full((1, 8), 5)  # weights come from the file when they are first used
    _, first = measure(lambda: model.generate(source, max_new_tokens=1, do_sample=False))
    memory = {"added": peak - before, "ready": peak_memory() - before, "peak": peak_memory()}
    return {"import": imported, "load": loaded, "first": first, **memory}


if __name__ == "__main__":
    class_module, class_name, saved, thread_count = sys.argv[1:]
    print(json.dumps(load_model(class_module, class_name, saved, int(thread_count))))
