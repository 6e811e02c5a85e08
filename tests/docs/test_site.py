"""The site builds without a warning, and its generated parts are up to date."""

import re
import runpy
import subprocess
import sys

import pytest
from pages import DOCS
from toy import REPOSITORY

import vanilla_transformer
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.presets import PRESETS
from vanilla_transformer.run.parsing import field_descriptions

pytest_plugins = ["browsers"]
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
    assert all(f'doc-class-name">vanilla_transformer.{name}<' in page for name in shown)


def test_a_page_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]+)"', html)
        assert [link for link in loaded if "canonical" not in link] == []


TOO_WIDE = """() => {
    const wider = (box) => box.scrollWidth > box.clientWidth + 1;
    const code = document.querySelectorAll(".md-content pre > code, .highlight-ipynb pre");
    const found = [...code].filter((box) => wider(box) && !box.closest(".aligned"));
    return [...found.map((box) => box.textContent), wider(document.documentElement)];
}"""


BROKEN_OPTIONS = """() => {
    const lines = (code) => {
        const text = document.createRange();
        text.selectNodeContents(code);
        return new Set([...text.getClientRects()].map((box) => Math.round(box.top))).size;
    };
    const code = document.querySelectorAll(":is(p, li, td:first-child) > code");
    const options = [...code].filter((each) => /^--[\\w-]+$/.test(each.textContent));
    return options.filter((each) => lines(each) > 1).map((each) => each.textContent);
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_text_and_code_fit_the_width_of_the_page(site, chromium, width):
    visitor = chromium.new_page(viewport={"width": width, "height": 900})
    pages = [*site.glob("*.html"), *site.glob("notebooks/*.html"), site / "api" / "public.html"]
    assert len(pages) > 22
    for page in pages:
        visitor.goto(page.as_uri())
        assert visitor.evaluate(TOO_WIDE) == [False], page.name
        assert visitor.evaluate(BROKEN_OPTIONS) == [], page.name


@pytest.mark.parametrize("name", tables["TABLES"])
def test_the_tables_are_up_to_date(name):
    """After a change of an option or of the config's docstring: `python docs/tables.py`."""
    page = (DOCS / name).read_text(encoding="utf-8")
    assert tables["updated_page"](page, tables["TABLES"][name]()) == page


def test_the_docstring_names_every_field():
    fields = set(VanillaTransformerConfig.__annotations__) - {"is_encoder_decoder"}
    assert set(field_descriptions()) == fields


def test_the_presets_of_the_page_are_those_of_the_config():
    section = (DOCS / "config.md").read_text(encoding="utf-8").split("## Presets")[1]
    rows = re.findall(r"^\| (`.*?) \|", section.split("## ")[0], re.MULTILINE)
    names = re.findall(r"`([\w-]+)`", " ".join(rows))
    assert sorted(names) == sorted(PRESETS)
