"""The routes of this package's own interface: outputs with scores, confidences and alignments."""

from math import exp
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from vanilla_transformer.inference.results import Details, Translation
from vanilla_transformer.serving.bodies import read_json
from vanilla_transformer.serving.fields import (
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    TEXTS,
    Field,
    read_fields,
    schema_of,
)
from vanilla_transformer.serving.models import Answers, Query, ServedModel
from vanilla_transformer.serving.service import Service
from vanilla_transformer.serving.settings import Limits

TAG = "Generation"
SEARCH_FIELDS = (
    "num_beams",
    "max_new_tokens",
    "length_penalty",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
)
"""Fields that go to the search under the same names."""


def add_generation_routes(app: FastAPI, service: Service) -> None:
    """Adds `/v1/generate` and `/v1/models`.

    Args:
        app: The application.
        service: The models and the settings.
    """
    fields = _generate_fields(service.settings.limits)
    content = {"application/json": {"schema": schema_of(fields)}}

    @app.post(
        "/v1/generate",
        tags=[TAG],
        summary="Generates outputs with scores, confidences of tokens, and alignments.",
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def generate(request: Request) -> JSONResponse:
        body = await read_json(request, service.settings.limits)
        service.admit(request)
        values = read_fields(fields, body.values)
        model = service.models.named(values.get("model"))
        texts = values["texts"] if isinstance(values["texts"], list) else [values["texts"]]
        service.check_size(texts)
        answers = await service.answer(request, model, texts, _query_of(model, values))
        rows = _describe_answers(answers, values.get("scores", False))
        outputs = rows if isinstance(values["texts"], list) else rows[0]
        return JSONResponse({"model": model.source.name, "outputs": outputs})

    @app.get("/v1/models", tags=[TAG], summary="Lists the models.")
    async def models() -> JSONResponse:
        return JSONResponse([_describe_model(one) for one in service.models.by_name.values()])


def _generate_fields(limits: Limits) -> tuple[Field, ...]:
    beams: dict[str, Any] = {"minimum": 1, "maximum": limits.beams}
    return (
        Field("texts", TEXTS, "A text, or a list of texts", is_required=True),
        Field("model", TEXT, "Name of the model; see /v1/models"),
        Field("n_best", INTEGER, "Outputs per text", **beams),
        Field("scores", FLAG, "Return scores, and tokens with their confidences"),
        Field("alignment", FLAG, "Return pairs (source token, target token)"),
        Field("num_beams", INTEGER, "Beam width; 1 is greedy search", **beams),
        Field(
            "max_new_tokens",
            INTEGER,
            "Longest output, in tokens",
            minimum=1,
            maximum=limits.new_tokens,
        ),
        Field(
            "length_penalty",
            NUMBER,
            "Above 0 favours long outputs of a beam",
            minimum=-10,
            maximum=10,
        ),
        Field("do_sample", FLAG, "Sample tokens"),
        Field(
            "temperature",
            NUMBER,
            "Below 1 samples likely tokens more",
            minimum=0.01,
            maximum=100,
        ),
        Field("top_k", INTEGER, "Sample from this many tokens", minimum=0, maximum=1_000_000),
        Field("top_p", NUMBER, "Sample from tokens of this probability", minimum=0.01, maximum=1),
    )


def _query_of(model: ServedModel, values: dict[str, Any]) -> Query:
    n_best = values.get("n_best", 1)
    options = {name: values[name] for name in SEARCH_FIELDS if name in values}
    if "num_beams" not in options:
        samples = options.get("do_sample", False)
        options["num_beams"] = 1 if samples else max(model.default_beams, n_best)
    scores = values.get("scores", False)
    details = Details(scores, scores, values.get("alignment", False))
    return Query(n_best, details, tuple(sorted(options.items())))


def _describe_answers(answers: Answers, with_scores: bool) -> list[list[dict[str, Any]]]:
    rows = [
        [_describe_output(output, with_scores) for output in outputs] for outputs in answers.outputs
    ]
    for row, tokens in zip(rows, answers.source_tokens, strict=False):
        for described in row:
            described["source_tokens"] = tokens
    return rows


def _describe_output(output: Translation, with_scores: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"text": output.text}
    if with_scores:
        values = output.token_scores or ()
        described["score"] = output.score
        described["tokens"] = [
            {"token": token, "log_probability": value, "confidence": exp(min(value, 0.0))}
            for token, value in zip(output.tokens or (), values, strict=True)
        ]
    if output.alignment is not None:
        described["alignment"] = output.alignment
    return described


def _describe_model(model: ServedModel) -> dict[str, Any]:
    return {
        "name": model.source.name,
        "source": model.source.source,
        "target": model.source.target,
        "engine": model.translator.engine.name,
        "num_beams": model.default_beams,
        "source_limit": model.translator.source_limit,
    }
