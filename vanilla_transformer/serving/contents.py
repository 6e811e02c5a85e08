"""The contents of a request with one interface: texts, HTML pages, or a file."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from typing import Any, Generic, Self, TypeVar
from zipfile import BadZipFile, ZipFile, is_zipfile

from fastapi import Request

from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.html import places_of_html
from vanilla_transformer.documents.messages import MessageDocument
from vanilla_transformer.documents.places import Document, FileTemplate
from vanilla_transformer.documents.translation import (
    MarkedJob,
    plan_document,
    plan_marked,
    write_document,
)
from vanilla_transformer.inference.job import Job
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.serving.detection import Detected
from vanilla_transformer.serving.errors import RequestError, check_limit
from vanilla_transformer.serving.models import Models, ServedDirection
from vanilla_transformer.serving.served_model import Answer, Planned
from vanilla_transformer.serving.service import Service
from vanilla_transformer.text.memory import Memory

Item = TypeVar("Item", bound=str | Document)
Reply = dict[str, Any]
"""The fields of the answer to an item."""


@dataclass(frozen=True)
class Contents(ABC, Generic[Item, Planned]):
    """Items of one kind, with the options of their request."""

    items: Sequence[Item]
    options: TranslateOptions
    direction: ServedDirection | None = field(default=None, kw_only=True)  # of all items

    @property
    def num_outputs(self) -> int:
        """The number of outputs for each text."""
        return self.options.n_best or 1

    @abstractmethod
    def plan(
        self, translator: Translator, options: TranslateOptions, memories: list[Memory]
    ) -> Planned:
        """Plans all items as one job."""

    @abstractmethod
    def describe(self, answer: Answer[Planned] | None) -> list[Reply]:
        """Returns the answer to each item. None: no model has answered; the items come back."""

    async def translate(
        self, request: Request, service: Service, source: str, target: str
    ) -> list[tuple[Reply, Detected | None]]:
        """Asks a model for each direction; returns the answer to each item, with its language.

        Args:
            source: Code of the source language; "auto": that of each item is detected.
        """
        found = await self._directions(service.models, source, target)
        groups: dict[ServedDirection | None, list[int]] = {}
        for index, (direction, _) in enumerate(found):
            groups.setdefault(direction, []).append(index)
        replies: dict[int, Reply] = {}
        for direction, indices in groups.items():
            items = [self.items[index] for index in indices]
            part = replace(self, items=items, direction=direction)
            answer = None
            if direction:
                answer = await service.answer(request, direction, part.plan, part.options)
            described = await asyncio.to_thread(part.describe, answer)
            if direction and direction.pivot:
                described = [reply | {"pivot": direction.pivot} for reply in described]
            replies |= zip(indices, described, strict=True)
        return [(replies[index], language) for index, (_, language) in enumerate(found)]

    async def _directions(
        self, models: Models, source: str, target: str
    ) -> Sequence[tuple[ServedDirection | None, Detected | None]]:
        """Returns the direction of each item, and its language if that is to be detected."""
        if source != "auto":
            return [(models.direction(source, target), None)] * len(self.items)
        texts = list(map(_text_of, self.items))
        return await asyncio.to_thread(models.detected_directions, texts, target)

    def _reply(self, outputs: Sequence[str], is_complete: bool) -> Reply:
        """Returns the fields that answers to texts and to pages share."""
        reply: Reply = {"translatedText": outputs[0]}
        if self.num_outputs > 1:
            reply["alternatives"] = [text for text in dict.fromkeys(outputs) if text != outputs[0]]
        return reply if is_complete else reply | {"cutOff": True}


@dataclass(frozen=True)
class PlainTexts(Contents[str, Job]):
    """Texts."""

    tells_memory: bool = False  # whether answers have what the memory has for their texts

    def plan(
        self, translator: Translator, options: TranslateOptions, memories: list[Memory]
    ) -> Job:
        """As for `Contents`."""
        return translator.plan(self.items, options, memories)

    def describe(self, answer: Answer[Job] | None) -> list[Reply]:
        """As for `Contents`, with the details that the request names."""
        rows = answer.rows if answer else [[Translation(text)] for text in self.items]
        return list(map(self._describe, rows))

    def _describe(self, outputs: Sequence[Translation]) -> Reply:
        best = outputs[0]
        reply = self._reply([output.text for output in outputs], best.is_complete)
        if self.options.marks:
            reply["marks"] = [mark._asdict() for mark in best.marks]
        if self.options.scores:
            reply["quality"], reply["doubts"] = best.quality, best.doubts
        if self.tells_memory:
            reply["fromMemory"] = best.from_memory and asdict(best.from_memory)
        return reply


@dataclass(frozen=True)
class Pages(Contents[FileTemplate, MarkedJob]):
    """Pages of HTML."""

    @classmethod
    def read(cls, sources: Sequence[str], options: TranslateOptions) -> Self:
        """Reads pages."""
        return cls([FileTemplate(page, places_of_html(page)) for page in sources], options)

    def plan(
        self, translator: Translator, options: TranslateOptions, memories: list[Memory]
    ) -> MarkedJob:
        """As for `Contents`."""
        rows = [row for page in self.items for row in page.texts]
        return plan_marked(translator, rows, options, memories)

    def describe(self, answer: Answer[MarkedJob] | None) -> list[Reply]:
        """As for `Contents`. A page is cut off if one of its texts is."""
        if answer is None:
            unchanged = [page.join([None] * len(page.texts)) for page in self.items]
            return [self._reply([page], is_complete=True) for page in unchanged]
        replies, begin = [], 0
        with_tags = [
            answer.planned.place_tags([outputs[rank] for outputs in answer.rows])
            for rank in range(self.num_outputs)
        ]
        for page in self.items:
            end = begin + len(page.texts)
            is_complete = all(outputs[0].is_complete for outputs in answer.rows[begin:end])
            pages = [page.join(texts[begin:end]) for texts in with_tags]
            replies.append(self._reply(pages, is_complete))
            begin = end
        return replies


@dataclass(frozen=True)
class File(Contents[MessageDocument, MarkedJob]):
    """A file, whose document is the only item."""

    name: str
    content: bytes

    @classmethod
    def read(cls, name: str, content: bytes, options: TranslateOptions, most: int) -> Self:
        """Reads a file, or refuses it (400); unpacked, it may have `most` bytes."""
        try:
            if is_zipfile(BytesIO(content)):
                with ZipFile(BytesIO(content)) as packed:
                    check_limit(sum(part.file_size for part in packed.infolist()), most, "bytes")
            return cls([read_document(name, content)], options, name, content)
        except (ValueError, BadZipFile) as error:
            raise RequestError(400, str(error)) from error

    def plan(
        self, translator: Translator, options: TranslateOptions, memories: list[Memory]
    ) -> MarkedJob:
        """As for `Contents`. The translations in the file are a memory, too."""
        (document,), direction = self.items, self.direction
        memories = [Memory(document.pairs), *memories]
        # The target of the first of two models is another language.
        target = direction.codes[1] if direction and direction.pivot else None
        try:
            return plan_document(translator, document, options, memories, target=target)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error

    def describe(self, answer: Answer[MarkedJob] | None) -> list[Reply]:
        """As for `Contents`: the translated file, and the numbers of its texts."""
        (document,) = self.items
        reply: Reply = {"content": self.content, "texts": len(document.texts)}
        if answer:
            best = [outputs[0] for outputs in answer.rows]
            translated = write_document(document, answer.planned, best)
            written = list(filter(None, translated.written))
            reply["content"] = translated.content
            reply["fromMemory"] = sum(text.is_known for text in written)
            reply["doubtful"] = sum(text.is_doubtful for text in written)
            if translated.untranslated:
                reply["untranslated"] = translated.untranslated
        return [reply]


def _text_of(item: str | Document) -> str:
    """Returns the text of an item, by which its language is detected."""
    return item if isinstance(item, str) else "\n".join(text.marked.plain for text in item.texts)
