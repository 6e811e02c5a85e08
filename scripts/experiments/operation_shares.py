"""Shows what a training step spends its time on; `benchmark.py train --profile` runs it.

PyTorch's profiler counts the time inside of each operator, forward, backward and update. Operators
are put into groups by their names. Time outside of operators, in Python, is not counted.
"""

import argparse
import re
from collections.abc import Iterable
from typing import Any

import torch
from benchmark_models import make_model
from benchmark_reports import Bars
from torch.profiler import ProfilerActivity, profile
from training_speed import make_batches_on_device, train_on_batches

GROUPS = {  # the first expression that is found in an operator's name decides
    "matrix products": r"::(mm|addmm|linear|_?mkl(dnn)?_?linear\w*|addmm_\w*)$",
    "attention's bmm": r"::(bmm|baddbmm)",
    "attention's fused kernel": r"scaled_dot_product|flash_attention",
    "softmax and loss": r"softmax|logsumexp|nll_loss|cross_entropy|::exp_?$",
    "copies": r"::(copy_|_?to|_to_copy|clone|contiguous|cat|stack|fill_|zero_|zeros\w*|pad\w*)$",
    "rows chosen by index": r"index|embedding|gather|scatter|masked_(fill|select|scatter)",
    "dropout": r"dropout|bernoulli|random_|rand",
    "norms": r"layer_norm",
    "optimizer": r"adam",
    "sums, products, activations": r"::(mul|add|sub|div|addcmul|relu|silu|threshold_backward)",
    "the rest": r"",
}


def group_of(operator: str) -> str:
    """Returns the key of `GROUPS` that an operator belongs to."""
    return next(name for name, names in GROUPS.items() if re.search(names, operator))


def shares_of_groups(times: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Sums times by group of `GROUPS` and divides them by the total."""
    sums = dict.fromkeys(GROUPS, 0.0)
    for operator, taken in times:
        sums[group_of(operator)] += taken
    total = sum(sums.values())
    return {name: taken / total for name, taken in sums.items()}


def profile_training(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Profiles training steps on batches of one kind, after a first pass.

    Returns:
        `shares`: of each group of operators in the time, by system; `seconds`: the time of all
        operators, by system; `longest`: the ten longest operators and their shares, by system.
    """
    batches = make_batches_on_device(kind, options)
    result: dict[str, Any] = {"kind": kind, "shares": {}, "seconds": {}, "longest": {}}
    for system in options.systems:
        model = make_model(system, options, options.dropout).to(options.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        train_on_batches(model, batches, optimizer, options.bf16)
        times = _times_of_operators(options.device, model, batches, optimizer, options.bf16)
        total = sum(times.values())
        longest = sorted(times, key=lambda name: -times[name])[:10]
        result["shares"][system] = shares_of_groups(times.items())
        result["seconds"][system] = total
        result["longest"][system] = {name: times[name] / total for name in longest}
    return result


def _times_of_operators(device: str, *arguments: Any) -> dict[str, float]:
    """Returns the seconds inside of each operator while `train_on_batches` runs."""
    on_cpu = device == "cpu"
    activities = [ProfilerActivity.CPU, *([] if on_cpu else [ProfilerActivity.CUDA])]
    with profile(activities=activities) as profiler:
        train_on_batches(*arguments)
    field = "self_cpu_time_total" if on_cpu else "self_device_time_total"
    return {event.key: getattr(event, field) / 1e6 for event in profiler.key_averages()}


def format_profile(result: dict[str, Any]) -> str:
    """Formats the shares of one kind of batches: a line per group, a column per system."""
    systems = list(result["shares"])
    lines = [f"{result['kind']} batches, share of the time inside of operators"]
    lines.append(f"  {'':26}" + "".join(f"{system:>10}" for system in systems))
    for name in GROUPS:
        shares = [f"{result['shares'][system][name]:>10.0%}" for system in systems]
        lines.append(f"  {name:26}" + "".join(shares))
    seconds = [f"{result['seconds'][system]:>10.2f}" for system in systems]
    return "\n".join([*lines, f"  {'seconds in all':26}" + "".join(seconds)])


def bars_of_profile(result: dict[str, Any]) -> Bars:
    """Returns the shares of a result, for the picture."""
    shares = result["shares"]
    return {name: {system: shares[system][name] for system in shares} for name in GROUPS}
