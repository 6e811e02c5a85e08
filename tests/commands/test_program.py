"""The program: its subcommands, what it answers before it imports torch, and its exit status."""

import json
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from io import BytesIO, TextIOWrapper

import pytest
from toy import command, run_python

from vanilla_transformer import __version__
from vanilla_transformer.commands import program
from vanilla_transformer.commands.options import spell_with_hyphens
from vanilla_transformer.interop.formats import SOURCES
from vanilla_transformer.interop.tutorials import SYSTEMS

QUICK = [
    ["--help"],
    ["--version"],
    [],
    ["trian"],
    *([name, "--help"] for name in program.SUBCOMMANDS),
    ["inspect", "shapes", "--help"],
    ["translate", "model", "--num-beans", "2"],
    ["evaluate", "./nowhere", "--test-source", "a"],
    ["train", "nowhere.yaml"],
    ["train", "--train_source", "nowhere.txt"],
    ["average", "nowhere/a", "--last", "2", "--output", "mean"],
    ["vocabulary", "some/model", "out", "--keep-for", "nowhere.txt"],
    ["convert", "nowhere.pt", "out", "--from", "system-a", "--heads", "2"],
    ["inspect", "attention", "/nowhere", "--text", "a"],
    ["translate", "some/model", "--input", "nowhere.txt"],
    ["translate", "mdel", "a dog"],
    ["score", "some/model", "--source", "nowhere.txt", "--target", "b"],
    ["align", "some/model", "--source", "a", "--target", "b", "--gol", "c"],
    ["align", "some/model", "--source", "nowhere.txt", "--target", "b"],
    ["inspect", "heads", "some/model", "--source", "nowhere.txt", "--target", "b"],
    ["inspect", "cost", "some/model", "--bach", "2"],
    ["export", "/nowhere", "out", "--to", "hf"],
    ["verify", "some/model"],
    ["page", "some/model", "--prot", "1"],
    ["serve", "en-de=some/model", "--api-keys", "nowhere.txt"],
]
ALL_IN_TURN = """
import io, json, runpy, sys
from contextlib import redirect_stderr, redirect_stdout
found, sys.orig_argv = {}, ["python", "-m", "vanilla_transformer"]
for words in json.loads(sys.argv[1]):
    sys.argv, out, err = ["-m", *words], io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            runpy.run_module("vanilla_transformer", run_name="__main__", alter_sys=True)
    except SystemExit:
        pass
    heavy = {"torch", "transformers", "datasets", "numpy"} & set(sys.modules)
    found[" ".join(words)] = [out.getvalue(), err.getvalue().splitlines(), sorted(heavy)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each quick command prints, and which heavy libraries have been imported then."""
    folder = tmp_path_factory.mktemp("quick")
    done = run_python("-c", ALL_IN_TURN, json.dumps(QUICK), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())
    return json.loads(done.stdout)


@pytest.mark.parametrize("argv", QUICK, ids=" ".join)
def test_help_and_wrong_usage_need_no_torch(argv, printed):
    out, lines, heavy = printed[" ".join(argv)]
    assert not heavy
    asked = {"--help", "--version"} & set(argv)
    assert len(lines) == (0 if asked else 1)
    assert all(line.startswith("vanilla-transformer") and ": error: " in line for line in lines)
    assert bool(out) is bool(asked)


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        ([], 2, "give a subcommand: train, "),
        (["trian"], 2, "unknown subcommand 'trian': did you mean 'train'?"),
        (["xyz"], 2, "unknown subcommand 'xyz': choose from train, "),
        (["inspect"], 2, "required: VIEW"),
        (["inspect", "colours"], 2, "invalid choice: 'colours'"),
        (["average", "a", "b", "--last", "2", "--output", "c"], 2, "directory of one run, not 2"),
        (["inspect", "shapes", "m", "--text", "a", "--target", "b", "c"], 2, "the same number"),
        (["translate", __file__, "a"], 1, "is a file: give the directory"),
        (["translate", ".", "a"], 1, "holds no config.json"),
        (["convert", __file__, __file__, "--from", "system-a", "--heads", "2"], 1, "is a file"),
        (["train", "recipe.yaml"], 1, "'recipe.yaml' must hold one mapping"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_errors_are_one_line_with_a_status(argv, status, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text("- 1\n")
    try:
        found = program.main(argv)
    except SystemExit as ended:
        found = ended.code
    error = capsys.readouterr().err
    assert found == status
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError("a\n  b"), 1, "error: a b"),
        (ValueError("two:\n- a\n- b"), 1, "error: two:\n- a\n- b"),
        (FileNotFoundError(2, "No such file or directory", "x"), 1, "directory: 'x'"),
        (ModuleNotFoundError("The package 'x' is missing"), 1, "error: The package 'x'"),
        (KeyError("lost"), 1, "error: KeyError: 'lost' (add --debug for the traceback)"),
        (KeyboardInterrupt(), 130, "train: interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_goes_wrong_at_work(error, status, message, monkeypatch, capsys):
    def fail(*_):
        raise error

    monkeypatch.setattr(program, "run_subcommand", fail)
    assert program.main(["train"]) == status
    assert message in capsys.readouterr().err
    for argv in (["train", "--debug"], ["--debug", "train"]):
        with pytest.raises(type(error)):
            program.main(argv)
    assert program.main(["translate", "model", "--", "--debug"]) == status


def test_the_debug_option_of_the_trainer_stays(monkeypatch):
    seen = []
    monkeypatch.setattr(program, "run_subcommand", lambda *words: seen.append(words))
    program.main(["train", "--debug", "underflow_overflow", "--seed", "1", "--debug"])
    assert seen == [("train", ["--debug", "underflow_overflow", "--seed", "1"])]


def test_options_are_understood_with_hyphens_and_underscores():
    words = ["a_b", "--c_d", "e_f", "--g_h=i_j", "-k_l", "--", "--m_n"]
    assert spell_with_hyphens(words) == ["a_b", "--c-d", "e_f", "--g-h=i_j", "-k_l", "--", "--m_n"]


def test_names_that_stand_in_for_heavy_modules():
    assert {name for name in SOURCES if name.startswith("system-")} == set(SYSTEMS)


def test_the_version(capsys):
    with pytest.raises(SystemExit):
        program.main(["--version"])
    assert capsys.readouterr().out.startswith(f"vanilla-transformer {__version__} (Python 3.")


def test_an_interrupt_ends_the_program(trained, tmp_path):
    """The first of several interrupts counts; the others fall into the interpreter's end."""
    (tmp_path / "lines").write_text("a dog\n" * 100_000, encoding="utf-8")
    argv = [sys.executable, "-m", "vanilla_transformer", "translate", str(trained)]
    argv += ["--input", str(tmp_path / "lines")]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    # A shell starts its jobs in the background with interrupts ignored, and they are inherited.
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(argv, text=True, preexec_fn=listen, **pipes) as process:
        assert process.stdout.readline()  # the program is up, and works
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert process.returncode == 130
        assert "vanilla_transformer/commands" not in process.stderr.read()


def test_characters_that_the_output_lacks_are_escaped(trained, tmp_path, monkeypatch):
    """As where Windows leads the output into a file."""
    model, stream = tmp_path / "\u2581run", BytesIO()
    shutil.copytree(trained, model)
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(stream, encoding="cp1252"))
    assert program.main(["verify", str(model)]) == 0
    assert b"\\u2581run" in stream.getvalue()


def test_a_model_that_is_not_to_be_had_is_one_line(tmp_path):
    done = command("translate", "nobody/nothing", "a dog", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "'nobody/nothing'" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["verify"], ["vocabulary", "--add-tokens", "<2de>"]])
def test_files_that_load_in_a_moment_have_no_bars(trained, tmp_path, words):
    name, *options = words
    made = [tmp_path / "made"] if options else []
    done = command(name, trained, *made, *options)
    assert done.returncode == 0, done.stderr
    assert "%|" not in done.stderr
