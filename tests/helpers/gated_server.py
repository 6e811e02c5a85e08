"""A server whose model waits at a gate, or fails, when a source holds a certain word.

Arguments: a folder, and those of `vanilla-transformer serve`. A batch with the word "horse" waits
until the folder holds a file `open`. A batch with the word "boat" raises an error.
"""

import sys
import time
from pathlib import Path

from vanilla_transformer.commands.program import main
from vanilla_transformer.inference.transformers_engine import TransformersEngine
from vanilla_transformer.serving import models

folder, argv = Path(sys.argv[1]), sys.argv[2:]
generate, load_models = TransformersEngine.generate, models.load_models


def tokens_of(word, tokenizer):
    return tokenizer(word)["input_ids"][0]


class Gate:
    """Replaces the engine's `generate`."""

    def __init__(self):
        self.waits_at = self.fails_at = None

    def generate(self, engine, sources, *arguments):
        if any(self.waits_at in ids for ids in sources):
            with (folder / "waiting").open("a") as stream:
                stream.write("a batch waits\n")
            while not (folder / "open").exists():
                time.sleep(0.01)
        if any(self.fails_at in ids for ids in sources):
            raise RuntimeError("the secret text 'boat' broke the model")
        return generate(engine, sources, *arguments)


gate = Gate()


def load_with_gate(settings, metrics):
    loaded = load_models(settings, metrics)
    tokenizer = next(iter(loaded.by_name.values())).translator.tokenizer
    gate.waits_at, gate.fails_at = tokens_of("horse", tokenizer), tokens_of("boat", tokenizer)
    TransformersEngine.generate = lambda engine, *arguments: gate.generate(engine, *arguments)
    return loaded


if __name__ == "__main__":
    from vanilla_transformer.serving import server

    server.load_models = load_with_gate
    raise SystemExit(main(["serve", *argv, "--engine", "transformers", "--port", "0"]))
