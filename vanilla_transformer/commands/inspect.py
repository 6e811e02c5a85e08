"""`vanilla-transformer inspect`: shapes, attention and other views of a saved model."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vanilla_transformer.commands.files import check_model_path
from vanilla_transformer.commands.inspect_views import (
    add_picture_options,
    add_views,
    check_picture,
    check_view,
    save_picture,
    show_view,
)
from vanilla_transformer.commands.options import CommandParser, UsageError, add_model_argument

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vanilla_transformer import (
        VanillaTransformerForConditionalGeneration,
        VanillaTransformerTokenizer,
    )
    from vanilla_transformer.inspection import AttentionMaps

SUMMARY = "Shows shapes, attention, positions, heads, costs or training curves of a saved model."
EXAMPLES = """
vanilla-transformer inspect shapes runs/multi30k --text "two dogs play"
vanilla-transformer inspect attention runs/multi30k --text "two dogs play" --output maps.png
vanilla-transformer inspect heads runs/multi30k --source val.en --target val.de --output heads.png
vanilla-transformer inspect positions runs/multi30k --output positions.png
vanilla-transformer inspect training runs/multi30k runs/other --x seconds --output curves.svg
vanilla-transformer inspect cost runs/multi30k --source-length 30 --target-length 30
"""


class ViewParser(CommandParser):
    """Parser of one view.

    Args:
        prog: The program with the names of the subcommand and the view; the last word counts.
        **_: What argparse derives for the view from the parser above it.
    """

    def __init__(self, prog: str, **_: object) -> None:
        super().__init__(f"inspect {prog.split()[-1]}", SUMMARY, EXAMPLES)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("inspect", SUMMARY, EXAMPLES)
    views = parser.add_subparsers(
        dest="view", required=True, metavar="VIEW", parser_class=ViewParser
    )
    shapes = views.add_parser("shapes", help="shapes and parameters of each module, as called")
    add_model_argument(shapes)
    shapes.add_argument(
        "--text", nargs="+", help="source texts (default: a small batch of made-up tokens)"
    )
    shapes.add_argument(
        "--target", nargs="+", help="target texts, one per source (default: the start token)"
    )
    shapes.add_argument("--attention", help="attention implementation: sdpa, eager, ...")
    add_picture_options(shapes, "image of the modules as in the paper's figure 1")
    maps = views.add_parser("attention", help="source token that each target token attends to")
    add_model_argument(maps)
    maps.add_argument("--text", required=True, help="source text")
    maps.add_argument("--target", help="target text (default: what the model generates)")
    maps.add_argument(
        "--layer",
        type=int,
        default=-1,
        metavar="N",
        help="layer, from 0; -1: the last one",
    )
    maps.add_argument(
        "--head", type=int, metavar="N", help="head to print, from 0 (default: the mean of all)"
    )
    maps.add_argument(
        "--kind",
        choices=("cross", "encoder", "decoder"),
        default="cross",
        help="attention that --output draws",
    )
    maps.add_argument(
        "--draw",
        choices=("heads", "layers", "alignment"),
        default="heads",
        help="what --output holds: the heads of the layer, the heads of all layers, or source "
        "against target, with the mean of the layer's heads or with --head",
    )
    add_picture_options(maps, "image of the attention")
    add_views(views)
    return parser.parse_words(words)


def check(options: argparse.Namespace) -> None:
    """Checks the model's path, the texts and the output file.

    Raises:
        UsageError: If target texts have no source texts, or differ from them in number.
        OSError: If the model does not exist.
        ValueError: If the output file exists, or is no picture.
        ModuleNotFoundError: If a figure is asked for and the extra `plot` is not installed.
    """
    if options.view == "shapes" and len(options.target or ()) not in (0, len(options.text or ())):
        raise UsageError(
            f"--target has {len(options.target)} texts and --text {len(options.text or ())}: "
            "give the same number"
        )
    if options.view not in ("shapes", "attention"):
        check_view(options)
        return
    check_model_path(options.model)
    check_picture(options)


def run(options: argparse.Namespace) -> None:
    """Prints the view."""
    from transformers.utils import logging

    from vanilla_transformer.inference.loading import load_model

    logging.disable_progress_bar()
    if options.view not in ("shapes", "attention"):
        show_view(options)
        return
    model, tokenizer = load_model(options.model)
    if options.view == "shapes":
        _show_shapes(model, tokenizer, options)
    else:
        _show_attention(model, tokenizer, options)


def _show_shapes(
    model: "VanillaTransformerForConditionalGeneration",
    tokenizer: "VanillaTransformerTokenizer",
    options: argparse.Namespace,
) -> None:
    from vanilla_transformer.inspection.shapes import shape_walk

    if options.attention:
        model.set_attn_implementation(options.attention)
    if options.text is None:
        inputs = dict(model.dummy_inputs)
    else:
        inputs = dict(
            tokenizer(options.text, text_target=options.target, padding=True, return_tensors="pt")
        )
        if options.target is None:
            first = inputs["input_ids"][:, :1]
            inputs["decoder_input_ids"] = first.new_tensor(
                [[model.config.decoder_start_token_id]] * len(first)
            )
        inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    walk = shape_walk(model, inputs)
    print(walk)
    if options.output:
        from vanilla_transformer.inspection.shape_figures import plot_shapes

        save_picture(plot_shapes(walk), options.output)


def _show_attention(
    model: "VanillaTransformerForConditionalGeneration",
    tokenizer: "VanillaTransformerTokenizer",
    options: argparse.Namespace,
) -> None:
    from vanilla_transformer.inspection.attention_maps import attention_maps

    maps = attention_maps(model, tokenizer, options.text, options.target)
    if options.output:
        save_picture(_draw_attention(maps, options), options.output)
    for target, source, weight in maps.alignment(options.layer, options.head):
        print(f"{target:<16} {source:<16} {weight:.2f}")


def _draw_attention(maps: "AttentionMaps", options: argparse.Namespace) -> "Figure":
    from vanilla_transformer.inspection.attention_figures import plot_alignment, plot_heads

    if options.draw == "heads":
        return maps.figure(options.kind, options.layer)
    rows, columns = maps.axes_of(options.kind)
    if options.draw == "layers":
        title = f"{options.kind} attention"
        return plot_heads(getattr(maps, options.kind), rows, columns, title=title)
    weights = maps.weights_of(options.kind, options.layer, options.head)
    return plot_alignment(columns, rows, weights)
