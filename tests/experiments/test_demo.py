"""The demo, with a tiny model and a run of three steps; and how long its training is."""

import json
import shlex
import shutil
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import demo
import forks
import pytest
import run_length
import torch
from datasets import DatasetDict
from pronunciations import load_cmudict, split_of
from safetensors.torch import load_file

from vanilla_transformer.commands import page, serve

SHORT = ["--max_steps", "3", "--save_strategy", "no", "--max_eval_samples", "20"]
RECIPE = str(demo.REPOSITORY / "scripts" / "recipes" / "cmudict-demo.yaml")
SMALL = ["--d_model", "16", "--encoder_layers", "1", "--decoder_layers", "1"]


load_all_examples = cache(load_cmudict)


def load_few_examples():
    data = DatasetDict(load_all_examples())
    for split, count in (("train", 300), ("test", 20)):
        data[split] = data[split].select(range(count))
    return data


def run_in_fork(command, *, input, **options):
    """What `subprocess.run` returns, of a process that has imported the package already."""
    assert options == {"check": True, "stdout": -1, "encoding": "utf-8"}
    done = forks.run(*command[2:], input=input)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module", autouse=True)
def few_examples():
    """The demo reads a few examples, and its processes have imported the package already."""
    pace = run_length.Pace(seconds=0.42, threads=torch.get_num_threads(), examples=150.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "load_cmudict", load_few_examples)
        patch.setattr(demo, "measure_pace", lambda words, data: pace)
        patch.setattr(demo.subprocess, "run", run_in_fork)
        yield


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """The directory of a demo that has trained, its lines, and the weights."""
    folder = tmp_path_factory.mktemp("demo") / "model"
    printed = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(demo, "SECONDS_BETWEEN_WORDS", 0.0)
        patch.chdir(folder.parent)  # the recipe is found from any working directory
        words = ["--words", "transformer", "attention"]
        demo.main(["--output_dir", str(folder), *words, *SHORT, *SMALL])
    weights = load_file(folder / "model.safetensors")  # a test trains in this directory again
    return folder, printed.getvalue().splitlines(), weights


@pytest.fixture
def folder(first_run):
    return first_run[0]


@pytest.fixture
def run_demo(folder, capsys):
    """Runs the demo on a few examples and returns the lines that it prints."""

    def run(*argv, output_dir=folder):
        demo.main(["--output_dir", str(output_dir), *argv])
        return capsys.readouterr().out.splitlines()

    return run


def test_it_prints_scores_a_table_and_the_given_words(first_run):
    folder, lines, _ = first_run
    figures = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    assert f"WER {figures['test_wer']:.1f} PER {figures['test_per']:.1f}" in lines
    table = lines.index("Ten words that the model has not seen:")
    assert lines[table + 1].split() == ["word", "prediction", "reference"]
    assert len([line for line in lines[table + 2 : table + 12] if line]) == 10
    assert any(line.startswith("transformer: ") for line in lines)
    assert any(line.startswith("attention: ") for line in lines)
    assert "bash scripts/demo.sh" in (folder / "README.md").read_text(encoding="utf-8")


def test_it_ends_with_the_commands_that_open_the_page_and_the_server(run_demo, folder, monkeypatch):
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    monkeypatch.setattr(demo.sys, "prefix", str(demo.REPOSITORY / ".venv"))
    install, *lines = run_demo("--words", "reuse")[-4:]
    assert install == '  .venv/bin/pip install ".[serve,page]"'
    opened, served, asked = map(shlex.split, lines)
    monkeypatch.chdir(demo.REPOSITORY)
    assert {opened[0], served[0]} == {".venv/bin/vanilla-transformer"}
    assert [words[1] for words in (opened, served)] == ["page", "serve"]
    shown = page.parse(opened[2:])
    page.check(shown)
    assert Path(shown.models[0]).samefile(folder)
    assert shown.text == "transformer"
    options = serve.parse(served[2:])
    serve.check(options)
    (model,) = serve.settings_of(options).models
    assert Path(model.path).samefile(folder)
    assert asked[1] == f"http://{options.host}:{options.port}/translate"
    assert asked[2:] == ["-d", "q=transformer", "-d", "source=any", "-d", f"target={model.target}"]


def test_a_trained_model_is_reused_or_trained_again_as_asked(run_demo, folder):
    trained = (folder / "model.safetensors").stat().st_mtime_ns
    assert any("holds a trained model" in line for line in run_demo("--words", "reuse"))
    assert (folder / "model.safetensors").stat().st_mtime_ns == trained
    with pytest.raises(ValueError, match="--seed 5 would have no effect: add --retrain"):
        run_demo("--seed", "5")
    run_demo("--retrain", "--seed", "5", *SHORT, *SMALL)
    assert (folder / "model.safetensors").stat().st_mtime_ns > trained


def test_a_model_of_another_recipe_is_not_taken_for_the_wanted_one(run_demo):
    with pytest.raises(ValueError, match="the recipe cmudict-demo, and cmudict-full is wanted"):
        run_demo("--words", "reuse", "--full")


def test_without_a_card_the_name_of_the_default_directory_tells_the_recipe(
    run_demo, folder, tmp_path
):
    copy = shutil.copytree(folder, tmp_path / "other")
    (copy / "README.md").unlink()
    with pytest.raises(ValueError, match="whose card names no recipe, and cmudict-demo is wanted"):
        run_demo("--words", "reuse", output_dir=copy)
    renamed = copy.rename(tmp_path / "cmudict-demo")
    assert any(
        line.startswith("reuse: ") for line in run_demo("--words", "reuse", output_dir=renamed)
    )


@pytest.mark.parametrize(("answer", "anew"), [("n", [True]), ("", []), (None, [])])
def test_a_user_who_declines_to_reuse_a_model_trains_a_new_one(
    run_demo, folder, monkeypatch, answer, anew
):
    def answered(question):
        if answer is None:
            raise EOFError
        return answer

    trainings = []

    def train(*given, overwrite, command, minutes):
        assert command[:3] == ["bash", "scripts/demo.sh", "--output_dir"]
        assert command[-2:] == ["--words", "reuse"]
        trainings.append(overwrite)

    monkeypatch.setattr(demo, "train_model", train)
    monkeypatch.setattr(demo.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answered)
    run_demo("--words", "reuse")
    assert trainings == anew


def test_words_may_be_anything(run_demo):
    odd = ["na\u00efve", "two\nlines", "", "a\udcff", "\u2028x", "don't"]
    lines = run_demo("--words", *odd)
    start = next(number for number, line in enumerate(lines) if line.startswith("Your words"))
    shown = [line.partition(":")[0] for line in lines[start + 1 : start + 1 + len(odd)]]
    assert shown == ["na\u00efve", "two lines", "", "a?", "x", "don't"]


def test_the_number_of_examples_may_be_limited(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(demo, "run", lambda _, data, callbacks: seen.update(data))
    limits = {"train": 50, "validation": 7, "test": 5}
    options = [f"--max_{name}_samples={count}" for name, count in limits.items()]
    demo.train_model(
        "cmudict-demo",
        tmp_path / "model",
        [text.replace("validation", "eval") for text in options],
        overwrite=False,
        command=["demo"],
    )
    assert {name: len(rows) for name, rows in seen.items()} == limits


@pytest.mark.parametrize("is_supported", [True, False])
@pytest.mark.parametrize(
    ("recipe", "options", "expected"),
    [("cmudict-demo", [], None), ("cmudict-full", [], None), ("cmudict-full", ["--bf16=0"], False)],
)
def test_a_cpu_with_bfloat16_trains_in_bfloat16(
    is_supported, recipe, options, expected, tmp_path, monkeypatch
):
    seen = []
    monkeypatch.setattr(demo, "run", lambda given, *_: seen.append(given.training.bf16))
    monkeypatch.setattr(demo.torch.cpu, "_is_avx512_bf16_supported", lambda: is_supported)
    monkeypatch.setattr(demo.torch.cuda, "is_available", lambda: False)
    demo.train_model(recipe, tmp_path / "new", options, overwrite=False, command=["demo"])
    assert seen == [is_supported if expected is None else expected]


# How long the training is ------------------------------------------------------------------------


@pytest.fixture
def lengths(tmp_path, monkeypatch):
    """Returns steps, epochs and the command on the card of a training that is not carried out."""
    monkeypatch.setattr(demo, "load_cmudict", load_all_examples)
    seen = []
    monkeypatch.setattr(demo, "run", lambda given, *_: seen.append(given))

    def length(recipe, *overrides, command=("demo",), has_bfloat16=False, minutes=None):
        monkeypatch.setattr(demo.torch.cpu, "_is_avx512_bf16_supported", lambda: has_bfloat16)
        options = {"overwrite": False, "command": command, "minutes": minutes}
        demo.train_model(recipe, tmp_path / "new", overrides, **options)
        given = seen.pop()
        return given.training.max_steps, given.training.num_train_epochs, shlex.join(given.command)

    return length


@pytest.mark.parametrize(
    ("has_bfloat16", "minutes", "steps"), [(False, None, 857), (True, None, 428), (True, 1.4, 200)]
)
def test_a_training_is_as_long_as_fits(lengths, capsys, has_bfloat16, minutes, steps):
    command = shlex.split("bash scripts/demo.sh --minutes 1.4 --words a --minutes=1.4 b")
    found = lengths("cmudict-demo", has_bfloat16=has_bfloat16, minutes=minutes, command=command)
    assert found == (steps, 4, f"bash scripts/demo.sh --words a b --max_steps {steps}")
    assert f"Measured 0.42 s a step with {torch.get_num_threads()} thread" in (
        out := capsys.readouterr().out
    )
    assert f": {steps} steps ({steps * 150 / 121_344:.1f} epochs) fit into" in out


def test_a_fast_machine_ends_after_the_epochs_of_the_recipe(lengths, capsys):
    assert lengths("cmudict-demo", minutes=100) == (-1, 4, "demo --num_train_epochs 4")
    assert "ends sooner, after 4 epochs" in capsys.readouterr().out


@pytest.mark.parametrize("recipe", ["cmudict-longer", "cmudict-full", "cmudict-demo"])
def test_a_length_that_is_given_is_not_measured(lengths, recipe, monkeypatch):
    monkeypatch.setattr(demo, "measure_pace", lambda *_: pytest.fail("it is measured"))
    given = [] if recipe != "cmudict-demo" else ["--num-train-epochs=2"]
    epochs = {"cmudict-longer": 4, "cmudict-full": 20, "cmudict-demo": 2}[recipe]
    assert lengths(recipe, *given) == (-1, epochs, "demo")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "0"], "`minutes` is 0: give a number above 0"),
        (["--minutes", "nan"], "`minutes` is nan"),
        (["--minutes", "2", "--max-steps=3"], "`minutes` and `max_steps` both"),
        (["--minutes", "2"], "--minutes 2 would have no effect: add --retrain"),
    ],
)
def test_minutes_that_mean_nothing_are_refused(run_demo, words, message):
    with pytest.raises(ValueError, match=message):
        run_demo(*words)


def test_the_steps_are_timed_with_each_number_of_threads(monkeypatch):
    clock = iter([10.0, 10.9, 20.0, 20.6])  # begin and end, with one thread and with two
    set_threads = []
    before = torch.get_num_threads()
    monkeypatch.setattr(run_length, "STEPS", 4)
    monkeypatch.setattr(run_length, "UNTIMED_STEPS", 1)
    monkeypatch.setattr(run_length, "thread_counts", lambda: [1, 2])
    monkeypatch.setattr(run_length.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(run_length.torch, "set_num_threads", set_threads.append)
    pace = run_length.measure_pace([RECIPE, *SMALL, "--max_tokens", "400"], load_few_examples())
    assert (pace.seconds, pace.threads) == (pytest.approx(0.2), 2)
    assert set_threads == [1, 2, before]
    assert 5 < pace.examples < 50
    assert pace.steps_in(0.1) == 29
    assert pace.steps_in(1e-9) == 1


@pytest.mark.parametrize(
    ("most", "environment", "expected"),
    [(1, {}, [1]), (2, {}, [1, 2]), (6, {}, [1, 2, 4, 6]), (6, {"OMP_NUM_THREADS": "6"}, [6])],
)
def test_threads_are_tried_up_to_the_cores(most, environment, expected, monkeypatch):
    monkeypatch.setattr(run_length.os, "environ", environment)
    monkeypatch.setattr(run_length.torch, "get_num_threads", lambda: most)
    monkeypatch.setattr(run_length.torch.cuda, "is_available", lambda: False)
    assert run_length.thread_counts() == expected


def test_unseen_words_are_pronounced_while_the_model_learns(first_run, tmp_path):
    _, lines, weights = first_run
    shown = [line for line in lines if " of 3: translation: " in line]
    assert [line.split(" step ")[1].split(" of ")[0] for line in shown] == ["1", "2", "3"]
    assert all(split_of(word) == "test" for word in demo.WATCHED)
    unwatched = tmp_path / "model"
    demo.main(["--output_dir", str(unwatched), *SHORT, *SMALL])
    found = load_file(unwatched / "model.safetensors")
    assert all(torch.equal(tensor, found[name]) for name, tensor in weights.items())
