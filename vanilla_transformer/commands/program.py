"""The program `vanilla-transformer`: finds the subcommand, runs it, and reports errors.

Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 ended by SIGTERM (`train`).
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from io import TextIOWrapper
from platform import python_version
from typing import Any, NoReturn

from vanilla_transformer import __version__
from vanilla_transformer.command_line import (
    PROGRAM,
    CommandParser,
    UsageError,
    most_similar,
    parse_options,
    told_when_slow,
)
from vanilla_transformer.extras import optional_packages
from vanilla_transformer.registration import register

SUBCOMMANDS = (
    "train",
    "adapt",
    "distil",
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
    "serve",
    "env",
)
"""Names of the subcommands, in the order of a person's work. Each has a module of its name."""

EXAMPLES = """
vanilla-transformer train recipe.yaml --output-dir runs/first
vanilla-transformer translate runs/first "a first sentence"
vanilla-transformer evaluate runs/first --test-source test.en --test-target test.de
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand, and reports an error in one line on standard error.

    Args:
        argv: Arguments; None: those of the process.
    """
    if isinstance(sys.stdout, TextIOWrapper):  # a file or a pipe on Windows lacks most characters
        sys.stdout.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    if is_verbose := "--verbose" in words[:end]:
        words.remove("--verbose")
    name = words[0] if words and words[0] in SUBCOMMANDS else ""
    program = f"{PROGRAM} {name}".strip()
    try:
        if not name:
            _answer_without_subcommand(words)
        run_subcommand(name, words[1:], is_verbose)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has left. The interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UsageError as error:
        print(f"{program}: error: {error} (see {program} --help)", file=sys.stderr)
        return 2
    except (Exception, KeyboardInterrupt) as error:
        if is_verbose:
            raise
        if isinstance(error, KeyboardInterrupt):
            # A second Ctrl-C, while the interpreter ends, would replace the exit status.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print(f"{program}: interrupted", file=sys.stderr)
            return 130
        print(f"{program}: error: {describe_error(error)}", file=sys.stderr)
        return 1
    return 0


def run_subcommand(name: str, words: Sequence[str], is_verbose: bool = False) -> None:
    """Parses the arguments of one subcommand and runs it; its errors are raised.

    Args:
        is_verbose: Whether it shows all messages of the package.
    """
    # Threads that wait soon leave the processor to other programs. OpenMP reads this when torch is
    # imported, which `register` does.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    options = parse(name, words)
    subcommand = _import_subcommand(name)
    if hasattr(subcommand, "check"):  # what needs no model fails before torch is imported
        subcommand.check(options)
    with told_when_slow("Loading the libraries ..."):
        register()
        from vanilla_transformer.progress import show_messages  # imports transformers

    show_messages(logging.DEBUG if is_verbose else logging.WARNING)
    with optional_packages():
        subcommand.run(options)


def parse(name: str, words: Sequence[str]) -> Any:
    """Reads the options of a subcommand: the fields of its `Options`, or what its `parse` reads."""
    subcommand = _import_subcommand(name)
    if hasattr(subcommand, "parse"):
        return subcommand.parse(words)
    return parse_options(name, subcommand.__doc__, subcommand.EXAMPLES, subcommand.Options, words)


def _answer_without_subcommand(words: Sequence[str]) -> NoReturn:
    """Shows the help or the versions, or refuses the words; exits."""
    summaries = (f"  {name:<10} {_import_subcommand(name).__doc__}" for name in SUBCOMMANDS)
    description = "\n".join(
        (
            "Train, adapt and serve translation models on your own texts. The model is the "
            "Transformer of the paper, in code that reads like its figure.",
            "\nSubcommands:",
            *summaries,
            f"\n`{PROGRAM} SUBCOMMAND --help` shows the options of a subcommand. With `--verbose`,",
            "each shows all messages, and the traceback of an error.",
        )
    )
    parser = CommandParser("", description, EXAMPLES)
    parser.usage = f"{PROGRAM} SUBCOMMAND ..."
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    versions = f"{PROGRAM} {__version__} (Python {python_version()}, {libraries})"
    parser.add_argument(
        "--version", action="version", version=versions, help="show the versions and exit"
    )
    if words and not words[0].startswith("-"):
        parser.error(f"no subcommand {words[0]}{most_similar(words[0], SUBCOMMANDS)}")
    parser.parse_words(words[:1] or ["--help"])
    parser.error("the subcommand comes first")


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
    hint = "with --verbose, the command shows the traceback"
    return f"{type(error).__name__}: {message or 'no message'} ({hint})"


def _import_subcommand(name: str) -> Any:
    return import_module(f"vanilla_transformer.commands.{name}")
