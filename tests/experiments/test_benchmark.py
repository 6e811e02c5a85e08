"""The benchmarks of training steps, `generate()`, loading and memory: inputs, measures, reports."""

import argparse
import json
import mmap
import sys
from functools import cache

import benchmark
import benchmark_reports
import forks
import loading_speed
import pytest
import torch
from benchmark_models import (
    GENERATING,
    TRAINED,
    TorchTransformer,
    load_system,
    make_generating_model,
    make_model,
    save_system,
)
from benchmark_reports import (
    current_memory,
    forget_peak,
    format_machine,
    measure_machine,
    peak_memory,
    ratios_to_first,
    run_in_new_process,
    time_in_turns,
)
from generation_speed import bytes_per_token, generate_with_model, make_sources
from operation_shares import GROUPS, group_of, shares_of_groups
from training_speed import KINDS, count_products, format_training, make_batches

MODEL = {"layers": 1, "d_model": 64, "vocab_size": 50}
GENERATION = {"new_tokens": 3, "source_tokens": 6}
TRAINING = {"tokens": 60, "batches": 1}
OPTIONS = argparse.Namespace(**MODEL, **GENERATION, seed=0, attn_implementation="sdpa", threads=1)


@cache
def limits_of_this_machine():
    return measure_machine(argparse.Namespace(threads=1, bf16=True))


def run_in_fork(program, *argv):
    done = forks.run(program, *argv)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


@pytest.fixture
def run_program(monkeypatch, tmp_path, capsys):
    """Runs the program with tiny sizes; returns its output and what it has written as JSON.

    The processes that it starts are forks of a warm process, and the machine is measured once.
    """
    monkeypatch.setattr(benchmark, "measure_machine", lambda options: limits_of_this_machine())
    for module in (benchmark_reports, loading_speed):
        monkeypatch.setattr(module, "run_in_new_process", run_in_fork)
    threads = torch.get_num_threads()

    def run(name, *options, **sizes):
        sizes = {**MODEL, "repeats": 1, "json": tmp_path / "results.json", **sizes}
        words = [str(part) for pair in sizes.items() for part in (f"--{pair[0]}", pair[1])]
        benchmark.main([name, *words, *options])
        content = json.loads((tmp_path / "results.json").read_text())
        assert content["options"]["command"] == name
        assert content["machine"] == limits_of_this_machine()
        return capsys.readouterr().out, content["results"]

    yield run
    torch.set_num_threads(threads)


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


def test_times_are_taken_in_turns_after_a_first():
    calls, now = [], iter([0, 5, 0, 5, 0, 1, 0, 9, 0, 3, 0, 8, 0, 5, 0, 7])
    steps = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    times = time_in_turns(steps, 3, lambda: next(now))
    assert calls == ["a", "b"] * 4
    assert times == {"a": [1, 3, 5], "b": [9, 8, 7]}


@pytest.mark.parametrize(
    ("options", "systems"),
    [(["--picture"], ("marian", "ours")), (["--bf16", "--no_memory"], ("torch", "ours"))],
)
def test_the_program_measures_training_steps(run_program, tmp_path, options, systems):
    is_drawn = options == ["--picture"]
    choice = [*options, str(tmp_path / "bars.png")] if is_drawn else options
    printed, results = run_program(
        "train", *choice, "--kinds", "random", "--systems", *systems, **TRAINING
    )
    (result,) = results
    assert tuple(result["tokens_per_second"]) == tuple(result["speedup"]) == systems
    assert all(speed > 0 for speed in result["tokens_per_second"].values())
    assert result["limit"] > 0
    assert format_training(result) in printed
    assert (tmp_path / "bars.png").exists() == is_drawn
    if is_drawn:
        assert all(1 < mib < 1000 for mib in result["memory_mib"].values())


def test_the_program_profiles_training_steps(run_program):
    choice = ["--profile", "--kinds", "even", "--systems", "marian", "ours"]
    printed, (result,) = run_program("train", *choice, **TRAINING)
    for shares in result["shares"].values():
        assert list(shares) == list(GROUPS)
        assert sum(shares.values()) == pytest.approx(1)
        assert shares["matrix products"] > 0
    assert all(name in printed for name in GROUPS)


@pytest.mark.parametrize(
    ("operator", "group"),
    [
        ("aten::mm", "matrix products"),
        ("aten::bmm", "attention's bmm"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention's fused kernel"),
        ("aten::copy_", "copies"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::add_", "sums, products, activations"),
        ("aten::total", "the rest"),
    ],
)
def test_an_operator_belongs_to_a_group(operator, group):
    assert group_of(operator) == group
    assert shares_of_groups([(operator, 3.0), ("aten::tanh", 1.0)])[group] in (0.75, 1)


@pytest.mark.parametrize("system", TRAINED)
def test_no_system_drops_attention_weights(system):
    """Attention is called with the rate 0, whichever implementation a system has."""
    rates = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def attend(query, key, value, attn_mask=None, dropout_p=0.0, *others, **options):
        rates.append(dropout_p)
        return plain(query, key, value, attn_mask, dropout_p, *others, **options)

    model = make_model(system, OPTIONS, dropout=0.5)
    (batch,) = make_batches("random", 1, 60, 50, seed=0)
    with pytest.MonkeyPatch.context() as patch:
        for module in (torch.nn.functional, torch._C._nn):
            patch.setattr(module, "scaled_dot_product_attention", attend)
        model(**batch)
    assert rates
    assert set(rates) == {0.0}


def test_products_count_each_token_where_it_is_multiplied():
    model = make_model("ours", OPTIONS)
    square = 64 * 64
    of_source = 4 * square + 2 * 4 * square + 2 * square  # the encoder; keys and values of it
    of_target = 4 * square + 2 * square + 2 * 4 * square + 64 * 50
    assert count_products(model, 3, 0) == 6 * 3 * of_source
    assert count_products(model, 0, 5) == 6 * 5 * of_target


def test_the_model_around_nn_transformer_ignores_padding_and_later_tokens():
    model = TorchTransformer(argparse.Namespace(layers=2, d_model=128, vocab_size=50), 0.0)
    (batch,) = make_batches("even", 1, 60, 50, seed=0)
    padded = {
        name: torch.nn.functional.pad(ids, (0, 4), value=value)
        for (name, ids), value in zip(batch.items(), (1, 0, -100), strict=True)
    }
    with torch.no_grad():
        loss = model(**batch).loss
        assert model(**padded).loss.item() == pytest.approx(loss.item(), abs=1e-5)
        changed = batch["labels"].clone()
        changed[:, 10:] = -100  # the loss of the first ten tokens
        first = model(batch["input_ids"], batch["attention_mask"], changed).loss
        inputs = batch["labels"].clone()
        inputs[:, 10:] = 7
        logits = []
        model.transformer.register_forward_hook(lambda *call: logits.append(call[2][:, :11]))
        model(**batch)
        model(batch["input_ids"], batch["attention_mask"], inputs)
    torch.testing.assert_close(logits[0], logits[1])
    assert first != loss


def test_a_token_reads_each_weight_of_the_decoder_that_it_multiplies():
    model = make_generating_model("ours", OPTIONS)
    matrices = 64 * 64 * (4 + 2) + 2 * 64 * 256 + 64 * 50
    biases = 64 * (4 + 2) + 256 + 64
    norms = 3 * 2 * 64
    assert bytes_per_token(model) == 4 * (matrices + biases + norms)


def test_ratios_compare_within_a_turn():
    ratios = ratios_to_first({"slow": [2.0, 8.0], "fast": [1.0, 2.0]})
    assert ratios == {"slow": [1.0, 1.0], "fast": [2.0, 4.0]}


def test_the_program_measures_generation(run_program, tmp_path):
    pytest.importorskip("ctranslate2", reason="needs the extra `ctranslate2`")
    systems = ["marian", "ours-int8", "ctranslate2"]
    picture = tmp_path / "bars.svg"
    choice = ["--rows", "1", "2", "--beams", "1", "2", "--picture", str(picture)]
    choice += ["--systems", *systems]
    _, results = run_program("generate", *choice, **GENERATION)
    settings = [(result["rows"], result["beams"]) for result in results]
    assert settings == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for result in results:
        assert tuple(result["tokens_per_second"]) == tuple(result["speedup"]) == tuple(systems)
        assert all(speed > 0 for speed in result["tokens_per_second"].values())
        assert ("limit" in result) == (result["rows"] == result["beams"] == 1)
    assert "greedy, rows: 1" in picture.read_text()


def test_the_program_measures_loading(run_program, tmp_path):
    picture = tmp_path / "bars.png"
    choice = ["--systems", "t5", "ours", "--picture", str(picture)]
    printed, (result,) = run_program("load", *choice)
    for stage in ("load", "first"):  # the warm process has imported the classes already
        for clock in ("wall", "processor"):
            assert all(seconds > 0 for seconds in result["seconds"][stage][clock].values())
    memory = result["memory_mib"]
    assert set(memory["added"]) == {"t5", "ours"}
    assert all(
        memory["added"][name] <= mib < memory["peak"][name] for name, mib in memory["ready"].items()
    )
    assert all(mib > 50 for mib in result["memory_mib"]["peak"].values())
    assert all(0 < mib < 5 for mib in result["saved_mib"].values())
    assert "from_pretrained" in printed
    assert picture.exists()


def test_the_program_measures_peaks_of_memory(run_program, tmp_path):
    picture = tmp_path / "bars.png"
    choice = ["--systems", "torch", "ours", "ours-int8", "--rows", "2", "--picture", str(picture)]
    printed, results = run_program("memory", *choice, **TRAINING, **GENERATION)
    measured = {result["part"]: list(result["added"]) for result in results}
    assert measured == {"train": ["torch", "ours"], "generate": ["ours", "ours-int8"]}
    for result in results:
        assert all(mib < result["peak"][system] for system, mib in result["added"].items())
    assert "generate()" in printed
    assert picture.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's status of the process")
def test_a_peak_is_that_of_what_runs_after_the_last_one_is_forgotten():
    mebibyte = b"1" * 2**20
    peaks = []
    for size in (200, 100):
        forget_peak()
        before = current_memory()
        with mmap.mmap(-1, size * 2**20) as memory:
            for _ in range(size):
                memory.write(mebibyte)
        peaks.append(peak_memory() - before)
    assert peaks == pytest.approx([200, 100], abs=20)


@pytest.mark.parametrize(
    "system", ["marian", "t5", "ours", pytest.param("onnx", marks=pytest.mark.slow)]
)
def test_a_saved_system_generates_what_it_did_before(system, tmp_path):
    if system == "onnx":
        pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    ids, mask = make_sources(2, OPTIONS)
    save_system(system, OPTIONS, tmp_path / "saved")
    loaded = load_system(system, tmp_path / "saved", OPTIONS)
    model = make_generating_model(system, OPTIONS)
    outputs = [generate_with_model(each, 5, ids, mask, 2) for each in (model, loaded)]
    assert outputs[0].equal(outputs[1])


def test_a_process_that_fails_is_an_error_that_quotes_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint('first')\nprint(sys.argv[1])\nint(sys.argv[1])")
    assert run_in_new_process(program, "12") == "12"
    with pytest.raises(RuntimeError, match=r"invalid literal.*'twelve'"):
        run_in_new_process(program, "twelve")


def test_what_a_run_needs_in_the_end_is_checked_before(monkeypatch, tmp_path, capsys):
    def find_spec(name):
        return None if name in ("matplotlib", "ctranslate2") else object()

    missing = tmp_path / "folder" / "results.json"
    with pytest.raises(SystemExit, match="create its directory first"):
        benchmark.main(["load", "--json", str(missing)])
    monkeypatch.setattr("vanilla_transformer.extras.find_spec", find_spec)
    with pytest.raises(SystemExit, match=r"matplotlib.*pip install .*\[plot\]"):
        benchmark.main(["load", "--picture", "bars.png"])
    with pytest.raises(SystemExit, match=r"ctranslate2.*pip install .*\[ctranslate2\]"):
        benchmark.main(["generate", "--systems", "ctranslate2-int8"])
    options = benchmark.parse_options(["generate"])
    benchmark.check_options(options)
    assert options.systems == [name for name in GENERATING if "ctranslate2" not in name]
    assert "not measured: ctranslate2, ctranslate2-int8" in capsys.readouterr().err


def test_the_machine_is_named_with_its_limits():
    machine = limits_of_this_machine()
    assert set(machine["products"]) == {"float32", "bfloat16"}
    assert machine["bandwidth"] > 0
    lines = format_machine({**machine, "products": {"float32": 2e11}, "bandwidth": 1.3e10})
    assert "200 GFLOP/s in float32; memory 13.0 GB/s" in lines
