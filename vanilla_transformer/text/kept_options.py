"""The options of the parts of a text that outputs keep; imports nothing heavy."""

from dataclasses import dataclass

from vanilla_transformer.options import option
from vanilla_transformer.text.kept import make_kept_finder


def _pattern(text: str) -> str:
    """Reads a regular expression."""
    make_kept_finder(patterns=[text])
    return text


@dataclass(frozen=True, kw_only=True)
class KeptOptions:
    """The parts of sources that outputs keep."""

    keep_patterns: list[str] = option(
        "keep in outputs also the parts that this regular expression matches; may be repeated",
        [],
        flag="--keep-pattern",
        action="append",
        type=_pattern,
        metavar="REGEX",
    )
