"""Takes the pictures of the page and of the server in docs/pictures, with the system's Chromium.

    python scripts/experiments/page_pictures.py model_cards/pronounce

It needs the package `playwright` (in the extra `test`) and an installed Chromium.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from transformers.utils import logging

import vanilla_transformer  # noqa: F401 - registers the Auto classes
from vanilla_transformer.page.app import build_page, launch_options
from vanilla_transformer.page.models import PageModels

REPOSITORY = Path(__file__).resolve().parents[2]
ARGUMENTS = ("--disable-gpu", "--disable-background-networking", "--disable-component-update")


@contextmanager
def serve_page(model: str, text: str) -> Iterator[str]:
    """Serves the page of a model in this process, opened with a text; yields its address."""
    page = build_page(PageModels([model], "cpu"), text)
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    try:
        yield address
    finally:
        page.close(verbose=False)


@contextmanager
def serve_model(model: str) -> Iterator[str]:
    """Serves a model over HTTP, in a process of its own, on a free port; yields its address."""
    command = [sys.executable, "-m", "vanilla_transformer", "serve", model, "--port", "0"]
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **streams, encoding="utf-8") as process:
        try:
            yield _address_in_log(process.stderr or ())
        finally:
            process.terminate()


def _address_in_log(lines: Iterable[str]) -> str:
    read = list[str]()
    for line in lines:
        read.append(line)
        with suppress(ValueError):
            entry = json.loads(line)
            if entry["event"] == "started":
                return str(entry["address"])
    raise RuntimeError(f"The server does not start: {''.join(read)[-1000:]}")


def open_page(browser: Browser, address: str, width: int, height: int, scheme: Any) -> Page:
    """Opens the page, waits for its outputs, and returns it."""
    view = {"width": width, "height": height}
    page = browser.new_page(viewport=view, color_scheme=scheme)  # type: ignore[arg-type] # a dict
    page.goto(address)
    page.locator("#alignment .vt-chip").first.wait_for()
    return page


def take_pictures(
    browser: Browser, address: str, folder: Path, layer: str, head: str
) -> list[Path]:
    """Takes the pictures.

    Args:
        layer: Layer of cross-attention for the picture of the heads, such as "layer 2".
        head: Head that is switched off there, such as "head 3".
    """
    files = [folder / f"page{name}.png" for name in ("", "-dark", "-heads")]
    page = open_page(browser, address, 1280, 900, "light")
    page.locator('#alignment .vt-chip[data-side="target"]').nth(1).hover()
    page.screenshot(path=files[0], full_page=True)
    page.get_by_role("tab", name="Heads").click()
    page.locator("#layer input").click()
    page.get_by_role("option", name=layer, exact=True).click()
    page.get_by_label(head, exact=True).check()
    page.locator("#ablation .vt-compared").wait_for()
    page.locator("#heads .vt-off").wait_for()
    page.screenshot(path=files[2], full_page=True)

    page = open_page(browser, address, 390, 844, "dark")
    page.get_by_role("tab", name="Alignment").evaluate("tab => tab.scrollIntoView()")
    page.locator('#alignment .vt-chip[data-side="source"]').nth(1).hover()
    page.screenshot(path=files[1])
    return files


def take_picture_of_server(browser: Browser, address: str, file: Path) -> Path:
    """Takes the picture of the page on which a server describes its interface."""
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.goto(f"{address}/docs")
    page.get_by_text("POST /translate").first.wait_for()
    page.screenshot(path=file)
    return file


def main(argv: Sequence[str] | None = None) -> None:
    """Starts the page and the server, and takes their pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="directory of the model, e.g. model_cards/pronounce")
    parser.add_argument(
        "--output",
        type=Path,
        default=REPOSITORY / "docs" / "pictures",
        help="directory of the pictures (default: docs/pictures in the repository)",
    )
    parser.add_argument("--text", default="photograph", help="text (default: photograph)")
    parser.add_argument("--layer", type=int, default=1, help="layer of the heads (default: 1)")
    parser.add_argument("--head", type=int, default=3, help="head that is off (default: 3)")
    parser.add_argument(
        "--chromium", default=shutil.which("chromium"), help="program (default: chromium)"
    )
    options = parser.parse_args(argv)
    if not options.chromium:
        raise FileNotFoundError("There is no program `chromium`: name one with --chromium.")
    logging.disable_progress_bar()
    options.output.mkdir(parents=True, exist_ok=True)
    # Chromium's sandbox refuses to run as root.
    arguments = [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=arguments)
        where = (options.output, f"layer {options.layer}", f"head {options.head}")
        with serve_page(options.model, options.text) as address:
            files = take_pictures(browser, address, *where)
        with serve_model(options.model) as address:
            files.append(take_picture_of_server(browser, address, options.output / "server.png"))
        browser.close()
    for file in files:
        print(f"{file}: {file.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
