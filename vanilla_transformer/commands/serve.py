"""`vanilla-transformer serve`: models behind HTTP."""

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vanilla_transformer.commands.checks import check_model_path
from vanilla_transformer.commands.options import (
    CommandParser,
    UsageError,
    nonnegative_integer,
    nonnegative_number,
    positive_integer,
    positive_number,
)
from vanilla_transformer.commands.search_options import add_compute_type_option, add_engine_options
from vanilla_transformer.extras import check_extra

if TYPE_CHECKING:
    from vanilla_transformer.serving.settings import Computation, Limits, Settings

SUMMARY = "Serves models over HTTP, as LibreTranslate does, with batches across requests."
EXAMPLES = """
vanilla-transformer serve runs/multi30k
vanilla-transformer serve en-de=runs/en-de de-en=runs/de-en --port 8000
vanilla-transformer serve en-de=runs/en-de --compute-type int8 --api-keys keys.txt --rate-limit 60
"""
LOG_LEVELS = ("debug", "info", "warning", "error")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    from vanilla_transformer.serving.settings import Computation, Limits

    parser = CommandParser("serve", SUMMARY, EXAMPLES, intermixed=True)
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="directory of a saved model or its name on the Hub; SOURCE-TARGET=MODEL gives its "
        "languages, e.g. en-de=runs/en-de",
    )
    _add_address_options(parser.add_argument_group("address"))
    _add_computation_options(parser.add_argument_group("computation"), Computation())
    _add_limit_options(parser.add_argument_group("limits of a request"), Limits())
    _add_client_options(parser.add_argument_group("clients"), Limits())
    return parser.parse_words(words)


def check(options: argparse.Namespace) -> None:
    """Checks the models' paths, the keys and the port.

    Raises:
        UsageError: If a model or the port is written wrongly.
        ValueError: If the file of keys holds none.
        OSError: If a file or a model does not exist.
        ModuleNotFoundError: If the extra `serve` or the engine is not installed.
    """
    settings = settings_of(options)
    if options.port > 65535:
        raise UsageError(f"--port: {options.port} is above 65535")
    for model in settings.models:
        check_model_path(model.path)
    check_extra("serve")
    if options.engine == "ctranslate2":
        check_extra("ctranslate2")


def run(options: argparse.Namespace) -> None:
    """Answers requests until a signal ends the server."""
    if options.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch
    from transformers.utils import logging

    from vanilla_transformer.serving.monitoring import set_up_logs
    from vanilla_transformer.serving.server import run_server

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    logging.disable_progress_bar()
    set_up_logs(options.log_level)
    run_server(settings_of(options), _tell_address)


def settings_of(options: argparse.Namespace) -> "Settings":
    """Returns the settings of the server.

    Args:
        options: The parsed options.

    Raises:
        UsageError: If a model is written wrongly.
        ValueError: If the file of keys holds none.
        OSError: If it cannot be read.
    """
    from vanilla_transformer.serving.settings import (
        Computation,
        Limits,
        Settings,
        parse_models,
        read_api_keys,
    )

    try:
        models = parse_models(options.models)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return Settings(
        models=models,
        host=options.host,
        port=options.port,
        limits=Limits(
            body_bytes=options.max_body,
            characters=options.max_characters,
            texts=options.max_texts,
            tokens=options.max_tokens,
            new_tokens=options.max_new_tokens,
            beams=options.max_beams,
            seconds=options.timeout,
            read_seconds=options.read_timeout,
            connections=options.max_connections,
            requests_per_minute=options.rate_limit,
        ),
        computation=Computation(
            engine=options.engine,
            compute_type=options.compute_type,
            device=options.device,
            num_beams=options.num_beams,
            batch_tokens=options.batch_tokens,
            batch_wait=options.batch_wait / 1000,
            queue_size=options.queue_size,
            workers=options.workers,
        ),
        api_keys=read_api_keys(options.api_keys) if options.api_keys else (),
        allowed_origins=tuple(options.allow_origin),
        trusted_proxies=tuple(options.trust_proxy),
    )


def _tell_address(address: str) -> None:
    print(f"Serving on {address} (its interface: {address}/docs). Ctrl-C ends it.", flush=True)


def _add_address_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 is every one"
    )
    group.add_argument(
        "--port", type=nonnegative_integer, default=8000, metavar="N", help="0 is a free one"
    )


def _add_computation_options(group: argparse._ArgumentGroup, default: "Computation") -> None:
    integer: dict[str, Any] = {"type": positive_integer, "metavar": "N"}
    add_engine_options(group)
    add_compute_type_option(group, default.compute_type)
    group.add_argument(
        "--num-beams",
        **integer,
        help="beam width of requests that name none (default: as saved with the model)",
    )
    group.add_argument(
        "--batch-wait",
        type=nonnegative_number,
        default=default.batch_wait * 1000,
        metavar="MS",
        help="milliseconds that a batch waits for further requests",
    )
    group.add_argument(
        "--queue-size",
        **integer,
        default=default.queue_size,
        help="requests that a model accepts before the first of them is answered",
    )
    group.add_argument(
        "--workers",
        **integer,
        default=default.workers,
        help="batches of a model that are computed at the same time",
    )
    group.add_argument(
        "--threads",
        **integer,
        help="processor threads of a computation (default: OMP_NUM_THREADS, or all)",
    )


def _add_limit_options(group: argparse._ArgumentGroup, default: "Limits") -> None:
    for name, value, what in (
        ("max-body", default.body_bytes, "bytes of the body"),
        ("max-characters", default.characters, "characters of all texts"),
        ("max-texts", default.texts, "texts"),
        ("max-tokens", default.tokens, "source tokens of all texts"),
        ("max-new-tokens", default.new_tokens, "largest max_new_tokens, in tokens"),
        ("max-beams", default.beams, "largest beam width, and most outputs per text"),
    ):
        group.add_argument(
            f"--{name}", type=positive_integer, default=value, metavar="N", help=what
        )
    group.add_argument(
        "--timeout",
        type=positive_number,
        default=default.seconds,
        metavar="S",
        help="seconds until an answer is there, or the request is given up",
    )
    group.add_argument(
        "--read-timeout",
        type=positive_number,
        default=default.read_seconds,
        metavar="S",
        help="seconds for the head of a request, for its body, and for reading an answer",
    )


def _add_client_options(group: argparse._ArgumentGroup, default: "Limits") -> None:
    group.add_argument(
        "--api-keys", metavar="FILE", help="keys, one per line; a request must have one of them"
    )
    group.add_argument(
        "--rate-limit",
        type=positive_integer,
        metavar="N",
        help="requests per minute of a key, or of an address where there are no keys",
    )
    group.add_argument(
        "--max-connections",
        type=positive_integer,
        default=default.connections,
        metavar="N",
        help="open connections",
    )
    group.add_argument(
        "--allow-origin",
        nargs="+",
        default=[],
        metavar="ORIGIN",
        help="web pages that may ask this server, e.g. https://example.org (CORS); * is every one",
    )
    group.add_argument(
        "--trust-proxy",
        nargs="+",
        default=[],
        metavar="ADDRESS",
        help="proxies whose X-Forwarded-For names the client, e.g. 127.0.0.1",
    )
    group.add_argument(
        "--log-level", choices=LOG_LEVELS, default="info", help="lowest level of the logs"
    )
