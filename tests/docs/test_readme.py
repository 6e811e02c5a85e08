"""The README is short, runs as printed, and names only what exists."""

import re
import subprocess
import sys

import pytest
from pages import DOCS, PAGES, blocks
from toy import REPOSITORY

from vanilla_transformer.commands.program import SUBCOMMANDS

pytest_plugins = ["workspace"]
README = REPOSITORY / "README.md"
PATH = re.compile(
    r"`((?:vanilla_transformer|scripts|tests|model_cards|docs)/[\w./-]*|[\w-]+\.(?:md|toml))`"
)


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings_that_exist(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(((?!https?:)[^)]+)\)", text):
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        assert target.is_file(), link
        if heading:
            assert heading in headings(target), link


def headings(page):
    """The anchors of the headings of a page, as GitHub and MkDocs make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_named_in_the_text_exist(page):
    for name in PATH.findall(page.read_text(encoding="utf-8")):
        places = [REPOSITORY / name, REPOSITORY / "scripts" / "recipes" / name]
        assert any(place.exists() for place in places), name


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
