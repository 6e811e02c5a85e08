"""Rules for options: rows of tables, which one function reads."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, NamedTuple

from vanilla_transformer.options import range_of, range_problem


class Rule(NamedTuple):
    """One row of a table of rules.

    Attributes:
        names: The options that the rule is for.
        is_broken: Takes the value of one of them, and the object that holds all options.
        sentence: The error, in the form of `str.format`, with `name`, `value` and `options`.
    """

    names: tuple[str, ...]
    is_broken: Callable[[Any, Any], bool]
    sentence: str


def check_rules(rules: Iterable[Rule], options: Any) -> None:
    """Refuses options that are out of their range, are no choice, or break a rule.

    Options that are None or have their default are not checked.

    Args:
        rules: Rows of a table, in the order in which they are checked.
        options: An instance of a dataclass, whose fields `option` has declared.
    """
    for declared in fields(options):
        name, value = declared.name, getattr(options, declared.name)
        if _is_given(options, name):
            if problem := range_problem(value, range_of(options, name)):
                raise ValueError(f"`{name}` {value} {problem}: give another number.")
            choices = declared.metadata.get("choices") or ()
            if choices and not {*(value if isinstance(value, list) else [value])} <= {*choices}:
                known = ", ".join(choices)
                raise ValueError(f"`{name}` {value!r} is unknown: choose from {known}.")
    for rule in rules:
        for name in rule.names:
            value = getattr(options, name, None)
            if _is_given(options, name) and rule.is_broken(value, options):
                raise ValueError(rule.sentence.format(name=name, value=value, options=options))


def refuse(*rows: tuple[object, str]) -> None:
    """Raises an error with the sentence of the first row (is broken, sentence) that is broken."""
    for is_broken, sentence in rows:
        if is_broken:
            raise ValueError(sentence)


def _is_given(options: Any, name: str) -> bool:
    """Returns whether an option has another value than None and its default."""
    fields, value = options.__dataclass_fields__, getattr(options, name, None)
    return name in fields and value is not None and bool(value != fields[name].default)
