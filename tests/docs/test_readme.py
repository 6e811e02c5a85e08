"""The README runs as printed, and names every command and page; the site checks its links."""

import re
import subprocess
import sys

from pages import DOCS, PAGES, blocks
from programs import REPOSITORY

from vanilla_transformer.commands.program import SUBCOMMANDS

pytest_plugins = ["workspace"]
README = REPOSITORY / "README.md"


def test_the_first_example_runs_as_printed(workspace):
    """In a new process, which imports the package only by the line that is printed."""
    code = next(block.code for block in blocks(README) if block.language == "python")
    assert len(code.strip().splitlines()) <= 9
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=workspace, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (printed,) = re.findall(r"^# (\[.*)$", code, re.MULTILINE)
    assert done.stdout.strip() == printed


def test_the_table_of_commands_has_all():
    rows = re.findall(r"^\| (`.*?) \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert {*SUBCOMMANDS} <= {name for row in rows for name in re.findall("`([a-z]+)`", row)}


def test_every_page_of_docs_is_in_the_readme_and_in_the_navigation():
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).as_posix()
        assert f": {name}\n" in navigation
        assert (
            page.parent != DOCS or page.stem in ("index", "benchmarks") or f"docs/{name}" in readme
        )


def test_options_are_spelt_with_hyphens():
    """Commands take both spellings; Accelerate's options have its own."""
    pages = [*PAGES, *(REPOSITORY / "model_cards").glob("*.md")]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    spelt = {option for text in texts for option in re.findall(r"--\w+(?:_\w+)+", text)}
    assert spelt == {"--num_processes", "--config_file"}
