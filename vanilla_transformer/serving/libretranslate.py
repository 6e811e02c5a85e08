"""The routes of LibreTranslate's interface, so that its clients work as they are."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from pydantic import Field

from vanilla_transformer.documents.formats import FORMATS
from vanilla_transformer.inference.options import TranslateOptions
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
from vanilla_transformer.serving.contents import File, Pages, PlainTexts
from vanilla_transformer.serving.detection import detect_languages
from vanilla_transformer.serving.errors import FIELD_LIMIT, RequestError, check_limit
from vanilla_transformer.serving.glossaries import GlossaryField
from vanilla_transformer.serving.service import service_of
from vanilla_transformer.serving.settings import ANY
from vanilla_transformer.text.memory import Pair

router = APIRouter(tags=["LibreTranslate"])
_MOST_EXPANSION = 50  # bytes of an unpacked file for each byte that a body may have


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
    texts = fields.q if isinstance(fields.q, list) else [fields.q]
    service.check_size(texts)
    most = service.settings.limits.max_beams - 1
    check_limit(fields.alternatives, most, "alternatives", FIELD_LIMIT)
    glossary = service.glossaries.chosen(fields.glossary)
    options = TranslateOptions(n_best=fields.alternatives + 1, glossary=glossary)
    contents: PlainTexts | Pages
    if fields.format == "html":
        contents = await asyncio.to_thread(Pages.read, texts, options)
    else:
        options = replace(options, marks=fields.marks, scores=fields.quality)
        contents = PlainTexts(texts, options, service.memory is not None)
    work = contents.translate(request, service, fields.source, fields.target)
    replies = [
        {**reply, "detectedLanguage": _describe(*language)} if language else reply
        for reply, language in await service.finish_in_time(request, work)
    ]
    if not isinstance(fields.q, list):
        return JSONResponse(replies[0])
    # The answer to a list has a list for each field, as LibreTranslate's has.
    names = dict.fromkeys(name for reply in replies for name in reply)
    replies = [{"cutOff": False, **reply} for reply in replies]
    return JSONResponse({name: [reply.get(name) for reply in replies] for name in names})


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
    path = Path(fields.file.filename or "")
    options = TranslateOptions(glossary=service.glossaries.chosen(fields.glossary))
    content = await fields.file.read()
    most = _MOST_EXPANSION * service.settings.limits.max_body
    file = await asyncio.to_thread(File.read, path.name, content, options, most)
    service.check_size([text.marked.plain for text in file.items[0].texts])
    work = file.translate(request, service, fields.source, fields.target)
    ((reply, _),) = await service.finish_in_time(request, work)
    file_id = service.files.add(reply.pop("content"))
    name = quote(f"{path.stem}.{fields.target}{path.suffix}")
    address = f"{request.base_url}download_file/{file_id}/{name}"
    return JSONResponse({"translatedFileUrl": address, **reply})


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
    codes = service.models.direction(fields.source, fields.target).codes
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
    found = await asyncio.to_thread(detect_languages, fields.q, service.models.codes)
    return JSONResponse([_describe(*language) for language in found[:1]])


@router.get("/languages", summary="Lists the languages, and the targets of each.")
async def languages(request: Request) -> JSONResponse:
    """Answers with the languages of all models."""
    models = service_of(request).models
    described = list[dict[str, Any]]()
    for code in models.codes:
        targets = [target for source, target in models.directions if source == code]
        described.append({**_describe_language(code), "targets": targets})
    return JSONResponse(described)


@router.get("/frontend/settings", summary="Describes the server for clients with a user interface.")
async def frontend_settings(request: Request) -> JSONResponse:
    """Answers with the settings of this server that a page shows."""
    service = service_of(request)
    source, target = next(iter(service.models.directions))
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
                "source": _describe_language(source),
                "target": _describe_language(target),
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


def _describe(code: str, confidence: int) -> dict[str, Any]:
    return {"language": code, "confidence": confidence}


def _describe_language(code: str) -> dict[str, Any]:
    """Returns a code with the name of its language; a code of no language is its own name."""
    name = language_name(code) if is_language(code) else code
    return {"code": code, "name": "Any" if code == ANY else name}
