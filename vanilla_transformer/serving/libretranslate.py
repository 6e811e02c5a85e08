"""The routes of LibreTranslate's interface, so that its clients work as they are."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Literal
from urllib.parse import quote
from zipfile import BadZipFile, ZipFile, is_zipfile

from fastapi import FastAPI, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from pydantic import Field

from vanilla_transformer.documents.formats import FORMATS, read_document
from vanilla_transformer.documents.html import read_html
from vanilla_transformer.documents.markup import MarkedText
from vanilla_transformer.documents.places import Document
from vanilla_transformer.documents.translation import (
    known_outputs,
    target_of_document,
    with_proposals,
    with_tags_placed,
    write_document,
)
from vanilla_transformer.inference.results import OutputOptions, Translation
from vanilla_transformer.serving.bodies import (
    FORM,
    JSON,
    MULTIPART,
    LenientFields,
    Text,
    Texts,
    describe_body,
)
from vanilla_transformer.serving.errors import RequestError, check_limit
from vanilla_transformer.serving.glossaries import GlossaryField
from vanilla_transformer.serving.models import Query, detect_languages
from vanilla_transformer.serving.service import Service
from vanilla_transformer.serving.settings import ANY
from vanilla_transformer.text.languages import is_language, language_name
from vanilla_transformer.text.memory import (
    LEAST_SHOWN,
    Memory,
    Pair,
    Suggestion,
    suggestions_for,
)
from vanilla_transformer.text.terms import Glossary

TAG = "LibreTranslate"
_ENOUGH = 2000  # characters, to tell the language of a text
_EXPANDED = 50  # bytes of an unpacked file for each byte that a body may have
_FILES_SIZE = 64_000_000
_FILES_SECONDS = 600


def add_libretranslate_routes(app: FastAPI, service: Service) -> None:
    """Adds `/translate`, `/translate_file`, `/languages` and what else clients ask for."""
    files = _Files()
    limits, needs_key = service.settings.limits, bool(service.settings.clients.api_keys)

    class TranslateFields(LenientFields):
        q: Texts = Field(description="A text, or a list of texts (in JSON only)")
        source: Text = Field(description="Code of the source language, see /languages, or auto")
        target: Text = Field(description="Code of the target language")
        format: Literal["text", "html"] = Field(
            "text", description="In html, text is translated, and inline tags go with their words"
        )
        alternatives: int = Field(
            0, ge=0, le=limits.max_beams - 1, description="Number of further outputs"
        )
        glossary: GlossaryField = None
        marks: bool = Field(
            False, description="Tell where outputs have kept parts and terms; not in html"
        )
        quality: bool = Field(
            False, description="Tell the expected chrF of outputs, 0 to 100 or null; not in html"
        )
        secret: Text = Field("", description="Not used; clients of LibreTranslate send it")

    async def answer_texts(
        request: Request,
        marked: Sequence[MarkedText],
        source: str,
        target: str,
        n_best: int = 1,
        glossary: Glossary | None = None,
        marks: bool = False,
        quality: bool = False,
        in_sentences: bool = False,
        document: Document | None = None,
    ) -> tuple[list[list[Translation]], str, int]:
        """Returns the outputs of texts, the code of their language, and the confidence in it."""
        confidence = 0
        if source == "auto":
            sample = "\n".join(text.text for text in marked)[:_ENOUGH]
            detect = service.models.detect_source
            source, confidence = await asyncio.to_thread(detect, sample, target)
        model, languages = service.models.for_direction(source, target)
        beams = max(model.default_beams, n_best)
        links = document is not None or any(text.tags for text in marked)
        details = OutputOptions(quality, links=links, marks=marks)
        options = (("num_beams", beams),)

        def find_known() -> tuple[list[Translation | None], list[Suggestion | None]]:
            memories = [Memory(document.pairs)] if document else []
            if service.memory is not None:
                memories.append(service.memory.of(*service.models.served_codes(source, target)))
            marks_doubt = document is not None and document.marks_doubt
            reads_memory = model.translator.reader.reads_memory
            if not in_sentences:  # plain texts, whose tags are words
                texts, least = [text.text for text in marked], LEAST_SHOWN if reads_memory else None
                return [None for _ in texts], suggestions_for(texts, memories, least=least)
            return known_outputs(marked, memories, reads_memory, marks_doubt)

        known: list[Translation | None] = [None for _ in marked]
        suggestions: list[Suggestion | None] = [None for _ in marked]
        if document or service.memory:
            known, suggestions = await asyncio.to_thread(find_known)
        rest = [number for number, output in enumerate(known) if output is None]
        query = Query(
            n_best,
            details,
            options,
            glossary,
            [suggestions[number] for number in rest],
            in_sentences,
            cuts_again=True,
        )
        texts = [marked[number].text for number in rest]
        remaining = iter((await service.answer(request, model, texts, query, languages)).outputs)
        outputs = [[output] * n_best if output else next(remaining) for output in known]
        return outputs, source, confidence

    @app.post(
        "/translate",
        tags=[TAG],
        summary="Translates a text or a list of texts.",
        openapi_extra=describe_body(TranslateFields, JSON, FORM),
    )
    async def translate(request: Request) -> JSONResponse:
        asked = await service.read_fields(request, TranslateFields)
        for name in ("q", "source", "target"):
            if not getattr(asked, name):
                raise RequestError(400, f"Invalid request: missing {name} parameter")
        given = asked.q if isinstance(asked.q, list) else [asked.q]
        service.check_size(given)
        pages = [read_html(page) for page in given] if asked.format == "html" else []
        marked = [text for page in pages for text in page.texts]
        if not pages:
            marked = list(map(MarkedText, given))
        n_best = asked.alternatives + 1
        outputs, source, confidence = await answer_texts(
            request,
            marked,
            asked.source,
            asked.target,
            n_best,
            service.glossaries.chosen(asked.glossary),
            asked.marks,
            asked.quality and not pages,
            in_sentences=bool(pages),
        )
        rows = [[output.text for output in row] for row in outputs]
        of_texts = [[row] for row in outputs]
        if pages:
            remaining = iter(outputs)
            of_texts = [[next(remaining) for _ in page.texts] for page in pages]
            rows = await asyncio.to_thread(
                lambda: [
                    [
                        page.join(with_tags_placed(page.texts, [row[rank] for row in of_page]))
                        for rank in range(n_best)
                    ]
                    for page, of_page in zip(pages, of_texts, strict=True)
                ]
            )
        answer: dict[str, list[Any]] = {"translatedText": [row[0] for row in rows]}
        if asked.alternatives:
            # Without repetitions.
            others = [[text for text in dict.fromkeys(row) if text != row[0]] for row in rows]
            answer["alternatives"] = others
        if asked.marks and not pages:
            answer["marks"] = [[mark._asdict() for mark in row[0].marks] for row in outputs]
        if asked.quality and not pages:
            answer["quality"] = [row[0].quality for row in outputs]
        if service.memory is not None and not pages:
            found = [row[0].from_memory for row in outputs]
            answer["fromMemory"] = [known and asdict(known) for known in found]
        are_cut_off = [not all(row[0].is_complete for row in of_text) for of_text in of_texts]
        if any(are_cut_off):
            answer["cutOff"] = are_cut_off
        if asked.source == "auto":
            answer["detectedLanguage"] = [_describe(source, confidence)] * len(given)
        if isinstance(asked.q, list):
            return JSONResponse(answer)
        return JSONResponse({name: values[0] for name, values in answer.items()})

    class FileFields(LenientFields):
        file: UploadFile = Field(description=f"A file, of the kinds {', '.join(FORMATS)}")
        source: Text = Field(description="Code of the source language, or auto")
        target: Text = Field(description="Code of the target language")
        glossary: GlossaryField = None

    @app.post(
        "/translate_file",
        tags=[TAG],
        summary="Translates a file; the answer has the address of the result.",
        openapi_extra=describe_body(FileFields, MULTIPART),
    )
    async def translate_file(request: Request) -> JSONResponse:
        asked = await service.read_fields(request, FileFields)
        name, content = Path(asked.file.filename or "").name, await asked.file.read()
        document = await asyncio.to_thread(_read_file, name, content, _EXPANDED * limits.max_body)
        service.check_size([text.text for text in document.texts])
        glossary = service.glossaries.chosen(asked.glossary)
        try:
            language = target_of_document(document, asked.target)
        except ValueError as error:
            raise RequestError(400, f"{name}: {error}") from error
        fields = request, document.texts, asked.source, asked.target
        outputs, _, _ = await answer_texts(
            *fields, glossary=glossary, in_sentences=True, document=document
        )
        best = with_proposals(document, [row[0] for row in outputs])
        written, untranslated = await asyncio.to_thread(write_document, document, best, language)
        parts, key = Path(name), files.keep(written)
        path = f"download_file/{key}/{quote(f'{parts.stem}.{asked.target}{parts.suffix}')}"
        address = f"{request.base_url}{path}"
        answer: dict[str, Any] = {"translatedFileUrl": address}
        if untranslated:
            answer["untranslated"] = untranslated
        return JSONResponse(answer)

    @app.get(
        "/download_file/{key}/{name}",
        tags=[TAG],
        summary="Returns a file that /translate_file has translated in the last minutes.",
    )
    async def download_file(key: str, name: str) -> Response:
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
        return Response(files.find(key), media_type="application/octet-stream", headers=headers)

    class SuggestFields(LenientFields):
        q: Text = Field(description="A text")
        s: Text = Field(description="Its translation")
        source: Text = Field(description="Code of the language of the text")
        target: Text = Field(description="Code of the language of the translation")

    @app.post(
        "/suggest",
        tags=[TAG],
        summary="Corrects the translation of a text, for this and all later requests.",
        openapi_extra=describe_body(SuggestFields, JSON, FORM),
    )
    async def suggest(request: Request) -> JSONResponse:
        asked = await service.read_fields(request, SuggestFields)
        if service.memory is None:
            raise RequestError(403, "This server takes no suggestions: it has no --memory.")
        service.check_size([asked.q, asked.s])
        if not (asked.q.strip() and asked.s.strip()):
            raise RequestError(400, "Invalid request: q and s are the text and its translation")
        service.models.for_direction(asked.source, asked.target)
        codes = service.models.served_codes(asked.source, asked.target)
        try:
            await asyncio.to_thread(service.memory.add, *codes, Pair(asked.q, asked.s))
        except ValueError as error:
            raise RequestError(400, f"Invalid request: {error}") from error
        return JSONResponse({"success": True})

    class DetectFields(LenientFields):
        q: Text = Field(description="A text")

    @app.post(
        "/detect",
        tags=[TAG],
        summary="Detects the language of a text among those of this server.",
        openapi_extra=describe_body(DetectFields, JSON, FORM),
    )
    async def detect(request: Request) -> JSONResponse:
        asked = await service.read_fields(request, DetectFields)
        service.check_size([asked.q])
        codes = [code for direction in service.models.directions for code in direction]
        found = await asyncio.to_thread(detect_languages, asked.q[:_ENOUGH], codes)
        return JSONResponse([_describe(*language) for language in found[:1]])

    @app.get("/languages", tags=[TAG], summary="Lists the languages, and the targets of each.")
    async def languages() -> JSONResponse:
        directions = service.models.directions
        codes = dict.fromkeys(code for direction in directions for code in direction)
        return JSONResponse(
            [
                {
                    "code": code,
                    "name": _name_of(code),
                    "targets": [target for source, target in directions if source == code],
                }
                for code in codes
            ]
        )

    @app.get(
        "/frontend/settings",
        tags=[TAG],
        summary="Gives clients with a user interface what they need.",
    )
    async def frontend_settings() -> JSONResponse:
        first = dict(zip(("source", "target"), next(iter(service.models.directions)), strict=True))
        return JSONResponse(
            {
                "apiKeys": needs_key,
                "keyRequired": needs_key,
                "charLimit": limits.max_characters,
                "filesTranslation": True,
                "frontendTimeout": 500,
                "glossaries": service.glossaries.names,
                "language": {
                    side: {"code": code, "name": _name_of(code)} for side, code in first.items()
                },
                "models": [
                    {"name": name, "description": model.description}
                    for name, model in service.models.by_name.items()
                ],
                "suggestions": service.memory is not None,
                "supportedFilesFormat": list(FORMATS),
            }
        )

    @app.get("/spec", tags=[TAG], summary="Describes the interface, as /openapi.json does.")
    async def spec() -> JSONResponse:
        return JSONResponse(app.openapi())


class _Files:
    """Translated files in memory: each for some minutes, and as many as there is room for."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[float, bytes]] = {}  # the oldest first

    def keep(self, content: bytes) -> str:
        """Keeps a file; returns the key to it."""
        now, key = time.monotonic(), token_urlsafe()
        room = _FILES_SIZE - len(content)
        for other, (since, kept) in reversed(list(self._files.items())):
            room -= len(kept)
            if room < 0 or now - since > _FILES_SECONDS:
                del self._files[other]
        self._files[key] = now, content
        return key

    def find(self, key: str) -> bytes:
        """Returns a file, or refuses the request (404)."""
        since, content = self._files.get(key, (0.0, None))
        if content is None or time.monotonic() - since > _FILES_SECONDS:
            raise RequestError(404, "There is no such file: the server keeps it for some minutes.")
        return content


def _read_file(name: str, content: bytes, most: int) -> Document:
    """Reads a file, whose parts may have so many bytes, or refuses it (400)."""
    try:
        if is_zipfile(BytesIO(content)):
            with ZipFile(BytesIO(content)) as packed:
                check_limit(sum(part.file_size for part in packed.infolist()), most, "bytes")
        return read_document(name, content)
    except (ValueError, BadZipFile) as error:
        raise RequestError(400, str(error)) from error


def _describe(code: str, confidence: int) -> dict[str, Any]:
    return {"language": code, "confidence": confidence}


def _name_of(code: str) -> str:
    """Returns the name of a language; a model without a direction has other codes."""
    if code == ANY:
        return "Any"
    return language_name(code) if is_language(code) else code
