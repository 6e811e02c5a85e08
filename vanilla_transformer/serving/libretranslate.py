"""The routes of LibreTranslate's interface, so that its clients work as they are."""

import asyncio
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from vanilla_transformer.documents.html import HtmlDocument
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.inference.results import NO_LINKS, OutputOptions, Translation
from vanilla_transformer.languages import is_language, language_name
from vanilla_transformer.serving.bodies import FORM, LenientFields, Text, Texts
from vanilla_transformer.serving.errors import RequestError
from vanilla_transformer.serving.models import Query, detect_languages
from vanilla_transformer.serving.service import Service
from vanilla_transformer.serving.settings import ANY

TAG = "LibreTranslate"
_ENOUGH = 2000  # characters, to tell the language of a text


def add_libretranslate_routes(app: FastAPI, service: Service) -> None:
    """Adds `/translate`, `/detect`, `/languages`, `/frontend/settings` and `/spec`."""
    limits, needs_key = service.settings.limits, bool(service.settings.api_keys)

    class TranslateFields(LenientFields):
        q: Texts = Field(description="A text, or a list of texts (in JSON only)")
        source: Text = Field(
            description="Code of the source language, as in /languages, or auto: it is detected"
        )
        target: Text = Field(description="Code of the target language")
        format: Literal["text", "html"] = Field(
            "text", description="In html, text is translated, and inline tags go with their words"
        )
        alternatives: int = Field(
            0, ge=0, le=limits.max_beams - 1, description="Number of further outputs"
        )
        api_key: Text = Field("", description="API key, where the server asks for one")
        secret: Text = Field("", description="Not used; clients of LibreTranslate send it")

    described = {"schema": TranslateFields.model_json_schema()}
    content = {"application/json": described, FORM: described}

    @app.post(
        "/translate",
        tags=[TAG],
        summary="Translates a text or a list of texts.",
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def translate(request: Request) -> JSONResponse:
        asked = await service.read_fields(request, TranslateFields, takes_forms=True)
        for name in ("q", "source", "target"):
            if not getattr(asked, name):
                raise RequestError(400, f"Invalid request: missing {name} parameter")
        given = asked.q if isinstance(asked.q, list) else [asked.q]
        service.check_size(given)
        pages = [HtmlDocument.read(page) for page in given] if asked.format == "html" else []
        marked = [text for page in pages for text in page.texts]
        texts = [text.text for text in marked] if pages else given
        source, confidence = asked.source, 0
        if source == "auto":
            sample = "\n".join(texts)[:_ENOUGH]
            detect = service.models.detect_source
            source, confidence = await asyncio.to_thread(detect, sample, asked.target)
        model = service.models.for_direction(source, asked.target)
        n_best = asked.alternatives + 1
        beams = max(model.default_beams, n_best)
        details = OutputOptions(links=any(text.tags for text in marked))
        query = Query(n_best, details, (("num_beams", beams),))
        answers = await service.answer(request, model, texts, query)
        rows = [[output.text for output in outputs] for outputs in answers.outputs]
        if pages:
            rows = await asyncio.to_thread(_joined, pages, answers.outputs, n_best)
        answer: dict[str, list[Any]] = {"translatedText": [row[0] for row in rows]}
        if asked.alternatives:
            # Without repetitions.
            others = [[text for text in dict.fromkeys(row) if text != row[0]] for row in rows]
            answer["alternatives"] = others
        if asked.source == "auto":
            answer["detectedLanguage"] = [_describe(source, confidence)] * len(given)
        if isinstance(asked.q, list):
            return JSONResponse(answer)
        return JSONResponse({name: values[0] for name, values in answer.items()})

    class DetectFields(LenientFields):
        q: Text = Field(description="A text")
        api_key: Text = Field("", description="API key, where the server asks for one")

    described = {"schema": DetectFields.model_json_schema()}

    @app.post(
        "/detect",
        tags=[TAG],
        summary="Detects the language of a text among those of this server.",
        openapi_extra={
            "requestBody": {"content": {"application/json": described, FORM: described}}
        },
    )
    async def detect(request: Request) -> JSONResponse:
        asked = await service.read_fields(request, DetectFields, takes_forms=True)
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
        first = next(iter(service.models.by_name.values())).source
        directions = {"source": first.source, "target": first.target}
        return JSONResponse(
            {
                "apiKeys": needs_key,
                "keyRequired": needs_key,
                "charLimit": limits.max_characters,
                "filesTranslation": False,
                "frontendTimeout": 500,
                "language": {
                    side: {"code": code, "name": _name_of(code)}
                    for side, code in directions.items()
                },
                "suggestions": False,
                "supportedFilesFormat": [],
            }
        )

    @app.get("/spec", tags=[TAG], summary="Describes the interface, as /openapi.json does.")
    async def spec() -> JSONResponse:
        return JSONResponse(app.openapi())


def _joined(
    pages: list[HtmlDocument], outputs: list[list[Translation]], n_best: int
) -> list[list[str]]:
    """Returns each page with the outputs of each rank in the place of its texts."""
    remaining, rows = iter(outputs), []
    for page in pages:
        of_page = [(marked, next(remaining)) for marked in page.texts]
        rows.append(
            [
                page.join(
                    [
                        place_tags(marked, ranks[rank].text, ranks[rank].links or NO_LINKS)
                        for marked, ranks in of_page
                    ]
                )
                for rank in range(n_best)
            ]
        )
    return rows


def _describe(code: str, confidence: int) -> dict[str, Any]:
    return {"language": code, "confidence": confidence}


def _name_of(code: str) -> str:
    """Returns the name of a language; a model without a direction has other codes."""
    if code == ANY:
        return "Any"
    return language_name(code) if is_language(code) else code
