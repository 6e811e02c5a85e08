"""Draws the pictures of the README and the documentation from a model trained by the demo.

alignment.png shows the cross-attention of a pronunciation model: which letters the decoder attends
to when it predicts each phoneme. The other pictures show what `vanilla_transformer.inspection`
draws of the same model.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformers.utils import logging

from vanilla_transformer.inference.loading import load_model
from vanilla_transformer.inspection import (
    AttentionMaps,
    attention_maps,
    head_scores,
    plot_alignment,
    plot_head_scores,
    plot_heads,
    plot_shapes,
    shape_walk,
)
from vanilla_transformer.inspection.attention_figures import draw_alignment
from vanilla_transformer.inspection.figures import new_figure

REPOSITORY = Path(__file__).resolve().parents[2]
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
    widths = [len(one.source) for one in maps]
    panels = figure.subplots(1, len(maps), squeeze=False, width_ratios=widths)[0]
    for axes, one in zip(panels, maps, strict=True):
        tokens = name_ends(one.source), name_ends(one.predicted)
        image = draw_alignment(axes, *tokens, one.weights_of("cross", layer), cell=0.3, size=12)
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


def draw_shapes(model: Any, tokenizer: Any, words: Sequence[str]) -> Any:
    """Draws the modules of the model and the shapes of a batch of words."""
    inputs = tokenizer(list(words), padding=True, return_tensors="pt")
    return plot_shapes(shape_walk(model, {**inputs, "labels": inputs["input_ids"][:, :9]}))


def draw_head_scores(model: Any, tokenizer: Any) -> Any:
    """Draws how much the loss of the model's own outputs grows without each head."""
    inputs = tokenizer(SCORED_WORDS.split(), padding=True, return_tensors="pt")
    labels = model.generate(**inputs)[:, 1:]
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    changes = head_scores(model, lambda scored: scored(**inputs, labels=labels).loss.item())
    return plot_head_scores(changes, score="loss in nats per token")


def list_pictures(
    model: Any, tokenizer: Any, options: argparse.Namespace
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields the name of each picture, and the function that draws it."""
    maps = [attention_maps(model, tokenizer, word) for word in options.words]
    yield "alignment", partial(draw_words, maps, options.layer)
    yield "one-alignment", partial(draw_one_word, maps[-1], options.layer)
    yield "heads", partial(draw_heads, maps[-1])
    yield "shapes", partial(draw_shapes, model, tokenizer, options.words)
    yield "head-scores", partial(draw_head_scores, model, tokenizer)


def main(argv: Sequence[str] | None = None) -> None:
    """Draws the pictures."""
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
    parser.add_argument(
        "--words", nargs="+", default=["transformer", "photograph"], help="words to pronounce"
    )
    parser.add_argument("--layer", type=int, default=0, help="layer of the decoder (default: 0)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="pictures to draw (default: all)")
    options = parser.parse_args(argv)
    logging.disable_progress_bar()
    model, tokenizer = load_model(options.model)
    layers = model.config.decoder_layers
    if options.layer not in range(-layers, layers):
        raise ValueError(f"`--layer` is {options.layer}: choose 0 to {layers - 1}.")
    pictures = dict(list_pictures(model, tokenizer, options))
    names = options.only or list(pictures)
    if unknown := set(names) - set(pictures):
        raise ValueError(f"`--only` has {sorted(unknown)}: choose from {list(pictures)}.")
    options.output.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = options.output / f"{name}.png"
        figure = pictures[name]()
        figure.set_facecolor("white")
        dpi = 200 if name == "alignment" else 1000 / figure.get_figwidth()
        figure.savefig(path, dpi=dpi, pil_kwargs={"optimize": True})
        print(path)


if __name__ == "__main__":
    main()
