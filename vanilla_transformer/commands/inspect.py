"""`vanilla-transformer inspect`: shapes and attention of a saved model."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vanilla_transformer.commands.checks import check_model_path, check_output_file
from vanilla_transformer.commands.options import CommandParser, UsageError
from vanilla_transformer.extras import check_extra

if TYPE_CHECKING:
    from vanilla_transformer import (
        VanillaTransformerForConditionalGeneration,
        VanillaTransformerTokenizer,
    )

SUMMARY = "Shows the shapes or the attention of a saved model."
EXAMPLES = """
vanilla-transformer inspect shapes runs/multi30k --text "two dogs play"
vanilla-transformer inspect attention runs/multi30k --text "two dogs play" --output maps.png
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
    _add_model(shapes)
    shapes.add_argument(
        "--text", nargs="+", help="source texts (default: a small batch of made-up tokens)"
    )
    shapes.add_argument(
        "--target", nargs="+", help="target texts, one per source (default: the start token)"
    )
    shapes.add_argument("--attention", help="attention implementation: sdpa, eager, ...")
    maps = views.add_parser("attention", help="source token that each target token attends to")
    _add_model(maps)
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
        "--output", metavar="FILE", help="image of all heads of the layer: .png, .svg or .pdf"
    )
    maps.add_argument("--overwrite", action="store_true", help="replace an existing --output")
    return parser.parse_words(words)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="directory of a saved model, or its name on the Hub"
    )


def check(options: argparse.Namespace) -> None:
    """Checks the model's path, the texts and the output file.

    Raises:
        UsageError: If target texts have no source texts, or differ from them in number.
        OSError: If the model does not exist.
        ValueError: If the output file exists.
        ModuleNotFoundError: If a figure is asked for and the extra `plot` is not installed.
    """
    if options.view == "shapes" and len(options.target or ()) not in (0, len(options.text or ())):
        raise UsageError(
            f"--target has {len(options.target)} texts and --text {len(options.text or ())}: "
            "give the same number"
        )
    check_model_path(options.model)
    if options.view == "attention" and options.output:
        check_output_file(options.output, options.overwrite)
        check_extra("plot")


def run(options: argparse.Namespace) -> None:
    """Prints the view."""
    from transformers.utils import logging

    from vanilla_transformer.inference.loading import load_model

    logging.disable_progress_bar()
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
    print(shape_walk(model, inputs))


def _show_attention(
    model: "VanillaTransformerForConditionalGeneration",
    tokenizer: "VanillaTransformerTokenizer",
    options: argparse.Namespace,
) -> None:
    from vanilla_transformer.inspection.attention_maps import attention_maps

    maps = attention_maps(model, tokenizer, options.text, options.target)
    if options.output:
        maps.figure(options.kind, options.layer).savefig(options.output)
    for target, source, weight in maps.alignment(options.layer, options.head):
        print(f"{target:<16} {source:<16} {weight:.2f}")
