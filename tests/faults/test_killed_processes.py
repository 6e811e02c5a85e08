"""Two processes are killed in the middle of an epoch, and resume exactly."""

import json
import signal
from pathlib import Path

from killed_run import SAVED_AT, STEPS
from small import read_reports, run_two_processes

PROGRAM = Path(__file__).with_name("killed_run.py")


def test_two_killed_processes_go_on_to_the_last_bit(tmp_path):
    codes, said = run_two_processes(
        PROGRAM, tmp_path, "whole:buckets", "whole:stream", "kill:buckets"
    )
    assert -signal.SIGKILL in codes, said
    codes, said = run_two_processes(PROGRAM, tmp_path, "resume:buckets", "kill:stream")
    assert -signal.SIGKILL in codes, said
    codes, said = run_two_processes(PROGRAM, tmp_path, "resume:stream")
    assert codes == [0, 0], said
    for kind in ("buckets", "stream"):
        state = tmp_path / kind / f"checkpoint-{SAVED_AT}" / "trainer_state.json"
        assert kind == "stream" or json.loads(state.read_text())["epoch"] % 1
        found = read_reports(tmp_path, f"{kind}_resume")
        expected = read_reports(tmp_path, f"{kind}_whole")[0]
        assert len(expected["losses"]) == STEPS
        assert found[0]["losses"] == expected["losses"]
        assert found[0]["weights"] == found[1]["weights"] == expected["weights"]
