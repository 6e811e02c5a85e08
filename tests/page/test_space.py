"""The folder of the Space runs as it is, with a model beside it."""

import shutil
import signal
import socket
import time
import tomllib
import urllib.error
import urllib.request

import programs
import pytest
from programs import REPOSITORY

SPACE = REPOSITORY / "scripts" / "space"


@pytest.fixture
def space(trained, tmp_path):
    folder = tmp_path / "space"
    shutil.copytree(SPACE, folder)
    (folder / "model").symlink_to(trained)
    return folder


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def opened_page(port, process, seconds=120):
    """The HTML of the page, as soon as there is one."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=10).read().decode()
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError("the page did not open")


def test_the_app_starts(space, port):
    environment = {"GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False"}
    process = programs.start(space / "app.py", cwd=space, environment=environment)
    try:
        assert "model: 1 + 1 layers" in opened_page(port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def test_the_requirements_are_those_of_the_package():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["page"]]
    assert (SPACE / "requirements.txt").read_text(encoding="utf-8").splitlines() == wanted
