"""The routes of this package's own interface: outputs with scores, confidences and alignments."""

from collections.abc import Iterable
from dataclasses import asdict
from math import exp
from typing import Any, get_type_hints

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field, create_model

from vanilla_transformer.files.file_contents import without_infinities
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.options import SearchOptions, range_of
from vanilla_transformer.serving.bodies import JSON, Fields, Text, Texts, describe_body
from vanilla_transformer.serving.contents import PlainTexts
from vanilla_transformer.serving.errors import FIELD_LIMIT, check_limit
from vanilla_transformer.serving.glossaries import GlossaryField
from vanilla_transformer.serving.service import service_of

router = APIRouter(tags=["Generation"])
_NAMES = (  # options of a translation that are fields of the body
    *("source_language", "target_language", "n_best", "scores", "alignment"),
    *SearchOptions.__dataclass_fields__,
)
_ALWAYS_TOLD = (  # fields of a `Translation` that every answer has
    *("text", "is_complete", "repeated", "untranslated", "unknown_share", "restored", "terms"),
    "missing_terms",
)


def _option_fields(names: Iterable[str]) -> Any:
    """Makes the fields of a request, under the same names, from the options of a translation."""
    hints = get_type_hints(TranslateOptions)
    made = dict[str, Any]()
    for name in names:
        declared = TranslateOptions.__dataclass_fields__[name]
        limits = range_of(TranslateOptions, name)
        field = Field(declared.default, description=declared.metadata["help"], **limits)
        made[name] = (hints[name], field)
    return create_model("OptionFields", __base__=Fields, **made)


class GenerateFields(_option_fields(_NAMES)):  # type: ignore[misc]  # made from options
    """The body of `/v1/generate`."""

    texts: Texts = Field(description="A text, or a list of texts")
    model: Text | None = Field(None, description="Name of the model; see /v1/models")
    glossary: GlossaryField = None


@router.post(
    "/v1/generate",
    summary="Generates outputs with scores, confidences of tokens, and alignments.",
    openapi_extra=describe_body(GenerateFields, JSON),
)
async def generate(request: Request) -> JSONResponse:
    """Answers with the outputs of texts by one model."""
    service = service_of(request)
    fields = await service.read_fields(request, GenerateFields)
    limits = service.settings.limits
    check_limit(fields.num_beams, limits.max_beams, "num_beams", FIELD_LIMIT)
    check_limit(fields.n_best, limits.max_beams, "n_best", FIELD_LIMIT)
    check_limit(fields.max_new_tokens, limits.max_new_tokens, "max_new_tokens", FIELD_LIMIT)
    texts = fields.texts if isinstance(fields.texts, list) else [fields.texts]
    service.check_size(texts)
    direction = service.models.direction_of_model(
        fields.model, fields.source_language, fields.target_language
    )
    options = TranslateOptions(
        **fields.model_dump(include={*_NAMES}),
        tokens=fields.scores,
        glossary=service.glossaries.chosen(fields.glossary),
    )
    work = service.answer(request, direction, PlainTexts(texts, options).plan, options)
    answer = await service.finish_in_time(request, work)
    has_memory = service.memory is not None
    rows = [
        [_describe_output(each, fields.scores, has_memory) for each in row] for row in answer.rows
    ]
    outputs = rows if isinstance(fields.texts, list) else rows[0]
    return JSONResponse({"model": direction.model.entry.name, "outputs": outputs})


@router.get("/v1/models", summary="Lists the models.")
async def models(request: Request) -> JSONResponse:
    """Answers with the models."""
    described = list[dict[str, Any]]()
    for model in service_of(request).models.by_name.values():
        directions = [{"source": source, "target": target} for source, target in model.directions]
        facts = _describe_translator(model.translator)
        described.append({"name": model.entry.name, "directions": directions, **facts})
    return JSONResponse(described)


def _describe_translator(translator: Translator | None) -> dict[str, Any]:
    """Returns the facts of a loaded model."""
    if translator is None:
        return {}
    return {
        "engine": translator.engine.name,
        "num_beams": translator.search_of(TranslateOptions()).num_beams,
        "source_limit": translator.source_limit,
    }


def _describe_output(output: Translation, with_scores: bool, has_memory: bool) -> dict[str, Any]:
    described: dict[str, Any] = {name: getattr(output, name) for name in _ALWAYS_TOLD}
    if with_scores:
        pairs = zip(output.tokens or (), output.token_scores or (), strict=True)
        described["score"] = without_infinities(output.score)
        described["quality"] = output.quality
        described["tokens"] = [
            {
                "token": token,
                "log_probability": without_infinities(value),
                "confidence": exp(min(value, 0.0)),
            }
            for token, value in pairs
        ]
    if output.alignment is not None:
        described["alignment"] = output.alignment
        described["source_tokens"] = output.source_tokens
    if has_memory:
        described["from_memory"] = output.from_memory and asdict(output.from_memory)
    return described
