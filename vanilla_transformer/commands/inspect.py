"""Shows shapes, attention, heads or costs of a saved model, or what a file or directory holds."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.command_line import CommandParser, parse_options
from vanilla_transformer.commands.files import check_output
from vanilla_transformer.commands.options import ModelOptions, OutputFile, PairFiles
from vanilla_transformer.files.atomic_files import replaced_file
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.files.text_files import check_files, read_line_pairs
from vanilla_transformer.interop.recognition import recognise
from vanilla_transformer.options import REQUIRED, argument, option
from vanilla_transformer.rules import refuse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vanilla_transformer import VanillaTransformerForConditionalGeneration
    from vanilla_transformer.inspection import AttentionMaps

EXAMPLES = """
vanilla-transformer inspect model.argosmodel
vanilla-transformer inspect shapes runs/multi30k --text "A dog runs through the snow."
vanilla-transformer inspect attention runs/multi30k --text "A dog runs through the snow." \\
    --output maps.png
vanilla-transformer inspect heads runs/multi30k --source val.en --target val.de --output heads.png
vanilla-transformer inspect cost runs/multi30k --source-length 30 --target-length 30
"""

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, kw_only=True)
class PictureFile(OutputFile):
    """A picture of what a view shows."""

    output: str | None = option(f"picture of it: {', '.join(PICTURES)}", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Kind, sizes and types of a model of any system."""

    path: str = argument("file or directory; the word `file` is optional", "PATH")


@dataclass(frozen=True, kw_only=True)
class ShapesOptions(ModelOptions):
    """Shapes and parameters of each module, as called."""

    text: list[str] | None = option(
        "source texts (default: a small batch of made-up tokens)", metavar="TEXT"
    )
    target: list[str] | None = option(
        "target texts, one per source (default: the start token)", metavar="TEXT"
    )

    def __post_init__(self) -> None:
        texts, targets = self.text or (), self.target or ()
        refuse(
            (
                targets and len(targets) != len(texts),
                f"--target has {len(targets)} texts and --text {len(texts)}: give the same number",
            )
        )


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(PictureFile, ModelOptions):
    """Source token that each target token attends to."""

    text: str = option("source text", REQUIRED)
    target: str | None = option("target text (default: what the model generates)")
    layer: int = option("layer, from 0; -1: the last one", -1)
    head: int | None = option("head to print, from 0 (default: the mean of all)")
    kind: str = option(
        "attention that --output draws", "cross", choices=("cross", "encoder", "decoder")
    )
    draw: str = option(
        "what --output holds: the heads of the layer, the heads of all layers, or source against "
        "target, with the mean of the layer's heads or with --head",
        "heads",
        choices=("heads", "layers", "alignment"),
    )


@dataclass(frozen=True, kw_only=True)
class HeadsOptions(PictureFile, PairFiles, ModelOptions):
    """Change of the loss without each attention head."""

    pairs: int = option("pairs to use, at most", 64, ge=1)


@dataclass(frozen=True, kw_only=True)
class CostOptions(ModelOptions):
    """Parameters, FLOPs and memory."""

    source_length: int = option("source tokens of a sequence", 128, ge=1)
    target_length: int = option("target tokens of a sequence", 128, ge=1)
    batch: int = option("sequences", 1, ge=1)


def _save_picture(figure: "Figure", path: str) -> None:
    """Saves a picture, which appears when it is complete."""
    with replaced_file(Path(path).resolve()) as unfinished:
        figure.savefig(unfinished, format=Path(path).suffix[1:].lower(), dpi=150)
    print(f"{path}: written.", file=sys.stderr)


def _show_shapes(
    model: "VanillaTransformerForConditionalGeneration", options: ShapesOptions
) -> None:
    from vanilla_transformer.files.loading import load_tokenizer
    from vanilla_transformer.inspection.shapes import shape_walk
    from vanilla_transformer.tokenizer_sides import target_side

    if options.text is None:
        inputs = dict(model.dummy_inputs)
    else:
        tokenizer = load_tokenizer(options.model)
        settings = {"padding": True, "return_tensors": "pt"}
        inputs = dict(tokenizer(options.text, **settings))
        if options.target is None:
            first = inputs["input_ids"][:, :1]  # shifted, it is the start token alone
            inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(first)
        else:
            encoded = target_side(tokenizer)(text_target=options.target, **settings)
            inputs["labels"] = encoded["input_ids"]
        inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    print(shape_walk(model, inputs))


def _show_attention(
    model: "VanillaTransformerForConditionalGeneration", options: AttentionOptions
) -> None:
    from vanilla_transformer.files.loading import load_tokenizer
    from vanilla_transformer.inspection.attention_maps import attention_maps

    tokenizer = load_tokenizer(options.model)
    maps = attention_maps(model, tokenizer, options.text, options.target)
    if options.output:
        _save_picture(_draw_attention(maps, options), options.output)
    print(f"{'target':<16} {'source':<16} weight")
    for target, source, weight in maps.alignment(options.layer, options.head):
        print(f"{target:<16} {source:<16} {weight:.2f}")


def _draw_attention(maps: "AttentionMaps", options: AttentionOptions) -> "Figure":
    from vanilla_transformer.inspection.attention_figures import plot_alignment, plot_heads

    if options.draw == "heads":
        return maps.figure(options.kind, options.layer)
    rows, columns = maps.axes_of(options.kind)
    if options.draw == "layers":
        title = f"{options.kind} attention"
        return plot_heads(getattr(maps, options.kind), rows, columns, title=title)
    weights = maps.weights_of(options.kind, options.layer, options.head)
    return plot_alignment(columns, rows, weights)


def _show_cost(model: "VanillaTransformerForConditionalGeneration", options: CostOptions) -> None:
    from vanilla_transformer.inspection.cost import cost

    print(cost(model, options.source_length, options.target_length, options.batch))


def _show_heads(model: "VanillaTransformerForConditionalGeneration", options: HeadsOptions) -> None:
    """Prints the change of the loss without each head, and draws it if asked to."""
    from vanilla_transformer.files.loading import load_tokenizer
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


VIEWS: dict[str, tuple[Any, Any]] = {
    "file": (FileOptions, None),
    "shapes": (ShapesOptions, _show_shapes),
    "attention": (AttentionOptions, _show_attention),
    "heads": (HeadsOptions, _show_heads),
    "cost": (CostOptions, _show_cost),
}
"""The options of each view, whose docstring is its help, and what shows it."""


def parse(words: Sequence[str]) -> tuple[Any, Any]:
    """Reads the options of the view; returns them, and what shows it."""
    is_path = words and (Path(words[0]).exists() or Path(words[0]).suffix or "/" in words[0])
    if is_path and words[0] not in VIEWS:
        words = ["file", *words]
    if not words or words[0] not in VIEWS:
        views = "\n".join(f"  {name:<10} {kind.__doc__}" for name, (kind, _) in VIEWS.items())
        parser = CommandParser("inspect", f"{__doc__}\n\nViews:\n{views}", EXAMPLES)
        parser.usage = f"{parser.prog} VIEW ..."
        parser.add_argument("view", choices=VIEWS, metavar="VIEW", help=argparse.SUPPRESS)
        parser.parse_words(words[:1])  # shows the help or an error, and exits
    kind, show = VIEWS[words[0]]
    return parse_options(f"inspect {words[0]}", kind.__doc__, EXAMPLES, kind, words[1:]), show


def check(view: tuple[Any, Any]) -> None:
    """Checks the paths."""
    options, show = view
    if show is None:
        os.stat(options.path)
        return
    check_model_directory(options.model)
    if isinstance(options, PairFiles):
        check_files(options.source, options.target)
    if output := getattr(options, "output", None):
        if Path(output).suffix.lower() not in PICTURES:
            listed = ", ".join(PICTURES)
            raise ValueError(f"`--output` {output!r} is no picture: end it with {listed}.")
        check_output(output, options.overwrite, {})


def run(view: tuple[Any, Any]) -> None:
    """Prints the view, and draws it if asked to."""
    options, show = view
    if show is None:
        print(recognise(options.path))
        return
    from vanilla_transformer.files.loading import default_device, load_on

    show(load_on(options.model, default_device()), options)
