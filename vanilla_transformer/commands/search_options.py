"""Options of the search and of the engine, which several subcommands share."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vanilla_transformer.commands.options import (
    UsageError,
    finite_number,
    nonnegative_integer,
    positive_integer,
    positive_number,
    probability,
)
from vanilla_transformer.names import ENGINES

_SEARCH_OPTIONS = (
    *("num_beams", "max_new_tokens", "length_penalty"),
    *("do_sample", "temperature", "top_k", "top_p"),
)
"""Settings of `generate()` that have options of their own."""


def add_search_options(group: argparse._ArgumentGroup) -> None:
    """Adds the settings of the search to a group of options."""
    integer: dict[str, Any] = {"type": positive_integer, "metavar": "N"}
    group.add_argument("--num-beams", **integer, help="beam width; 1 is greedy search")
    group.add_argument("--max-new-tokens", **integer, help="longest output, in tokens")
    group.add_argument(
        "--length-penalty",
        type=finite_number,
        metavar="X",
        help="exponent of the length by which a beam search divides scores: above 1 favours longer "
        "outputs",
    )
    group.add_argument("--do-sample", action="store_true", default=None, help="sample tokens")
    group.add_argument(
        "--temperature",
        type=positive_number,
        metavar="X",
        help="below 1 samples likely tokens more",
    )
    group.add_argument(
        "--top-k", type=nonnegative_integer, metavar="N", help="sample from the N likeliest tokens"
    )
    group.add_argument(
        "--top-p",
        type=probability,
        metavar="X",
        help="sample from the likeliest tokens whose probabilities add up to X",
    )
    group.add_argument(
        "--generation",
        type=_read_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other setting of generate(), such as no_repeat_ngram_size=3; may be repeated",
    )


def _read_setting(text: str) -> tuple[str, Any]:
    """Reads a setting of `generate()`; the value is JSON, or else a text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), {"True": True, "False": False}.get(value, value)


def add_engine_options(group: argparse._ArgumentGroup) -> None:
    """Adds the engine, the size of its batches and its device to a group of options.

    Args:
        group: Where the options are listed.
    """
    group.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="auto: CTranslate2 where it is installed and can compute the model",
    )
    group.add_argument(
        "--batch-tokens",
        type=positive_integer,
        default=4096,
        metavar="N",
        help="largest size of a batch, in tokens with padding",
    )
    group.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")


def add_compute_type_option(group: argparse._ArgumentGroup, default: str = "float32") -> None:
    """Adds the type in which CTranslate2 computes to a group of options."""
    group.add_argument(
        "--compute-type",
        default=default,
        metavar="TYPE",
        help="type of CTranslate2's computation; int8 is the fastest on a CPU",
    )


def given_search_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of the search that were given, by their names in `GenerationConfig`.

    Raises:
        UsageError: If a setting is given twice.
    """
    named = [(name, getattr(options, name)) for name in _SEARCH_OPTIONS]
    given = [*((name, value) for name, value in named if value is not None), *options.generation]
    for name, count in Counter(name for name, _ in given).items():
        if count > 1:
            raise UsageError(f"the setting {name} is given {count} times: give it once")
    return dict(given)


@contextmanager
def usage_of_search() -> Iterator[None]:
    """Turns errors about the search inside of the `with` block into errors of the usage.

    Raises:
        UsageError: With the names of options as they are written on the command line.
    """
    from vanilla_transformer.search import SearchError

    try:
        yield
    except SearchError as error:
        raise UsageError(error.spelled(_name_of_option)) from error


def _name_of_option(name: str) -> str:
    if name in (*_SEARCH_OPTIONS, "n_best", "minimum_risk", "candidates"):
        return f"--{name.replace('_', '-')}"
    return f"--generation {name}"
