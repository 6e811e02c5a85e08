"""Reads two plain text files, whose lines correspond, as one data set."""

from collections.abc import Iterator
from itertools import zip_longest

from datasets import Dataset, Features, Value

from vanilla_transformer.data.arrow_cache import dataset_from_rows
from vanilla_transformer.data.text_files import read_lines


def load_text_pairs(source: str, target: str) -> Dataset:
    """Loads the pairs of two text files: line n of the one belongs to line n of the other.

    Args:
        source: Path of the source side, plain or `.gz`.
        target: Path of the target side.

    Returns:
        A data set with the text columns "source" and "target".

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If the files differ in their number of lines, are empty, or are not UTF-8 text.
    """
    features = Features({"source": Value("string"), "target": Value("string")})
    return dataset_from_rows(_read_pairs, features, {"source": source, "target": target})


def _read_pairs(source: str, target: str, digests: tuple[str, ...]) -> Iterator[dict[str, str]]:
    pairs, lines, shorter = 0, 0, ""
    for source_line, target_line in zip_longest(read_lines(source), read_lines(target)):
        lines += 1
        if source_line is None or target_line is None:
            shorter = source if source_line is None else target
        else:
            if "\0" in source_line or "\0" in target_line:
                file = source if "\0" in source_line else target
                raise ValueError(
                    f"{file}, line {lines}: NUL bytes are no text: the file is damaged."
                )
            pairs += 1
            yield {"source": source_line, "target": target_line}
    if shorter:
        longer = target if shorter == source else source
        raise ValueError(
            f"{shorter} has {pairs} lines and {longer} has {lines} lines: line n of one file must "
            "belong to line n of the other."
        )
    if not pairs:
        raise ValueError(f"{source} and {target} are empty: give files with text.")
