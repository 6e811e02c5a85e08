"""One of two processes is killed in the middle of an epoch; `torchrun` starts both again."""

import json
from pathlib import Path

from killed_run import SAVED_AT, STEPS
from small import read_reports, run_in_two_processes

PROGRAM = Path(__file__).with_name("killed_run.py")
RUNS = ("whole:buckets", "whole:stream", "killed:buckets", "killed:stream")


def test_a_killed_process_is_started_again_and_goes_on_to_the_last_bit(tmp_path):
    run_in_two_processes(PROGRAM, tmp_path, *RUNS, restarts=2)
    for kind in ("buckets", "stream"):
        state = tmp_path / f"{kind}_killed" / f"checkpoint-{SAVED_AT}" / "trainer_state.json"
        assert kind == "stream" or json.loads(state.read_text())["epoch"] % 1
        found = read_reports(tmp_path, f"{kind}_killed")
        expected = read_reports(tmp_path, f"{kind}_whole")[0]
        assert [report["resumed"] for report in found] == [SAVED_AT, SAVED_AT]
        assert len(expected["losses"]) == STEPS
        assert found[0]["losses"] == expected["losses"]
        assert found[0]["weights"] == found[1]["weights"] == expected["weights"]
