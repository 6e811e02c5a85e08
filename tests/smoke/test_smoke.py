"""Import, training, loading and generation on this system.

`python -m pytest tests/smoke --slow` needs the extra `train`, pytest and hypothesis only. The
workflow runs it on macOS and Windows.
"""

import pytest
from programs import REPOSITORY, run_python


@pytest.mark.slow
def test_the_tour_is_complete(tmp_path):
    done = run_python(REPOSITORY / "tests" / "smoke" / "tour.py", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "The tour is complete."
