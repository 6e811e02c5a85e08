"""`vanilla-transformer inspect`: shapes, attention and other views of a saved model."""

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.commands.files import check_output
from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    add_model_argument,
    add_output_options,
    add_pair_options,
    positive_integer,
)
from vanilla_transformer.data.atomic_files import replaced_file
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.data.text_files import read_line_pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vanilla_transformer import VanillaTransformerForConditionalGeneration
    from vanilla_transformer.inspection import AttentionMaps

SUMMARY = (
    "Shows shapes, attention, heads or costs of a saved model, or what a file or directory holds."
)
EXAMPLES = """
vanilla-transformer inspect model.argosmodel
vanilla-transformer inspect shapes runs/multi30k --text "A dog runs through the snow."
vanilla-transformer inspect attention runs/multi30k --text "A dog runs through the snow." \\
    --output maps.png
vanilla-transformer inspect heads runs/multi30k --source val.en --target val.de --output heads.png
vanilla-transformer inspect cost runs/multi30k --source-length 30 --target-length 30
"""

VIEWS = ("file", "shapes", "attention", "heads", "cost")
PICTURES = (".png", ".svg", ".pdf")
_ENDINGS = ".png, .svg or .pdf"


class ViewParser(CommandParser):
    """Parser of one view."""

    def __init__(self, prog: str, **_: object) -> None:
        super().__init__(f"inspect {prog.split()[-1]}", SUMMARY, EXAMPLES)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("inspect", SUMMARY, EXAMPLES)
    is_path = words and (Path(words[0]).exists() or Path(words[0]).suffix or "/" in words[0])
    if is_path and words[0] not in VIEWS:
        words = ["file", *words]
    views = parser.add_subparsers(
        dest="view", required=True, metavar="VIEW", parser_class=ViewParser
    )
    file = views.add_parser("file", help="kind, sizes and types of a model of any system")
    file.add_argument("path", metavar="PATH", help="file or directory; the word `file` is optional")
    shapes = views.add_parser("shapes", help="shapes and parameters of each module, as called")
    add_model_argument(shapes)
    shapes.add_argument(
        "--text", nargs="+", help="source texts (default: a small batch of made-up tokens)"
    )
    shapes.add_argument(
        "--target", nargs="+", help="target texts, one per source (default: the start token)"
    )
    shapes.add_argument("--attention", help="attention implementation: sdpa, eager, ...")
    add_output_options(shapes, f"image of the modules as in the paper's figure 1: {_ENDINGS}")
    maps = views.add_parser("attention", help="source token that each target token attends to")
    add_model_argument(maps)
    maps.add_argument("--text", required=True, help="source text")
    maps.add_argument("--target", help="target text (default: what the model generates)")
    maps.add_argument(
        "--layer", type=int, default=-1, metavar="N", help="layer, from 0; -1: the last one"
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
    add_output_options(maps, f"image of the attention: {_ENDINGS}")
    heads = views.add_parser("heads", help="change of the loss without each attention head")
    add_model_argument(heads)
    add_pair_options(heads)
    heads.add_argument(
        "--pairs", type=positive_integer, default=64, metavar="N", help="pairs to use, at most"
    )
    add_output_options(heads, f"image of the changes: {_ENDINGS}")
    cost = views.add_parser("cost", help="parameters, FLOPs and memory")
    add_model_argument(cost)
    for name, default, what in (
        ("--source-length", 128, "source tokens of a sequence"),
        ("--target-length", 128, "target tokens of a sequence"),
        ("--batch", 1, "sequences"),
    ):
        cost.add_argument(name, type=positive_integer, default=default, metavar="N", help=what)
    return parser.parse_words(words)


def check(options: argparse.Namespace) -> None:
    """Checks the paths, the number of texts and the output file."""
    if options.view == "file":
        return
    if options.view == "shapes" and len(options.target or ()) not in (0, len(options.text or ())):
        raise UsageError(
            f"--target has {len(options.target)} texts and --text {len(options.text or ())}: "
            "give the same number"
        )
    check_model_directory(options.model)
    output = getattr(options, "output", None)
    if output is None:
        return
    if Path(output).suffix.lower() not in PICTURES:
        raise ValueError(f"`--output` {output!r} is no picture: end it with {', '.join(PICTURES)}.")
    check_output(options, {})


def run(options: argparse.Namespace) -> None:
    """Prints the view, and draws it if asked to."""
    check(options)
    if options.view == "file":
        from vanilla_transformer.interop.recognition import recognise

        print(recognise(options.path))
        return
    from vanilla_transformer.inference.loading import default_device, load_weights

    views = {
        "shapes": _show_shapes,
        "attention": _show_attention,
        "heads": _show_heads,
        "cost": _show_cost,
    }
    model = load_weights(options.model).to(default_device()).eval()
    views[options.view](model, options)


def _save_picture(figure: "Figure", path: str) -> None:
    """Saves a picture, which appears when it is complete."""
    with replaced_file(Path(path).resolve()) as unfinished:
        figure.savefig(unfinished, format=Path(path).suffix[1:].lower(), dpi=150)
    print(f"{path}: written.", file=sys.stderr)


def _show_shapes(
    model: "VanillaTransformerForConditionalGeneration", options: argparse.Namespace
) -> None:
    from vanilla_transformer.data.token_words import encode_pairs
    from vanilla_transformer.inference.loading import load_tokenizer
    from vanilla_transformer.inspection.shapes import shape_walk

    if options.attention:
        model.set_attn_implementation(options.attention)
    if options.text is None:
        inputs = dict(model.dummy_inputs)
    else:
        tokenizer = load_tokenizer(options.model)
        settings = {"padding": True, "return_tensors": "pt"}
        if options.target is None:
            inputs = dict(tokenizer(options.text, **settings))
            first = inputs["input_ids"][:, :1]  # shifted, it is the start token alone
            inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(first)
        else:
            inputs = encode_pairs(tokenizer, options.text, options.target, **settings)
        inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    walk = shape_walk(model, inputs)
    print(walk)
    if options.output:
        from vanilla_transformer.inspection.shape_figures import plot_shapes

        _save_picture(plot_shapes(walk), options.output)


def _show_attention(
    model: "VanillaTransformerForConditionalGeneration", options: argparse.Namespace
) -> None:
    from vanilla_transformer.inference.loading import load_tokenizer
    from vanilla_transformer.inspection.attention_maps import attention_maps

    tokenizer = load_tokenizer(options.model)
    maps = attention_maps(model, tokenizer, options.text, options.target)
    if options.output:
        _save_picture(_draw_attention(maps, options), options.output)
    print(f"{'target':<16} {'source':<16} weight")
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


def _show_cost(model: "VanillaTransformerForConditionalGeneration", options: Any) -> None:
    from vanilla_transformer.inspection.cost import cost

    print(cost(model, options.source_length, options.target_length, options.batch))


def _show_heads(
    model: "VanillaTransformerForConditionalGeneration", options: argparse.Namespace
) -> None:
    """Prints the change of the loss without each head, and draws it if asked to."""
    from vanilla_transformer.inference.loading import load_tokenizer
    from vanilla_transformer.inference.translator import Translator
    from vanilla_transformer.inspection.attention_figures import plot_head_scores
    from vanilla_transformer.inspection.head_ablation import head_scores

    pairs = list(islice(read_line_pairs(options.source, options.target), options.pairs))
    if not pairs:
        raise ValueError(f"{options.source!r} is empty: give at least one pair of texts.")
    translator = Translator.from_model(model, load_tokenizer(options.model))
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))

    def mean_loss(_: Any) -> float:
        """Returns the mean cross-entropy of the target tokens, in nats."""
        scores = translator.score(sources, targets)
        tokens = sum(len(score.tokens) for score in scores)
        return -sum(score.log_probability for score in scores) / tokens

    changes = head_scores(model, mean_loss)
    print(f"{'attention':<30} rise of the loss without each head, in nats per token")
    for name, layers in changes.items():
        for layer, heads in enumerate(layers.tolist()):
            numbers = "  ".join(f"{change:+.4f}" for change in heads)
            print(f"{name:<20} layer {layer:<3} {numbers}")
    if options.output:
        _save_picture(plot_head_scores(changes, score="loss in nats per token"), options.output)
