"""`vanilla-transformer train`: one training run."""

import argparse
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vanilla_transformer.commands.files import check_data_files
from vanilla_transformer.commands.options import CommandParser, UsageError, add_fields, option_of
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.extras import check_extra
from vanilla_transformer.run.option_names import first_unknown_option, unknown_option_message
from vanilla_transformer.run.options import (
    AveragingArguments,
    CardArguments,
    ModelArguments,
    PreparationArguments,
    ShowArguments,
    SubwordArguments,
    TokenizerArguments,
)
from vanilla_transformer.run.recipes import RECIPE_SUFFIXES, read_recipe

SUMMARY = "Trains a new model, or a saved one further, on pairs of texts; evaluates and saves it."
EXAMPLES = """
vanilla-transformer train --train-source train.en --train-target train.de \\
    --validation-source val.en --validation-target val.de --output-dir runs/first
vanilla-transformer train scripts/recipes/multi30k.yaml --seed 2 --output-dir runs/second
accelerate launch --num_processes 2 -m vanilla_transformer train recipe.yaml
"""
ARCHITECTURE_OPTIONS = {
    "d_model": "width of the model (chosen, or 512)",
    "encoder_layers": "layers of the encoder (chosen, or 6)",
    "decoder_layers": "layers of the decoder (chosen, or 6)",
    "encoder_attention_heads": "attention heads of each encoder layer (chosen, or 8)",
    "decoder_attention_heads": "attention heads of each decoder layer (chosen, or 8)",
    "encoder_ffn_dim": "width of the encoder's feed-forward layers (chosen, or 2048)",
    "decoder_ffn_dim": "width of the decoder's feed-forward layers (chosen, or 2048)",
    "norm_placement": "post (the paper), pre, or none (chosen, or post)",
    "position_embedding_type": "sinusoidal, learned, rope, alibi, ... (chosen, or sinusoidal)",
    "dropout": "dropout of the embeddings and of each sublayer's output (chosen, or 0.1)",
    "label_smoothing": "label smoothing of the loss (chosen, or 0.0)",
}
"""The most used fields of the config, with their defaults in brackets.

"chosen" stands for the choice that `run.defaults` makes for a new model by its data.
"""
TRAINING_OPTIONS = {
    "output_dir": "directory of the model and its checkpoints (trainer_output)",
    "max_tokens": "largest batch in tokens: source and target together, with padding (chosen)",
    "per_device_train_batch_size": "examples per batch on each device (8)",
    "gradient_accumulation_steps": "batches per optimizer step (1)",
    "learning_rate": "peak learning rate (chosen, or 5e-5)",
    "optim": "adamw_torch_fused, muon, adafactor, ... (chosen, or adamw_torch_fused)",
    "lr_scheduler_type": "linear, cosine, inverse_sqrt, constant, ... (linear)",
    "warmup_steps": "optimizer steps of rising learning rate (chosen, or 0)",
    "num_train_epochs": "passes over the training data (chosen, or 3)",
    "max_steps": "optimizer steps, instead of epochs",
    "eval_strategy": "when to evaluate: no, steps or epoch (chosen, or no)",
    "save_strategy": "when to save a checkpoint: no, steps, epoch or best (chosen, or steps)",
    "load_best_model_at_end": "end with the best checkpoint instead of the last weights (chosen)",
    "resume_from_checkpoint": "checkpoint to continue from; True: the last one in output_dir",
    "generation_num_beams": "beam width of the evaluation (chosen)",
    "generation_length_penalty": "length penalty of that search: above 1, outputs are longer",
    "bf16": "train in bfloat16 mixed precision (chosen)",
    "seed": "seed of all random numbers (42)",
}
"""The most used options of the Trainer, with their defaults in brackets."""
_MOST_USED = "most used; --help-all lists all; chosen: fits a new model's data and the device"
LARGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""Environment variable that makes torch use large memory pages on a CPU (Linux)."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Shows the short help if it is asked for; the options themselves are read by `run`."""
    if {"-h", "--help"} & set(words):
        parser = _make_help_parser()
        parser.print_help()
        parser.exit()
    return argparse.Namespace(words=["--help" if word == "--help-all" else word for word in words])


def _make_help_parser() -> CommandParser:
    parser = CommandParser("train", SUMMARY, EXAMPLES)
    parser.usage = f"{parser.prog} [RECIPE] [--option value ...]"
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        nargs="?",
        help="YAML or JSON file of options, as `name: value`; later options override it",
    )
    parser.add_argument("--help-all", action="store_true", help="list all options and exit")
    for title, topic in {
        "data": DataArguments,
        "model": ModelArguments,
        "tokenizer": TokenizerArguments,
        "preparation": PreparationArguments,
        "subword regularisation": SubwordArguments,
        "averages of the weights": AveragingArguments,
        "messages": ShowArguments,
        "model card": CardArguments,
    }.items():
        add_fields(parser.add_argument_group(title), topic)
    for title, options in (
        (f"architecture of a new model ({_MOST_USED})", ARCHITECTURE_OPTIONS),
        (f"training ({_MOST_USED})", TRAINING_OPTIONS),
    ):
        group = parser.add_argument_group(title)
        for name, text in options.items():
            group.add_argument(option_of(name), metavar="VALUE", help=text)
    return parser


def check(options: argparse.Namespace) -> None:
    """Checks the recipe, the names of the options, and the files that they name."""
    words = options.words
    if words and words[0].endswith(RECIPE_SUFFIXES):
        words = [*read_recipe(words[0]).words, *words[1:]]
    if unknown := first_unknown_option(words):
        raise UsageError(unknown_option_message(unknown))
    values = _given_values(words)
    if "prepared" not in values:  # which does not need the files that it was made from
        check_data_files(values)
    if model := values.get("model_name_or_path"):
        check_model_directory(model)
    check_extra("train")


def _given_values(words: Sequence[str]) -> dict[str, str]:
    """Returns the text after each long option, by the option's name with underscores."""
    values = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, sign, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and (sign or not following.startswith("--")):
            values[name.replace("-", "_")] = value if sign else following
    return values


def run(options: argparse.Namespace) -> None:
    """Reads all options and carries out the run, with its messages on standard error."""
    check(options)
    os.environ.setdefault(LARGE_PAGES, "1")  # torch reads it when it allocates first
    import torch.distributed

    from vanilla_transformer.run import training_run
    from vanilla_transformer.run.parsing import parse_arguments

    try:
        arguments = parse_arguments(options.words)
    except ValueError as error:
        raise UsageError(str(error)) from error
    training_run.show_messages(arguments)
    with _sigterm_as_exit(training_run.STATUS_OF_SIGTERM):
        training_run.run(arguments)
    if torch.distributed.is_initialized():  # its threads would abort a process that just ends
        torch.distributed.destroy_process_group()


@contextmanager
def _sigterm_as_exit(status: int) -> Iterator[None]:
    """Ends the process in order on SIGTERM, as on Ctrl-C: a training says what it has saved."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(status)

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
