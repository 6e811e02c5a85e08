"""Draws the pictures of the README and the documentation from a model trained by the demo.

alignment.png shows the cross-attention of a pronunciation model: which letters the decoder attends
to when it predicts each phoneme.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from transformers.utils import logging

from vanilla_transformer.inference.loading import load_model
from vanilla_transformer.inspection import AttentionMaps, attention_maps
from vanilla_transformer.inspection.figures import new_figure

REPOSITORY = Path(__file__).resolve().parents[2]


def draw_alignment(maps: Sequence[AttentionMaps], path: Path, layer: int = 0) -> None:
    """Draws the cross-attention of a layer, averaged over its heads, with a panel for each text.

    Args:
        maps: Attention weights of each text.
        path: Image file to write. At the default size it is 1600 pixels wide.
        layer: Layer of the decoder; a negative number counts from the last layer.
    """
    figure = new_figure((8, 4.8), dpi=200)
    figure.set_facecolor("white")
    figure.suptitle("Which letters the model attends to for each phoneme", fontsize=13)
    widths = [len(one.source) for one in maps]
    panels = figure.subplots(1, len(maps), squeeze=False, width_ratios=widths)[0]
    for axes, one in zip(panels, maps, strict=True):
        weights = one.cross[layer].mean(0).numpy()  # (target_len, source_len)
        image = axes.imshow(weights, vmin=0, vmax=1, cmap="Blues", aspect="auto")
        axes.set_xticks(range(len(one.source)), _label_tokens(one.source), fontsize=12)
        axes.set_yticks(range(len(one.predicted)), _label_tokens(one.predicted), fontsize=12)
        axes.get_xticklabels()[-1].set_fontsize(9)  # "end" is wider than a letter
        # White lines between the cells.
        axes.set_xticks([edge - 0.5 for edge in range(1, len(one.source))], minor=True)
        axes.set_yticks([edge - 0.5 for edge in range(1, len(one.predicted))], minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("letters that the encoder reads", fontsize=11)
    panels[0].set_ylabel("phonemes that the decoder predicts", fontsize=11)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.6, aspect=25, pad=0.02)
    bar.set_label("attention weight", fontsize=11)
    bar.outline.set_visible(False)
    figure.savefig(path)


def _label_tokens(tokens: Sequence[str]) -> list[str]:
    return ["end" if token == "</s>" else token for token in tokens]


def main(argv: Sequence[str] | None = None) -> None:
    """Draws the pictures.

    Args:
        argv: Arguments. None: those of the process.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the model cannot be loaded, or has no such layer.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="directory of the trained model, e.g. runs/cmudict-demo")
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
    options = parser.parse_args(argv)
    logging.disable_progress_bar()
    model, tokenizer = load_model(options.model)
    layers = model.config.decoder_layers
    if options.layer not in range(-layers, layers):
        raise ValueError(f"`--layer` is {options.layer}: choose 0 to {layers - 1}.")
    options.output.mkdir(parents=True, exist_ok=True)
    maps = [attention_maps(model, tokenizer, word) for word in options.words]
    draw_alignment(maps, options.output / "alignment.png", options.layer)
    print(f"{options.output / 'alignment.png'}: {', '.join(options.words)}")


if __name__ == "__main__":
    main()
