"""Measures training steps; `benchmark.py train` runs it.

Models of the same size take the same training steps (forward, backward, fused AdamW as in
`Trainer`) on the same batches. They take turns in one process, so other work on the machine affects
all of them. Sentence lengths are drawn from a log-normal distribution. Tokens are random.

Shapes: `input_ids` and `attention_mask` are (batch, source_len), `labels` are (batch, target_len).
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmark_models import make_model
from benchmark_reports import (
    clock_of,
    current_memory,
    forget_peak,
    peak_memory,
    ratio_text,
    run_in_new_process,
    speeds_of,
    time_in_turns,
)
from torch import nn

KINDS = ("random", "bucketed", "even")
Batch = dict[str, torch.Tensor]
_BENCHMARK = Path(__file__).with_name("benchmark.py")

_OF_SOURCE = ("encoder_attn.k_proj", "encoder_attn.v_proj")  # of the decoder


def draw_lengths(count: int, generator: torch.Generator) -> torch.Tensor:
    """Draws (source, target) lengths, (count, 2): log-normal, median 22, at most 128 tokens."""
    log_source = 3.1 + 0.6 * torch.randn(count, generator=generator)
    log_target = log_source + 0.15 * torch.randn(count, generator=generator)
    lengths = torch.stack([log_source, log_target], dim=1).exp()
    return lengths.round().long().clamp(3, 128)


def make_batches(kind: str, count: int, tokens: int, vocab_size: int, seed: int) -> list[Batch]:
    """Makes batches of random tokens: `input_ids`, `attention_mask` and `labels`.

    Args:
        kind: "random" (sentences in random order), "bucketed" (sorted by source length, as with
            Trainer's "group_by_length") or "even" (25 tokens each, so there is no padding).
        tokens: Approximate number of target tokens per batch, without padding.
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


def train_on_batches(
    model: nn.Module,
    batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer | None = None,
    bf16: bool = False,
) -> None:
    """Takes a training step on each batch.

    Args:
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


def measure_training(
    kind: str, options: argparse.Namespace, machine: dict[str, Any]
) -> dict[str, Any]:
    """Times training steps on batches of one kind.

    Returns:
        `tokens_per_second`: target tokens per second of each system; `speedup`: its speed relative
        to the first system, and its `spread`, the lowest and the highest of all turns; `filled`:
        the share of positions that hold a real token; `limit`: the tokens per second at which the
        machine computes the products of our model's weights, without padding.
    """
    batches = make_batches_on_device(kind, options)
    actions: dict[str, Callable[[], None]] = {}
    for system in options.systems:
        model = make_model(system, options, options.dropout).to(options.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        actions[system] = partial(train_on_batches, model, batches, optimizer, options.bf16)
    times = time_in_turns(actions, options.repeats, clock_of(options.device))
    tokens = sum(int((batch["labels"] != -100).sum()) for batch in batches)
    sources = sum(int(batch["attention_mask"].sum()) for batch in batches)
    positions = sum(batch["labels"].numel() + batch["input_ids"].numel() for batch in batches)
    products = count_products(make_model("ours", options), sources, tokens)
    speed = machine["products"]["bfloat16" if options.bf16 else "float32"]
    return {
        "kind": kind,
        "filled": (sources + tokens) / positions,
        **speeds_of(times, tokens, "tokens"),
        "limit": tokens * speed / products,
    }


def count_products(model: nn.Module, source_tokens: int, target_tokens: int) -> int:
    """Counts multiplications and additions of tokens and weights in a step, forward and backward.

    Products of attention, of queries with keys and of weights with values, are left out.
    """
    count = 0
    for name, part in model.named_modules():
        if isinstance(part, nn.Linear):
            is_of_source = ".encoder." in name or name.endswith(_OF_SOURCE)
            count += 6 * part.weight.numel() * (source_tokens if is_of_source else target_tokens)
    return count


def make_batches_on_device(kind: str, options: argparse.Namespace) -> list[Batch]:
    """Makes the batches of the command line; see `make_batches`."""
    batches = make_batches(kind, options.batches, options.tokens, options.vocab_size, options.seed)
    return [{k: v.to(options.device) for k, v in batch.items()} for batch in batches]


def measure_step_memory(system: str, kind: str, options: argparse.Namespace) -> float:
    """Measures the MiB that forward and backward add to the loaded model, at their peak.

    A process never gives its peak back, so each measurement needs a process of its own.
    """
    batches = make_batches_on_device(kind, options)
    model = make_model(system, options, options.dropout).to(options.device)
    before = current_memory(options.device)
    forget_peak()
    train_on_batches(model, batches, bf16=options.bf16)
    return peak_memory(options.device) - before


def measure_memory_of_each(kind: str, options: argparse.Namespace, argv: Sequence[str]) -> Any:
    """Measures the MiB that each system adds to its loaded model, in processes of their own."""
    return {
        system: float(run_in_new_process(_BENCHMARK, *argv, "--memory-of", system, "--kinds", kind))
        for system in options.systems
    }


def format_training(result: dict[str, Any]) -> str:
    """Formats one kind of batches: a line per system, with ratios relative to the first system.

    Args:
        result: From `measure_training`; `memory_mib` holds the memory of each system, if measured.
    """
    speeds, memory = result["tokens_per_second"], result.get("memory_mib")
    base = next(iter(speeds))
    lines = [f"{result['kind']} batches, {result['filled']:.0%} of their positions filled"]
    for system, speed in speeds.items():
        line = f"  {system:8}{speed:8.0f} target tokens/s  {ratio_text(result, system)}"
        if memory:
            line += f"   peak {memory[system]:6.0f} MiB  x{memory[system] / memory[base]:.2f}"
        lines.append(line)
    ratio = f"x{result['limit'] / speeds[base]:.2f}"
    line = f"  {'limit':8}{result['limit']:8.0f} target tokens/s  {ratio}  matrix products alone"
    return "\n".join([*lines, line])
