"""`vanilla-transformer convert`: a checkpoint of another system as a model of this package."""

import argparse
from collections.abc import Sequence
from typing import Any

from vanilla_transformer.commands.checks import check_output_directory
from vanilla_transformer.commands.options import (
    CommandParser,
    nonnegative_integer,
    positive_integer,
)
from vanilla_transformer.commands.outputs import replaced_directory
from vanilla_transformer.data.text_files import existing_file

SUMMARY = "Converts a checkpoint of another system into a saved model."
EXAMPLES = """
vanilla-transformer convert run.pt runs/converted --from system-a --heads 8
vanilla-transformer convert run.pt runs/converted --from system-a --heads 8 \\
    --key model_state_dict --rename rules.yaml --set eos_token_id=3 dropout=0.2
"""
SYSTEM_NAMES = ("system-a", "system-b", "system-c", "system-d", "system-e")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("convert", SUMMARY, EXAMPLES, intermixed=True)
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="file of weights: `torch.save(model.state_dict(), ...)`, or safetensors",
    )
    parser.add_argument("output_dir", metavar="OUT", help="directory of the new model")
    parser.add_argument(
        "--from", dest="system", required=True, choices=SYSTEM_NAMES, help="system that trained it"
    )
    parser.add_argument(
        "--heads",
        type=positive_integer,
        required=True,
        metavar="N",
        help="number of attention heads, which the weights do not tell",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the model in OUT")
    weights = parser.add_argument_group("names and fields")
    weights.add_argument(
        "--rename",
        metavar="FILE",
        help="YAML file that maps regular expressions for your names to the expected names",
    )
    weights.add_argument(
        "--key", help="entry that holds the weights, in a file that holds more than weights"
    )
    weights.add_argument(
        "--source-pad",
        type=nonnegative_integer,
        metavar="ID",
        help="padding id of the source if it differs from pad_token_id; the two rows are swapped",
    )
    weights.add_argument(
        "--set",
        nargs="+",
        type=_read_assignment,
        default=[],
        metavar="FIELD=VALUE",
        help="config fields that differ from the system's preset, e.g. pad_token_id=3",
    )
    return parser.parse_words(words)


def check(options: argparse.Namespace) -> None:
    """Checks the files and the output directory.

    Raises:
        OSError: If a file does not exist, or the output is a file.
        ValueError: If the output directory is in use.
    """
    for path in (options.checkpoint, options.rename):
        if path:
            existing_file(path)
    check_output_directory(options.output_dir, options.overwrite)


def run(options: argparse.Namespace) -> None:
    """Converts the checkpoint and saves the model."""
    from vanilla_transformer.interop.convert import convert_checkpoint
    from vanilla_transformer.interop.systems import SYSTEMS

    with replaced_directory(options.output_dir) as unfinished:
        model = convert_checkpoint(
            options.system,
            options.checkpoint,
            unfinished,
            options.heads,
            renames=options.rename,
            key=options.key,
            source_pad_token_id=options.source_pad,
            **dict(options.set),
        )
    print(f"{options.output_dir}: {type(model).__name__}, {model.num_parameters():,} parameters.")
    if SYSTEMS[options.system].encoder_only:
        print(
            "Only the encoder is trained: `AutoModel.from_pretrained(...).encoder`; "
            "it takes `inputs_embeds`."
        )
    else:
        print("The model has no tokenizer yet: save yours in the same directory.")


def _read_assignment(text: str) -> tuple[str, Any]:
    import yaml

    name, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise argparse.ArgumentTypeError(f"{text!r}: the value cannot be read as YAML") from None
