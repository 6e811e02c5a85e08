"""The command line parser that all subcommands share, and the types of their options."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import NoneType, UnionType
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from vanilla_transformer.names import ENGINES
from vanilla_transformer.rules import refuse

PROGRAM = "vanilla-transformer"

_SEARCH_OPTIONS = (
    *("num_beams", "max_new_tokens", "length_penalty"),
    *("do_sample", "temperature", "top_k", "top_p"),
)
"""Settings of `generate()` that have options of their own."""


class UsageError(ValueError):
    """A command line that contradicts itself; reported as a wrong option is."""


check_usage = partial(refuse, error=UsageError)
"""Raises a `UsageError` with the sentence of the first row (is broken, sentence) that is broken."""


@contextmanager
def usage_errors(kind: type[ValueError] = ValueError) -> Iterator[None]:
    """Reports errors of the `with` block as wrong usage."""
    try:
        yield
    except kind as error:
        raise UsageError(str(error)) from error


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
        examples: Command lines for the end of the help, one per line.
        intermixed: Whether positional arguments may also follow options.
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

    def parse_words(self, words: Sequence[str]) -> argparse.Namespace:
        """Parses the arguments of the subcommand.

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
    """Returns words with long options in kebab-case; what follows a bare `--` stays as it is."""
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
        dataclass: Fields are texts, numbers, flags, lists of these, or None.
        types: Functions that read and check the values of a type, where it is not enough itself.
    """
    hints = get_type_hints(dataclass)
    for field in dataclasses.fields(dataclass):
        if field.name in without:
            continue
        kind = hints[field.name]
        if get_origin(kind) is UnionType:  # such as int | None
            kind = next(member for member in get_args(kind) if member is not NoneType)
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        settings: dict[str, Any] = {"help": field.metadata.get("help"), "default": default}
        metavar = field.metadata.get("metavar")
        if kind is bool:
            settings["action"] = "store_true"
        elif get_origin(kind) is list:
            settings |= {"nargs": "+", "type": get_args(kind)[0], "metavar": metavar or "NAME"}
        else:
            settings |= {
                "type": (types or {}).get(kind, kind),
                "metavar": metavar or {int: "N", float: "X"}.get(kind, "TEXT"),
            }
        group.add_argument(option_of(field.name), **settings)


def _number_type(
    read: Callable[[str], Any], is_fit: Callable[[Any], bool], words: str
) -> Callable[[str], Any]:
    """Makes the type of an option whose values are limited."""

    def read_number(text: str) -> Any:
        value = read(text)
        if not is_fit(value):
            raise argparse.ArgumentTypeError(f"{text} {words}")
        return value

    read_number.__name__ = read.__name__  # argparse names it in its errors
    return read_number


positive_integer = _number_type(int, lambda value: value >= 1, "is below 1")
nonnegative_integer = _number_type(int, lambda value: value >= 0, "is below 0")
positive_number = _number_type(
    float, lambda value: 0 < value < float("inf"), "is not a finite number above 0"
)
nonnegative_number = _number_type(
    float, lambda value: 0 <= value < float("inf"), "is not a finite number of at least 0"
)


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the saved model, which a subcommand reads, to its arguments."""
    parser.add_argument(
        "model", metavar="MODEL", help="directory of a saved model, or its name on the Hub"
    )


def add_pair_options(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Adds two files of parallel lines."""
    for side in ("source", "target"):
        group.add_argument(
            f"--{side}", required=True, metavar="FILE", help=f"{side} texts, one per line"
        )


def add_language_options(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Adds the languages of sources and targets."""
    group.add_argument(
        "--source-language",
        metavar="CODE",
        help="language of the sources, e.g. en, pt-BR or eng_Latn (default: that of the model)",
    )
    group.add_argument(
        "--target-language",
        metavar="CODE",
        help="language of the targets, which a model of several target languages needs",
    )


def languages_of(options: argparse.Namespace) -> dict[str, Any]:
    """Returns these languages, by their names in `Translator`."""
    return {"src_lang": options.source_language, "tgt_lang": options.target_language}


def add_output_options(
    group: argparse._ArgumentGroup | argparse.ArgumentParser,
    what: str = "file to write (default: print)",
) -> None:
    """Adds an output, and whether it may replace a file."""
    group.add_argument("--output", metavar="FILE", help=what)
    group.add_argument("--overwrite", action="store_true", help="replace an existing --output")


def add_resume_option(files: argparse._ArgumentGroup) -> None:
    """Adds the continuation of an interrupted output to a group of options."""
    files.add_argument(
        "--resume",
        action="store_true",
        help="go on with an --output that was interrupted; the same options must be given",
    )


def add_search_options(group: argparse._ArgumentGroup) -> None:
    """Adds the settings of the search to a group of options."""
    group.add_argument("--num-beams", type=int, metavar="N", help="beam width; 1 is greedy search")
    group.add_argument("--max-new-tokens", type=int, metavar="N", help="longest output, in tokens")
    group.add_argument(
        "--length-penalty",
        type=float,
        metavar="X",
        help="exponent of the length by which a beam search divides scores: above 1 favours longer "
        "outputs",
    )
    group.add_argument("--do-sample", action="store_true", default=None, help="sample tokens")
    group.add_argument(
        "--temperature", type=float, metavar="X", help="below 1 samples likely tokens more"
    )
    group.add_argument("--top-k", type=int, metavar="N", help="sample from the N likeliest tokens")
    group.add_argument(
        "--top-p",
        type=float,
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
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), {"True": True, "False": False}.get(value, value)


def search_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of the search that were given, by their names in `GenerationConfig`."""
    values = {name: getattr(options, name) for name in _SEARCH_OPTIONS}
    supplied = {name: value for name, value in values.items() if value is not None}
    return {**supplied, **dict(options.generation)}


def add_engine_options(group: argparse._ArgumentGroup, engine: bool = True) -> None:
    """Adds the engine, the size of its batches and its device to a group of options."""
    if engine:
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


def pattern(text: str) -> str:
    """Reads a regular expression."""
    from vanilla_transformer.documents.kept import finder

    try:
        finder(patterns=[text])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def add_pattern_option(group: argparse._ArgumentGroup) -> None:
    """Adds `--keep-pattern`."""
    group.add_argument(
        "--keep-pattern",
        action="append",
        default=[],
        dest="keep_patterns",
        type=pattern,
        metavar="REGEX",
        help="also keep what this regular expression matches; may be repeated",
    )


def add_compute_type_option(group: argparse._ArgumentGroup, default: str = "float32") -> None:
    """Adds the type in which CTranslate2 computes to a group of options."""
    group.add_argument(
        "--compute-type",
        default=default,
        metavar="TYPE",
        help="type of CTranslate2's computation; int8 is the fastest on a CPU",
    )


def option_of(name: str) -> str:
    """Returns the option of a field, as the help spells it."""
    return f"--{name.replace('_', '-')}"
