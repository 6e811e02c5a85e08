"""Measures training steps and `generate()` on one GPU; `benchmark.py gpu` runs it.

`ours-captured` takes packed batches and replays CUDA graphs, as `train` does on a GPU, and
`ours-compiled` also compiles layers and loss, as `train --torch_compile` does. Each case has a line
of its own: milliseconds, tokens per second, the share of the card's peak (MFU), memory, kernels,
and waits of the processor for the device. The peak is that of a plain product of two square
matrices in bfloat16. No new case starts after `--seconds`; the first cases matter most. On a CPU,
operations count in place of kernels, and nothing waits.
"""

import argparse
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from accelerate.utils import compile_regions
from benchmark_generation import format_generation, make_generator, measure_generation
from benchmark_models import make_model
from benchmark_reports import clock_of, measure_products
from benchmark_training import Batch, count_products, make_batches

from vanilla_transformer.model.losses import token_loss
from vanilla_transformer.training.captured_steps import CapturedSteps, choose_sizes, pack_batch

TRAINED_ON_GPU = ("marian", "marian-flash", "ours", "ours-captured", "ours-compiled")
GENERATING_ON_GPU = (
    *("marian", "ours"),
    *("ctranslate2-float16", "ctranslate2-int8_float16"),
)
SYSTEMS_OF_GPU = tuple(dict.fromkeys(TRAINED_ON_GPU + GENERATING_ON_GPU))
_SECONDS_A_CASE = 1.0


def measure_gpu(
    options: argparse.Namespace, machine: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields a result and its report for each case, until the time is over."""
    end = time.monotonic() + options.seconds
    peak = measure_products(torch.bfloat16, options.device, options.matrix_size)
    name = "CPU"
    if options.device.startswith("cuda"):
        name = torch.cuda.get_device_name(options.device)
    yield (
        {"case": "peak", "device": name, "operations_per_second": peak},
        f"{name}: {peak / 1e12:.2f} trillion operations/s in bfloat16",
    )
    for width in options.widths:
        shaped = _changed(options, d_model=width)
        systems = {
            system: TrainedSystem(system, shaped)
            for system in options.systems
            if system in TRAINED_ON_GPU
        }
        cases = itertools.product(options.target_tokens, options.kinds, systems)
        for tokens, kind, system in cases:
            if time.monotonic() < end:
                batches = make_batches(
                    kind, options.batches, tokens, options.vocab_size, options.seed
                )
                result = {"case": "train", "width": width, "tokens": tokens, "kind": kind}
                result |= {"system": system, **measure_steps(systems[system], batches, peak)}
                yield result, format_steps(result)
    with ExitStack() as stack:
        generators = {
            system: make_generator(system, _changed(options, bf16=True), stack)
            for system in options.systems
            if system in GENERATING_ON_GPU
        }
        for rows, beams in itertools.product(options.rows, options.beams):
            if time.monotonic() < end:
                result = measure_generation(generators, rows, beams, options, machine)
                yield {"case": "generate", **result}, format_generation(result)


def _changed(options: argparse.Namespace, **values: Any) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(options), **values})


class TrainedSystem:
    """A model with fused AdamW, which takes training steps in bfloat16, as `train` does.

    Args:
        system: `-flash` stands for flash attention, `-captured` for packed batches and CUDA graphs,
            `-compiled` for these with compiled layers and loss.
    """

    def __init__(self, system: str, options: argparse.Namespace) -> None:
        self.kind, _, self.way = system.partition("-")
        if self.way == "flash":
            options = _changed(options, attn_implementation="flash_attention_2")
        self.device = options.device
        self.model = make_model(self.kind, options).to(options.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        self.called = self.model
        if self.way == "compiled":
            self.model.token_loss = torch.compile(token_loss, dynamic=True)
            self.called = compile_regions(self.model, dynamic=True)
        self.captured: CapturedSteps | None = None
        if self.way in ("captured", "compiled"):
            self.captured = CapturedSteps(self.called, torch.bfloat16)

    def prepare(self, batch: Batch) -> dict[str, Any]:
        """Moves a batch to the device, for `step`."""
        items = (batch["labels"] != -100).sum().to(self.device)
        made: dict[str, Any] = {**batch}
        if self.captured is not None:
            most = 2 * int(items)
            mask, labels = batch["attention_mask"], batch["labels"]
            lengths = mask.sum(1).numpy(), (labels != -100).sum(1).numpy()
            sizes = choose_sizes([range(len(mask))], *lengths, most)
            made = pack_batch(batch, self.model.config, sizes, most)
        moved = {k: v.to(self.device) if torch.is_tensor(v) else v for k, v in made.items()}
        return {"batch": moved, "items": items}

    def step(self, batch: dict[str, Any], items: torch.Tensor) -> None:
        """Takes a training step on what `prepare` returns."""
        self.model.zero_grad(set_to_none=True)
        if self.captured is not None:
            self.captured(batch, items)
        else:
            with torch.autocast(torch.device(self.device).type, torch.bfloat16):
                loss = self.called(**batch).loss
            loss.backward()
        self.optimizer.step()


def measure_steps(system: TrainedSystem, batches: list[Batch], peak: float) -> dict[str, Any]:
    """Measures training steps, each batch one step."""
    device = torch.device(system.device)
    clock, on_gpu = clock_of(str(device)), device.type == "cuda"
    prepared = [system.prepare(batch) for batch in batches]

    def step() -> None:
        for given in prepared:
            system.step(**given)

    before = 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    try:
        step()
    except torch.OutOfMemoryError:
        return {"milliseconds": None}
    step()  # records the graphs
    start = clock()
    step()
    turns = 1 + int(_SECONDS_A_CASE / (clock() - start))
    start = clock()
    for _ in range(turns):  # the clock waits for the device only before and after them
        step()
    seconds = (clock() - start) / turns
    sources = sum(int(batch["attention_mask"].sum()) for batch in batches)
    targets = sum(int((batch["labels"] != -100).sum()) for batch in batches)
    return {
        "milliseconds": 1000 * seconds / len(batches),
        "tokens_per_second": targets / seconds,
        "share_of_peak": count_products(system.model, sources, targets) / seconds / peak,
        "memory_mib": (torch.cuda.max_memory_allocated(device) - before) / 2**20 if on_gpu else 0.0,
        "kernels": _count_kernels(step, on_gpu) / len(batches),
        "waits": _count_waits(step) / len(batches) if on_gpu else 0.0,
    }


def _count_kernels(action: Callable[[], None], on_gpu: bool) -> int:
    """Counts what an action starts on the GPU; on a CPU, its operations."""
    activity = getattr(torch.profiler.ProfilerActivity, "CUDA" if on_gpu else "CPU")
    with torch.profiler.profile(activities=[activity]) as profile:
        action()
        if on_gpu:
            torch.cuda.synchronize()
    return len(profile.events())


def _count_waits(action: Callable[[], None]) -> int:
    """Counts how often an action waits for the GPU."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            action()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)


def format_steps(result: dict[str, Any]) -> str:
    """Formats a case of training."""
    case = "train, width {width:4}, {tokens:6} tokens, {kind:8} {system:13}".format(**result)
    if result["milliseconds"] is None:
        return f"{case} lacks memory"
    figures = (
        "{milliseconds:8.1f} ms {tokens_per_second:9.0f} tokens/s {share_of_peak:6.1%} of the peak"
        "{memory_mib:8.0f} MiB {kernels:6.0f} kernels {waits:4.1f} waits"
    )
    return case + figures.format(**result)
