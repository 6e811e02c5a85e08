"""Runs a program in two processes as `torchrun` does.

Arguments: the program, and its arguments.
"""

import os
import runpy
import sys

from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def work(program, *arguments):
    sys.argv = [program, *arguments]
    sys.path.insert(0, os.path.dirname(program))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        max_restarts=0,
        start_method="fork",  # of a process that has imported torch: see programs.py
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        monitor_interval=0.05,
    )
    elastic_launch(config, work)(*sys.argv[1:])
