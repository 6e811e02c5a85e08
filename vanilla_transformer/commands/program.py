"""The program `vanilla-transformer`: finds the subcommand, runs it, and reports errors.

Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 ended by SIGTERM (`train`).
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from platform import python_version
from typing import Protocol, cast

from vanilla_transformer import __version__
from vanilla_transformer.commands.options import PROGRAM, CommandParser, UsageError
from vanilla_transformer.registration import register

SUBCOMMANDS = (
    "train",
    "adapt",
    "prepare",
    "corpora",
    "evaluate",
    "translate",
    "score",
    "align",
    "average",
    "vocabulary",
    "inspect",
    "page",
    "convert",
    "export",
    "verify",
    "serve",
)
"""Names of the subcommands, in the order of a person's work. Each has a module of its name."""

EXAMPLES = """
vanilla-transformer train recipe.yaml --output-dir runs/first
vanilla-transformer translate runs/first "a first sentence"
vanilla-transformer evaluate runs/first --test-source test.en --test-target test.de
"""
_VALUES_OF_TRANSFORMERS_DEBUG = ("underflow_overflow", "tpu_metrics_debug")


class Subcommand(Protocol):
    """What the module of a subcommand offers."""

    SUMMARY: str
    """One sentence for the list of subcommands and the subcommand's help."""

    def parse(self, words: Sequence[str], /) -> argparse.Namespace:
        """Reads the arguments after the name of the subcommand."""

    def check(self, options: argparse.Namespace, /) -> None:
        """Checks options, paths and extras in well under a second.

        Raises:
            UsageError: If options contradict each other, or one is written wrongly.
            OSError: If a model or a file does not exist, or an output cannot be made.
            ValueError: If an output exists, or is also an input.
            ModuleNotFoundError: If a package is not installed that the work needs.
        """

    def run(self, options: argparse.Namespace, /) -> None:
        """Does the work."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand, and reports an error in one line on standard error.

    Args:
        argv: Arguments; None: those of the process.
    """
    if isinstance(sys.stdout, TextIOWrapper):  # a file or a pipe on Windows lacks most characters
        sys.stdout.reconfigure(errors="backslashreplace")
    debug, words = _take_debug_flag(sys.argv[1:] if argv is None else argv)
    name, rest = find_subcommand(words)
    try:
        run_subcommand(name, rest)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has left. The interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UsageError as error:
        CommandParser(name, "").error(str(error))
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            raise
        if isinstance(error, KeyboardInterrupt):
            # A second Ctrl-C, while the interpreter ends, would replace the exit status.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print(f"{PROGRAM} {name}: interrupted", file=sys.stderr)
            return 130
        print(f"{PROGRAM} {name}: error: {describe_error(error)}", file=sys.stderr)
        return 1
    return 0


def run_subcommand(name: str, words: Sequence[str]) -> None:
    """Parses, checks and runs one subcommand; its errors are raised."""
    subcommand = _import_subcommand(name)
    options = subcommand.parse(words)
    subcommand.check(options)
    register()
    from vanilla_transformer.progress import hide_bars_of_loading  # imports transformers

    hide_bars_of_loading()
    subcommand.run(options)


def find_subcommand(words: Sequence[str]) -> tuple[str, list[str]]:
    """Splits a command line into the name of the subcommand and its arguments.

    Raises:
        SystemExit: With status 2 if the name is missing or unknown, 0 after help or version.
    """
    count = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    before, name, rest = words[:count], "".join(words[count : count + 1]), words[count + 1 :]
    if name in SUBCOMMANDS and not before:
        return name, list(rest)
    parser = _make_program_parser()
    if parser.parse_words(before).version:
        print(_describe_versions())
        parser.exit()
    if not name:
        parser.error(f"give a subcommand: {', '.join(SUBCOMMANDS)}")
    close = get_close_matches(name, SUBCOMMANDS, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(SUBCOMMANDS)}"
    parser.error(f"unknown subcommand {name!r}: {hint}")


def describe_error(error: BaseException) -> str:
    """Returns one line on an error; an error that lists several problems keeps its lines.

    An error of an unexpected type is a bug, and the line says how to see its traceback.
    """
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {str(error.filename)!r}"
    message = str(error)
    if "\n- " not in message:
        message = " ".join(message.split())
    if isinstance(error, ValueError | OSError | ModuleNotFoundError):
        return message
    return f"{type(error).__name__}: {message or 'no message'} (add --debug for the traceback)"


def _import_subcommand(name: str) -> Subcommand:
    return cast(Subcommand, import_module(f"vanilla_transformer.commands.{name}"))


def _make_program_parser() -> CommandParser:
    summaries = (f"  {name:<10} {_import_subcommand(name).SUMMARY}" for name in SUBCOMMANDS)
    description = "\n".join(
        (
            "Trains and runs the Transformer of 'Attention Is All You Need' on your texts.",
            "\nSubcommands:",
            *summaries,
            f"\n`{PROGRAM} SUBCOMMAND --help` shows the options of a subcommand.",
        )
    )
    parser = CommandParser("", description, EXAMPLES)
    parser.usage = f"{PROGRAM} SUBCOMMAND ..."
    parser.add_argument("--version", action="store_true", help="show the versions and exit")
    return parser


def _take_debug_flag(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Removes `--debug`, anywhere before a bare `--`.

    `--debug underflow_overflow` is an option of transformers' training arguments, and stays.
    """
    end = words.index("--") if "--" in words else len(words)
    kept = [
        word
        for position, word in enumerate(words)
        if word != "--debug"
        or position > end
        or (words[position + 1 : position + 2] or [""])[0] in _VALUES_OF_TRANSFORMERS_DEBUG
    ]
    return len(kept) < len(words), kept


def _describe_versions() -> str:
    versions = [f"Python {python_version()}"]
    for package in ("torch", "transformers"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} is not installed")
    return f"{PROGRAM} {__version__} ({', '.join(versions)})"
