"""Runs programs in forks of one process that has imported its modules; forks.py talks to it.

With the argument "package", these are the modules of the package. With "transformers", it is a
process in which this package was never imported, as that of a stranger who loads a saved model.

Requests are lines of JSON on standard input, answers are lines of JSON on standard output. A
program that starts here has what a new interpreter would have: its own arguments, directory,
environment, streams, random numbers and exit status. It lacks only the seconds of the imports.
"""

import atexit
import gc
import json
import os
import random
import runpy
import signal
import sys
import traceback
from importlib import import_module

import numpy as np
import torch

OF_TRANSFORMERS = (
    "transformers.dynamic_module_utils",
    "transformers.generation",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.utils.hub",
)
OF_THE_PACKAGE = (
    "accelerate",
    "datasets",
    "vanilla_transformer.commands.program",
    "vanilla_transformer.inference.translator",
    "vanilla_transformer.inference.loading",
    "vanilla_transformer.inspection",
    "vanilla_transformer.interop.funnel",
    "vanilla_transformer.run.evaluation",
    "vanilla_transformer.run.training_run",
    "vanilla_transformer.training.averaging",
)
HERE = os.path.dirname(os.path.abspath(__file__))


def answer(value, stream):
    os.write(stream, (json.dumps(value) + "\n").encode())


def serve():
    """Answers requests until one is to be carried out in this process, a fork; returns it."""
    answers = os.dup(1)
    os.dup2(2, 1)
    requests = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - no byte is read ahead
    answer("ready", answers)
    for line in iter(requests.readline, b""):
        request = json.loads(line)
        if "argv" in request:
            if (pid := os.fork()) == 0:
                os.close(answers)
                return request
            answer(pid, answers)
        else:
            pid, status = os.waitpid(request["wait"], 0 if request["block"] else os.WNOHANG)
            answer(os.waitstatus_to_exitcode(status) if pid else None, answers)
    raise SystemExit


def become(request):
    """Makes this process the one that was asked for."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell put the tests
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for stream, path in enumerate(request["streams"]):
        file = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(file, stream)
        os.close(file)
    sys.argv = ["", *request["argv"]]
    random.seed()
    np.random.seed()
    if modules_cache := request["environment"].get("HF_MODULES_CACHE"):
        for name in ("dynamic_module_utils", "utils.hub"):  # they have read it in their imports
            import_module(f"transformers.{name}").HF_MODULES_CACHE = modules_cache
    for path in reversed(request["environment"].get("PYTHONPATH", "").split(os.pathsep)):
        if path and path not in sys.path:
            sys.path.insert(0, path)


def carry_out(request):
    """Runs the program; returns its exit status."""
    try:
        if request["program"].endswith(".py"):
            sys.argv[0] = request["program"]
            sys.path.insert(0, os.path.dirname(request["program"]))
            runpy.run_path(request["program"], run_name="__main__")
        else:
            runpy.run_module(request["program"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main():
    torch.set_num_threads(1)
    is_stranger = sys.argv[1:] == ["transformers"]
    if is_stranger:
        sys.path[:] = [path for path in sys.path if path not in (HERE, os.path.dirname(HERE))]
    for name in OF_TRANSFORMERS if is_stranger else OF_THE_PACKAGE:
        import_module(name)
    assert is_stranger != ("vanilla_transformer" in sys.modules)
    gc.freeze()
    request = serve()
    become(request)
    status = carry_out(request)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # freeing all that was imported would take a second


if __name__ == "__main__":
    main()
