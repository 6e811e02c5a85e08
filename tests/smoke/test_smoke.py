"""Import, training, loading and generation on this system; on Linux, as on Windows.

`python -m pytest tests/smoke` needs the extra `train`, pytest and hypothesis only.
"""

import sys

import pytest
from toy import REPOSITORY, run_python

SMOKE = REPOSITORY / "tests" / "smoke"


def run_smoke(folder, program):
    """Runs a program; on Linux, as on Windows (see windows.py)."""
    pretence = ("-X", "warn_default_encoding", SMOKE / "windows.py", folder)
    return run_python(*(pretence if sys.platform == "linux" else ()), program, folder)


def test_the_tour_is_complete(tmp_path):
    done = run_smoke(tmp_path, SMOKE / "tour.py")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "The tour is complete."


WRONG = """
import mmap, os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
file, other, empty = folder / "file", folder / "other", folder / "empty"
empty.mkdir()
for path in (file, other):
    path.write_bytes(b"0123")
opened, place = file.open("rb"), {"__name__": "vanilla_transformer.x", "file": file}
attempts = (
    lambda: exec("import fcntl", place),
    lambda: exec("import os; os.getuid()", place),
    lambda: exec("from signal import SIGKILL", place),
    lambda: exec("file.read_text()", place),
    lambda: file.unlink(),
    lambda: file.rename(folder / "new"),
    lambda: file.replace(other),
    lambda: other.rename(file),
    lambda: (folder / "a:b").write_bytes(b""),
    lambda: (folder / "nul.txt").write_bytes(b""),
    lambda: (folder / "link").symlink_to(file),
    lambda: print("\u2581"),
)
for attempt in attempts:
    try:
        attempt()
        print("nothing")
    except (OSError, ImportError, AttributeError, EncodingWarning, ValueError) as error:
        print(type(error).__name__)
opened.close()
with file.open("r+b") as stream:
    mapped = mmap.mmap(stream.fileno(), 0)
try:
    file.unlink()
except PermissionError:
    print("mapped")
mapped.close()
exec("import os; os.replace(file, other_of(file))", place | {"other_of": lambda path: other})
empty.rmdir()
print(sorted(path.name for path in folder.iterdir()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the pretence reads /proc")
def test_the_pretence_of_windows_sees_what_is_wrong(tmp_path):
    program, folder = tmp_path / "wrong.py", tmp_path / "folder"
    program.write_text(WRONG, encoding="utf-8")
    folder.mkdir()
    done = run_smoke(folder, program)
    assert done.stdout.split("\n") == [
        "ModuleNotFoundError",
        "AttributeError",
        "ImportError",
        "EncodingWarning",
        *["PermissionError"] * 3,
        "FileExistsError",
        *["PermissionError"] * 3,
        "UnicodeEncodeError",
        "mapped",
        "['other']",
        "",
    ], done.stderr[-3000:]
