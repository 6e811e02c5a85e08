"""Takes the tokenizer of a source along: as its own class, which the Auto classes find."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from vanilla_transformer.extras import missing_package

PROBES = (
    "Hello, world! This is a test of 3 sentences.",
    "Ein Löwe frißt 1.234,50 kg; \u00abnaïve\u00bb caf\u00e9s \u2014 d\u2019accord?",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u4f60\u597d \ud55c\uad6d\uc5b4 \U0001f642",
    "  two  spaces\tand a tab ",
    "",
)
"""Texts that both tokenizers must encode alike."""

_PATTERNS = ("tokenizer*.json", "vocab*.json", "vocab*.txt", "*.spm", "*.model", "merges.txt")


def load_tokenizer(source: str | Path, packages: tuple[str, ...] = ()) -> Any:
    """Loads the tokenizer of a source.

    Args:
        source: Directory, or name on the Hub.
        packages: Modules that tokenizers of this kind may need.

    Returns:
        The tokenizer. None: the source is a directory without one.

    Raises:
        ModuleNotFoundError: If the tokenizer cannot be loaded, and one of the packages is missing.
        OSError: If it cannot be loaded for another reason.
        ValueError: As OSError.
    """
    if Path(source).is_dir() and not any(any(Path(source).glob(each)) for each in _PATTERNS):
        return None
    load: Any = AutoTokenizer.from_pretrained
    try:
        return load(source, trust_remote_code=False)
    except (ImportError, OSError, ValueError) as error:  # some name a package that does not help
        for package in packages:
            if find_spec(package) is None:
                raise missing_package(package, "convert") from error
        raise


def save_tokenizer(tokenizer: Any, output_dir: str | Path) -> str:
    """Saves a tokenizer beside a converted model, and checks that the Auto classes find the same.

    Args:
        tokenizer: The tokenizer.
        output_dir: Directory of the converted model.

    Returns:
        The class of the tokenizer.

    Raises:
        ValueError: If the saved tokenizer encodes a text otherwise.
    """
    tokenizer.save_pretrained(output_dir)
    load: Any = AutoTokenizer.from_pretrained
    _check_same(tokenizer, load(output_dir))
    return type(tokenizer).__name__


def _check_same(tokenizer: Any, saved: Any) -> None:
    problems = []
    if type(saved) is not type(tokenizer):
        problems.append(f"it loads as {type(saved).__name__}, not {type(tokenizer).__name__}")
    for text in PROBES:
        for side in ("text", "text_target"):
            expected, found = (each(**{side: text})["input_ids"] for each in (tokenizer, saved))
            if expected != found:
                problems.append(f"`{side}` {text!r} becomes {found}, not {expected}")
            elif tokenizer.decode(expected) != saved.decode(found):
                problems.append(f"{expected} becomes {saved.decode(found)!r}")
    if problems:
        listed = "".join(f"\n- {problem}" for problem in problems)
        raise ValueError(f"The saved tokenizer differs from that of the source:{listed}")
