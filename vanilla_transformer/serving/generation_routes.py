"""The routes of this package's own interface: outputs with scores, confidences and alignments."""

from math import exp
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from vanilla_transformer.inference.results import OutputOptions, Translation, without_infinities
from vanilla_transformer.serving.bodies import Fields, Text, Texts
from vanilla_transformer.serving.glossaries import GlossaryField
from vanilla_transformer.serving.models import Query
from vanilla_transformer.serving.service import Service

TAG = "Generation"


def add_generation_routes(app: FastAPI, service: Service) -> None:
    """Adds `/v1/generate` and `/v1/models`."""
    limits = service.settings.limits

    class SearchFields(Fields):  # each goes to the search under the same name
        num_beams: int | None = Field(
            None, ge=1, le=limits.max_beams, description="Beam width; 1 is greedy search"
        )
        max_new_tokens: int | None = Field(
            None, ge=1, le=limits.max_new_tokens, description="Longest output, in tokens"
        )
        length_penalty: float | None = Field(
            None,
            ge=-10,
            le=10,
            description="Exponent of the length by which a beam search divides scores: above 1 "
            "favours longer outputs",
        )
        do_sample: bool = Field(False, description="Sample tokens")
        temperature: float | None = Field(
            None, ge=0.01, le=100, description="Below 1 samples likely tokens more"
        )
        top_k: int | None = Field(
            None, ge=0, le=1_000_000, description="Sample from so many tokens"
        )
        top_p: float | None = Field(
            None,
            ge=0.01,
            le=1,
            description="Sample from the likeliest tokens that add up to this probability",
        )

    class GenerateFields(SearchFields):
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

    content = {"application/json": {"schema": GenerateFields.model_json_schema()}}

    @app.post(
        "/v1/generate",
        tags=[TAG],
        summary="Generates outputs with scores, confidences of tokens, and alignments.",
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def generate(request: Request) -> JSONResponse:
        asked = await service.read_fields(request, GenerateFields)
        model = service.models.named(asked.model)
        texts = asked.texts if isinstance(asked.texts, list) else [asked.texts]
        service.check_size(texts)
        options = asked.model_dump(include=set(SearchFields.model_fields), exclude_unset=True)
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


def _describe_output(output: Translation, with_scores: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "text": output.text,
        "unknown_share": output.unknown_share,
        "restored": output.restored,
        "terms": output.terms,
        "missing_terms": output.missing_terms,
    }
    if with_scores:
        pairs = zip(output.tokens or (), output.token_scores or (), strict=True)
        described["score"] = without_infinities(output.score)
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
