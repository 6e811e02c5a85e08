"""The benchmark of training steps: its batches, its timing and its report."""

import json

import pytest
import torch
from benchmark import (
    KINDS,
    draw_lengths,
    format_report,
    make_batches,
    time_in_turns,
)
from toy import experiment

SIZES = {"layers": 1, "d_model": 64, "vocab_size": 100, "tokens": 60, "batches": 1, "repeats": 1}
SMALL = [part for name, size in SIZES.items() for part in (f"--{name}", size)]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_hold_the_tokens_asked_for(kind):
    batches = make_batches(kind, 3, 1024, 100, seed=0)
    again = make_batches(kind, 3, 1024, 100, seed=0)
    assert len(batches) == 3
    for batch, same in zip(batches, again, strict=True):
        assert all(batch[name].equal(same[name]) for name in batch)
        assert 900 < (batch["labels"] != -100).sum() < 1150
        assert (batch["input_ids"] == 1).equal(batch["attention_mask"] == 0)


def test_kinds_differ_in_padding():
    filled = []
    for kind in ("random", "bucketed", "even"):
        real = [
            batch["attention_mask"].float().mean() for batch in make_batches(kind, 3, 1024, 9, 0)
        ]
        filled.append(torch.stack(real).mean())
    assert filled[0] < 0.6 < 0.9 < filled[1] <= filled[2] == 1


def test_lengths_are_those_of_sentences():
    lengths = draw_lengths(5000, torch.Generator().manual_seed(0)).float()
    assert 20 < lengths.median() < 24
    assert lengths.min() >= 3
    assert lengths.max() == 128
    assert torch.corrcoef(lengths.log().T)[0, 1] > 0.9


def test_times_are_taken_in_turns_after_a_first():
    calls, now = [], iter([0, 0, 0, 1, 0, 9, 0, 3, 0, 8, 0, 5, 0, 7])
    steps = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    times = time_in_turns(steps, 3, lambda: next(now))
    assert calls == ["a", "b"] * 4
    assert times == {"a": [1, 3, 5], "b": [9, 8, 7]}


def test_the_report_names_speeds_and_ratios():
    result = {
        "kind": "random",
        "filled": 0.5,
        "tokens_per_second": {"marian": 100.0, "ours": 250.0},
        "speedup": {"marian": 1.0, "ours": 2.5},
        "memory_mib": {"marian": 1000.0, "ours": 500.0},
    }
    lines = format_report(result).splitlines()
    assert "random" in lines[0]
    assert "50%" in lines[0]
    assert "x2.50" in lines[2]
    assert "x0.50" in lines[2]
    del result["memory_mib"]
    assert "MiB" not in format_report(result)


@pytest.mark.parametrize("options", [[], ["--bf16", "--attn_implementation", "eager"]])
def test_the_program_measures_speed_and_memory(options):
    done = experiment(
        "benchmark.py",
        "train",
        *SMALL,
        "--kinds",
        "random",
        "--json",
        "--systems",
        "marian",
        "ours",
        *options,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result["tokens_per_second"]) == {"marian", "ours"}
    assert all(speed > 0 for speed in result["tokens_per_second"].values())
    assert all(1 < mib < 1000 for mib in result["memory_mib"].values())
