"""The demo, with a tiny model and a run of three steps."""

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
from datasets import DatasetDict
from pronunciations import load_cmudict

from vanilla_transformer.commands import page, serve
from vanilla_transformer.commands.program import find_subcommand

SHORT = ["--max_steps", "3", "--save_strategy", "no", "--max_eval_samples", "20"]
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "load_cmudict", load_few_examples)
        patch.setattr(demo.subprocess, "run", run_in_fork)
        yield


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """The directory of a demo that has trained, and the lines that it printed."""
    folder = tmp_path_factory.mktemp("demo") / "model"
    printed = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.chdir(folder.parent)  # the recipe is found from any working directory
        words = ["--words", "transformer", "attention"]
        demo.main(["--output_dir", str(folder), *words, *SHORT, *SMALL])
    return folder, printed.getvalue().splitlines()


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
    folder, lines = first_run
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
    assert [find_subcommand(words[1:])[0] for words in (opened, served)] == ["page", "serve"]
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

    def train(*given, overwrite, command):
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
    monkeypatch.setattr(demo, "run", lambda _, data: seen.update(data))
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
    monkeypatch.setattr(demo, "run", lambda arguments, _: seen.append(arguments.training.bf16))
    monkeypatch.setattr(demo.torch.cpu, "_is_avx512_bf16_supported", lambda: is_supported)
    monkeypatch.setattr(demo.torch.cuda, "is_available", lambda: False)
    demo.train_model(recipe, tmp_path / "new", options, overwrite=False, command=["demo"])
    assert seen == [is_supported if expected is None else expected]
