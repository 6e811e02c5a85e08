"""The script that takes the pictures of the page."""

import shutil
import struct

import page_pictures
import pytest
from toy import experiment


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium: install `chromium`")
def test_it_takes_four_pictures(trained, tmp_path):
    options = ("--output", tmp_path, "--text", "a dog sees a cat .", "--layer", "0", "--head", "1")
    done = experiment("page_pictures.py", trained, *options)
    assert done.returncode == 0, done.stderr
    widths = {}
    for path in tmp_path.glob("*.png"):
        data = path.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        widths[path.stem] = struct.unpack(">I", data[16:20])[0]
    assert widths == {"page": 1280, "page-heads": 1280, "page-dark": 390, "server": 1000}


def test_a_machine_without_chromium_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(page_pictures.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="no program `chromium`"):
        page_pictures.main([str(tmp_path)])


def test_a_server_that_does_not_start_is_an_error(tmp_path):
    with (
        pytest.raises(RuntimeError, match=r"server does not start: .*model"),
        page_pictures.serve_model(str(tmp_path / "model")),
    ):
        pass
