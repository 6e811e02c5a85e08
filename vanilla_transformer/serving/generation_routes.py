"""The routes of this package's own interface: outputs with scores, confidences and alignments."""

from math import exp
from typing import Any, get_type_hints

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import Field, create_model

from vanilla_transformer.inference.results import OutputOptions, Translation, without_infinities
from vanilla_transformer.options import SearchOptions, range_of
from vanilla_transformer.serving.bodies import JSON, Fields, Text, Texts, describe_body
from vanilla_transformer.serving.glossaries import GlossaryField
from vanilla_transformer.serving.models import Query
from vanilla_transformer.serving.service import Service
from vanilla_transformer.serving.settings import Limits

TAG = "Generation"


def add_generation_routes(app: FastAPI, service: Service) -> None:
    """Adds `/v1/generate` and `/v1/models`."""
    limits = service.settings.limits

    class GenerateFields(_search_fields(limits)):  # type: ignore[misc]  # made from options
        texts: Texts = Field(description="A text, or a list of texts")
        model: Text | None = Field(None, description="Name of the model; see /v1/models")
        source_language: Text | None = Field(
            None, description="Language of the texts, where the model has several"
        )
        target_language: Text | None = Field(
            None, description="Language of the outputs, where the model has several"
        )
        glossary: GlossaryField = None
        n_best: int = Field(1, ge=1, le=limits.max_beams, description="Outputs per text")
        scores: bool = Field(False, description="Return scores, and tokens with their confidences")
        alignment: bool = Field(False, description="Return pairs (source token, target token)")

    @app.post(
        "/v1/generate",
        tags=[TAG],
        summary="Generates outputs with scores, confidences of tokens, and alignments.",
        openapi_extra=describe_body(GenerateFields, JSON),
    )
    async def generate(request: Request) -> JSONResponse:
        asked = await service.read_fields(request, GenerateFields)
        model = service.models.named(asked.model)
        texts = asked.texts if isinstance(asked.texts, list) else [asked.texts]
        service.check_size(texts)
        options = asked.model_dump(include={*SearchOptions.__dataclass_fields__}, exclude_none=True)
        if "num_beams" not in options:
            beams = 1 if asked.do_sample else max(model.default_beams, asked.n_best)
            options["num_beams"] = beams
        details = OutputOptions(asked.scores, asked.scores, asked.alignment)
        glossary = service.glossaries.chosen(asked.glossary)
        query = Query(asked.n_best, details, tuple(sorted(options.items())), glossary)
        languages = asked.source_language, asked.target_language
        answers = await service.answer(request, model, texts, query, languages)
        rows = [
            [_describe_output(output, asked.scores) for output in outputs]
            for outputs in answers.outputs
        ]
        for row, tokens in zip(rows, answers.source_tokens, strict=False):
            for described in row:
                described["source_tokens"] = tokens
        outputs = rows if isinstance(asked.texts, list) else rows[0]
        return JSONResponse({"model": model.source.name, "outputs": outputs})

    @app.get("/v1/models", tags=[TAG], summary="Lists the models.")
    async def models() -> JSONResponse:
        return JSONResponse(
            [
                {
                    "name": model.source.name,
                    "source": model.source.source,
                    "target": model.source.target,
                    "engine": model.translator.engine.name,
                    "num_beams": model.default_beams,
                    "source_limit": model.translator.source_limit,
                }
                for model in service.models.by_name.values()
            ]
        )


def _search_fields(limits: Limits) -> Any:
    """Makes the fields that go to the search, under the same names, from its options."""
    most = {"num_beams": limits.max_beams, "max_new_tokens": limits.max_new_tokens}
    hints = get_type_hints(SearchOptions)
    made: dict[str, Any] = {}
    for name, declared in SearchOptions.__dataclass_fields__.items():
        bounds = {**range_of(SearchOptions, name)}
        if name in most:
            bounds["le"] = most[name]
        made[name] = (hints[name], Field(None, description=declared.metadata["help"], **bounds))
    return create_model("SearchFields", __base__=Fields, **made)


def _describe_output(output: Translation, with_scores: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "text": output.text,
        "repeated": output.repeated,
        "unknown_share": output.unknown_share,
        "restored": output.restored,
        "terms": output.terms,
        "missing_terms": output.missing_terms,
    }
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
    return described
