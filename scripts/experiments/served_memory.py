"""Measures the memory of a server whose models come and go.

    python scripts/experiments/served_memory.py model_cards/program-texts --count 20 --loaded 3

It serves copies of one model, and asks all of them in turns. Beside it stands a server of as many
models as the first one may hold. The resident memory is that of the whole process.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

import psutil

TARGETS = "de fr es it nl sv da nb fi pl cs sk hu ro bg el ru uk tr lt"


def copy_model(model: Path, folder: Path) -> None:
    """Makes a folder of links to the files of a model, which forgets its languages."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(file.resolve())
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("directions", None)
    path.unlink()
    path.write_text(json.dumps(config), encoding="utf-8")


def memory_of(folder: Path, targets: list[str], turns: int, *options: str) -> tuple[float, float]:
    """Returns the resident memory of a server in MiB: at the end, and at most between requests."""
    served = [f"en-{target}={folder / target}" for target in targets]
    words = [*served, "--port", "0", "--log-level", "warning", *options]
    command = [sys.executable, "-m", "vanilla_transformer", "serve", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[2]
        measured = []
        for target in targets * turns:
            body = json.dumps({"q": "Open the file", "source": "en", "target": target}).encode()
            headers = {"Content-Type": "application/json"}
            urlopen(Request(f"{address}/translate", body, headers)).read()
            measured.append(psutil.Process(server.pid).memory_info().rss / 2**20)
        server.terminate()
    return measured[-1], max(measured)


def main() -> None:
    """Prints the memory of both servers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=20, help="models of the server, 20 at most")
    parser.add_argument("--loaded", type=int, default=3, help="models that it may hold")
    parser.add_argument("--turns", type=int, default=3, help="requests to each model")
    options = parser.parse_args()
    with TemporaryDirectory() as parent:
        targets = TARGETS.split()[: options.count]
        for target in targets:
            copy_model(Path(options.model), Path(parent, target))
        few = memory_of(Path(parent), targets[: options.loaded], options.turns)
        most = ("--max-loaded", str(options.loaded))
        many = memory_of(Path(parent), targets, options.turns, *most)
    for name, (last, peak) in ((f"{options.loaded} models", few), (f"{len(targets)} models", many)):
        print(f"{name}: {last:.0f} MiB at the end, {peak:.0f} MiB at most")
    print(f"ratio of the peaks: {many[1] / few[1]:.2f}")


if __name__ == "__main__":
    main()
