"""Puts the routes together, and runs the server until a signal ends it."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from vanilla_transformer import __version__
from vanilla_transformer.serving.access import ApiKeys, RateLimit
from vanilla_transformer.serving.api_page import render_api_page
from vanilla_transformer.serving.batching import ComputationError
from vanilla_transformer.serving.connections import GracefulServer, protocol_with
from vanilla_transformer.serving.errors import RequestError
from vanilla_transformer.serving.generation_routes import add_generation_routes
from vanilla_transformer.serving.guard import Guard
from vanilla_transformer.serving.libretranslate import add_libretranslate_routes
from vanilla_transformer.serving.logs import log_event
from vanilla_transformer.serving.metrics import Metrics
from vanilla_transformer.serving.models import Models, load_models
from vanilla_transformer.serving.service import Service
from vanilla_transformer.serving.settings import Settings
from vanilla_transformer.serving.status_routes import add_status_routes

IDLE_SECONDS = 75
"""Seconds after which an idle connection is closed: more than a proxy keeps it."""


def run_server(settings: Settings, on_started: Callable[[str], None]) -> None:
    """Loads the models and answers requests until SIGTERM or SIGINT.

    Args:
        settings: The settings.
        on_started: Is called with the server's address when it answers.

    Raises:
        ValueError: If a model or an option cannot be used.
        OSError: If the address cannot be used, or a directory holds no model.
    """
    with _bind_socket(settings.host, settings.port) as listener:
        metrics = Metrics()
        models = load_models(settings, metrics)
        try:
            _serve_models(settings, models, metrics, listener, on_started)
        finally:
            models.close()
    log_event("stopped")


def make_app(settings: Settings, models: Models, metrics: Metrics) -> FastAPI:
    """Makes the application with its routes.

    Args:
        settings: The settings.
        models: The models.
        metrics: Counts what happens.

    Returns:
        The application; `Guard` belongs around it.
    """
    keys, rate = ApiKeys(settings.api_keys), RateLimit(settings.limits.requests_per_minute)
    service = Service(models, settings, metrics, keys, rate)
    app = FastAPI(
        title="vanilla-transformer",
        version=__version__,
        description="Outputs of trained models. Errors are a JSON object with the field `error`.",
        docs_url=None,
        redoc_url=None,
    )
    add_libretranslate_routes(app, service)
    add_generation_routes(app, service)
    add_status_routes(app, service)
    app.add_api_route("/", lambda: RedirectResponse("docs"), include_in_schema=False)
    app.add_api_route("/docs", _page_of(app), include_in_schema=False)
    app.add_exception_handler(RequestError, _answer_request_error)
    app.add_exception_handler(ComputationError, _answer_computation_error)
    for status in (404, 405):
        app.add_exception_handler(status, _answer_http_error)
    app.add_exception_handler(Exception, _answer_other_error)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def _serve_models(
    settings: Settings,
    models: Models,
    metrics: Metrics,
    listener: socket.socket,
    on_started: Callable[[str], None],
) -> None:
    limits = settings.limits
    address = _address_of(listener)
    config = uvicorn.Config(
        Guard(make_app(settings, models, metrics), metrics, limits),
        http=protocol_with(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=int(limits.seconds + 2 * limits.read_seconds) + 1,
    )

    def tell_start() -> None:
        log_event("started", address=address, models=list(models.by_name))
        on_started(address)

    server = GracefulServer(config, tell_start)
    asyncio.run(server.serve([listener]))


def _bind_socket(host: str, port: int) -> socket.socket:
    """Takes the port before the models are loaded, which takes seconds."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise OSError(
            f"The server cannot listen on {host}, port {port} ({error.strerror or error}): choose "
            "another --host or --port."
        ) from error
    return listener


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _page_of(app: FastAPI) -> Callable[[], Any]:
    async def docs() -> HTMLResponse:
        return HTMLResponse(render_api_page(app.openapi()))

    return docs


async def _answer_request_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestError)
    return JSONResponse({"error": error.message}, error.status, error.headers)


async def _answer_computation_error(request: Request, error: Exception) -> JSONResponse:
    record = request.scope["state"]["record"]
    log_event("computation failed", logging.ERROR, id=record.request_id, exception=error)
    return JSONResponse({"error": "The model failed to compute this request."}, 500)


async def _answer_http_error(request: Request, error: Any) -> JSONResponse:
    message = f"{error.detail}: see /docs for what this server offers."
    return JSONResponse({"error": message}, error.status_code, error.headers)


async def _answer_other_error(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": "An error occurred in the server."}, 500)
