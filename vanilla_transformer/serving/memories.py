"""The memory of a server: a file of corrections, which several servers may read and extend."""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from filelock import FileLock

from vanilla_transformer.documents.memory_files import pair_of_line
from vanilla_transformer.files.text_files import as_cell
from vanilla_transformer.language_tags import known_tag
from vanilla_transformer.serving.changing_file import ChangingFile
from vanilla_transformer.text.memory import Memory, Pair


class StoredMemory:
    """A file of lines: a source, its translation, and the languages of both, with tabs between."""

    def __init__(self, path: str) -> None:
        self._path, self._lock = Path(path), Lock()
        self._memories: defaultdict[tuple[str, ...], Memory] = defaultdict(Memory)
        self._position = self._line = 0  # numbers of bytes and lines that have been read
        with self._open_at_end():  # makes the file, or ends its last line
            pass
        self._file = ChangingFile(path)
        self._read_new()

    def of(self, source: str, target: str) -> Memory:
        """Returns the pairs of a direction, with the pairs that other servers have added."""
        with self._lock:
            self._file.read_if_changed("memory not read", self._read_new)
        return self._memories.get(_key(source, target), Memory())

    def add(self, source: str, target: str, pair: Pair) -> None:
        """Adds a pair to the file; refuses a pair that the memory would not find by its source."""
        text, translation = map(as_cell, pair[:2])
        stored = Pair(text, translation, is_correction=True)
        if Memory([stored]).exact(pair.source) is None:
            raise ValueError("a text has lines or columns: correct each of them.")
        line = "\t".join((*stored[:2], source, target)) + "\n"
        with self._open_at_end() as file:
            file.truncate()  # a server that was killed may have left a part of a line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _open_at_end(self) -> Iterator[BinaryIO]:
        """Opens the file after its last complete line, which may lack its line break."""
        self._path.touch()
        with FileLock(f"{self._path}.lock"), self._path.open("r+b") as file:
            if file.seek(0, os.SEEK_END):  # an empty file cannot be mapped
                with mmap(file.fileno(), 0, access=ACCESS_READ) as content:  # read from its end
                    whole = content.rfind(b"\n") + 1
                    is_complete = content[whole:].count(b"\t") >= 3
                if is_complete:
                    file.write(b"\n")
                else:
                    file.seek(whole)
            yield file

    def _read_new(self) -> None:
        """Reads the lines that have been added."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        lines = [line.decode("utf-8-sig") for line in whole.splitlines()]
        rows = [  # all of them are read before one is added
            pair_of_line(line, f"{self._path}, line {number}", least=4)
            for number, line in enumerate(lines, self._line + 1)
            if line.strip()
        ]
        for pair, languages in rows:
            self._memories[_key(*languages)].add(pair._replace(is_correction=True))
        self._line += len(lines)
        self._position += len(whole)


def _key(*codes: str) -> tuple[str, ...]:
    """Returns the codes of a direction; those of languages have the standard form."""
    return tuple(known_tag(code) or code for code in codes)
