"""Of several processes, the main one prepares the data of a run; the others wait for it."""

import json
from pathlib import Path

import pytest
from several_processes import environment_of_a_program, read_reports, start_two_processes

from vanilla_transformer.files.directory_lock import locked_directory

PROGRAM = Path(__file__).with_name("shared_work_run.py")


def start(corpus, folder, kind):
    running = start_two_processes(PROGRAM, corpus, folder, kind, **environment_of_a_program())
    codes = [process.wait(120) for process in running]
    return codes, [process.stderr for process in running]


def test_slow_work_is_done_once_and_ends_no_run(corpus, tmp_path):
    """It takes twice as long as the limit of the process group."""
    codes, said = start(corpus, tmp_path, "slow")
    assert codes == [0, 0], said
    assert read_reports(tmp_path, "calls") == [{"train": 1, "encode": 1, "rows_digest": 2}, {}]
    assert "eval_bleu" in json.loads((tmp_path / "out" / "all_results.json").read_text())


@pytest.mark.parametrize("kind", ["dies", "locked"])
def test_without_the_main_process_the_others_end_with_one_sentence(corpus, tmp_path, kind):
    """It is killed while it encodes, or finds another run in its folder."""
    with locked_directory(tmp_path / "out", kind == "locked"):
        codes, said = start(corpus, tmp_path, kind)
    assert codes == [9 if kind == "dies" else 1, 1], said
    assert ("error: Another run is writing to" in said[0]) is (kind == "locked")
    own = [line for line in said[1].splitlines() if line.startswith("vanilla-transformer")]
    assert own == [
        "vanilla-transformer train: error: A process of this run has ended before the data were "
        "prepared: its own message tells why. This process ends too."
    ]
    assert "Traceback" not in said[1]  # torch may tell the lost connection, with a list of frames
