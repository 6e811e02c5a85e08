"""On a device that is no CPU, all tensors are in the right place."""

from pathlib import Path

import programs
from several_processes import environment_of_a_program

PROGRAM = Path(__file__).with_name("pretended_gpu_run.py")


def test_a_device_computes_and_trains_as_a_cpu_does(tmp_path):
    done = programs.run(PROGRAM, tmp_path, environment=environment_of_a_program())
    assert done.returncode == 0, done.stderr[-5000:]
