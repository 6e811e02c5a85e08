"""The folder of the Space runs as it is, with a model beside it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request

import forks
import pytest
from toy import REPOSITORY

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
    process = forks.start(space / "app.py", cwd=space, environment=environment)
    try:
        assert "model: 1 + 1 layers" in opened_page(port, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@pytest.mark.slow
def test_the_folder_runs_with_the_package_beside_it(space, port):
    """Without the installed package: what is imported is the copy in the folder."""
    shutil.copytree(REPOSITORY / "vanilla_transformer", space / "vanilla_transformer")
    trap = space / "vanilla_transformer" / "__init__.py"
    trap.write_text(trap.read_text(encoding="utf-8") + "\nprint('the copy')\n", encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    process = subprocess.Popen(
        [sys.executable, "-u", "app.py"],
        cwd=space,
        env={**kept, "GRADIO_SERVER_PORT": str(port)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert "model: 1 + 1 layers" in opened_page(port, process)
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=60)
    assert "the copy" in output


def test_the_requirements_are_those_of_the_package():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["page"]]
    assert (SPACE / "requirements.txt").read_text(encoding="utf-8").splitlines() == wanted
