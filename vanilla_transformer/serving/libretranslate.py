"""The routes of LibreTranslate's interface, so that its clients work as they are."""

import asyncio
from dataclasses import asdict, replace
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from zipfile import BadZipFile, ZipFile, is_zipfile

from fastapi import APIRouter, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from pydantic import Field

from vanilla_transformer.documents.formats import FORMATS, read_document
from vanilla_transformer.documents.html import places_of_html
from vanilla_transformer.documents.places import Document, FileTemplate
from vanilla_transformer.documents.translation import (
    MarkedJob,
    TranslatedDocument,
    plan_document,
    plan_marked,
    write_document,
)
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
from vanilla_transformer.serving.models import ServedDirection, Unchanged, detect_languages
from vanilla_transformer.serving.service import Service, service_of
from vanilla_transformer.serving.settings import ANY
from vanilla_transformer.text.memory import Memory, Pair

router = APIRouter(tags=["LibreTranslate"])
_EXPANDED = 50  # bytes of an unpacked file for each byte that a body may have

Row = dict[str, Any]
"""The answer to one text; that to a list of texts has a list for each name."""


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
    """Answers with the outputs of texts, and with the details that the request names."""
    service = service_of(request)
    fields = await service.read_fields(request, TranslateFields)
    for name in ("q", "source", "target"):
        if not getattr(fields, name):
            raise RequestError(400, f"Invalid request: missing {name} parameter")
    texts = fields.q if isinstance(fields.q, list) else [fields.q]
    service.check_size(texts)
    check_most("alternatives", fields.alternatives, service.settings.limits.max_beams - 1)
    work = _translate_all(request, service, fields, texts)
    rows = await service.finish_in_time(request, work)
    if not isinstance(fields.q, list):
        return JSONResponse(rows[0])
    names = dict.fromkeys(name for row in rows for name in row)
    rows = [{"cutOff": False, **row} for row in rows]
    return JSONResponse({name: [row.get(name) for row in rows] for name in names})


async def _translate_all(
    request: Request, service: Service, fields: TranslateFields, texts: list[str]
) -> list[Row]:
    """Returns the answer to each text, with a request to a model for each direction."""
    if fields.format == "html":

        def read_pages() -> list[FileTemplate]:
            return [FileTemplate(text, places_of_html(text)) for text in texts]

        items: list[Any] = await asyncio.to_thread(read_pages)
        plain = ["\n".join(marked.text for marked in page.texts) for page in items]
        translate_items: Any = _translate_pages
    else:
        items, plain, translate_items = texts, texts, _translate_texts
    directions = await _directions_of(service, plain, fields.source, fields.target)
    groups: dict[tuple[str, str], list[int]] = {}
    for index, direction in enumerate(directions):
        groups.setdefault(direction.codes, []).append(index)
    rows = [Row() for _ in texts]
    for indices in groups.values():
        direction = directions[indices[0]]
        of_group = [items[index] for index in indices]
        found = await translate_items(request, service, direction, fields, of_group)
        for index, row in zip(indices, found, strict=True):
            rows[index] = row
    for row, direction in zip(rows, directions, strict=True):
        if fields.source == "auto":
            row["detectedLanguage"] = _describe(direction.codes[0], direction.confidence)
        if direction.pivot:
            row["pivot"] = direction.pivot
    return rows


async def _directions_of(
    service: Service, texts: list[str], source: str, target: str
) -> list[ServedDirection | Unchanged]:
    """Returns the direction of each text, whose source may have to be detected."""
    if source != "auto":
        return [service.models.for_direction(source, target)] * len(texts)
    return await asyncio.to_thread(service.models.detected_directions, texts, target)


async def _translate_texts(
    request: Request,
    service: Service,
    direction: ServedDirection | Unchanged,
    fields: TranslateFields,
    texts: list[str],
) -> list[Row]:
    """Returns the answers to texts of one direction."""
    if isinstance(direction, Unchanged):
        return [_describe_outputs(fields, [Translation(text)], has_memory=False) for text in texts]
    answer = await service.answer(
        request,
        direction,
        lambda translator, options, memories: translator.plan(texts, options, memories),
        replace(_options_of(service, fields), marks=fields.marks, scores=fields.quality),
    )
    has_memory = service.memory is not None
    return [_describe_outputs(fields, outputs, has_memory) for outputs in answer.rows]


async def _translate_pages(
    request: Request,
    service: Service,
    direction: ServedDirection | Unchanged,
    fields: TranslateFields,
    pages: list[FileTemplate],
) -> list[Row]:
    """Returns the answers to pages of HTML of one direction."""
    file_texts = [row for page in pages for row in page.rows]
    if isinstance(direction, Unchanged):
        return [_describe_texts(fields, [page.join([None] * len(page.texts))]) for page in pages]
    planned, rows, *_ = await service.answer(
        request,
        direction,
        lambda translator, options, memories: plan_marked(
            translator, file_texts, options, memories
        ),
        _options_of(service, fields),
    )

    def write_pages() -> list[list[str]]:
        written = []
        for rank in range(fields.alternatives + 1):
            texts = iter(planned.place_tags([row[rank] for row in rows]))
            written.append([page.join([next(texts) for _ in page.texts]) for page in pages])
        return list(map(list, zip(*written, strict=True)))

    best = iter([row[0].is_complete for row in rows])
    are_complete = [all(list(islice(best, len(page.texts)))) for page in pages]
    written = await asyncio.to_thread(write_pages)
    return list(map(partial(_describe_texts, fields), written, are_complete))


def _options_of(service: Service, fields: TranslateFields) -> TranslateOptions:
    glossary = service.glossaries.chosen(fields.glossary)
    return TranslateOptions(n_best=fields.alternatives + 1, glossary=glossary)


def _describe_outputs(fields: TranslateFields, outputs: list[Translation], has_memory: bool) -> Row:
    """Returns the answer to a text."""
    best = outputs[0]
    row = _describe_texts(fields, [output.text for output in outputs], best.is_complete)
    if fields.marks:
        row["marks"] = [mark._asdict() for mark in best.marks]
    if fields.quality:
        row["quality"], row["doubts"] = best.quality, best.doubts
    if has_memory:
        row["fromMemory"] = best.from_memory and asdict(best.from_memory)
    return row


def _describe_texts(fields: TranslateFields, outputs: list[str], is_complete: bool = True) -> Row:
    """Returns the part of an answer that texts and pages have."""
    row: Row = {"translatedText": outputs[0]}
    if fields.alternatives:
        row["alternatives"] = [text for text in dict.fromkeys(outputs) if text != outputs[0]]
    if not is_complete:
        row["cutOff"] = True
    return row


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
    fields = await service.read_fields(request, FileFields)
    name, content = Path(fields.file.filename or "").name, await fields.file.read()
    most = _EXPANDED * service.settings.limits.max_body
    document = await asyncio.to_thread(_read_file, name, content, most)
    texts = [text.text for text in document.texts]
    service.check_size(texts)
    direction, *_ = await _directions_of(service, ["\n".join(texts)], fields.source, fields.target)
    answer: dict[str, Any] = {"texts": len(texts)}
    if isinstance(direction, ServedDirection):
        work = _translate_document(request, service, direction, document, fields)
        translated = await service.finish_in_time(request, work)
        content, written = translated.content, list(filter(None, translated.written))
        answer["fromMemory"] = sum(text.is_known for text in written)
        answer["doubtful"] = sum(text.is_doubtful for text in written)
        if translated.untranslated:
            answer["untranslated"] = translated.untranslated
        if direction.pivot:
            answer["pivot"] = direction.pivot
    parts, file_id = Path(name), service.files.add(content)
    path = f"download_file/{file_id}/{quote(f'{parts.stem}.{fields.target}{parts.suffix}')}"
    return JSONResponse({"translatedFileUrl": f"{request.base_url}{path}", **answer})


async def _translate_document(
    request: Request,
    service: Service,
    direction: ServedDirection,
    document: Document,
    fields: FileFields,
) -> TranslatedDocument:
    own = await asyncio.to_thread(Memory, document.pairs)
    target = direction.codes[1] if direction.pivot else None

    def plan(
        translator: Translator, options: TranslateOptions, memories: list[Memory]
    ) -> MarkedJob:
        try:
            return plan_document(translator, document, options, [own, *memories], target=target)
        except ValueError as error:
            raise ValueError(f"{Path(fields.file.filename or '').name}: {error}") from error

    options = TranslateOptions(glossary=service.glossaries.chosen(fields.glossary))
    planned, rows, *_ = await service.answer(request, direction, plan, options)
    best = [row[0] for row in rows]
    return await asyncio.to_thread(write_document, document, planned, best)


@router.get(
    "/download_file/{file_id}/{name}",
    summary="Returns a file that /translate_file has translated in the last minutes.",
)
async def download_file(request: Request, file_id: str, name: str) -> Response:
    """Answers with a translated file."""
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    content = service_of(request).files.find(file_id)
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
    fields = await service.read_fields(request, SuggestFields)
    if service.memory is None:
        raise RequestError(403, "This server takes no suggestions: it has no --memory.")
    service.check_size([fields.q, fields.s])
    if not (fields.q.strip() and fields.s.strip()):
        raise RequestError(400, "Invalid request: q and s are the text and its translation")
    codes = service.models.for_direction(fields.source, fields.target).codes
    try:
        await asyncio.to_thread(service.memory.add, *codes, Pair(fields.q, fields.s))
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
    fields = await service.read_fields(request, DetectFields)
    service.check_size([fields.q])
    codes = [code for direction in service.models.directions for code in direction]
    found = await asyncio.to_thread(detect_languages, fields.q, codes)
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
