"""Draws the pictures of the README and the documentation from a model trained by the demo.

    python scripts/experiments/pictures.py model_cards/pronounce
    python scripts/experiments/pictures.py model_cards/pronounce --page

alignment.png shows the cross-attention of a pronunciation model: which letters the decoder attends
to when it predicts each phoneme. The other pictures show what `vanilla_transformer.inspection`
draws of the same model. With --page, it takes the pictures of the page instead, with the system's
Chromium and the package `playwright` (in the extra `test`).
"""

import argparse
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from transformers.utils import logging

from vanilla_transformer.files.loading import load_model
from vanilla_transformer.inspection import (
    AttentionMaps,
    attention_maps,
    head_scores,
    plot_alignment,
    plot_head_scores,
    plot_heads,
)
from vanilla_transformer.inspection.attention_figures import draw_alignment
from vanilla_transformer.inspection.figures import new_figure

REPOSITORY = Path(__file__).resolve().parents[2]
_ARGUMENTS = ("--disable-gpu", "--disable-background-networking", "--disable-component-update")
SCORED_WORDS = (
    "attention banana chemistry daughter elephant furniture gravity hospital island journey "
    "kitchen language mountain knowledge orchestra photograph question rhythm science telephone "
    "umbrella vocabulary weather yesterday"
)
PHONEMES, LETTERS = "phonemes that the decoder predicts", "letters that the encoder reads"


def draw_words(maps: Sequence[AttentionMaps], layer: int) -> Any:
    """Draws the cross-attention of a layer, averaged over its heads, with a panel for each text.

    Args:
        layer: Layer of the decoder; a negative number counts from the last layer.

    Returns:
        A figure; with 200 pixels per inch it is 1600 pixels wide.
    """
    figure = new_figure((8, 4.8), dpi=200)
    figure.suptitle("Which letters the model attends to for each phoneme", fontsize=13)
    widths = [len(word.source) for word in maps]
    panels = figure.subplots(1, len(maps), squeeze=False, width_ratios=widths)[0]
    for axes, word in zip(panels, maps, strict=True):
        tokens = name_ends(word.source), name_ends(word.predicted)
        image = draw_alignment(axes, *tokens, word.weights_of("cross", layer), cell=0.3, size=12)
        axes.get_xticklabels()[-1].set_fontsize(9)  # "end" is wider than a letter
        axes.set_xlabel(LETTERS, fontsize=11)
    panels[0].set_ylabel(PHONEMES, fontsize=11)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.6, aspect=25, pad=0.02)
    bar.set_label("attention weight", fontsize=11)
    bar.outline.set_visible(False)
    return figure


def name_ends(tokens: Sequence[str]) -> list[str]:
    """Returns the tokens, with a word for the token that ends a text."""
    return ["end" if token == "</s>" else token for token in tokens]


def draw_one_word(maps: AttentionMaps, layer: int) -> Any:
    """Draws one word, with a dot on the letter that each phoneme attends to most."""
    weights = maps.weights_of("cross", layer)
    links = [(int(row.argmax()), place) for place, row in enumerate(weights)]
    source, target = name_ends(maps.source), name_ends(maps.predicted)
    labels = {"source_label": LETTERS, "target_label": PHONEMES}
    return plot_alignment(source, target, weights, links=links, **labels)


def draw_heads(maps: AttentionMaps) -> Any:
    """Draws the cross-attention of every head of every layer."""
    rows, columns = map(name_ends, maps.axes_of("cross"))
    return plot_heads(maps.cross, rows, columns, title="Cross-attention of all heads")


def draw_head_scores(model: Any, tokenizer: Any) -> Any:
    """Draws how much the loss of the model's own outputs grows without each head."""
    inputs = tokenizer(SCORED_WORDS.split(), padding=True, return_tensors="pt")
    labels = model.generate(**inputs)[:, 1:]
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    changes = head_scores(model, lambda scored: scored(**inputs, labels=labels).loss.item())
    return plot_head_scores(changes, score="loss in nats per token")


def draw_figures(options: argparse.Namespace) -> Iterator[Path]:
    """Draws the figures of the command line; yields their files."""
    model, tokenizer = load_model(options.model)
    maps = [attention_maps(model, tokenizer, word) for word in options.words]
    figures: dict[str, Callable[[], Any]] = {
        "alignment": partial(draw_words, maps, options.layer),
        "one-alignment": partial(draw_one_word, maps[-1], options.layer),
        "heads": partial(draw_heads, maps[-1]),
        "head-scores": partial(draw_head_scores, model, tokenizer),
    }
    for name in options.only or figures:
        path = options.output / f"{name}.png"
        figure = figures[name]()
        figure.set_facecolor("white")
        dpi = 200 if name == "alignment" else 1000 / figure.get_figwidth()
        figure.savefig(path, dpi=dpi, pil_kwargs={"optimize": True})
        yield path


# The page -----------------------------------------------------------------------------------------


@contextmanager
def serve_page(model: str, text: str) -> Iterator[str]:
    """Serves the page of a model in this process, opened with a text; yields its address."""
    import vanilla_transformer  # noqa: F401 - registers the Auto classes
    from vanilla_transformer.page.app import build_page, launch_options
    from vanilla_transformer.page.models import PageModels

    page = build_page(PageModels([model], "cpu"), text)
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    try:
        yield address
    finally:
        page.close(verbose=False)


def open_page(browser: Any, address: str, width: int, height: int, scheme: Any) -> Any:
    """Opens the page, waits for its outputs, and returns it."""
    view = {"width": width, "height": height}
    page = browser.new_page(viewport=view, color_scheme=scheme)
    page.goto(address)
    page.locator("#alignment .vt-chip").first.wait_for()
    return page


def take_pictures(browser: Any, address: str, folder: Path, layer: str, head: str) -> list[Path]:
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


def take_all(options: argparse.Namespace) -> list[Path]:
    """Starts the page, takes its pictures, and returns the files."""
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox refuses to run as root.
    arguments = [*_ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=arguments)
        where = (options.output, f"layer {options.page_layer}", f"head {options.page_head}")
        with serve_page(options.model, options.words[-1]) as address:
            files = take_pictures(browser, address, *where)
        browser.close()
    return files


def main(argv: Sequence[str] | None = None) -> None:
    """Draws the figures, or takes the pictures of the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("model", help="directory of the model, e.g. model_cards/pronounce")
    add(
        "--output",
        type=Path,
        default=REPOSITORY / "docs" / "pictures",
        help="directory of the pictures (default: docs/pictures in the repository)",
    )
    add("--words", nargs="+", default=["transformer", "photograph"], help="words to pronounce")
    add("--layer", type=int, default=0, help="layer of the decoder (default: 0)")
    add("--only", nargs="+", metavar="NAME", help="figures to draw (default: all)")
    add("--page", action="store_true", help="take the pictures of the page")
    add("--page-layer", type=int, default=1, help="layer of the heads there (default: 1)")
    add("--page-head", type=int, default=3, help="head that is off there (default: 3)")
    add("--chromium", default=shutil.which("chromium"), help="program (default: chromium)")
    options = parser.parse_args(argv)
    logging.disable_progress_bar()
    options.output.mkdir(parents=True, exist_ok=True)
    for path in take_all(options) if options.page else draw_figures(options):
        print(path)


if __name__ == "__main__":
    main()
