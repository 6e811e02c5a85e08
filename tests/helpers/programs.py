"""Programs in processes of their own that start in no time: forks of one warm process.

`start` gives a process that can be killed; `run` waits for its end. The warm process has imported
what the package stands on, and nothing of the package: a program begins as in a new interpreter,
with its own arguments, directory, environment, streams and random numbers. It may also be a
stranger's, who has no package.
"""

import atexit
import gc
import multiprocessing
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
IMPORTED = [
    *("accelerate", "datasets", "langcodes", "sacrebleu", "tokenizers", "yaml"),
    "transformers.data.data_collator",
    "transformers.dynamic_module_utils",
    "transformers.generation",
    "transformers.hf_argparser",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.pipelines",
    "transformers.trainer_seq2seq",
    "transformers.utils.hub",
]
ENVIRONMENT = {
    **os.environ,
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
}

STREAMS = tempfile.TemporaryDirectory()


@cache
def warm_processes():
    """The way to start a fork: the warm process of this test process begins with the first one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def run_program(program, argv, cwd, environment, streams):
    """Makes this process, a fork, the one that was asked for, runs the program, and ends."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell put the tests
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(streams):
        file = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - multiprocessing closed it
    sys.argv = [program, *argv]
    # multiprocessing hands on the path of the test process, which may have loaded remote code.
    sys.path[:] = [path for path in sys.path if not Path(path, "transformers_modules").is_dir()]
    sys.path[:0] = [path for path in environment["PYTHONPATH"].split(os.pathsep) if path]
    random.seed()
    import_module("numpy").random.seed()
    import_module("torch").set_num_threads(1)
    if modules_cache := environment.get("HF_MODULES_CACHE"):
        for name in ("dynamic_module_utils", "utils.hub"):  # they have read it in their imports
            import_module(f"transformers.{name}").HF_MODULES_CACHE = modules_cache
    multiprocessing.current_process()._config["daemon"] = False
    gc.freeze()
    status = exit_status(program)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # freeing all that was imported would take a second


def exit_status(program):
    """Runs a module or a file."""
    try:
        if program.endswith(".py"):
            sys.path.insert(0, os.path.dirname(program))
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


class Fork:
    """A running program, with the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, process, streams):
        self._process, self._streams, self.pid = process, streams, process.pid

    def poll(self):
        return self._process.exitcode

    @property
    def returncode(self):
        return self._process.exitcode

    def wait(self, timeout=300):
        self._process.join(timeout)
        if self.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    @property
    def stdout(self):
        return self._streams[1].read_text(encoding="utf-8")

    @property
    def stderr(self):
        return self._streams[2].read_text(encoding="utf-8")


def start(program, *argv, cwd=None, input="", environment=None):
    """Starts a module or a file in a process of its own."""
    folder = Path(tempfile.mkdtemp(dir=STREAMS.name))
    streams = [folder / name for name in ("in", "out", "err")]
    for path in streams:
        path.touch()
    streams[0].write_bytes(input.encode(errors="surrogateescape"))
    words = [str(word) for word in argv]
    variables = {**ENVIRONMENT, **(environment or {})}
    arguments = (str(program), words, str(cwd or Path.cwd()), variables, streams)
    # A daemon ends with this process; as a program it may have children nevertheless.
    process = warm_processes().Process(target=run_program, args=arguments, daemon=True)
    process.start()
    return Fork(process, streams)


def run(program, *argv, **options):
    """Runs a module or a file in a process of its own; returns what `subprocess.run` would."""
    process = start(program, *argv, **options)
    process.wait()
    return subprocess.CompletedProcess(argv, process.returncode, process.stdout, process.stderr)


def run_python(*argv, **options):
    """Runs Python in a process of its own, as a user does."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, argv)]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300, **options
    )


def command(name, *argv, **options):
    """Runs a subcommand of vanilla-transformer in a process of its own."""
    return run("vanilla_transformer", name, *argv, **options)


def experiment(name, *argv, **options):
    """Runs a program of scripts/experiments in a process of its own."""
    return run(REPOSITORY / "scripts" / "experiments" / name, *argv, **options)
