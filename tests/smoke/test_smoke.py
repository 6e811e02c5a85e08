"""Import, training, loading and generation on this system; on Linux, as on Windows.

`python -m pytest tests/smoke` needs the extra `train`, pytest and hypothesis only.
"""

import sys

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
