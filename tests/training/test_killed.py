"""Two processes are killed in the middle of an epoch, and resume exactly."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from killed_run import SAVED_AT, STEPS
from toy import REPOSITORY

PROGRAM = Path(__file__).with_name("killed_run.py")


def launch(folder, *actions):
    """Runs two processes to their end; returns their exit codes, and what they said last."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    common = {**os.environ, **address, "WORLD_SIZE": "2", "PYTHONPATH": paths}
    common |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    running = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), *actions],
            env={**common, "RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    said = [process.communicate(timeout=300)[1] for process in running]
    return [process.returncode for process in running], said[0][-3000:]


def report(folder, kind, action, rank):
    return json.loads((folder / f"{kind}_{action}_{rank}.json").read_text())


def test_two_killed_processes_go_on_to_the_last_bit(tmp_path):
    codes, said = launch(tmp_path, "whole:buckets", "whole:stream", "kill:buckets")
    assert -signal.SIGKILL in codes, said
    codes, said = launch(tmp_path, "resume:buckets", "kill:stream")
    assert -signal.SIGKILL in codes, said
    codes, said = launch(tmp_path, "resume:stream")
    assert codes == [0, 0], said
    for kind in ("buckets", "stream"):
        state = tmp_path / kind / f"checkpoint-{SAVED_AT}" / "trainer_state.json"
        assert kind == "stream" or json.loads(state.read_text())["epoch"] % 1
        found = [report(tmp_path, kind, "resume", rank) for rank in (0, 1)]
        expected = report(tmp_path, kind, "whole", 0)
        assert len(expected["losses"]) == STEPS
        assert found[0]["losses"] == expected["losses"]
        assert found[0]["weights"] == found[1]["weights"] == expected["weights"]
