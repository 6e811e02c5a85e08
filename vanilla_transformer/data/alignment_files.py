"""Reads a file of word links that belongs to parallel data: line n links the words of pair n."""

from collections.abc import Iterator

from datasets import Dataset, Features, Value, concatenate_datasets

from vanilla_transformer.data.file_formats import dataset_from_rows
from vanilla_transformer.data.text_files import read_lines
from vanilla_transformer.data.word_alignment import count_words, parse_links

LINKS = "alignment"
"""Name of the column of links: lines in Pharaoh's format, and after encoding links of tokens."""


def add_links(pairs: Dataset, path: str) -> Dataset:
    """Adds the links of a file to pairs of texts.

    Args:
        pairs: All rows that the lines belong to, with the text columns "source" and "target".
        path: File with one line per row in Pharaoh's format; an empty line has no links.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a line is malformed, if it names a word that its pair does not have, or if
            the file has another number of lines than there are rows.
    """
    links = dataset_from_rows(_read_links, Features({LINKS: Value("string")}), {"path": path})
    if len(links) != len(pairs):
        raise ValueError(
            f"{path} has {len(links)} lines, but there are {len(pairs)} training pairs: line n "
            "must hold the links of pair n; a pair without links has an empty line."
        )
    joined: Dataset = concatenate_datasets(
        [pairs.remove_columns([LINKS]) if LINKS in pairs.column_names else pairs, links], axis=1
    )
    _check_words(joined, path)
    return joined


def _read_links(path: str) -> Iterator[dict[str, str]]:
    empty = True
    for number, line in enumerate(read_lines(path), start=1):
        empty = False
        try:
            parse_links(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        yield {LINKS: line}
    if empty:
        raise ValueError(f"{path} is empty: give a file with a line of links per training pair.")


def _check_words(pairs: Dataset, path: str) -> None:
    """Refuses links to words that a text does not have, unless the pair will be skipped."""
    for number, row in enumerate(pairs, start=1):
        counts = [count_words(row[side] or "") for side in ("source", "target")]
        for link in parse_links(row[LINKS]) if all(counts) else ():
            for side, index, words in zip(("source", "target"), link, counts, strict=True):
                if index >= words:
                    raise ValueError(
                        f"{path}, line {number}: the link {link[0]}-{link[1]} names word "
                        f"{index} of the {side}, which has {words} words, counted from 0: "
                        "correct the line."
                    )
