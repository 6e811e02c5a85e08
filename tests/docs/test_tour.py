"""The tables of the tour name functions that are in the files beside them."""

import re

import pytest
from programs import REPOSITORY

TOUR = (REPOSITORY / "docs/tour.md").read_text(encoding="utf-8")
WAYS = TOUR.partition("## Four ways through the code")[2].partition("**An option**")[0]
ROWS = [line.split(" | ") for line in WAYS.splitlines() if "`" in line]
STEPS = [cells for cells in ROWS if len(cells) == 3]


@pytest.mark.parametrize("cells", STEPS, ids=lambda cells: cells[0].strip("| "))
def test_a_step_names_functions_of_its_files(cells):
    names = re.findall(r"`([\w.]+)`(?! of transformers)", cells[1])
    files = re.findall(r"`([\w/]+\.py)`", cells[2])
    paths = [path for file in files for path in (REPOSITORY / "vanilla_transformer").rglob(file)]
    assert names
    assert len(files) == len({path.name for path in paths})
    source = "".join(path.read_text(encoding="utf-8") for path in paths)
    for name in names:
        assert re.search(rf"\b(def|class) {name.rpartition('.')[2]}\b", source), name
