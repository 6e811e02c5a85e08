"""The glossaries of a server, by name: their files are read again when they change."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from vanilla_transformer.inference.glossaries import as_glossary
from vanilla_transformer.serving.bodies import Text
from vanilla_transformer.serving.changing_file import ChangingFile
from vanilla_transformer.serving.errors import RequestError
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
        self._changing = {name: ChangingFile(path) for name, path in files.items()}
        self._loaded = {name: as_glossary(path) for name, path in files.items()}

    @property
    def names(self) -> list[str]:
        """The names, in the order of the command line."""
        return list(self._files)

    def chosen(self, given: str | Pairs | None) -> Glossary | None:
        """Returns the glossary of a request, given by its name or as pairs, or refuses it (400).

        A file that has become wrong does not count, and is logged: the former glossary stays.
        """
        if not given:
            return None
        if not isinstance(given, str):
            try:
                return as_glossary(given)
            except ValueError as error:
                raise RequestError(400, str(error)) from error
        if given not in self._files:
            names = ", ".join(self.names) or "none"
            raise RequestError(400, f"There is no glossary {given[:100]!r}: there is {names}.")

        def read() -> None:
            self._loaded[given] = as_glossary(self._files[given])

        self._changing[given].read_if_changed("glossary not read", read)
        return self._loaded[given]
