"""The command line parser that all subcommands share, and the types of their options."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from types import NoneType
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

PROGRAM = "vanilla-transformer"


class UsageError(ValueError):
    """A command line that contradicts itself; reported as a wrong option is."""


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of the examples, and shows the defaults that say something."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False or action.default == []:
            return action.help
        if isinstance(action.default, list):
            return f"{action.help} (default: {' '.join(map(str, action.default))})"
        return super()._get_help_string(action)


class CommandParser(argparse.ArgumentParser):
    """Parser of one subcommand.

    Long options may be spelt with hyphens or underscores, and may not be abbreviated. An error is
    one line.

    Args:
        name: Name of the subcommand; empty for the program itself.
        summary: One sentence on what it does.
        examples: Command lines for the end of the help, one per line.
        intermixed: Whether positional arguments may also stand after and between options.
    """

    def __init__(
        self, name: str, summary: str, examples: str = "", intermixed: bool = False
    ) -> None:
        lines = "".join(f"\n  {line}" for line in examples.strip().splitlines())
        super().__init__(
            prog=f"{PROGRAM} {name}".strip(),
            description=summary,
            epilog=f"Examples:{lines}" if lines else None,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.intermixed = intermixed
        self.add_argument("-h", "--help", action="help", help="show this help and exit")
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def parse_words(self, words: Sequence[str]) -> argparse.Namespace:
        """Parses the arguments of the subcommand.

        Args:
            words: What follows its name on the command line.

        Returns:
            The options by name, with underscores.

        Raises:
            SystemExit: With status 2 if the arguments are wrong, 0 after the help is shown.
        """
        kebab = spell_with_hyphens(words)
        return self.parse_intermixed_args(kebab) if self.intermixed else self.parse_args(kebab)

    def error(self, message: str) -> NoReturn:
        """Prints one line and exits with status 2."""
        print(f"{self.prog}: error: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def spell_with_hyphens(words: Sequence[str]) -> list[str]:
    """Returns the arguments with every long option in kebab-case.

    Args:
        words: Command line arguments. What follows a bare `--` is text and stays as it is.
    """
    end = words.index("--") if "--" in words else len(words)
    spelt = []
    for word in words[:end]:
        name, sign, value = word.partition("=")
        spelt.append(name.replace("_", "-") + sign + value if word.startswith("--") else word)
    return [*spelt, *words[end:]]


def add_fields(
    group: argparse._ArgumentGroup,
    dataclass: type,
    without: Sequence[str] = (),
    types: Mapping[type, Callable[[str], Any]] | None = None,
) -> None:
    """Adds an option for each field of a dataclass, with the help text of its metadata.

    Args:
        group: Where the options are listed.
        dataclass: Fields are texts, numbers, flags, lists of these, or None.
        without: Names of fields that are not added.
        types: Functions that read and check the values of a type, where it is not enough itself.
    """
    hints = get_type_hints(dataclass)
    for field in dataclasses.fields(dataclass):
        if field.name in without:
            continue
        kinds = [kind for kind in get_args(hints[field.name]) if kind is not NoneType]
        kind = (
            kinds[0] if kinds and get_origin(hints[field.name]) is not list else hints[field.name]
        )
        made = field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        settings: dict[str, Any] = {"help": field.metadata.get("help"), "default": default}
        if kind is bool:
            settings["action"] = "store_true"
        elif get_origin(kind) is list:
            settings |= {"nargs": "+", "type": get_args(kind)[0], "metavar": "NAME"}
        else:
            settings |= {
                "type": (types or {}).get(kind, kind),
                "metavar": {int: "N", float: "X"}.get(kind, "TEXT"),
            }
        group.add_argument(f"--{field.name.replace('_', '-')}", **settings)


def positive_integer(text: str) -> int:
    """Reads a whole number of at least 1."""
    return _at_least(int(text), 1)


def nonnegative_integer(text: str) -> int:
    """Reads a whole number of at least 0."""
    return _at_least(int(text), 0)


def finite_number(text: str) -> float:
    """Reads a finite number."""
    if not isfinite(float(text)):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return float(text)


def positive_number(text: str) -> float:
    """Reads a finite number above 0."""
    if not 0 < float(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return float(text)


def nonnegative_number(text: str) -> float:
    """Reads a finite number of at least 0."""
    if not 0 <= float(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number of at least 0")
    return float(text)


def probability(text: str) -> float:
    """Reads a number above 0, and at most 1."""
    if not 0 < float(text) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return float(text)


def _at_least(number: int, smallest: int) -> int:
    if number < smallest:
        raise argparse.ArgumentTypeError(f"{number} is below {smallest}")
    return number


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the saved model, which a subcommand reads, to its arguments."""
    parser.add_argument(
        "model", metavar="MODEL", help="directory of a saved model, or its name on the Hub"
    )


def add_pair_options(files: argparse._ArgumentGroup) -> None:
    """Adds two files of parallel lines, and the output, to a group of options."""
    for side in ("source", "target"):
        files.add_argument(
            f"--{side}", required=True, metavar="FILE", help=f"{side} texts, one per line"
        )
    files.add_argument("--output", metavar="FILE", help="file to write (default: print)")
    files.add_argument("--overwrite", action="store_true", help="replace an existing --output")


def add_resume_option(files: argparse._ArgumentGroup) -> None:
    """Adds the continuation of an interrupted output to a group of options."""
    files.add_argument(
        "--resume",
        action="store_true",
        help="go on with an --output that was interrupted; the same options must be given",
    )
