"""Rules for options: rows of tables, which one function reads."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NamedTuple


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
    """Refuses options that break a rule; those that are None or have their default are not checked.

    Args:
        rules: Rows of a table, in the order in which they are checked.
        options: An instance of a dataclass.
    """
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


def at_least(smallest: float, *names: str) -> Rule:
    """Makes the rule that numbers are not below a smallest value."""
    sentence = f"`{{name}}` is {{value}}: it must be at least {smallest}, or left out."
    return Rule(names, lambda value, _: not value >= smallest, sentence)


def within(low: float, high: float, *names: str, ends: str = "[]", example: str = "") -> Rule:
    """Makes the rule that numbers lie in an interval.

    Args:
        ends: A round bracket for an end that is not in it, a square one for an end that is.
        example: A usual number.
    """

    def is_outside(value: Any, _: Any) -> bool:
        is_end = (value == low and ends[0] == "[") or (value == high and ends[1] == "]")
        return not (low < value < high or is_end)

    least = f"{'at least' if ends[0] == '[' else 'above'} {low}"
    most = f"{'at most' if ends[1] == ']' else 'below'} {high}" if high < inf else "finite"
    usual = f", such as {example}" if example else ""
    sentence = f"`{{name}}` is {{value}}: it must be {least} and {most}{usual}."
    return Rule(names, is_outside, sentence)


def one_of(choices: Iterable[str], *names: str) -> Rule:
    """Makes the rule that options have one of some values, or a list of them."""
    known = tuple(choices)

    def is_unknown(value: Any, _: Any) -> bool:
        return not set(value if isinstance(value, list) else [value]) <= set(known)

    sentence = f"`{{name}}` {{value!r}} is unknown: choose from {', '.join(known)}."
    return Rule(names, is_unknown, sentence)
