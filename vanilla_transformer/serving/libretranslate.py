"""The routes of LibreTranslate's interface, so that its clients work as they are."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from vanilla_transformer.inference.results import Details, Translation
from vanilla_transformer.serving.bodies import FORM, read_json_or_form
from vanilla_transformer.serving.errors import RequestError
from vanilla_transformer.serving.fields import INTEGER, TEXT, TEXTS, Field, read_fields, schema_of
from vanilla_transformer.serving.html_text import HtmlText, split_html
from vanilla_transformer.serving.language_names import language_name
from vanilla_transformer.serving.models import Query, ServedModel
from vanilla_transformer.serving.service import Service
from vanilla_transformer.serving.settings import Limits

TAG = "LibreTranslate"
NOT_OFFERED = {
    "/detect": "The detection of languages",
    "/translate_file": "The translation of files",
    "/suggest": "Suggestions",
}


def add_libretranslate_routes(app: FastAPI, service: Service) -> None:
    """Adds `/translate`, `/languages`, `/frontend/settings` and what is not offered.

    Args:
        app: The application.
        service: The models and the settings.
    """
    fields = _translate_fields(service.settings.limits)
    described = {"schema": schema_of(fields)}
    content = {"application/json": described, FORM: described}

    @app.post(
        "/translate",
        tags=[TAG],
        summary="Translates a text or a list of texts.",
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def translate(request: Request) -> JSONResponse:
        body = await read_json_or_form(request, service.settings.limits)
        key = body.values.get("api_key")
        service.admit(request, key if isinstance(key, str) else None)
        values = read_fields(fields, body.values, body.is_form)
        return JSONResponse(await _translate_values(service, request, values))

    @app.get("/languages", tags=[TAG], summary="Lists the languages, and the targets of each.")
    async def languages() -> JSONResponse:
        return JSONResponse(_list_languages(service))

    @app.get(
        "/frontend/settings",
        tags=[TAG],
        summary="Tells clients with a user interface what they need.",
    )
    async def frontend_settings() -> JSONResponse:
        return JSONResponse(_describe_frontend(service))

    for path, what in NOT_OFFERED.items():
        _add_refusal(app, path, f"{what} is not offered by this server: name the languages.")


def _add_refusal(app: FastAPI, path: str, message: str) -> None:
    @app.post(path, tags=[TAG], summary="Not offered: answers with status 501.", status_code=501)
    async def refuse() -> JSONResponse:
        return JSONResponse({"error": message}, 501)


def _translate_fields(limits: Limits) -> tuple[Field, ...]:
    return (
        Field("q", TEXTS, "A text, or a list of texts (in JSON only)", is_required=True),
        Field("source", TEXT, "Code of the source language; see /languages", is_required=True),
        Field("target", TEXT, "Code of the target language", is_required=True),
        Field(
            "format",
            TEXT,
            "text, or html: tags, scripts, comments and entities stay as they are",
            choices=("text", "html"),
        ),
        Field(
            "alternatives",
            INTEGER,
            "Number of further outputs",
            minimum=0,
            maximum=limits.beams - 1,
        ),
        Field("api_key", TEXT, "API key, where the server asks for one"),
        Field("secret", TEXT, "Not used; clients of LibreTranslate send it"),
    )


async def _translate_values(
    service: Service, request: Request, values: dict[str, Any]
) -> dict[str, Any]:
    """Answers a request whose fields are checked."""
    for name in ("q", "source", "target"):
        if not values[name]:
            raise RequestError(400, f"Invalid request: missing {name} parameter")
    texts = values["q"] if isinstance(values["q"], list) else [values["q"]]
    service.check_size(texts)
    model = service.models.for_direction(values["source"], values["target"])
    alternatives = values.get("alternatives", 0)
    query = _query_for(model, alternatives + 1)
    if values.get("format") == "html":
        rows = await _translate_html(service, request, model, texts, query)
    else:
        answers = await service.answer(request, model, texts, query)
        rows = [[output.text for output in outputs] for outputs in answers.outputs]
    found: dict[str, Any] = {"translatedText": [row[0] for row in rows]}
    if alternatives:
        found["alternatives"] = [_distinct_others(row) for row in rows]
    if isinstance(values["q"], str):
        found = {name: several[0] for name, several in found.items()}
    return found


def _query_for(model: ServedModel, n_best: int) -> Query:
    beams = max(model.default_beams, n_best)
    return Query(n_best, Details(), (("num_beams", beams),))


async def _translate_html(
    service: Service, request: Request, model: ServedModel, sources: list[str], query: Query
) -> list[list[str]]:
    """Returns the outputs of each source, in which the markup is that of the source."""
    pages = await service.finish_in_time(request, model.run_beside(_split_pages, sources))
    texts = [text for page in pages for text in page.texts]
    answers = await service.answer(request, model, texts, query)
    remaining = iter(answers.outputs)
    rows = []
    for page in pages:
        outputs = [next(remaining) for _ in page.texts]
        rows.append([_join_page(page, outputs, rank) for rank in range(query.n_best)])
    return rows


def _split_pages(sources: list[str]) -> list[HtmlText]:
    return [split_html(source) for source in sources]


def _join_page(page: HtmlText, outputs: Sequence[Sequence[Translation]], rank: int) -> str:
    return page.join(lambda number: outputs[number][rank].text)


def _distinct_others(row: list[str]) -> list[str]:
    """Returns the outputs after the first one, without repetitions."""
    return [text for text in dict.fromkeys(row) if text != row[0]]


def _list_languages(service: Service) -> list[dict[str, Any]]:
    directions = [
        (model.source.source, model.source.target) for model in service.models.by_name.values()
    ]
    codes = dict.fromkeys(code for direction in directions for code in direction)
    return [
        {
            "code": code,
            "name": language_name(code),
            "targets": [target for source, target in directions if source == code],
        }
        for code in codes
    ]


def _describe_frontend(service: Service) -> dict[str, Any]:
    first = next(iter(service.models.by_name.values())).source
    return {
        "apiKeys": service.keys.are_needed,
        "keyRequired": service.keys.are_needed,
        "charLimit": service.settings.limits.characters,
        "filesTranslation": False,
        "frontendTimeout": 500,
        "language": {
            side: {"code": code, "name": language_name(code)}
            for side, code in (("source", first.source), ("target", first.target))
        },
        "suggestions": False,
        "supportedFilesFormat": [],
    }
