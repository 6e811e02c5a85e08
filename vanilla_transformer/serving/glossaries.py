"""The glossaries of a server, by name: their files are read again when they change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from vanilla_transformer.inference.glossaries import as_glossary
from vanilla_transformer.serving.bodies import Text
from vanilla_transformer.serving.errors import RequestError
from vanilla_transformer.serving.monitoring import log_event
from vanilla_transformer.text.terms import Glossary

Pairs = list[Annotated[list[Text], Field(min_length=2, max_length=2)]]
GlossaryField = Annotated[
    Text | Pairs | None,
    Field(description="Name of a glossary of this server, or a list of pairs (source, target)"),
]


class Glossaries:
    """Glossaries by name."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._read = {name: (_state_of(path), as_glossary(path)) for name, path in files.items()}

    @property
    def names(self) -> list[str]:
        """The names, in the order of the command line."""
        return list(self._files)

    def chosen(self, asked: str | Pairs | None) -> Glossary | None:
        """Returns the glossary that a request asks for, or refuses it (400).

        A file that has become wrong does not count, and is logged: the former glossary stays.
        """
        if not asked:
            return None
        if not isinstance(asked, str):
            try:
                return as_glossary(asked)
            except ValueError as error:
                raise RequestError(400, str(error)) from error
        if asked not in self._files:
            names = ", ".join(self.names) or "none"
            raise RequestError(400, f"There is no glossary {asked[:100]!r}: there is {names}.")
        path, (state, glossary) = self._files[asked], self._read[asked]
        try:
            if (now := _state_of(path)) != state:
                state, glossary = now, as_glossary(path)
        except (OSError, ValueError) as error:
            log_event("glossary", problem=str(error))
        self._read[asked] = state, glossary
        return glossary


def _state_of(path: str) -> tuple[int, int]:
    status = Path(path).stat()
    return status.st_mtime_ns, status.st_size
