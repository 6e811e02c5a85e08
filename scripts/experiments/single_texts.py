"""Measures what `Translator` and the server add to CTranslate2 for texts that come one by one.

    python scripts/experiments/single_texts.py model_cards/program-texts texts.en \
        --target-language de

The texts are the lines of a file. The time of CTranslate2 is that of the calls that `Translator`
makes, so that other work on the machine slows both down. A server of its own answers the same texts
afterwards. All compute with one thread, and processor time counts.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from time import process_time
from typing import Any
from urllib.request import Request, urlopen

os.environ["OMP_NUM_THREADS"] = "1"  # torch and CTranslate2 read it when they are imported

import psutil

from vanilla_transformer import Translator, read_lines


class Timed:
    """Times the calls of an engine's translator."""

    def __init__(self, translator: Any) -> None:
        self.translator, self.seconds = translator, 0.0

    def translate_batch(self, **arguments: Any) -> Any:
        """Translates, and counts the processor time."""
        begun = process_time()
        try:
            return self.translator.translate_batch(**arguments)
        finally:
            self.seconds += process_time() - begun


def time_of_server(model: str, texts: list[str], options: argparse.Namespace, beams: int) -> float:
    """Returns the processor seconds that a server takes for requests of one text each."""
    source, target = options.source_language, options.target_language
    served = ["serve", f"{source}-{target}={model}", "--port", "0", "--log-level", "warning"]
    command = [sys.executable, "-m", "vanilla_transformer", *served, "--num-beams", str(beams)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[2]

        def ask() -> float:
            for text in texts:
                body = json.dumps({"q": text, "source": source, "target": target}).encode()
                headers = {"Content-Type": "application/json"}
                urlopen(Request(f"{address}/translate", body, headers)).read()
            return sum(psutil.Process(server.pid).cpu_times()[:2])

        seconds = -ask() + ask()  # the first time makes ready
        server.terminate()
    return seconds


def measure(options: argparse.Namespace, beams: int) -> dict[str, float]:
    """Returns the milliseconds of processor time that each way takes for a text."""
    texts = list(islice(filter(str.strip, read_lines(options.texts)), options.count))
    translator: Any = Translator.from_pretrained(options.model, "ctranslate2", "cpu")
    asked = {"tgt_lang": options.target_language, "num_beams": beams}
    translator.engine.translator = engine = Timed(translator.engine.translator)
    for begun, owned in ((process_time(), engine.seconds) for _ in range(2)):  # first to make ready
        for text in texts:
            translator.translate(text, **asked)
        taken, own = process_time() - begun, engine.seconds - owned
    seconds = {"CTranslate2": own, "Translator": taken}
    seconds["server"] = time_of_server(options.model, texts, options, beams)
    return {name: 1000 * taken / len(texts) for name, taken in seconds.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the times, and their ratios to CTranslate2's own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("texts", help="a file of texts, one per line")
    parser.add_argument("--source-language", default="en")
    parser.add_argument("--target-language", default="de")
    parser.add_argument("--count", type=int, default=300, help="texts")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    options = parser.parse_args(argv)
    for beams in options.beams:
        taken = measure(options, beams)
        own = taken["CTranslate2"]
        parts = (f"{name} {value:.1f} ms ({value / own:.2f})" for name, value in taken.items())
        print(f"beams {beams}: {', '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
