"""Checks what a person types into the page."""

import unicodedata

MOST_CHARACTERS = 2000
"""Longest text that the page takes."""
MOST_LINES = 20
"""Most lines that the page takes, blank ones included."""
_FOR_FILES = "`vanilla-transformer translate` takes files of any size."


def check_text(text: str | None) -> tuple[str, ...]:
    """Splits a text into lines, after a check that the page can take it.

    Args:
        text: What stands in the text field.

    Returns:
        The lines that are not blank, without line breaks.

    Raises:
        ValueError: If the text is blank or too long, or if it holds a control character or half of
            a surrogate pair. The message names the cause, and quotes none of the text.
    """
    text = (text or "").replace("\r\n", "\n")
    lines = text.split("\n")
    if not text.strip():
        blank = f"The text has {len(lines):,} lines, and all are blank"
        what = "The text is empty" if not text else blank if len(lines) > 1 else "The text is blank"
        raise ValueError(f"{what}: type a text, then press Run.")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(
            f"The text has {len(text):,} characters, and the page takes {MOST_CHARACTERS:,}: "
            f"shorten it. {_FOR_FILES}"
        )
    if len(lines) > MOST_LINES:
        raise ValueError(
            f"The text has {len(lines):,} lines, and the page takes {MOST_LINES}: delete some. "
            f"{_FOR_FILES}"
        )
    for number, line in enumerate(lines, 1):
        _check_characters(line, number)
    return tuple(line for line in lines if line.strip())


def _check_characters(line: str, number: int) -> None:
    for place, character in enumerate(line, 1):
        kind = unicodedata.category(character)
        if kind == "Cs" or (kind == "Cc" and character != "\t"):
            what = "half of a surrogate pair" if kind == "Cs" else "a control character"
            raise ValueError(
                f"Character {place} of line {number} is {what} (U+{ord(character):04X}): delete it."
            )
