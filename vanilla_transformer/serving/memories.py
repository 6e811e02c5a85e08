"""The memory of a server: a file of corrections, which several servers may read and extend."""

import os
from collections import defaultdict
from pathlib import Path
from threading import Lock

from filelock import FileLock

from vanilla_transformer.documents.memory_files import pair_of_line
from vanilla_transformer.files.text_files import as_cell
from vanilla_transformer.language_tags import known_tag
from vanilla_transformer.text.memory import Memory, Pair


class StoredMemory:
    """A file of lines: a source, its translation, and the languages of both, with tabs between."""

    def __init__(self, path: str) -> None:
        self._path, self._lock = Path(path), Lock()
        self._memories: defaultdict[tuple[str | None, str | None], Memory] = defaultdict(Memory)
        self._position = self._line = 0
        self._path.touch()
        self._read_new()

    def of(self, source: str, target: str) -> Memory:
        """Returns the pairs of a direction, with the pairs that other servers have added."""
        self._read_new()
        return self._memories[known_tag(source), known_tag(target)]

    def add(self, source: str, target: str, pair: Pair) -> None:
        """Adds a pair of these languages to the file, if it would answer its own text."""
        text, translation = map(as_cell, pair[:2])
        stored = Pair(text, translation, is_correction=True)
        if Memory([stored]).exact(pair.source) is None:
            raise ValueError("a text has lines or columns: correct each of them.")
        line = "\t".join((*stored[:2], source, target)) + "\n"
        with FileLock(f"{self._path}.lock"), self._path.open("r+b") as file:
            whole = file.read().rfind(b"\n") + 1  # a server that was killed may have left a part
            file.truncate(whole)
            file.seek(whole)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def _read_new(self) -> None:
        """Reads the lines that have been added."""
        with self._lock, self._path.open("rb") as file:
            file.seek(self._position)
            content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            lines = enumerate(whole.splitlines(), self._line + 1)
            rows = [  # all of them are read before one is added
                pair_of_line(line.decode("utf-8-sig"), f"{self._path}, line {number}", least=4)
                for number, line in lines
            ]
            for pair, (source, target) in rows:
                self._memories[known_tag(source), known_tag(target)].add(pair)
            self._line += len(rows)
            self._position += len(whole)
