"""How fast and how large a training step is, beside Hugging Face's Marian of the same size.

Three models take the same steps (forward, backward, fused AdamW as in `Trainer`) on the same
batches, in turn in one process, so that whatever else the machine does hits all of them: `marian`
(`MarianMTModel`, which has the paper's layers), `padded` (this package with padding computed) and
`ours`. Lengths are drawn from a log-normal distribution, as those of sentences are; tokens are
random.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

SYSTEMS = ("marian", "padded", "ours")
KINDS = ("random", "bucketed", "even")
Batch = dict[str, torch.Tensor]


def draw_lengths(count: int, generator: torch.Generator) -> torch.Tensor:
    """Draws lengths of sentence pairs: log-normal, the median 22 tokens, at most 128.

    Args:
        count: Number of pairs.
        generator: Source of randomness.

    Returns:
        Tokens of source and target, of shape (count, 2).
    """
    log_source = 3.1 + 0.6 * torch.randn(count, generator=generator)
    log_target = log_source + 0.15 * torch.randn(count, generator=generator)
    lengths = torch.stack([log_source, log_target], dim=1).exp()
    return lengths.round().long().clamp(3, 128)


def make_batches(kind: str, count: int, tokens: int, vocab_size: int, seed: int) -> list[Batch]:
    """Makes batches of random tokens.

    Args:
        kind: "random" (sentences as they come), "bucketed" (sorted by the length of the source, as
            Trainer's "group_by_length" has it) or "even" (all of 25 tokens: no padding).
        count: Number of batches.
        tokens: Target tokens of a batch, without padding, about.
        vocab_size: Number of ids.
        seed: Of lengths and tokens.

    Returns:
        Batches of `input_ids`, `attention_mask` and `labels`.
    """
    generator = torch.Generator().manual_seed(seed)
    lengths = draw_lengths(2 * tokens, generator)  # some 50 batches, as Trainer sorts them
    if kind == "even":
        lengths = torch.full_like(lengths, 25)
    elif kind == "bucketed":
        lengths = lengths[lengths[:, 0].argsort()]
    groups = _groups_of(lengths, tokens)
    chosen = torch.linspace(0, len(groups) - 1, count + 2).round().long()[1:-1].tolist()
    return [_fill(groups[index], vocab_size, generator) for index in chosen]


def _groups_of(lengths: torch.Tensor, tokens: int) -> list[torch.Tensor]:
    """Cuts pairs, in their order, into groups of at least so many target tokens."""
    budget = lengths[:, 1].cumsum(0) // tokens
    return [lengths[budget == index] for index in range(int(budget[-1]))]


def _fill(lengths: torch.Tensor, vocab_size: int, generator: torch.Generator) -> Batch:
    sides = []
    for side in lengths.unbind(1):
        real = torch.arange(int(side.max())) < side[:, None]
        sides.append((torch.randint(3, vocab_size, real.shape, generator=generator), real))
    (source, mask), (target, given) = sides
    return {
        "input_ids": source.masked_fill(~mask, 1),
        "attention_mask": mask.long(),
        "labels": target.masked_fill(~given, -100),
    }


def make_model(system: str, options: argparse.Namespace) -> nn.Module:
    """Makes one of the systems, in training mode.

    Args:
        system: One of `SYSTEMS`.
        options: Sizes, of the command line.

    Returns:
        The model.
    """
    torch.manual_seed(options.seed)
    shared: dict[str, Any] = {
        "vocab_size": options.vocab_size,
        "d_model": options.d_model,
        "dropout": options.dropout,
        "max_position_embeddings": 1024,
        "activation_function": "relu",
        "attn_implementation": options.attn_implementation,
    }
    for side in ("encoder", "decoder"):
        shared[f"{side}_layers"] = options.layers
        shared[f"{side}_attention_heads"] = options.d_model // 64 or 1
        shared[f"{side}_ffn_dim"] = 4 * options.d_model
    if system == "marian":
        ids: dict[str, Any] = {
            "pad_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 0,
            "use_cache": False,
        }
        config = MarianConfig(**shared, **ids)
        marian: nn.Module = MarianMTModel(config)
        return marian.train()
    model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**shared))
    model.set_padding_free(system == "ours")
    ours: nn.Module = model.train()
    return ours


def train_step(
    model: nn.Module, batch: Batch, optimizer: torch.optim.Optimizer | None, bf16: bool = False
) -> None:
    """Takes one step: forward (under autocast with `bf16`), backward and, if given, the update."""
    model.zero_grad(set_to_none=True)
    with torch.autocast(batch["labels"].device.type, torch.bfloat16, enabled=bf16):
        loss = model(**batch).loss
    loss.backward()
    if optimizer is not None:
        optimizer.step()


def time_steps(
    steps: dict[str, Callable[[], None]], repeats: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Times several things to do, in turn.

    Args:
        steps: What to do, by name; each is done once before the clock runs.
        repeats: How often.
        clock: Returns seconds.

    Returns:
        The times of each, in seconds, turn by turn.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + 1):
        for name, step in steps.items():
            start = clock()
            step()
            if repeat:
                times[name].append(clock() - start)
    return times


def measure_speed(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Times training steps on batches of one kind.

    Args:
        kind: As in `make_batches`.
        options: Of the command line.

    Returns:
        Target tokens per second of each system, how much faster it is than the first, and the share
        of places that hold a real token.
    """
    batches = _batches(kind, options)
    steps = {}
    for system in options.systems:
        model = make_model(system, options).to(options.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        steps[system] = _steps_of(model, batches, optimizer, options.bf16)
    times = time_steps(steps, options.repeats, _clock(options.device))
    tokens = sum(int((batch["labels"] != -100).sum()) for batch in batches)
    real = tokens + sum(int(batch["attention_mask"].sum()) for batch in batches)
    places = sum(batch["labels"].numel() + batch["input_ids"].numel() for batch in batches)
    speeds = {system: tokens / statistics.median(taken) for system, taken in times.items()}
    return {
        "kind": kind,
        "filled": real / places,
        "tokens_per_second": speeds,
        "speedup": _speedups(times),
    }


def _speedups(times: dict[str, list[float]]) -> dict[str, float]:
    """How much faster than the first each is: the median over turns, in which both met the same."""
    base, *_ = times.values()
    return {
        name: statistics.median(b / t for b, t in zip(base, taken, strict=True))
        for name, taken in times.items()
    }


def _batches(kind: str, options: argparse.Namespace) -> list[Batch]:
    batches = make_batches(kind, options.batches, options.tokens, options.vocab_size, options.seed)
    return [{k: v.to(options.device) for k, v in batch.items()} for batch in batches]


def _steps_of(
    model: nn.Module, batches: list[Batch], optimizer: torch.optim.Optimizer, bf16: bool
) -> Callable[[], None]:
    def steps() -> None:
        for batch in batches:
            train_step(model, batch, optimizer, bf16)

    return steps


def _clock(device: str) -> Callable[[], float]:
    """On the CPU the time given to this process, which other programs change the least."""
    if device == "cpu":
        return time.process_time

    def clock() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return clock


def measure_memory(system: str, kind: str, options: argparse.Namespace) -> float:
    """Runs forward and backward, and measures what they add to the loaded model at the most.

    Run it in a process of its own: a process never gives its peak back.

    Args:
        system: One of `SYSTEMS`.
        kind: As in `make_batches`.
        options: Of the command line.

    Returns:
        MiB.
    """
    batches = _batches(kind, options)
    model = make_model(system, options).to(options.device)
    before = _held(options.device)
    for batch in batches:
        train_step(model, batch, None, options.bf16)
    return _peak(options.device) - before


def _held(device: str) -> float:
    """The memory that this process, or its GPU, holds now, in MiB."""
    pages = Path("/proc/self/statm")  # Linux alone has it; elsewhere the peak so far must do
    if device != "cpu" or not pages.exists():
        return _peak(device)
    return int(pages.read_text().split()[1]) * resource.getpagesize() / 2**20


def _peak(device: str) -> float:
    """The most memory that this process, or its GPU, has held so far, in MiB."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _memory_elsewhere(system: str, kind: str, argv: Sequence[str]) -> float:
    command = [sys.executable, __file__, *argv, "--memory_of", system, "--kinds", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise RuntimeError(f"The process that measures memory failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def report(result: dict[str, Any]) -> str:
    """Formats what was measured on one kind of batches.

    Args:
        result: Of `measure_speed`, with `memory_mib` of each system where that was measured.

    Returns:
        A line per system; ratios are to the first.
    """
    speeds, memory = result["tokens_per_second"], result.get("memory_mib")
    base = next(iter(speeds))
    lines = [f"{result['kind']} batches, {result['filled']:.0%} of their places filled"]
    for system, speed in speeds.items():
        line = f"  {system:8}{speed:8.0f} target tokens/s  x{result['speedup'][system]:.2f}"
        if memory:
            line += f"   peak {memory[system]:6.0f} MiB  x{memory[system] / memory[base]:.2f}"
        lines.append(line)
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints what the command line asks for.

    Args:
        argv: Arguments; None: those of the process.

    Raises:
        RuntimeError: If a process that measures memory fails.
    """
    argv = sys.argv[1:] if argv is None else argv
    options = _parse(argv)
    torch.set_num_threads(options.threads)
    if options.memory_of:
        print(measure_memory(options.memory_of, options.kinds[0], options))
        return
    for kind in options.kinds:
        result: dict[str, Any] = {}
        if not options.no_memory:  # first: a process starts with the peak of the one it comes from
            memory = {name: _memory_elsewhere(name, kind, argv) for name in options.systems}
            result["memory_mib"] = memory
        result |= measure_speed(kind, options)
        print(json.dumps(result) if options.json else report(result), flush=True)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure speed and memory.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train = commands.add_parser(
        "train",
        help="training steps beside MarianMTModel",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    train.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    train.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    train.add_argument("--tokens", type=int, default=1024, help="target tokens of a batch, about")
    train.add_argument("--batches", type=int, default=5, help="batches of each kind")
    train.add_argument("--repeats", type=int, default=3, help="the median of so many is printed")
    train.add_argument("--layers", type=int, default=6, help="of encoder and decoder, each")
    train.add_argument("--d_model", type=int, default=512)
    train.add_argument("--vocab_size", type=int, default=16000)
    train.add_argument("--dropout", type=float, default=0.1)
    train.add_argument("--bf16", action="store_true", help="under autocast to bfloat16")
    train.add_argument(
        "--attn_implementation",
        default="sdpa",
        help="of every system; with --bf16 on a CPU eager is the fastest for all of them",
    )
    train.add_argument("--threads", type=int, default=1)
    train.add_argument("--device", default="cpu")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--no_memory", action="store_true", help="measure speed alone")
    train.add_argument("--json", action="store_true", help="a line of JSON for each kind")
    train.add_argument("--memory_of", choices=SYSTEMS, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
