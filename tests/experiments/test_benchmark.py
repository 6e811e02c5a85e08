"""The benchmark measures training steps, `generate()` and loading of small models."""

import json

import benchmark
import benchmark_reports
import benchmark_training
import forks
import pytest
import torch

MODEL = ["--layers", "1", "--d-model", "64", "--vocab-size", "50", "--repeats", "1"]


@pytest.fixture
def run_program(monkeypatch, tmp_path):
    """Runs the program with tiny sizes; returns what it has written as JSON.

    The processes that it starts are forks of a warm process.
    """

    def run_in_fork(program, *words):
        done = forks.run(program, *words)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()[-1]

    for module in (benchmark_reports, benchmark_training):
        monkeypatch.setattr(module, "run_in_new_process", run_in_fork)
    threads = torch.get_num_threads()

    def run(*words):
        file = tmp_path / "results.json"
        benchmark.main([*words, *MODEL, "--json", str(file)])
        return json.loads(file.read_text())["results"]

    yield run
    torch.set_num_threads(threads)


def test_training_steps(run_program):
    (result,) = run_program(
        *("train", "--kinds", "random", "--systems", *benchmark.TRAINED),
        *("--tokens", "60", "--batches", "1"),
    )
    assert tuple(result["tokens_per_second"]) == benchmark.TRAINED
    assert all(speed > 0 for speed in result["tokens_per_second"].values())
    assert result["speedup"]["marian"] == 1
    assert result["limit"] > 0
    assert all(1 < mib < 1000 for mib in result["memory_mib"].values())


def test_generation(run_program):
    pytest.importorskip("ctranslate2", reason="needs the extra `ctranslate2`")
    systems = ["marian", "ours", "ctranslate2-int8"]
    results = run_program(
        *("generate", "--rows", "1", "2", "--beams", "1", "2", "--systems", *systems),
        *("--new-tokens", "3", "--source-tokens", "6"),
    )
    settings = [(result["rows"], result["beams"]) for result in results]
    assert settings == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for result in results:
        assert list(result["tokens_per_second"]) == systems
        assert all(speed > 0 for speed in result["tokens_per_second"].values())
