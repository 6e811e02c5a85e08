"""Serves models over HTTP, as LibreTranslate does, with batches across requests."""

import os

from vanilla_transformer.commands.files import check_glossary
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.serving.settings import Settings as Options

EXAMPLES = """
vanilla-transformer serve model_cards/program-texts
vanilla-transformer serve en-de=runs/en-de de-en=runs/de-en --port 8000
vanilla-transformer serve en-de=runs/en-de --compute-type int8 --api-keys keys.txt
"""


def check(options: Options) -> None:
    """Checks models and glossaries, before the first one is loaded."""
    for model in options.models:
        check_model_directory(model.path)
    for _, path in options.glossary:
        check_glossary(path)


def run(options: Options) -> None:
    """Answers requests until a signal ends the server."""
    threads = options.computation.threads
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    import torch

    from vanilla_transformer.serving.monitoring import set_up_logs
    from vanilla_transformer.serving.server import run_server

    if threads is not None:
        torch.set_num_threads(threads)
    set_up_logs(options.clients.log_level)

    def announce(address: str) -> None:
        print(
            f"Serving on {address} (in a browser: a page that translates; {address}/docs: the "
            "interface for programs). Ctrl-C ends it.",
            flush=True,
        )

    run_server(options, announce)
