"""Measures what the preparation of large corpora costs, and how soon a training then begins.

Makes corpora of several sizes from real pairs, prepares each with `vanilla-transformer prepare`,
trains a tiny model for two steps with `--prepared`, resumes it for one more, and loads batches
alone. Each stage is a process of its own. A table of Markdown has its processor seconds, those of
its workers included, and the largest memory of one of its processes: with the pages of mapped
files, and without them.

    python scripts/experiments/scale.py train.en train.de --pairs 300000 1000000 --folder runs/scale
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import TypeVar

import numpy as np
import psutil

from vanilla_transformer.data.file_contents import content_digest, read_object
from vanilla_transformer.data.shards import INDEX, LENGTHS, Shards
from vanilla_transformer.data.text_files import read_line_pairs

T = TypeVar("T")
PROGRAM = (sys.executable, "-m", "vanilla_transformer")
WORDS = 25
_SECONDS_BETWEEN_LOOKS = 0.1
TINY = (
    *("--choose_defaults", "False", "--d_model", "32", "--encoder_layers", "1"),
    *("--decoder_layers", "1", "--encoder_ffn_dim", "64", "--decoder_ffn_dim", "64"),
    *("--encoder_attention_heads", "2", "--decoder_attention_heads", "2", "--max_tokens", "4096"),
    *("--vocab_size", "16000", "--max_source_length", "256", "--max_target_length", "256"),
)
STEPS = (
    *("--save_strategy", "steps", "--save_steps", "1", "--lr_scheduler_type", "constant"),
    *("--report_to", "none", "--use_cpu", "True", "--generation_num_beams", "1"),
)


@dataclass(frozen=True)
class Cost:
    """What a process and its workers have used.

    Attributes:
        processor: Processor seconds.
        wall: Wall seconds.
        memory: Gigabytes of the largest process at its peak.
        own: The same without the pages of files, which the kernel takes back when it needs them.
    """

    processor: float
    wall: float
    memory: float
    own: float

    def __str__(self) -> str:
        memory = f"{self.memory:.2f} GB, {self.own:.2f} GB not of files"
        return f"{self.processor:.1f} s ({self.wall:.0f} s, {memory})"


def make_corpus(source: str, target: str, count: int, folder: Path, seed: int = 0) -> list[str]:
    """Writes pairs that join real ones at random until they have about 25 words a side."""
    paths = [folder / f"{count}.source", folder / f"{count}.target"]
    if all(path.exists() for path in paths):
        return [str(path) for path in paths]
    rng, pairs = Random(seed), list(islice(read_line_pairs(source, target), 200_000))
    pairs = [pair for pair in pairs if 3 <= len(pair[0].split()) <= WORDS and pair[1].strip()]
    with paths[0].open("w") as one, paths[1].open("w") as other:
        for _ in range(count):
            wanted, words = rng.triangular(4, 2 * WORDS - 12, WORDS - 4), 0
            sides: tuple[list[str], list[str]] = ([], [])
            while words < wanted:
                pair = rng.choice(pairs)
                words += pair[0].count(" ") + 1
                for side, text in zip(sides, pair, strict=True):
                    side.append(text)
            one.write(" ".join(sides[0]) + "\n")
            other.write(" ".join(sides[1]) + "\n")
    return [str(path) for path in paths]


def repeat_shards(data: Path, count: int) -> Path:
    """Makes prepared data of about so many pairs, whose shards are links to those of others."""
    folder = data.with_name(f"{count}.repeated")
    shutil.rmtree(folder, ignore_errors=True)
    train = str(data / "train")
    shutil.copytree(data, folder, ignore=lambda place, names: names if place == train else [])
    found = Shards.read(data / "train")
    times = count // sum(shard["rows"] for shard in found.shards)
    for number in range(times * len(found.shards)):
        name = f"{number % len(found.shards):05}.arrow"
        os.link(data / "train" / name, folder / "train" / f"{number:05}.arrow")
    np.save(folder / "train" / LENGTHS, np.tile(found.lengths(), (times, 1)))
    index = {"key": found.key, "shards": found.shards * times}
    (folder / "train" / INDEX).write_text(json.dumps(index))
    manifest = read_object(folder / "manifest.json")
    manifest["splits"]["train"]["index"] = content_digest(folder / "train" / INDEX)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def measure(*words: str) -> Cost:
    """Runs a command in a process of its own."""
    began = time.monotonic()
    process, own, done = subprocess.Popen(words), 0, 0
    while not done:
        own = max(own, _largest_own_memory(process.pid))
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
    if status:
        raise SystemExit(f"{' '.join(words)} failed")
    wall = time.monotonic() - began
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 2**20, own / 2**30)


def _largest_own_memory(pid: int) -> int:
    """Returns the most bytes that are not of files, of a process and those that it has started."""
    found, process = [0], psutil.Process(pid)
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            memory = one.memory_info()
            found.append(memory.rss - memory.shared)  # RssAnon of /proc/PID/status
    return max(found)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Returns what a call returns, and its processor seconds."""
    began = time.process_time()
    return work(), time.process_time() - began


def time_orders(count: int, folder: Path) -> None:
    """Prints how soon the first batches come of so many pairs, of which there are only lengths."""
    from vanilla_transformer.data.mixing import Mixture
    from vanilla_transformer.data.token_budget import TokenBudgetBatchSampler

    rng, path = np.random.default_rng(0), folder / f"{count}.{LENGTHS}"
    lengths = np.lib.format.open_memmap(path, "w+", np.uint16, (count, 2))
    for start in range(0, count, 2**20):
        part = lengths[start : start + 2**20]
        words = 1.5 * rng.triangular(4, WORDS - 4, 2 * WORDS - 12, (len(part), 1))
        part[:] = np.clip(words * rng.lognormal(0, 0.2, part.shape), 2, 255)
    lengths.flush()
    shares = {"7/10": 0.4, "2/10": 0.3, "1/10": 0.3}
    sizes = {name: int(name[0]) * count // 10 for name in shares}
    hundred = {str(one): (one + 50) / 9950 for one in range(100)}
    for what, mixture in {
        "one corpus": None,
        "three corpora with shares": Mixture(sizes, shares, 1),
        "a hundred with shares": Mixture(dict.fromkeys(hundred, count // 100), hundred, 1),
    }.items():
        sides = lengths[:, 0], lengths[:, 1]
        sampler, made = timed(partial(TokenBudgetBatchSampler, *sides, 4096, mixture=mixture))
        print(f"| {what} | sampler {made:.1f} s |", flush=True)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            _, first = timed(partial(next, iter(sampler)))
            print(f"| epoch {epoch} | first batch {first:.1f} s |", flush=True)


def load_batches(prepared: str, batches: int) -> None:
    """Loads batches of an epoch as a training does, and prints tokens a second."""
    from torch.utils.data import DataLoader
    from transformers import DataCollatorForSeq2Seq

    from vanilla_transformer.data.shards import Shards
    from vanilla_transformer.data.token_budget import TokenBudgetBatchSampler, token_lengths
    from vanilla_transformer.inference.loading import load_tokenizer

    rows = Shards.read(Path(prepared, "train")).open()
    lengths = token_lengths(rows, "input_ids"), token_lengths(rows, "labels")
    sampler, made = timed(partial(TokenBudgetBatchSampler, *lengths, 4096))
    collator = DataCollatorForSeq2Seq(load_tokenizer(str(Path(prepared, "tokenizer"))))
    loader = iter(DataLoader(rows, batch_sampler=sampler, collate_fn=collator))
    _, first = timed(partial(next, loader))
    tokens, seconds = timed(
        lambda: sum(
            int(batch["attention_mask"].sum()) + int((batch["labels"] >= 0).sum())
            for batch in islice(loader, batches)
        )
    )
    print(
        f"| loading alone | sampler {made:.2f} s, first batch {first:.2f} s, then "
        f"{tokens / seconds:,.0f} tokens/s |",
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table for each size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--pairs", type=int, nargs="+", default=[300_000, 1_000_000])
    parser.add_argument(
        "--repeated",
        type=int,
        nargs="*",
        default=[],
        help="also train on so many pairs, which repeat those of the last size",
    )
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("runs/scale"))
    parser.add_argument("--load", help="only load batches of this prepared directory")
    parser.add_argument("--lengths", type=int, help="only order so many pairs of made lengths")
    options = parser.parse_args(argv)
    if options.load:
        load_batches(options.load, 1000)
        return
    os.environ["HF_DATASETS_CACHE"] = str(options.folder / "cache")
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.lengths:
        time_orders(options.lengths, options.folder)
        return
    data = options.folder
    for count in options.pairs:
        files = make_corpus(options.source, options.target, count, options.folder)
        data = options.folder / f"{count}.data"
        shutil.rmtree(data, ignore_errors=True)
        print(f"\n| {count:,} pairs | processor (wall, memory of a process) |\n|---|---|")
        texts = ("--train_source", files[0], "--train_target", files[1])
        where = ("--output_dir", str(data), "--num_proc", str(options.num_proc))
        print("| prepare |", measure(*PROGRAM, "prepare", *texts, *TINY, *where), "|", flush=True)
        size = sum(path.stat().st_size for path in (data / "train").iterdir())
        print(f"| disk | {size / count:.0f} bytes a pair |")
        train_on(data)
    for count in options.repeated:
        print(f"\n| {count:,} pairs, repeated | processor (wall, memory of a process) |\n|---|---|")
        train_on(repeat_shards(data, count))


def train_on(data: Path) -> None:
    """Measures two steps, a resumption, and the loading of batches."""
    run = data.with_suffix(".run")
    shutil.rmtree(run, ignore_errors=True)
    train = [*PROGRAM, "train", "--prepared", str(data), *TINY, *STEPS]
    train += ["--output_dir", str(run), "--max_steps"]
    print("| two steps |", measure(*train, "2"), "|", flush=True)
    resume = ("3", "--resume_from_checkpoint", "True")
    print("| resume, one step |", measure(*train, *resume), "|", flush=True)
    subprocess.run([sys.executable, __file__, "--load", str(data)], check=True)


if __name__ == "__main__":
    main()
