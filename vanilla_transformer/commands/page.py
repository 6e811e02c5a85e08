"""Opens a page in the browser: outputs, alignment, heads, shapes."""

import threading
from dataclasses import dataclass

from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.options import BatchOptions, argument, option, same_option

EXAMPLES = """
vanilla-transformer page runs/multi30k
vanilla-transformer page runs/first runs/second --port 8080 --text "A dog runs through the snow."
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the subcommand."""

    models: list[str] = argument(
        "directories of saved models, or their names on the Hub; the page lets you choose", "MODEL"
    )
    text: str = option("text that the page opens with", "")
    device: str | None = same_option(BatchOptions, "device")
    host: str = option(
        "address to listen at; 0.0.0.0 admits everyone who reaches this machine",
        "127.0.0.1",
        metavar="HOST",
    )
    port: int | None = option(
        "port to listen at (default: the first free one from 7860)", ge=1, le=65_535
    )


def check(options: Options) -> None:
    """Checks the models."""
    for model in options.models:
        check_model_directory(model)


def run(options: Options) -> None:
    """Serves the page until Ctrl-C."""
    from vanilla_transformer.page.app import build_page, launch_options
    from vanilla_transformer.page.models import PageModels

    page = build_page(PageModels(options.models, options.device), options.text)
    try:
        _, address, _ = page.launch(
            server_name=options.host,
            server_port=options.port,
            prevent_thread_lock=True,
            quiet=True,
            **launch_options(),
        )
    except OSError as error:  # Gradio's own tells what a program should set
        port = options.port or "any from 7860 on"
        raise OSError(f"{options.host}, port {port}: not free. Choose one with --port.") from error
    print(f"The page is at {address} (Ctrl-C stops it).", flush=True)
    try:
        threading.Event().wait()  # until KeyboardInterrupt
    finally:
        page.close(verbose=False)
