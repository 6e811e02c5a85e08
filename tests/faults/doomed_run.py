"""A training run that may be killed at a chosen moment; test_kills.py starts it.

`DOOM` holds how: "event:N" kills at the N-th change of a file in the output directory, "full:N"
makes a write beyond N bytes of a file fail, as on a full disk.
"""

import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager, nullcontext

from vanilla_transformer.commands.program import main

CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}


def die_at_event(number, folder):
    """Kills this process when it opens for writing, moves or deletes for the N-th time."""
    left = [number]

    def count(event, arguments):
        if event in CHANGES and str(arguments[0]).startswith(folder):
            left[0] -= event != "open" or str(arguments[1])[:1] in "wax"
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def limit_files(size):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@contextmanager
def unlimited_output():
    """Sends what the run says through another process: a limit on files counts for logs, too."""
    log = os.dup(2)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log) as cat:
        for stream in (1, 2):
            os.dup2(cat.stdin.fileno(), stream)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - no seeks now
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for stream in (1, 2):
                os.dup2(log, stream)


if __name__ == "__main__":
    kind, _, number = os.environ.get("DOOM", "").partition(":")
    if kind == "event":
        die_at_event(int(number), sys.argv[sys.argv.index("--output_dir") + 1])
    with unlimited_output() if kind == "full" else nullcontext():
        if kind == "full":
            limit_files(int(number))
        status = main(["train", *sys.argv[1:]])
    sys.exit(status)
