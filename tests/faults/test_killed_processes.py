"""One of two processes is killed in the middle of an epoch; `torchrun` starts both again."""

import json
from pathlib import Path

from killed_run import SAVED_AT, STEPS
from small import read_reports, run_in_two_processes

PROGRAM = Path(__file__).with_name("killed_run.py")


def test_a_killed_process_is_started_again_and_goes_on_to_the_last_bit(tmp_path):
    run_in_two_processes(PROGRAM, tmp_path, restarts=2)
    state = tmp_path / "killed" / f"checkpoint-{SAVED_AT}" / "trainer_state.json"
    assert json.loads(state.read_text())["epoch"] % 1
    resumed = read_reports(tmp_path, "killed")
    expected = read_reports(tmp_path, "whole")[0]
    assert [report["resumed"] for report in resumed] == [SAVED_AT, SAVED_AT]
    assert len(expected["losses"]) == STEPS
    assert resumed[0]["losses"] == expected["losses"]
    assert resumed[0]["weights"] == resumed[1]["weights"] == expected["weights"]
