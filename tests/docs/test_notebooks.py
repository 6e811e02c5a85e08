"""The notebooks run from the first cell to the last, and are saved without outputs."""

import os
import re
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from pages import DOCS
from programs import REPOSITORY

NOTEBOOKS = {path.stem: path for path in sorted((DOCS / "notebooks").glob("*.ipynb"))}
SHIPPED = REPOSITORY / "model_cards" / "pronounce"


def read(name):
    return nbformat.read(NOTEBOOKS[name], as_version=4)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a notebook in a folder that lies as docs/notebooks does; returns what it has printed."""
    folder = tmp_path / "docs" / "notebooks"
    folder.mkdir(parents=True)
    shutil.copytree(SHIPPED, tmp_path / "model_cards" / "pronounce")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    def run(name):
        notebook = read(name)
        resources = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
        outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
        return "".join(output.get("text", "") for output in outputs)

    return run


def test_the_notebook_about_the_paper_computes_what_the_model_computes(run):
    """Its own assertions compare the formulas with the model, and count what the toy learned."""
    printed = run("paper")
    assert "T R AE N S F AO R M ER" in printed
    assert "of 200 new rows are right" in printed


def test_the_notebook_of_two_files_ends_with_a_translation_over_http(run):
    printed = run("two-files")
    assert float(re.search(r"^bleu: ([\d.]+) ", printed, re.MULTILINE)[1]) > 50
    assert "leisee" not in printed
    assert "heute mag die alte Frau" in printed


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_saved_without_outputs(name):
    notebook = read(name)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_of_a_notebook_lead_to_files(name):
    for cell in read(name).cells:
        for link in re.findall(r"\]\(((?!https?:)[^)]+)\)", cell.source):
            assert (DOCS / "notebooks" / link).is_file(), link
