"""Translated files in memory: each stays for ten minutes, unless newer ones need its room."""

import time
from secrets import token_urlsafe

from vanilla_transformer.serving.errors import RequestError

_SIZE = 64_000_000  # bytes
_SECONDS = 600


class TranslatedFiles:
    """Files by their names, which nobody can guess; the oldest comes first."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[float, bytes]] = {}

    def add(self, content: bytes) -> str:
        """Stores a file; returns its name."""
        now, file_id = time.monotonic(), token_urlsafe()
        room = _SIZE - len(content)
        for other, (since, stored) in reversed(list(self._files.items())):
            room -= len(stored)
            if room < 0 or now - since > _SECONDS:
                del self._files[other]
        self._files[file_id] = now, content
        return file_id

    def find(self, file_id: str) -> bytes:
        """Returns a file, or refuses the request (404)."""
        since, content = self._files.get(file_id, (0.0, None))
        if content is None or time.monotonic() - since > _SECONDS:
            raise RequestError(404, "There is no such file: the server keeps it for some minutes.")
        return content
