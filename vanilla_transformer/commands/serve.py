"""`vanilla-transformer serve`: models behind HTTP."""

import argparse
import dataclasses
import os
from collections.abc import Sequence

from vanilla_transformer.commands.options import (
    CommandParser,
    add_compute_type_option,
    add_engine_options,
    add_fields,
    add_pattern_option,
    nonnegative_integer,
    nonnegative_number,
    positive_integer,
    positive_number,
    usage_errors,
)
from vanilla_transformer.data.model_directory import check_model_directory

SUMMARY = "Serves models over HTTP, as LibreTranslate does, with batches across requests."
EXAMPLES = """
vanilla-transformer serve model_cards/program-texts
vanilla-transformer serve en-de=runs/en-de de-en=runs/de-en --port 8000
vanilla-transformer serve en-de=runs/en-de --compute-type int8 --api-keys keys.txt
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
    group = parser.add_argument_group("address")
    group.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 is every one"
    )
    group.add_argument(
        "--port", type=nonnegative_integer, default=8000, metavar="N", help="0 is a free one"
    )
    group = parser.add_argument_group("computation")
    add_engine_options(group)
    add_compute_type_option(group, Computation.compute_type)
    add_pattern_option(group)
    shared = ("engine", "compute_type", "device", "batch_tokens")
    types = {int: positive_integer, float: nonnegative_number}
    add_fields(group, Computation, shared, types)
    group.add_argument(
        "--threads",
        type=positive_integer,
        metavar="N",
        help="processor threads of a computation (default: OMP_NUM_THREADS, or all)",
    )
    parser.add_argument(
        "--glossary",
        nargs="+",
        default=[],
        metavar="NAME=FILE",
        help="glossaries that requests may name; a file is read again when it changes",
    )
    group = parser.add_argument_group("limits of a request and of a client")
    add_fields(group, Limits, types={int: positive_integer, float: positive_number})
    group = parser.add_argument_group("clients")
    group.add_argument(
        "--api-keys", metavar="FILE", help="keys, one per line; a request must have one of them"
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
    return parser.parse_words(words)


def run(options: argparse.Namespace) -> None:
    """Answers requests until a signal ends the server."""
    from vanilla_transformer.serving.glossaries import parse_glossary
    from vanilla_transformer.serving.settings import (
        Computation,
        Limits,
        Settings,
        parse_models,
        read_api_keys,
    )

    with usage_errors():
        models = parse_models(options.models)
        glossaries = tuple(map(parse_glossary, options.glossary))
    limits, computation = (
        {field.name: getattr(options, field.name) for field in dataclasses.fields(kind)}
        for kind in (Limits, Computation)
    )
    computation["batch_wait"] /= 1000  # the option is in milliseconds
    settings = Settings(
        models=models,
        host=options.host,
        port=options.port,
        limits=Limits(**limits),
        computation=Computation(**computation),
        api_keys=read_api_keys(options.api_keys) if options.api_keys else (),
        allowed_origins=tuple(options.allow_origin),
        trusted_proxies=tuple(options.trust_proxy),
        glossaries=glossaries,
        keep_patterns=tuple(options.keep_patterns),
    )
    if options.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    from vanilla_transformer.inference.loading import check_on_hub
    from vanilla_transformer.serving.monitoring import set_up_logs
    from vanilla_transformer.serving.server import run_server

    for model in models:  # before the first one is loaded
        check_on_hub(model.path)
        check_model_directory(model.path)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    set_up_logs(options.log_level)

    def announce(address: str) -> None:
        print(
            f"Serving on {address} (in a browser: a page that translates; {address}/docs: the "
            "interface for programs). Ctrl-C ends it.",
            flush=True,
        )

    run_server(settings, announce)
