"""`vanilla-transformer page`: a page in the browser for saved models."""

import argparse
import sys
import threading
from collections.abc import Sequence

from vanilla_transformer.commands.options import CommandParser, positive_integer

SUMMARY = "Opens a page in the browser: outputs, alignment, heads, shapes."
EXAMPLES = """
vanilla-transformer page runs/multi30k
vanilla-transformer page runs/first runs/second --port 8080 --text "A dog runs through the snow."
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


def run(options: argparse.Namespace) -> None:
    """Serves the page until Ctrl-C."""
    from vanilla_transformer.page.app import build_page, launch_options
    from vanilla_transformer.page.models import PageModels

    page = build_page(PageModels(options.models, options.device), options.text or "")
    if options.host not in LOOPBACK:
        print(
            f"--host {options.host}: everyone who reaches this machine can use the page.",
            file=sys.stderr,
        )
    _, address, _ = page.launch(
        server_name=options.host,
        server_port=options.port,
        prevent_thread_lock=True,
        quiet=True,
        **launch_options(),
    )
    print(f"The page is at {address} (Ctrl-C stops it).", flush=True)
    try:
        threading.Event().wait()  # until KeyboardInterrupt
    finally:
        page.close(verbose=False)
