"""The program: its subcommands, what it answers without torch, and its exit status."""

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

QUICK = [
    ["--help"],
    ["--version"],
    [],
    ["trian"],
    *([name, "--help"] for name in program.SUBCOMMANDS if name != "train"),
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
    "trian": (2, "invalid choice: 'trian' (choose from 'train', "),
    "--nonsense": (2, "required: SUBCOMMAND"),
    "inspect": (2, "required: VIEW"),
    "inspect colours": (2, "invalid choice: 'colours'"),
    "average a b --last 2 --output c": (2, "directory of one run, not 2"),
    "average a --last 0 --output c": (2, "--last: 0 is below 1"),
    "average a --best -2 --output c": (2, "--best: -2 is below 1"),
    "average a b --output c --metric bleu": (2, "--metric and --greater-is-better have no effect"),
    "inspect nothing.argosmodel": (1, "'nothing.argosmodel' does not exist"),
    "inspect runs/nothing": (1, "'runs/nothing' does not exist"),
    "inspect shapes m --text a --target b c": (2, "the same number"),
    "inspect attention m --text a --layer x": (2, "--layer: invalid int value: 'x'"),
    "convert run.pt recipe.yaml --from system-a --heads 2": (1, "is a file"),
    "convert run.pt out --from system-a --heads 0": (2, "--heads: 0 is below 1"),
    "convert run.pt out --from system-z --heads 2": (2, "--from: invalid choice: 'system-z'"),
    "convert nobody/opus-mt-en-de out": (2, "is no local path: name its kind with --from"),
    "convert run.pt out --from system-a": (2, "--from system-a needs --heads"),
    "convert run.pt out --from torch --heads 4": (2, "needs --source-embedding, --target-emb"),
    "convert run.pt out --from bart --heads 2": (2, "--from bart does not take --heads"),
    "convert run.pt out --from fairseq --run-code": (2, "does not take --run-code"),
    "convert nowhere.pt out --from fairseq": (1, "'nowhere.pt' does not exist"),
    "convert nowhere.pt out --from opennmt-py": (1, "'nowhere.pt' does not exist"),
    "convert nowhere.pt out --from eole": (1, "'nowhere.pt' does not exist"),
    "convert /nowhere out --from bart": (1, "'/nowhere' does not exist"),
    "export m out --to hf --quantization int8": (2, "is for ctranslate2, argos, onnx, not for"),
    "export m out --to onnx --positions 9": (2, "is for hf, ctranslate2, argos, not for"),
    "export m out --to hf --sentencepiece sp.model": (2, "is for argos, not for --to hf"),
    "export m out --to onnx --quantization int16": (2, "int16 is for ctranslate2 and argos"),
    "export a b --to argos --languages ../x=X de=German": (2, "'../x=X' is not CODE=NAME"),
    "convert run.pt out --from system-a --heads 2 --set dropout": (2, "dropout"),
    "convert run.pt out --from system-a --heads 2 --source-pad -1": (2, "--source-pad: -1"),
    "train recipe.yaml": (2, "'recipe.yaml' must hold one mapping"),
    "translate recipe.yaml a": (1, "is a file: give the directory"),
    "translate . a": (1, "holds no config.json"),
    "translate . --input in.txt a": (2, "not both"),
    "translate . --resume a": (2, "--resume needs --input and --output"),
    "translate . --resume --input x --output y.gz": (2, "packed file"),
    "translate . --resume --input x --output y --n-best 2": (2, "needs --json"),
    "translate . --candidates 4 a": (2, "--candidates needs --minimum-risk"),
    "translate . --ensemble-with x --compute-type int8": (2, "no --ensemble-with"),
    "translate . --num-proc 2 a": (2, "need --corpus"),
    "translate . --corpus x": (2, "--corpus needs --output"),
    "translate . --corpus x --output y --resume": (2, "goes on where it was"),
    "translate . --corpus x --output y --input z": (2, "lines in --corpus, or"),
    "translate . --corpus x x --output y": (2, "given twice"),
    "translate . --corpus x --output y --n-best 2": (2, "needs --json"),
    "translate . --corpus x --output y --num-proc 999": (2, "this machine has"),
    "translate . --corpus x --output y --num-proc 1 --scheduler s": (2, "of its own"),
    "translate . --batch-tokens 0 a": (2, "0 is below 1"),
    "translate . --generation top_k a": (2, "'top_k' is not NAME=VALUE"),
    "translate . --generation suppress_tokens=null a": (2, "changes nothing: leave it out"),
    "translate . --num_beams 0 a": (2, "--num-beams: 0 is below 1"),
    "translate . --top_k -1 a": (2, "--top-k: -1 is below 0"),
    "translate . --seed 1.5 a": (2, "--seed: invalid int value: '1.5'"),
    "translate . --num-beams": (2, "--num-beams: expected one argument"),
    "translate . --num_bea 2 a": (2, "--num-bea is unknown: did you mean --num-beams?"),
    "translate . --top-p 1.5 a": (2, "not above 0 and at most 1"),
    "translate . --temperature nan a": (2, "not a finite number above 0"),
    "translate . --length-penalty inf a": (2, "not a finite number"),
    "evaluate x/y --max-test-samples 0": (2, "max_test_samples"),
    "evaluate x/y --batch-size 1e3": (2, "the option --batch-size is unknown"),
    "evaluate x/y --max_new_tokens -1": (2, "--max-new-tokens: -1 is below 1"),
    "evaluate x/y --metrics rouge": (2, "invalid choice: 'rouge'"),
    "evaluate x/y --test-source nowhere": (1, "`test_source`"),
    "evaluate x/y --output .": (1, "is a directory"),
    "evaluate x/y --compare": (2, "--compare needs two models"),
    "evaluate x/y a/b": (2, "several models need --compare"),
    "evaluate x/y x/y --compare": (2, "names a model twice"),
    "evaluate x/y --html page.html": (2, "--html needs --compare"),
    "evaluate x/y a/b --compare --html .": (1, "`--html` "),
    "align m --source a --target b --tokens --json": (2, "give --tokens or --json"),
    "align m --source a --target b --resume": (2, "--resume needs --output"),
    "align m --source a --target b --resume --output x --gold y": (2, "give --resume or --gold"),
    "vocabulary model out": (2, "give --keep-for"),
    "vocabulary model out --keep-for a --add-tokens b": (2, "give --keep-for"),
    "vocabulary model out --add-for a": (2, "--add-for and --add go together"),
    "vocabulary model out --add-tokens a --keep-frequent 3": (2, "go with --keep-for"),
    "vocabulary model --keep-for a": (2, "OUT is missing"),
    "page no/such/model/here": (1, "does not exist"),
    "page x/y x/y": (2, "a model is given twice"),
    "page x/y --port 70000": (2, "--port 70000: give 1 to 65535"),
    "page x/y --host 203.0.113.7": (1, "cannot listen at '203.0.113.7'"),
    "serve": (2, "the following arguments are required: MODEL"),
    "serve no/such/model": (1, "The model directory 'no/such/model' does not exist"),
    "serve =x": (2, "names no model"),
    "serve english=x": (2, "'english' in 'english=x' is not a direction"),
    "serve pt-BR-en=x": (2, "write a colon between the two codes"),
    "serve x x": (2, "the name or the direction of another model"),
    "serve x --port 70000": (2, "--port: 70000 is above 65535"),
    "serve x --queue-size 0": (2, "0 is below 1"),
    "serve x --timeout nan": (2, "nan is not a finite number"),
    "serve x --api-keys no-file": (1, "No such file"),
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
