"""The routes of LibreTranslate's interface, so that its clients work as they are."""

import asyncio
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from zipfile import BadZipFile, ZipFile, is_zipfile

from fastapi import APIRouter, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from pydantic import Field

from vanilla_transformer.documents.formats import FORMATS, read_document
from vanilla_transformer.documents.html import read_html
from vanilla_transformer.documents.places import Document
from vanilla_transformer.documents.translation import (
    MarkedJob,
    TranslatedDocument,
    plan_document,
    plan_marked,
    write_document,
)
from vanilla_transformer.inference.job import Job
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.language_tags import is_language, language_name
from vanilla_transformer.serving.bodies import (
    FORM,
    JSON,
    MULTIPART,
    LenientFields,
    Text,
    Texts,
    describe_body,
)
from vanilla_transformer.serving.errors import RequestError, check_limit, check_most
from vanilla_transformer.serving.glossaries import GlossaryField
from vanilla_transformer.serving.models import AlreadyInTarget, ServedDirection, detect_languages
from vanilla_transformer.serving.service import Service, service_of
from vanilla_transformer.serving.settings import ANY
from vanilla_transformer.text.memory import Memory, Pair

router = APIRouter(tags=["LibreTranslate"])
_ENOUGH = 2000  # characters, to tell the language of a text
_EXPANDED = 50  # bytes of an unpacked file for each byte that a body may have


class TranslateFields(LenientFields):
    """The body of `/translate`."""

    q: Texts = Field(description="A text, or a list of texts (in JSON only)")
    source: Text = Field(description="Code of the source language, see /languages, or auto")
    target: Text = Field(description="Code of the target language")
    format: Literal["text", "html"] = Field(
        "text", description="In html, text is translated, and inline tags go with their words"
    )
    alternatives: int = Field(0, ge=0, description="Number of further outputs")
    glossary: GlossaryField = None
    marks: bool = Field(
        False, description="Tell where outputs have kept parts and terms; not in html"
    )
    quality: bool = Field(
        False,
        description="Tell the expected chrF of outputs, 0 to 100 or null, and the names of what "
        "is doubtful in them; not in html",
    )
    secret: Text = Field("", description="Not used; clients of LibreTranslate send it")


@router.post(
    "/translate",
    summary="Translates a text or a list of texts.",
    openapi_extra=describe_body(TranslateFields, JSON, FORM),
)
async def translate(request: Request) -> JSONResponse:
    """Answers with the outputs of texts, and with the details that were asked for."""
    service = service_of(request)
    asked = await service.read_fields(request, TranslateFields)
    for name in ("q", "source", "target"):
        if not getattr(asked, name):
            raise RequestError(400, f"Invalid request: missing {name} parameter")
    given = asked.q if isinstance(asked.q, list) else [asked.q]
    service.check_size(given)
    check_most("alternatives", asked.alternatives, service.settings.limits.max_beams - 1)
    is_html = asked.format == "html"
    answer, outputs = await (_translate_html if is_html else _translate_texts)(
        request, service, asked, given
    )
    are_cut_off = [not all(output.is_complete for output in of_text) for of_text in outputs]
    if any(are_cut_off):
        answer["cutOff"] = are_cut_off
    if isinstance(asked.q, list):
        return JSONResponse(answer)
    return JSONResponse({name: values[0] for name, values in answer.items()})


async def _translate_texts(
    request: Request, service: Service, asked: TranslateFields, texts: list[str]
) -> tuple[dict[str, list[Any]], list[list[Translation]]]:
    """Returns the answer for texts, and their best outputs."""
    direction = await _find_direction(service, texts, asked.source, asked.target)
    if isinstance(direction, AlreadyInTarget):
        answer = _texts_of(asked, direction, [[text] for text in texts])
        if asked.marks:
            answer["marks"] = [[] for _ in texts]
        if asked.quality:
            answer["quality"], answer["doubts"] = [None for _ in texts], [[] for _ in texts]
        return answer, []
    memories = await service.memories(direction.codes)

    def plan(translator: Translator, options: TranslateOptions) -> Job:
        return translator.plan(texts, options, memories)

    _, rows, *_ = await service.answer(
        request,
        direction,
        plan,
        n_best=asked.alternatives + 1,
        glossary=service.glossaries.chosen(asked.glossary),
        marks=asked.marks,
        scores=asked.quality,
    )
    answer = _texts_of(asked, direction, [[output.text for output in row] for row in rows])
    best = [row[0] for row in rows]
    if asked.marks:
        answer["marks"] = [[mark._asdict() for mark in output.marks] for output in best]
    if asked.quality:
        answer["quality"] = [output.quality for output in best]
        answer["doubts"] = [output.doubts for output in best]
    if memories:
        found = [output.from_memory for output in best]
        answer["fromMemory"] = [known and asdict(known) for known in found]
    return answer, [[output] for output in best]


async def _translate_html(
    request: Request, service: Service, asked: TranslateFields, given: list[str]
) -> tuple[dict[str, list[Any]], list[list[Translation]]]:
    """Returns the answer for pages of HTML, and the best outputs of their texts."""
    pages = await asyncio.to_thread(lambda: list(map(read_html, given)))
    marked = [text for page in pages for text in page.texts]
    plain = [text.text for text in marked]
    direction = await _find_direction(service, plain, asked.source, asked.target)
    if isinstance(direction, AlreadyInTarget):
        return _texts_of(asked, direction, [[page] for page in given]), []
    memories = await service.memories(direction.codes)

    def plan(translator: Translator, options: TranslateOptions) -> MarkedJob:
        return plan_marked(translator, marked, options, memories)

    planned, rows, *_ = await service.answer(
        request,
        direction,
        plan,
        n_best=asked.alternatives + 1,
        glossary=service.glossaries.chosen(asked.glossary),
    )

    def write_pages() -> list[list[str]]:
        written = []
        for rank in range(asked.alternatives + 1):
            texts = iter(planned.place_tags([row[rank] for row in rows]))
            written.append([page.join([next(texts) for _ in page.texts]) for page in pages])
        return list(map(list, zip(*written, strict=True)))

    best = iter([row[0] for row in rows])
    of_pages = [[next(best) for _ in page.texts] for page in pages]
    return _texts_of(asked, direction, await asyncio.to_thread(write_pages)), of_pages


def _texts_of(
    asked: TranslateFields, direction: ServedDirection | AlreadyInTarget, rows: list[list[str]]
) -> dict[str, list[Any]]:
    """Returns the part of an answer that texts and pages have."""
    answer: dict[str, list[Any]] = {"translatedText": [row[0] for row in rows]}
    if asked.alternatives:
        # Without repetitions.
        others = [[text for text in dict.fromkeys(row) if text != row[0]] for row in rows]
        answer["alternatives"] = others
    if asked.source == "auto":
        described = _describe(direction.codes[0], direction.confidence)
        answer["detectedLanguage"] = [described] * len(rows)
    if direction.pivot:
        answer["pivot"] = [direction.pivot] * len(rows)
    return answer


async def _find_direction(
    service: Service, texts: list[str], source: str, target: str
) -> ServedDirection | AlreadyInTarget:
    """Returns the direction of texts, whose source may have to be detected."""
    if source != "auto":
        return service.models.for_direction(source, target)
    sample = "\n".join(texts)[:_ENOUGH]
    return await asyncio.to_thread(service.models.detected_direction, sample, target)


class FileFields(LenientFields):
    """The body of `/translate_file`."""

    file: UploadFile = Field(description=f"A file, of the kinds {', '.join(FORMATS)}")
    source: Text = Field(description="Code of the source language, or auto")
    target: Text = Field(description="Code of the target language")
    glossary: GlossaryField = None


@router.post(
    "/translate_file",
    summary="Translates a file; the answer has the address of the result.",
    openapi_extra=describe_body(FileFields, MULTIPART),
)
async def translate_file(request: Request) -> JSONResponse:
    """Answers with the address of a translated file."""
    service = service_of(request)
    asked = await service.read_fields(request, FileFields)
    name, content = Path(asked.file.filename or "").name, await asked.file.read()
    most = _EXPANDED * service.settings.limits.max_body
    document = await asyncio.to_thread(_read_file, name, content, most)
    texts = [text.text for text in document.texts]
    service.check_size(texts)
    direction = await _find_direction(service, texts, asked.source, asked.target)
    answer: dict[str, Any] = {"texts": len(texts)}
    if isinstance(direction, ServedDirection):
        translated = await _translate_document(request, service, direction, document, asked)
        content, written = translated.content, list(filter(None, translated.written))
        answer["fromMemory"] = sum(text.is_known for text in written)
        answer["doubtful"] = sum(text.is_doubtful for text in written)
        if translated.untranslated:
            answer["untranslated"] = translated.untranslated
        if direction.pivot:
            answer["pivot"] = direction.pivot
    parts, key = Path(name), service.files.keep(content)
    path = f"download_file/{key}/{quote(f'{parts.stem}.{asked.target}{parts.suffix}')}"
    return JSONResponse({"translatedFileUrl": f"{request.base_url}{path}", **answer})


async def _translate_document(
    request: Request,
    service: Service,
    direction: ServedDirection,
    document: Document,
    asked: FileFields,
) -> TranslatedDocument:
    glossary = service.glossaries.chosen(asked.glossary)
    own = await asyncio.to_thread(Memory, document.pairs)
    memories = [own, *await service.memories(direction.codes)]
    target = direction.codes[1] if direction.pivot else None

    def plan(translator: Translator, options: TranslateOptions) -> MarkedJob:
        try:
            return plan_document(translator, document, options, memories, target=target)
        except ValueError as error:
            raise ValueError(f"{Path(asked.file.filename or '').name}: {error}") from error

    planned, rows, *_ = await service.answer(request, direction, plan, glossary=glossary)
    best = [row[0] for row in rows]
    return await asyncio.to_thread(write_document, document, planned, best)


@router.get(
    "/download_file/{key}/{name}",
    summary="Returns a file that /translate_file has translated in the last minutes.",
)
async def download_file(request: Request, key: str, name: str) -> Response:
    """Answers with a translated file."""
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    content = service_of(request).files.find(key)
    return Response(content, media_type="application/octet-stream", headers=headers)


class SuggestFields(LenientFields):
    """The body of `/suggest`."""

    q: Text = Field(description="A text")
    s: Text = Field(description="Its translation")
    source: Text = Field(description="Code of the language of the text")
    target: Text = Field(description="Code of the language of the translation")


@router.post(
    "/suggest",
    summary="Corrects the translation of a text, for this and all later requests.",
    openapi_extra=describe_body(SuggestFields, JSON, FORM),
)
async def suggest(request: Request) -> JSONResponse:
    """Stores a correction."""
    service = service_of(request)
    asked = await service.read_fields(request, SuggestFields)
    if service.memory is None:
        raise RequestError(403, "This server takes no suggestions: it has no --memory.")
    service.check_size([asked.q, asked.s])
    if not (asked.q.strip() and asked.s.strip()):
        raise RequestError(400, "Invalid request: q and s are the text and its translation")
    codes = service.models.for_direction(asked.source, asked.target).codes
    try:
        await asyncio.to_thread(service.memory.add, *codes, Pair(asked.q, asked.s))
    except ValueError as error:
        raise RequestError(400, f"Invalid request: {error}") from error
    return JSONResponse({"success": True})


class DetectFields(LenientFields):
    """The body of `/detect`."""

    q: Text = Field(description="A text")


@router.post(
    "/detect",
    summary="Detects the language of a text among those of this server.",
    openapi_extra=describe_body(DetectFields, JSON, FORM),
)
async def detect(request: Request) -> JSONResponse:
    """Answers with the likeliest language, if there is one."""
    service = service_of(request)
    asked = await service.read_fields(request, DetectFields)
    service.check_size([asked.q])
    codes = [code for direction in service.models.directions for code in direction]
    found = await asyncio.to_thread(detect_languages, asked.q[:_ENOUGH], codes)
    return JSONResponse([_describe(*language) for language in found[:1]])


@router.get("/languages", summary="Lists the languages, and the targets of each.")
async def languages(request: Request) -> JSONResponse:
    """Answers with the languages of all models."""
    directions = service_of(request).models.directions
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


@router.get("/frontend/settings", summary="Gives clients with a user interface what they need.")
async def frontend_settings(request: Request) -> JSONResponse:
    """Answers with the settings of this server that a page shows."""
    service = service_of(request)
    first = dict(zip(("source", "target"), next(iter(service.models.directions)), strict=True))
    needs_key = bool(service.settings.clients.api_keys)
    return JSONResponse(
        {
            "apiKeys": needs_key,
            "keyRequired": needs_key,
            "charLimit": service.settings.limits.max_characters,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "glossaries": service.glossaries.names,
            "language": {
                side: {"code": code, "name": _name_of(code)} for side, code in first.items()
            },
            "maxAlternatives": service.settings.limits.max_beams - 1,
            "models": [
                {"name": name, "description": model.description}
                for name, model in service.models.by_name.items()
            ],
            "suggestions": service.memory is not None,
            "supportedFilesFormat": list(FORMATS),
        }
    )


@router.get("/spec", summary="Describes the interface, as /openapi.json does.")
async def spec(request: Request) -> JSONResponse:
    """Answers with the description of the interface."""
    return JSONResponse(request.app.openapi())


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
