"""Carries out a run in one of two processes; test_shared_work.py starts it.

Arguments: the folder of the corpus, that of the run, and what happens while the main process
encodes: "slow" or "dies".
"""

import os
import sys
import time
from pathlib import Path

import datasets
from made_up_language import arguments
from several_processes import write_report

from vanilla_transformer.batches import encoding
from vanilla_transformer.commands.program import main
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.run import encoded_data

DDP_TIMEOUT = 5  # seconds
FAULTS = {"slow": lambda: time.sleep(2 * DDP_TIMEOUT), "dies": lambda: os._exit(9)}


def count_calls(owner, name, calls, before=lambda: None):
    function = getattr(owner, name)

    def counted(*args, **options):
        calls[name] = calls.get(name, 0) + 1
        before()
        return function(*args, **options)

    setattr(owner, name, counted)


def run(corpus, folder, kind):
    calls = {}
    count_calls(VanillaTransformerTokenizer, "train", calls)
    count_calls(encoded_data, "encode", calls, FAULTS.get(kind, lambda: None))
    count_calls(encoding, "rows_digest", calls)
    datasets.config.HF_DATASETS_CACHE = f"{folder}/cache"
    options = {"max_steps": 2, "ddp_timeout": DDP_TIMEOUT, "use_cpu": True, "report_to": "none"}
    argv = arguments(Path(corpus), f"{folder}/out", "train", "validation", **options)
    status = main(["train", *argv])
    write_report(folder, "calls", int(os.environ["RANK"]), calls)
    sys.exit(status)


if __name__ == "__main__":
    run(*sys.argv[1:])
