"""Programs in two processes that find each other, and their reports."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from programs import REPOSITORY, run, start


def environment_of_a_program():
    """Returns the environment of a program that finds the package and the helpers of the tests."""
    folders = [REPOSITORY, REPOSITORY / "tests" / "helpers"]
    paths = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return environment | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


def launch(program, *arguments):
    """Runs a program in two processes, as the README starts it, but in float32."""
    environment = environment_of_a_program()
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2"]
    command += ["--config_file", str(REPOSITORY / "scripts" / "accelerate" / "ddp.yaml")]
    command += ["--mixed_precision", "no", str(program), *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def start_two_processes(program, *arguments, **environment):
    """Starts a program in two processes, which find each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    common = {**environment, **address, "WORLD_SIZE": "2"}
    return [
        start(program, *arguments, environment={**common, "RANK": rank, "LOCAL_RANK": rank})
        for rank in "01"
    ]


def run_in_two_processes(program, *arguments):
    """Runs a program in two processes of `torchrun`, which must end well; returns what it says."""
    launcher = Path(__file__).with_name("under_torchrun.py")
    environment = environment_of_a_program()
    done = run(launcher, program, *arguments, environment=environment)
    errors = [line for line in done.stderr.splitlines() if "rror" in line or "exitcode" in line]
    assert done.returncode == 0, "\n".join(errors)[:4000] + done.stderr[-5000:]
    return done.stderr


def write_report(folder, name, rank, report):
    """Writes what one of several processes has computed."""
    Path(folder, f"{name}_{rank}.json").write_text(json.dumps(report))


def read_reports(folder, name):
    """Reads what the processes have computed, in their order."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}_?.json"))]
