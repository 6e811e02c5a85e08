"""The site builds without a warning, and its generated parts are up to date."""

import re
import runpy
import shutil
import subprocess
import sys

import pytest
from pages import DOCS
from programs import REPOSITORY, run

import vanilla_transformer
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.presets import PRESETS
from vanilla_transformer.run.architecture_options import field_descriptions

tables = runpy.run_path(str(DOCS / "tables.py"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_public_names_are_shown_by_the_path_that_imports_them(site):
    page = (site / "api" / "public.html").read_text(encoding="utf-8")
    shown = re.findall(r'<h3 id="vanilla_transformer\.(\w+)"', page)
    assert sorted(shown) == vanilla_transformer.__all__
    names = re.findall(r'doc-(?:class|function)-name">vanilla_transformer\.(\w+)<', page)
    assert {*shown} <= {*names}


def test_a_page_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]+)"', html)
        assert [link for link in loaded if "canonical" not in link] == []


@pytest.mark.parametrize("name", tables["TABLES"])
def test_the_tables_are_up_to_date(name):
    """After a change of an option or of the config's docstring: `python docs/tables.py`."""
    file, make_table = tables["TABLES"][name]
    page = (DOCS / file).read_text(encoding="utf-8")
    assert tables["updated_page"](page, name, make_table()) == page


def test_the_tables_of_a_changed_clone_show_its_changes(tmp_path):
    """Though another copy of the package is installed."""
    for name in ("docs", "vanilla_transformer", "tests/helpers"):
        ignored = shutil.ignore_patterns("__pycache__", "notebooks", "pictures")
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=ignored)
    changes = {
        "vanilla_transformer/model/configuration_vanilla_transformer.py": "Width of the residual",
        "vanilla_transformer/data/arguments.py": "Source side of the test data",
        "vanilla_transformer/text/patterns.py": "{name}",
    }
    for file, text in changes.items():
        whole = (tmp_path / file).read_text(encoding="utf-8")
        changed = whole.replace(text, f"{text[:-1]}X{text[-1]}")
        (tmp_path / file).write_text(changed, encoding="utf-8")
    done = run(tmp_path / "docs" / "tables.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for page, text in zip(("config", "sizing", "translating"), changes.values(), strict=True):
        written = (tmp_path / "docs" / f"{page}.md").read_text(encoding="utf-8")
        assert f"{text[:-1]}X{text[-1]}" in written


def test_the_docstring_names_every_field():
    fields = set(VanillaTransformerConfig.__annotations__) - {"is_encoder_decoder"}
    assert set(field_descriptions()) == fields


def test_the_presets_of_the_page_are_those_of_the_config():
    section = (DOCS / "config.md").read_text(encoding="utf-8").split("## Presets")[1]
    rows = re.findall(r"^\| (`.*?) \|", section.split("## ")[0], re.MULTILINE)
    names = re.findall(r"`([\w-]+)`", " ".join(rows))
    assert sorted(names) == sorted(PRESETS)
