"""The program: its subcommands, what it answers without torch, and its exit status."""

import json
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from io import BytesIO, TextIOWrapper

import pytest
from toy import command, run_python

from vanilla_transformer import __version__
from vanilla_transformer.commands import program
from vanilla_transformer.commands.options import spell_with_hyphens

QUICK = [
    ["--help"],
    ["--version"],
    [],
    ["trian"],
    *([name, "--help"] for name in program.SUBCOMMANDS if name not in ("train", "adapt")),
    ["inspect", "shapes", "--help"],
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
def test_help_needs_no_torch(argv, printed):
    out, lines, heavy = printed[" ".join(argv)]
    assert not heavy
    asked = {"--help", "--version"} & set(argv)
    assert len(lines) == (0 if asked else 1)
    assert all(line.startswith("vanilla-transformer") and ": error: " in line for line in lines)
    assert bool(out) is bool(asked)


WRONG = {
    "": (2, "required: SUBCOMMAND"),
    **{name: (2, f"{name}: error: ") for name in program.SUBCOMMANDS if name != "env"},
    "trian": (2, "did you mean 'train'?"),
    "tokenize": (2, "invalid choice: 'tokenize' (choose from 'train', "),
    "--nonsense": (2, "required: SUBCOMMAND"),
    "train --max-steps 5": (2, "--output-dir is missing"),
    "train recipe.yaml": (2, "'recipe.yaml' must hold one mapping"),
    "translate recipe.yaml a": (1, "does not exist"),
    "translate . a": (1, "holds no config.json"),
    "translate . --input in.txt a": (2, "in --input or in --corpus: one of these"),
    "translate . --resume a": (2, "--resume needs --input and --output"),
    "translate . --corpus x": (2, "--corpus needs --output"),
    "translate . --tsv --json a": (2, "give one"),
    "translate . --batch-tokens 0 a": (2, "0 is below 1"),
    "translate . --generation top_k a": (2, "'top_k' is not NAME=VALUE"),
    "translate . --num-beams": (2, "--num-beams: expected one argument"),
    "translate . --num_bea 2 a": (2, "--num-bea is unknown: did you mean --num-beams?"),
    "score m --source a --target b": (1, "'m' does not exist"),
    "align m --source a --target b --tokens --json": (2, "give --tokens or --json"),
    "align m --source a --target b --resume": (2, "--resume needs --output"),
    "align m --source a --target b --resume --output x --gold y": (2, "give --resume or --gold"),
    "evaluate x/y --max-test-samples 0": (2, "max_test_samples"),
    "evaluate x/y --metrics rouge": (2, "invalid choice: 'rouge'"),
    "evaluate x/y --output .": (1, "exists"),
    "evaluate x/y --compare": (2, "--compare needs two models"),
    "evaluate x/y a/b c": (2, "and files --test-source and --test-target"),
    "evaluate x/y x/y --compare": (1, "name one twice"),
    "evaluate x/y nowhere --compare": (1, "'nowhere' does not exist"),
    "average a b --last 2 --output c": (2, "directory of one run, not 2"),
    "inspect nothing.argosmodel": (1, "'nothing.argosmodel' does not exist"),
    "convert run.pt recipe.yaml --from system-a --heads 2": (1, "is a file"),
    "convert nobody/opus-mt-en-de out": (2, "is no local path: name its kind with --from"),
    "convert run.pt out --from marin": (2, "did you mean 'marian'?"),
    "inspect heds x": (2, "did you mean 'heads'?"),
    "convert run.pt out --from system-a": (2, "--from system-a needs --heads"),
    "convert nowhere.pt out --from fairseq": (1, "nowhere.pt does not exist"),
    "export a b --to argos --languages ../x=X de=German": (2, "'../x=X' is not CODE=NAME"),
    "vocabulary model out": (2, "give --keep-for"),
    "vocabulary model --keep-for a": (2, "OUT is missing"),
    "page no/such/model/here": (1, "does not exist"),
    "serve no/such/model": (1, "The model directory 'no/such/model' does not exist"),
    "serve english=x": (2, "'english' in 'english=x' is not a direction"),
    "serve x x": (2, "the name or the direction of another model"),
}


@pytest.mark.parametrize("words", WRONG)
def test_errors_are_one_line_with_a_status(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("recipe.yaml", "run.pt"):
        (tmp_path / name).write_text("- 1\n")
    try:
        found = program.main(words.split())
    except SystemExit as ended:
        found = ended.code
    error = capsys.readouterr().err
    assert found == WRONG[words][0]
    assert WRONG[words][1] in error
    assert error.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"recipe.yaml", "run.pt"}


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError("a\n  b"), 1, "error: a b"),
        (ValueError("two:\n- a\n- b"), 1, "error: two:\n- a\n- b"),
        (FileNotFoundError(2, "No such file or directory", "x"), 1, "directory: 'x'"),
        (ModuleNotFoundError("The package 'x' is missing"), 1, "error: The package 'x'"),
        (KeyError("lost"), 1, "error: KeyError: 'lost' (`vanilla-transformer --debug"),
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
    with pytest.raises(type(error)):
        program.main(["--debug", "train"])


def test_the_machine_and_its_packages_are_told(capsys):
    assert program.main(["env"]) == 0
    printed = capsys.readouterr().out
    for name in ("torch", "transformers", "sacrebleu"):
        assert f"{name} {version(name)}" in printed
    assert "extras that are installed: train" in printed


def test_options_are_understood_with_hyphens_and_underscores():
    words = ["a_b", "--c_d", "e_f", "--g_h=i_j", "-k_l", "--", "--m_n"]
    assert spell_with_hyphens(words) == ["a_b", "--c-d", "e_f", "--g-h=i_j", "-k_l", "--", "--m_n"]


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
