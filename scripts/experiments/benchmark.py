"""Measures speed and memory of training steps, compared with Hugging Face's Marian.

Three models of the same size take the same steps (forward, backward, fused AdamW as in `Trainer`)
on the same batches: `marian` (`MarianMTModel`, which has the paper's layers), `padded` (this
package, which also computes the padding) and `ours` (this package without padding). They take turns
in one process, so other work on the machine affects all of them. Sentence lengths are drawn from a
log-normal distribution. Tokens are random.

Shapes: `input_ids` and `attention_mask` are (batch, source_len), `labels` are (batch, target_len).
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
from functools import partial
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
    """Draws lengths of sentence pairs: log-normal, with median 22 and at most 128 tokens.

    Args:
        count: Number of pairs.
        generator: Random number generator.

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
        kind: "random" (sentences in random order), "bucketed" (sorted by source length, as with
            Trainer's "group_by_length") or "even" (25 tokens each, so there is no padding).
        count: Number of batches.
        tokens: Approximate number of target tokens per batch, without padding.
        vocab_size: Size of the vocabulary.
        seed: Seed of lengths and tokens.

    Returns:
        Batches of `input_ids`, `attention_mask` and `labels`.
    """
    generator = torch.Generator().manual_seed(seed)
    lengths = draw_lengths(2 * tokens, generator)  # about 50 batches, as Trainer sorts them
    if kind == "even":
        lengths = torch.full_like(lengths, 25)
    elif kind == "bucketed":
        lengths = lengths[lengths[:, 0].argsort()]
    group_of_pair = lengths[:, 1].cumsum(0) // tokens
    groups = [lengths[group_of_pair == group] for group in range(int(group_of_pair[-1]))]
    chosen = torch.linspace(0, len(groups) - 1, count + 2).round().long()[1:-1].tolist()
    return [_draw_tokens(groups[index], vocab_size, generator) for index in chosen]


def _draw_tokens(lengths: torch.Tensor, vocab_size: int, generator: torch.Generator) -> Batch:
    """Makes a padded batch of random tokens for lengths of shape (batch, 2)."""
    sides = []
    for side in lengths.unbind(1):
        real = torch.arange(int(side.max())) < side[:, None]  # (batch, length)
        sides.append((torch.randint(3, vocab_size, real.shape, generator=generator), real))
    (source, source_mask), (target, target_mask) = sides
    return {
        "input_ids": source.masked_fill(~source_mask, 1),
        "attention_mask": source_mask.long(),
        "labels": target.masked_fill(~target_mask, -100),
    }


def make_benchmark_model(system: str, options: argparse.Namespace) -> nn.Module:
    """Makes one of the systems, in training mode on the device.

    Args:
        system: One of `SYSTEMS`.
        options: Sizes and device, from the command line.

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
        tokens: dict[str, Any] = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
        marian: nn.Module = MarianMTModel(MarianConfig(**shared, **tokens, use_cache=False))
        return marian.to(options.device).train()
    model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**shared))
    model.set_padding_free(system == "ours")
    ours: nn.Module = model.to(options.device).train()
    return ours


def train_on_batches(
    model: nn.Module,
    batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer | None = None,
    bf16: bool = False,
) -> None:
    """Takes a training step on each batch.

    Args:
        model: The model.
        batches: The batches.
        optimizer: Updates the weights. None: there is no update.
        bf16: Whether the forward pass runs under autocast to bfloat16.
    """
    for batch in batches:
        model.zero_grad(set_to_none=True)
        with torch.autocast(batch["labels"].device.type, torch.bfloat16, enabled=bf16):
            loss = model(**batch).loss
        loss.backward()
        if optimizer is not None:
            optimizer.step()


def time_in_turns(
    actions: dict[str, Callable[[], None]], repeats: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Times several actions, one after the other in each turn.

    Args:
        actions: Actions by name. Each runs once before the clock starts.
        repeats: Number of turns.
        clock: Returns seconds.

    Returns:
        The seconds of each action, turn by turn.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    for repeat in range(repeats + 1):
        for name, action in actions.items():
            start = clock()
            action()
            if repeat:
                times[name].append(clock() - start)
    return times


def measure_speed(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Times training steps on batches of one kind.

    Args:
        kind: As in `make_batches`.
        options: From the command line.

    Returns:
        `tokens_per_second`: target tokens per second of each system; `speedup`: its speed relative
        to the first system; `filled`: the share of positions that hold a real token.
    """
    batches = _make_batches_on_device(kind, options)
    actions: dict[str, Callable[[], None]] = {}
    for system in options.systems:
        model = make_benchmark_model(system, options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        actions[system] = partial(train_on_batches, model, batches, optimizer, options.bf16)
    clock = time.process_time if options.device == "cpu" else _synchronized_clock
    times = time_in_turns(actions, options.repeats, clock)
    tokens = sum(int((batch["labels"] != -100).sum()) for batch in batches)
    real = tokens + sum(int(batch["attention_mask"].sum()) for batch in batches)
    positions = sum(batch["labels"].numel() + batch["input_ids"].numel() for batch in batches)
    first, *_ = times.values()
    return {
        "kind": kind,
        "filled": real / positions,
        "tokens_per_second": {
            system: tokens / statistics.median(taken) for system, taken in times.items()
        },
        # The median over turns: within a turn all systems met the same conditions.
        "speedup": {
            system: statistics.median(base / own for base, own in zip(first, taken, strict=True))
            for system, taken in times.items()
        },
    }


def _make_batches_on_device(kind: str, options: argparse.Namespace) -> list[Batch]:
    batches = make_batches(kind, options.batches, options.tokens, options.vocab_size, options.seed)
    return [{k: v.to(options.device) for k, v in batch.items()} for batch in batches]


def _synchronized_clock() -> float:
    """Returns the time after the GPU has finished its work, in seconds."""
    torch.cuda.synchronize()
    return time.perf_counter()


def measure_memory(system: str, kind: str, options: argparse.Namespace) -> float:
    """Measures the peak memory that forward and backward need in addition to the loaded model.

    A process never gives its peak back, so each measurement needs a process of its own.

    Args:
        system: One of `SYSTEMS`.
        kind: As in `make_batches`.
        options: From the command line.

    Returns:
        Memory in MiB.
    """
    batches = _make_batches_on_device(kind, options)
    model = make_benchmark_model(system, options)
    before = _current_memory(options.device)
    train_on_batches(model, batches, bf16=options.bf16)
    return _peak_memory(options.device) - before


def _current_memory(device: str) -> float:
    """Returns the memory that this process, or its GPU, holds now, in MiB."""
    pages = Path("/proc/self/statm")  # only on Linux; elsewhere the peak so far is close enough
    if device != "cpu" or not pages.exists():
        return _peak_memory(device)
    return int(pages.read_text().split()[1]) * resource.getpagesize() / 2**20


def _peak_memory(device: str) -> float:
    """Returns the peak memory of this process, or its GPU, so far, in MiB."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _measure_memory_in_new_process(system: str, kind: str, argv: Sequence[str]) -> float:
    command = [sys.executable, __file__, *argv, "--memory-of", system, "--kinds", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise RuntimeError(f"The process that measures memory failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def format_report(result: dict[str, Any]) -> str:
    """Formats the measurements on one kind of batches.

    Args:
        result: From `measure_speed`; `memory_mib` holds the memory of each system, if measured.

    Returns:
        A line per system. Ratios are relative to the first system.
    """
    speeds, memory = result["tokens_per_second"], result.get("memory_mib")
    base = next(iter(speeds))
    lines = [f"{result['kind']} batches, {result['filled']:.0%} of their positions filled"]
    for system, speed in speeds.items():
        line = f"  {system:8}{speed:8.0f} target tokens/s  x{result['speedup'][system]:.2f}"
        if memory:
            line += f"   peak {memory[system]:6.0f} MiB  x{memory[system] / memory[base]:.2f}"
        lines.append(line)
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the measurements of the command line and prints them.

    Args:
        argv: Arguments. None: those of the process.

    Raises:
        RuntimeError: If a process that measures memory fails.
    """
    argv = sys.argv[1:] if argv is None else argv
    options = _parse_options(argv)
    torch.set_num_threads(options.threads)
    if options.memory_of:
        print(measure_memory(options.memory_of, options.kinds[0], options))
        return
    for kind in options.kinds:
        result: dict[str, Any] = {}
        if not options.no_memory:  # measured first: a process inherits the peak of its parent
            result["memory_mib"] = {
                name: _measure_memory_in_new_process(name, kind, argv) for name in options.systems
            }
        result |= measure_speed(kind, options)
        print(json.dumps(result) if options.json else format_report(result), flush=True)


def _parse_options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train = commands.add_parser(
        "train",
        help="compare training steps with MarianMTModel",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = train.add_argument
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of batches")
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="models to measure")
    add("--tokens", type=int, default=1024, help="approximate target tokens per batch")
    add("--batches", type=int, default=5, help="batches of each kind")
    add("--repeats", type=int, default=3, help="timed turns; the median is printed")
    add("--layers", type=int, default=6, help="layers of the encoder, and of the decoder")
    add("--d-model", "--d_model", type=int, default=512, help="width of the models")
    add("--vocab-size", "--vocab_size", type=int, default=16000, help="size of the vocabulary")
    add("--dropout", type=float, default=0.1, help="dropout rate")
    add("--bf16", action="store_true", help="run under autocast to bfloat16")
    add(
        "--attn-implementation",
        "--attn_implementation",
        default="sdpa",
        help="attention of all systems; with --bf16 on a CPU, eager is fastest for all of them",
    )
    add("--threads", type=int, default=1, help="CPU threads")
    add("--device", default="cpu", help="cpu, cuda, ...")
    add("--seed", type=int, default=0, help="seed of batches and initial values")
    add("--no-memory", "--no_memory", action="store_true", help="measure only the speed")
    add("--json", action="store_true", help="print a line of JSON for each kind")
    add("--memory-of", "--memory_of", choices=SYSTEMS, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
