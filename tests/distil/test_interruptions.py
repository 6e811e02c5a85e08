"""Kills, Ctrl-C and a full disk: no answer is lost or asked twice, and the end is the same."""

import json
import signal
import time
from pathlib import Path

import programs
from endpoints import endpoint

PROGRAM = Path(__file__).with_name("doomed_labels.py")


def slowly(handler, text, times):
    time.sleep(0.01)


def start(folder, address, size=0):
    return programs.start(PROGRAM, folder / "answers.jsonl", address, size)


def answered(folder):
    path = folder / "answers.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)[0] for line in lines if line.endswith(b"\n")]


def wait_for(folder, count, process):
    while len(answered(folder)) < count and process.poll() is None:
        time.sleep(0.005)


def test_ten_kills_change_nothing(tmp_path):
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        folder.mkdir()
    with endpoint(slowly) as (address, _):
        assert start(folders[0], address).wait() == 0
    with endpoint(slowly) as (address, asked):
        kept = {}
        for number in range(1, 11):
            process = start(folders[1], address)
            wait_for(folders[1], 17 * number, process)
            process.send_signal(signal.SIGKILL)
            process.wait()
            time.sleep(0.05)  # the server answers what it was asked
            kept |= {text: asked[text] for text in answered(folders[1]) if text not in kept}
        assert start(folders[1], address).wait() == 0
    assert 170 <= len(kept) < 200
    assert all(asked[text] == count for text, count in kept.items())
    whole, killed = ((folder / "answers.tsv").read_bytes() for folder in folders)
    assert whole == killed


def test_ctrl_c_ends_soon_though_the_server_hangs(tmp_path):
    def hang(handler, text, times):
        time.sleep(30 * (text == "text 50" and times == 1))

    with endpoint(hang) as (address, asked):
        process = start(tmp_path, address)
        wait_for(tmp_path, 60, process)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait()
        assert time.monotonic() - began < 10
        assert "KeyboardInterrupt" in process.stderr
        kept = answered(tmp_path)
        assert start(tmp_path, address).wait() == 0
    assert len(answered(tmp_path)) == 200
    assert all(asked[text] == 1 for text in kept)


def test_a_full_disk_loses_no_line(tmp_path):
    with endpoint() as (address, asked):
        process = start(tmp_path, address, 3001)
        assert process.wait() == 1
        assert "no space left on the disk" in process.stderr
        assert (tmp_path / "answers.jsonl").stat().st_size == 3001  # its last line is cut off
        kept = answered(tmp_path)
        assert start(tmp_path, address).wait() == 0
    assert len(answered(tmp_path)) == 200
    assert all(asked[text] == 1 for text in kept)
