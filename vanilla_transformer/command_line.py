"""Makes command lines from dataclasses of options, and options from command lines.

This file imports nothing heavy.
"""

import argparse
import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from threading import Timer
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from vanilla_transformer.options import REQUIRED, range_of, range_problem

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


@contextmanager
def told_when_slow(text: str, seconds: float = 2.0) -> Iterator[None]:
    """Tells a person at a terminal why nothing happens, if the `with` block takes longer."""
    timer = Timer(seconds, print, [text], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
    """Parser of one subcommand, whose errors are exceptions.

    Long options may be spelt with hyphens or underscores, and may not be abbreviated.

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
            "--verbose", action="store_true", help="show all messages, and tracebacks of errors"
        )

    def parse_words(self, words: Sequence[str], start: Namespace | None = None) -> Namespace:
        """Parses the arguments; arguments without a name may also follow options.

        Args:
            start: A `Namespace` with values of options that are not given; None: their defaults.
        """
        kebab = spell_with_hyphens(words)
        if problem := unknown_option(kebab, self._option_string_actions):
            self.error(problem)
        return self.parse_intermixed_args(kebab, start)

    def parse_given(self, words: Sequence[str]) -> dict[str, Any]:
        """Parses the arguments, and returns the values that are given, by name."""
        absent = object()
        names = (action.dest for action in self._actions)
        values = vars(self.parse_words(words, Namespace(**dict.fromkeys(names, absent))))
        return {name: value for name, value in values.items() if value is not absent}

    def error(self, message: str) -> NoReturn:
        """Raises a `UsageError`."""
        raise UsageError(message)


def unknown_option(words: Sequence[str], known: Collection[str]) -> str:
    """Names the first long option that does not exist, and the most similar one; "": all do."""
    end = words.index("--") if "--" in words else len(words)
    for name in (word.partition("=")[0] for word in words[:end]):
        if name.startswith("--") and name not in known:
            if " " in name:
                return f"{name!r} is no option: put texts that begin with a dash behind `--`"
            return f"unrecognized option {name}{most_similar(name, known)}"
    return ""


def most_similar(name: str, known: Collection[str]) -> str:
    """Asks whether the most similar name was meant, or one with more words; "": none is similar."""
    similar = get_close_matches(name, known, 1, cutoff=0.75)
    words = re.compile(rf"--(?!no-).*\b{re.escape(name.removeprefix('--'))}\b")
    similar = similar or sorted(filter(words.match, known))[:3]
    return f": did you mean {' or '.join(similar)}?" * bool(similar)


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
    return make_options(kind, vars(parser.parse_words(words)))


def read_some_options(kind: type[Options], words: Sequence[str]) -> tuple[Options, list[str]]:
    """Reads the options that are fields of a dataclass; returns the other words, too."""
    parser = CommandParser("", "")
    add_options(parser, kind, switches_take_values=True)
    values, others = parser.parse_known_args(spell_with_hyphens(words))
    return make_options(kind, vars(values)), others


def add_options(
    group: OptionGroup, kind: Any, without: Sequence[str] = (), switches_take_values: bool = False
) -> None:
    """Adds an option for each field, but not for names in `without`; a dataclass is a group.

    Args:
        switches_take_values: Whether a truth value may follow its option, as in a recipe
            (`--bf16 False`). A command with arguments that have no name cannot allow it.
    """
    hints: dict[str, Any] = get_type_hints(kind)
    for declared in fields(kind):
        name, hint = declared.name, hints[declared.name]
        if is_dataclass(hint):
            topic: Any = hint
            inner = group.add_argument_group(topic._argument_group_name)
            add_options(inner, topic, declared.metadata.get("without", ()), switches_take_values)
        elif declared.metadata.get("positional"):
            group.add_argument(name, **_settings_of(declared, hint, {}))
        elif name not in without:
            settings = _settings_of(declared, hint, range_of(kind, name))
            flag = declared.metadata.get("flag", option_of(name))
            if switches_take_values and _kind_of(hint) is bool:
                settings |= {"action": "store", "nargs": "?", "const": True, "metavar": "VALUE"}
                settings |= {"type": _read_switch, "choices": (True, False)}
                if settings["default"] is True:
                    off = option_of(f"no_{name}")
                    group.add_argument(off, dest=name, action="store_false", help=f"not {flag}")
            group.add_argument(flag, dest=name, **settings)


def make_options(kind: type[Options], values: Mapping[str, Any]) -> Options:
    """Makes a dataclass of options from values by name, such as those that argparse has read."""
    given: dict[str, Any] = {}
    hints: dict[str, Any] = get_type_hints(kind)
    for declared in fields(kind):  # type: ignore[arg-type]
        if is_dataclass(hint := hints[declared.name]):
            given[declared.name] = make_options(hint, values)  # type: ignore[arg-type]
        elif declared.name in values:
            given[declared.name] = values[declared.name]
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
    kind = _kind_of(hint)
    if kind is bool:
        is_on = settings["default"] is True
        settings.setdefault("action", argparse.BooleanOptionalAction if is_on else "store_true")
        return settings
    if get_origin(kind) is list:
        if "action" not in settings:
            settings.setdefault("nargs", "+")
        settings.setdefault("metavar", "NAME")
        kind = get_args(kind)[0]
    if _is_enum(kind):
        settings["choices"], kind = [member.value for member in kind], str
    if "choices" not in settings:
        settings.setdefault("metavar", {int: "N", float: "X"}.get(kind, "TEXT"))
    read = json.loads if dict in (kind, get_origin(kind)) else kind
    settings["type"] = _reader(settings.get("type", read), limits)
    return settings


def _kind_of(hint: Any) -> Any:
    """Returns the type of the values of an option whose field has a type, such as `int | None`.

    Of several, as transformers' arguments have, it is a truth value or the names of an enum if one
    is among them, or else a text.
    """
    if get_origin(hint) not in (Union, UnionType):
        return hint
    members = [member for member in get_args(hint) if member is not NoneType]
    enum = next(filter(_is_enum, members), None)
    return bool if bool in members else enum or (str if str in members else members[0])


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _read_switch(text: str) -> bool | str:
    """Reads the words of transformers' parser."""
    words = {True: ("yes", "true", "t", "y", "1"), False: ("no", "false", "f", "n", "0")}
    return next((value for value in words if text.lower() in words[value]), text)


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
