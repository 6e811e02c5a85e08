"""The routes of status and page; the application, and the server until a signal ends it."""

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, JSONResponse

from vanilla_transformer import __version__, web
from vanilla_transformer.serving import generation_routes, libretranslate
from vanilla_transformer.serving.connections import GracefulServer, protocol_with_deadline
from vanilla_transformer.serving.errors import add_error_answers
from vanilla_transformer.serving.glossaries import Glossaries
from vanilla_transformer.serving.memories import StoredMemory
from vanilla_transformer.serving.models import Models, load_models
from vanilla_transformer.serving.monitoring import Metrics, log_event
from vanilla_transformer.serving.request_log import RequestLog
from vanilla_transformer.serving.service import Service, service_of
from vanilla_transformer.serving.settings import Settings

IDLE_SECONDS = 75
"""Seconds after which an idle connection is closed: more than a proxy keeps it."""
_PAGE_FILES = {f"/{file}": file for file in web.PAGE}
_PAGE_FILES |= {"/": web.PAGE[0], "/translator.js": "requests.js"}
"""The files of the page by their paths; its translator.js is the file that asks this server."""

status_routes = APIRouter(tags=["Status"])


@status_routes.get("/health", summary="Answers as long as the process works.")
async def health() -> JSONResponse:
    """Answers with 200."""
    return JSONResponse({"status": "ok"})


@status_routes.get("/ready", summary="Answers with 200 if the server takes requests, else 503.")
async def ready(request: Request) -> JSONResponse:
    """Answers with the reasons why no further request should come, or with the models."""
    models = service_of(request).models.by_name
    if full := [f"the queue of {name} is full" for name, model in models.items() if model.is_full]:
        return JSONResponse({"error": "; ".join(full)}, 503, {"Retry-After": "1"})
    return JSONResponse({"status": "ready", "models": list(models)})


@status_routes.get("/metrics", summary="Counters in Prometheus's text format.")
async def metrics(request: Request) -> Response:
    """Answers with the counters."""
    service = service_of(request)
    service.check_key(request)
    return Response(service.metrics.render(), media_type="text/plain; version=0.0.4")


async def _answer_page(request: Request) -> FileResponse:
    """Answers with a file of the page for a browser."""
    file = _PAGE_FILES[request.scope["route"].path]
    return FileResponse(web.FOLDER / file, headers={"Cache-Control": "no-cache"})


for path in _PAGE_FILES:
    status_routes.get(path, include_in_schema=False)(_answer_page)


def run_server(settings: Settings, on_started: Callable[[str], None]) -> None:
    """Loads the models and answers requests until SIGTERM or SIGINT."""
    # The port is taken before the models are loaded, which takes seconds.
    place = settings.address
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    try:
        listener = socket.create_server((place.host, place.port), family=family)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]  # Python adds the address
        raise OSError(
            f"{place.host}, port {place.port}: {reason}. Choose another one with --port."
        ) from error
    with listener:
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        metrics, limits = Metrics(), settings.limits
        models = load_models(settings, metrics)
        config = uvicorn.Config(
            RequestLog(make_app(settings, models, metrics), metrics),
            http=protocol_with_deadline(limits.read_timeout),
            limit_concurrency=limits.max_connections,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.clients.trust_proxy),
            forwarded_allow_ips=settings.clients.trust_proxy,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=int(limits.timeout + 2 * limits.read_timeout) + 1,
        )

        log_event("started", address=address, models=list(models.by_name))
        on_started(address)
        try:
            asyncio.run(GracefulServer(config).serve([listener]))
        finally:
            models.close()
    log_event("stopped")


def make_app(settings: Settings, models: Models, metrics: Metrics) -> FastAPI:
    """Makes the application with its routes; `RequestLog` belongs around it."""
    memory = None if settings.memory is None else StoredMemory(settings.memory)
    service = Service(models, settings, metrics, Glossaries(dict(settings.glossary)), memory)
    app = FastAPI(
        title="LibreTranslate",  # by which clients recognise the interface
        version=__version__,
        description="The server of vanilla-transformer. Errors are a JSON object with `error`.",
        redoc_url=None,
        redirect_slashes=False,  # the address of a redirection would be that of the header Host
    )
    app.state.service = service
    for router in (libretranslate.router, generation_routes.router, status_routes):
        app.include_router(router)
    add_error_answers(app)
    if settings.clients.allow_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.clients.allow_origin,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app
