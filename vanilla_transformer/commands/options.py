"""Makes command lines from dataclasses of options, and holds the groups that subcommands share."""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from vanilla_transformer.options import (
    REQUIRED,
    SearchOptions,
    argument,
    option,
    range_of,
    range_problem,
)

PROGRAM = "vanilla-transformer"
Options = TypeVar("Options")
OptionGroup = argparse.ArgumentParser | argparse._ArgumentGroup


class UsageError(ValueError):
    """A command line that contradicts itself; reported as a wrong option is."""


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
        if action.default in (None, "", []) or action.default is False:
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
    """

    def __init__(self, name: str, summary: str, examples: str = "") -> None:
        lines = "".join(f"\n  {line}" for line in examples.strip().splitlines())
        super().__init__(
            prog=f"{PROGRAM} {name}".strip(),
            description=summary,
            epilog=f"Examples:{lines}" if lines else None,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.add_argument("-h", "--help", action="help", help="show this help and exit")
        self.add_argument(
            "--verbose",
            action="store_true",
            help="show all messages, and tracebacks of errors",
        )

    def parse_words(self, words: Sequence[str]) -> argparse.Namespace:
        """Parses the arguments of the subcommand; those without a name may also follow options.

        Raises:
            SystemExit: With status 2 if the arguments are wrong, 0 after the help is shown.
        """
        kebab = spell_with_hyphens(words)
        if problem := unknown_option(kebab, self._option_string_actions):
            self.error(problem)
        return self.parse_intermixed_args(kebab)

    def error(self, message: str) -> NoReturn:
        """Prints one line and exits with status 2."""
        print(f"{self.prog}: error: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def unknown_option(words: Sequence[str], known: Collection[str]) -> str:
    """Names the first long option that does not exist, and the most similar one; "": all do."""
    end = words.index("--") if "--" in words else len(words)
    for name in (word.partition("=")[0] for word in words[:end]):
        if name.startswith("--") and name not in known:
            return f"unrecognized option {name}{most_similar(name, known)}"
    return ""


def most_similar(name: str, known: Collection[str]) -> str:
    """Asks whether the most similar name was meant; "": none is similar."""
    similar = get_close_matches(name, known, 1, cutoff=0.75)
    return "".join(f": did you mean {meant}?" for meant in similar)


def spell_with_hyphens(words: Sequence[str]) -> list[str]:
    """Returns words with long options in kebab-case; what follows a bare `--` stays as it is."""
    end = words.index("--") if "--" in words else len(words)
    spelt = []
    for word in words[:end]:
        name, sign, value = word.partition("=")
        spelt.append(name.replace("_", "-") + sign + value if word.startswith("--") else word)
    return [*spelt, *words[end:]]


# From dataclasses to command lines and back -------------------------------------------------------


def parse_options(
    name: str, summary: str, examples: str, kind: type[Options], words: Sequence[str]
) -> Options:
    """Reads the arguments of a subcommand whose options are the fields of a dataclass."""
    parser = CommandParser(name, summary, examples)
    add_options(parser, kind)
    return read_options(kind, parser.parse_words(words))


def add_options(group: OptionGroup, kind: Any, without: Sequence[str] = ()) -> None:
    """Adds an option for each field but those `without`; a dataclass in a field is a group."""
    hints: dict[str, Any] = get_type_hints(kind)
    for declared in fields(kind):
        name, hint = declared.name, hints[declared.name]
        if is_dataclass(hints[name]):
            add_options(
                group.add_argument_group(hint._argument_group_name),
                hint,
                declared.metadata.get("without", ()),
            )
        elif declared.metadata.get("positional"):
            group.add_argument(name, **_settings_of(declared, hint, {}))
        elif name not in without:
            settings = _settings_of(declared, hint, range_of(kind, name))
            flag = declared.metadata.get("flag", option_of(name))
            group.add_argument(flag, dest=name, **settings)


def read_options(kind: type[Options], values: argparse.Namespace) -> Options:
    """Makes a dataclass of options from what `add_options` has let argparse read."""
    given: dict[str, Any] = {}
    for declared in fields(kind):  # type: ignore[arg-type]
        hint = get_type_hints(kind)[declared.name]
        if is_dataclass(hint):
            given[declared.name] = read_options(hint, values)  # type: ignore[arg-type]
        elif declared.name in values:
            given[declared.name] = getattr(values, declared.name)
    with usage_errors():
        return kind(**given)


def _settings_of(declared: Field[Any], hint: Any, limits: Mapping[str, float]) -> dict[str, Any]:
    """Returns the arguments of argparse for a field of a type, such as `int | None`."""
    ours = ("positional", "flag")
    settings = {name: value for name, value in declared.metadata.items() if name not in ours}
    if declared.default_factory is not MISSING:
        settings["default"] = declared.default_factory()
    elif declared.default is not REQUIRED:
        settings["default"] = declared.default
    elif "positional" not in declared.metadata:
        settings["required"] = True
    if isinstance(hint, UnionType):
        hint = next(member for member in get_args(hint) if member is not NoneType)
    if hint is bool:
        is_on = settings["default"] is True
        settings.setdefault("action", argparse.BooleanOptionalAction if is_on else "store_true")
        return settings
    if get_origin(hint) is list:
        if "action" not in settings:
            settings.setdefault("nargs", "+")
        settings.setdefault("metavar", "NAME")
        hint = get_args(hint)[0]
    if "choices" not in settings:
        settings.setdefault("metavar", {int: "N", float: "X"}.get(hint, "TEXT"))
    settings["type"] = _reader(settings.get("type", hint), limits)
    return settings


def _reader(read: Callable[[str], Any], limits: Mapping[str, float]) -> Callable[[str], Any]:
    """Makes a function that reads a value and checks its range; argparse tells its error."""

    def read_value(text: str) -> Any:
        try:
            value = read(text)
        except ValueError as error:
            if read in (int, float):
                raise  # argparse has the better words
            raise argparse.ArgumentTypeError(str(error)) from error
        if limits and (problem := range_problem(value, limits)):
            raise argparse.ArgumentTypeError(f"{text} {problem}")
        return value

    read_value.__name__ = read.__name__  # argparse names it in its errors
    return read_value


def option_of(name: str) -> str:
    """Returns the option of a field, as the help spells it."""
    return f"--{name.replace('_', '-')}"


# Groups of options --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LanguageOptions:
    """The languages of sources and targets."""

    _argument_group_name = "languages"

    source_language: str | None = option(
        "language of the sources, e.g. en, pt-BR or eng_Latn (default: that of the model)",
        metavar="CODE",
    )
    target_language: str | None = option(
        "language of the targets, which a model of several target languages needs", metavar="CODE"
    )

    def named(self) -> dict[str, Any]:
        """Returns the languages by their names in `Translator`."""
        return {"src_lang": self.source_language, "tgt_lang": self.target_language}


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The saved model that is read."""

    model: str = argument("directory of a saved model, or its name on the Hub", "MODEL")


@dataclass(frozen=True, kw_only=True)
class PairFiles:
    """Two files of parallel lines."""

    source: str = option("source texts, one per line", REQUIRED, metavar="FILE")
    target: str = option("target texts, one per line", REQUIRED, metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class OutputFile:
    """A file that is written, and whether it may replace one."""

    output: str | None = option("file to write (default: print)", metavar="FILE")
    overwrite: bool = option("replace an existing --output", False)


def read_assignment(text: str) -> tuple[str, Any]:
    """Reads a setting, or a field of a config; the value is JSON, or else a text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), {"True": True, "False": False}.get(value, value)


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(SearchOptions):
    """The search, with every setting of `generate()`."""

    generation: list[tuple[str, Any]] = option(
        "any other setting of generate(), such as no_repeat_ngram_size=3; may be repeated",
        [],
        type=read_assignment,
        action="append",
        metavar="NAME=VALUE",
    )

    def given(self) -> dict[str, Any]:
        """Returns the settings that are given, by name."""
        return {**super().given(), **dict(self.generation)}
