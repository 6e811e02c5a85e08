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


def test_the_site_shows_the_docstrings_of_every_room(site):
    rooms = [path.parent.name for path in REPOSITORY.glob("vanilla_transformer/*/__init__.py")]
    for room in rooms:
        page = (site / "api" / f"{room}.html").read_text(encoding="utf-8")
        assert f'id="vanilla_transformer.{room}' in page
    assert "Scaled" in (site / "api" / "model.html").read_text(encoding="utf-8")


def test_the_public_names_are_shown_by_the_path_that_imports_them(site):
    page = (site / "api" / "public.html").read_text(encoding="utf-8")
    shown = re.findall(r'<h3 id="vanilla_transformer\.(\w+)"', page)
    assert sorted(shown) == vanilla_transformer.__all__
    assert all(f'doc-class-name">vanilla_transformer.{name}<' in page for name in shown)


def test_links_between_pages_lead_to_pages(site):
    for page in site.rglob("*.html"):
        links = re.findall(r'<a[^>]* href="([^"#:]+)["#]', page.read_text(encoding="utf-8"))
        for link in set(links) if page.name != "404.html" else ():
            assert (page.parent / link).exists(), (page.name, link)


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


@pytest.mark.parametrize("width", [1280, 390])
def test_text_and_code_fit_the_width_of_the_page(site, chromium, width):
    visitor = chromium.new_page(viewport={"width": width, "height": 900})
    pages = [*site.glob("*.html"), *site.glob("notebooks/*.html"), site / "api" / "public.html"]
    assert len(pages) > 22
    for page in pages:
        visitor.goto(page.as_uri())
        assert visitor.evaluate(TOO_WIDE) == [False], page.name


def test_a_page_that_is_opened_from_disk_can_search(site, chromium):
    visitor = chromium.new_page()
    visitor.goto((site / "api" / "model.html").as_uri())
    visitor.get_by_role("textbox", name="Search").fill("muon_learning_rate")
    results = visitor.locator(".md-search-result__link")
    results.first.wait_for(timeout=120_000)  # the index is read first, slowly on a busy machine
    found = [link.get_attribute("href") for link in results.all()]
    assert any(link.startswith((site / "training.html").as_uri()) for link in found)


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
    with pytest.raises(ValueError, match="preset") as error:
        VanillaTransformerConfig.from_preset("?")
    assert all(repr(name) in str(error.value) for name in names)
    assert len(names) == str(error.value).count("', '") + 1


def test_the_layer_beside_the_figure_is_the_layer_that_runs():
    code = (REPOSITORY / "vanilla_transformer" / "model" / "layers.py").read_text(encoding="utf-8")
    section = (DOCS / "tour.md").read_text(encoding="utf-8").split("## The paper's figure")[1]
    figure = section.split("```")[1]
    quoted = re.findall(r"(?:residual|hidden_states(?:, _)?) = .*", figure)
    assert len(quoted) == 8
    for line in quoted:
        assert "".join(line.split()) in "".join(code.split())


def test_the_tour_names_every_room_and_every_file_beside_them():
    tour = (DOCS / "tour.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in REPOSITORY.glob("vanilla_transformer/*/__init__.py")}
    assert set(re.findall(r"^\| \[`(\w+)/`\]", tour, re.MULTILINE)) == rooms
    files = {path.name for path in REPOSITORY.glob("vanilla_transformer/[!_]*.py")}
    assert files
    assert all(f"`{name}`" in tour for name in files)
