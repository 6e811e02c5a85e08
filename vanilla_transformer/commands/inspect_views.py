"""The views of `vanilla-transformer inspect` that are pictures or counts."""

import argparse
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.commands.files import check_model_path, check_output
from vanilla_transformer.commands.options import positive_integer
from vanilla_transformer.data.atomic_files import replaced_file
from vanilla_transformer.data.text_files import existing_file, read_line_pairs
from vanilla_transformer.extras import check_extra

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")
PAIRS_PER_BATCH = 16


def add_picture_options(parser: argparse.ArgumentParser, what: str, required: bool = False) -> None:
    """Adds `--output` and `--overwrite`.

    Args:
        parser: Parser of a view.
        what: What the picture shows.
        required: Whether the view prints nothing else.
    """
    parser.add_argument(
        "--output", metavar="FILE", required=required, help=f"{what}: .png, .svg or .pdf"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing --output")


def add_views(views: Any) -> None:
    """Adds the parsers of the views."""
    positions = views.add_parser("positions", help="picture of what the positions of a stack are")
    positions.add_argument("model", metavar="MODEL", help="directory of a saved model")
    positions.add_argument("--stack", choices=("encoder", "decoder"), help="(default: encoder)")
    positions.add_argument(
        "--length", type=positive_integer, default=64, metavar="N", help="number of positions"
    )
    add_picture_options(positions, "image to write", required=True)
    training = views.add_parser("training", help="picture of the curves of trainings")
    training.add_argument(
        "runs", nargs="+", metavar="RUN", help="directory of a training, or a checkpoint"
    )
    training.add_argument("--names", nargs="+", metavar="NAME", help="names of the runs")
    training.add_argument(
        "--x", choices=("step", "epoch", "seconds"), default="step", help="from left to right"
    )
    add_picture_options(training, "image to write", required=True)
    heads = views.add_parser("heads", help="change of the loss without each attention head")
    heads.add_argument("model", metavar="MODEL", help="directory of a saved model")
    for side in ("source", "target"):
        heads.add_argument(
            f"--{side}", required=True, metavar="FILE", help=f"{side} texts, one per line"
        )
    heads.add_argument(
        "--pairs", type=positive_integer, default=64, metavar="N", help="pairs to use, at most"
    )
    add_picture_options(heads, "image of the changes")
    cost = views.add_parser("cost", help="parameters, FLOPs and memory")
    cost.add_argument("model", metavar="MODEL", help="directory of a saved model")
    for name, default in (("source-length", 128), ("target-length", 128), ("batch", 1)):
        what = "sequences" if name == "batch" else f"{name.partition('-')[0]} tokens of a sequence"
        cost.add_argument(
            f"--{name}", type=positive_integer, default=default, metavar="N", help=what
        )


def check_view(options: argparse.Namespace) -> None:
    """Checks the options of a view.

    Raises:
        OSError: If a model, a run or a file does not exist.
        ValueError: If the picture exists, or its format is unknown.
        ModuleNotFoundError: If a picture is asked for and the extra `plot` is not installed.
    """
    if options.view == "training":
        for run in options.runs:
            if not Path(run).exists():
                raise FileNotFoundError(f"The directory {run!r} does not exist.")
    else:
        check_model_path(options.model)
    if options.view == "heads":
        for path in (options.source, options.target):
            existing_file(path)
    check_picture(options)


def check_picture(options: argparse.Namespace) -> None:
    """Checks that the picture of a view, if one is asked for, may be written.

    Raises:
        ValueError: If it exists, or if its format is unknown.
        OSError: If its directory does not exist.
        ModuleNotFoundError: If the extra `plot` is not installed.
    """
    output = getattr(options, "output", None)
    if output is None:
        return
    if Path(output).suffix.lower() not in PICTURES:
        raise ValueError(f"`--output` {output!r} is no picture: end it with {', '.join(PICTURES)}.")
    check_output(options, {})
    check_extra("plot")


def save_picture(figure: "Figure", path: str) -> None:
    """Saves a picture, which appears when it is complete.

    Args:
        figure: The picture.
        path: Where it is written; the end of the name tells the format.
    """
    with replaced_file(path) as unfinished:
        figure.savefig(unfinished, format=Path(path).suffix[1:].lower(), dpi=150)


def show_view(options: argparse.Namespace) -> None:
    """Prints or draws a view."""
    if options.view == "training":
        from vanilla_transformer.inspection.training_figures import plot_training

        figure = plot_training(*options.runs, names=options.names, x=options.x)
        save_picture(figure, options.output)
        return
    from vanilla_transformer.inference.loading import load_model

    model, tokenizer = load_model(options.model)
    if options.view == "cost":
        from vanilla_transformer.inspection.cost import cost

        print(cost(model, options.source_length, options.target_length, options.batch))
    elif options.view == "positions":
        from vanilla_transformer.inspection.position_figures import plot_positions

        save_picture(plot_positions(model, options.stack, options.length), options.output)
    else:
        _show_heads(model, tokenizer, options)


def _show_heads(model: Any, tokenizer: Any, options: argparse.Namespace) -> None:
    """Prints the change of the loss without each head, and draws it if asked to."""
    from vanilla_transformer.inspection.attention_figures import plot_head_scores
    from vanilla_transformer.inspection.head_ablation import head_scores

    pairs = list(islice(read_line_pairs(options.source, options.target), options.pairs))
    if not pairs:
        raise ValueError(f"{options.source!r} is empty: give at least one pair of texts.")
    changes = head_scores(model, _make_loss(tokenizer, pairs, model.device))
    for name, layers in changes.items():
        for layer, heads in enumerate(layers.tolist()):
            numbers = "  ".join(f"{change:+.4f}" for change in heads)
            print(f"{name:<20} layer {layer:<3} {numbers}")
    if options.output:
        save_picture(plot_head_scores(changes, score="loss in nats per token"), options.output)


def _make_loss(
    tokenizer: Any, pairs: list[tuple[str, str]], device: "torch.device"
) -> Callable[[Any], float]:
    """Makes a score: the mean cross-entropy of the target tokens, in nats."""
    import torch.nn.functional as F

    batches = list(_encode_batches(tokenizer, pairs, device))

    def mean_loss(model: Any) -> float:
        total, count = 0.0, 0
        for batch in batches:
            labels = batch["labels"].flatten()
            logits = model(**batch).logits.flatten(0, 1).float()
            total += F.cross_entropy(logits, labels, reduction="sum").item()
            count += int((labels >= 0).sum())
        return total / count

    return mean_loss


def _encode_batches(
    tokenizer: Any, pairs: list[tuple[str, str]], device: "torch.device"
) -> Iterator[dict[str, "torch.Tensor"]]:
    """Yields batches of pairs; labels of padding are -100, which the loss ignores."""
    for start in range(0, len(pairs), PAIRS_PER_BATCH):
        sources, targets = zip(*pairs[start : start + PAIRS_PER_BATCH], strict=True)
        texts = {"text": list(sources), "text_target": list(targets)}
        batch = tokenizer(**texts, padding=True, return_tensors="pt").to(device)
        labels = batch["labels"]
        is_padding = labels == tokenizer.pad_token_id
        yield {**batch, "labels": labels.masked_fill(is_padding, -100)}
