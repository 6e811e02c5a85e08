"""The routes for those who run the server: health, readiness, metrics."""

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from vanilla_transformer.serving.access import bearer_key
from vanilla_transformer.serving.service import Service

TAG = "Status"


def add_status_routes(app: FastAPI, service: Service) -> None:
    """Adds `/health`, `/ready` and `/metrics`.

    Args:
        app: The application.
        service: The models and the metrics.
    """

    @app.get("/health", tags=[TAG], summary="Answers as long as the process works.")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get(
        "/ready",
        tags=[TAG],
        summary="Answers with 200 if the server takes requests, otherwise 503.",
    )
    async def ready() -> JSONResponse:
        problems = service.models.problems()
        if problems:
            return JSONResponse({"error": "; ".join(problems)}, 503, {"Retry-After": "1"})
        return JSONResponse({"status": "ready", "models": list(service.models.by_name)})

    @app.get("/metrics", tags=[TAG], summary="Counters in Prometheus's text format.")
    async def metrics(request: Request) -> Response:
        service.keys.number_of(bearer_key(request.headers.get("authorization")))
        return Response(service.metrics.render(), media_type="text/plain; version=0.0.4")
