"""`vanilla-transformer page`: a page in the browser for saved models."""

import argparse
import socket
import sys
from collections.abc import Sequence

from vanilla_transformer.commands.options import CommandParser, UsageError, positive_integer
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.extras import check_extra

SUMMARY = "Opens a page in the browser: outputs, alignment, heads, shapes."
EXAMPLES = """
vanilla-transformer page runs/multi30k
vanilla-transformer page runs/first runs/second --port 8080 --text "two dogs play"
"""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("page", SUMMARY, EXAMPLES, intermixed=True)
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="directories of saved models, or their names on the Hub; the page lets you choose",
    )
    parser.add_argument("--text", help="text that the page opens with")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
    network = parser.add_argument_group("network")
    network.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen at; 0.0.0.0 admits everyone who reaches this machine",
    )
    network.add_argument(
        "--port",
        type=positive_integer,
        metavar="N",
        help="port to listen at (default: the first free one from 7860)",
    )
    return parser.parse_words(words)


def check(options: argparse.Namespace) -> None:
    """Checks the paths of the models and the port."""
    if len(set(options.models)) < len(options.models):
        raise UsageError("a model is given twice: give each once")
    if options.port is not None and options.port > 65535:
        raise UsageError(f"--port {options.port}: give 1 to 65535")
    for path in options.models:
        check_model_directory(path)
    check_extra("page")
    _check_address(options.host, options.port)


def _check_address(host: str, port: int | None) -> None:
    """Listens for a moment: to find out after the model is loaded would be late."""
    where = f"{host!r}" if port is None else f"{host!r}, port {port}"
    try:
        family = socket.getaddrinfo(host, port or 0)[0][0]
        with socket.socket(family) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, port or 0))
    except OSError as error:
        raise OSError(
            f"The page cannot listen at {where} ({error.strerror}): choose another --port or "
            "--host."
        ) from error


def run(options: argparse.Namespace) -> None:
    """Serves the page until Ctrl-C."""
    check(options)
    from vanilla_transformer.page.app import build_page, launch_page
    from vanilla_transformer.page.models import PageModels

    models = PageModels(options.models, options.device)
    if options.host not in LOOPBACK:
        print(
            f"--host {options.host}: everyone who reaches this machine can use the page.",
            file=sys.stderr,
        )

    def announce(address: str) -> None:
        print(f"The page is at {address} (Ctrl-C stops it).", flush=True)

    launch_page(build_page(models, options.text or ""), options.host, options.port, announce)
