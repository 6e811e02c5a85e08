"""The versions that this code was tested with, and those that are known to compute wrongly.

A saved config records the versions that it was saved with, as `saved_with`. Every model compares
them with the installed ones when it is built, also where this file runs as remote code.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import transformers
from transformers.utils import logging

logger = logging.get_logger(__name__)

CODE_VERSION = "0.1.0"
"""The version of this code: that of the package it comes from."""

TESTED = {"torch": ("2.13", "2.14"), "transformers": ("5.20.2", "5.24")}
"""The versions that the tests have run with, as [first, end), by library."""


@dataclass(frozen=True)
class KnownFault:
    """Versions of a library with which this code computes wrongly.

    Attributes:
        library: "torch", "transformers" or "vanilla_transformer".
        first: The first version with the fault.
        end: The first version without it.
        effect: What is wrong, as the end of a sentence that begins with the library.
    """

    library: str
    first: str
    end: str
    effect: str


KNOWN_FAULTS: tuple[KnownFault, ...] = ()
"""The known faults. None is known yet."""


def current_versions() -> dict[str, str]:
    """Returns the versions of this code and of the libraries it stands on, by name."""
    return {
        "vanilla_transformer": CODE_VERSION,
        "transformers": transformers.__version__,
        "torch": str(torch.__version__),
    }


def check_versions(saved_with: Mapping[str, str] | None) -> None:
    """Refuses versions that are known to compute wrongly, and warns of untested ones.

    Args:
        saved_with: Versions that the model was saved with, by name. None: they are not known.

    Raises:
        ValueError: If an installed version has a known fault.
    """
    installed = current_versions()
    for fault in KNOWN_FAULTS:
        found = installed[fault.library]
        if _lies_within(found, fault.first, fault.end):
            raise ValueError(
                f"{fault.library} {found} {fault.effect}: install {fault.end} or later, or a "
                f"version before {fault.first}."
            )
    for library, (first, end) in TESTED.items():
        found, recorded = installed[library], (saved_with or {}).get(library)
        if found != recorded and not _lies_within(found, first, end):
            known = "" if recorded is None else f", and the model was saved with {recorded}"
            logger.warning_once(
                f"{library} {found} is untested: this code was tested with {first} up to, but not "
                f"including, {end}{known}. Compare the results with `vanilla-transformer verify`."
            )


def _lies_within(version: str, first: str, end: str) -> bool:
    return _parse_version(first) <= _parse_version(version) < _parse_version(end)


def _parse_version(version: str) -> tuple[int, ...]:
    """Returns the three numbers of a version; what follows them, such as `+cpu`, does not count."""
    numbers = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", version)
    return tuple(int(number or 0) for number in numbers.groups()) if numbers else (0, 0, 0)
