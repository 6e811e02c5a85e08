"""The program: its subcommands, what it answers without torch, and its exit status."""

import io
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
import torch
from programs import REPOSITORY, run_python

from vanilla_transformer.command_line import told_when_slow
from vanilla_transformer.commands import program

QUICK = [
    ["--help"],
    ["--version"],
    ["trian"],
    *([name, "--help"] for name in program.SUBCOMMANDS if name != "train"),
    ["inspect", "shapes", "--help"],
    *([name, "--outputdir", "x", "--max-step", "5"] for name in ("train", "prepare")),
    ["train", "pairs.tsv", "--output-dir", "x"],
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


WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a torch without a GPU")
WRONG = {
    2: (
        *(name for name in program.SUBCOMMANDS if name != "env"),
        "trian",
        "--nonsense",
        "train --max-steps 5",
        "train recipe.yaml",
        "translate . --input in.txt a",
        "translate . --corpus x",
        "translate . --tsv --json a",
        "translate . --batch-tokens 0 a",
        "translate . --generation top_k a",
        "translate . --num_bea 2 a",
        "serve . --port 99999",
        "evaluate x/y --max-test-samples 0",
        "average a b --last 2 --output c",
        "convert nobody/opus-mt-en-de out",
        "convert run.pt out --from marin",
        "convert run.pt out --from system-a",
        "export a b --to argos --languages ../x=X de=German",
        "vocabulary model out",
        "serve english=x",
        "serve x x",
    ),
    1: (
        "translate recipe.yaml a",
        "translate nobody/nothing a",
        "translate . a",
        "evaluate x/y --output .",
        "evaluate x/y nowhere",
        "inspect nothing.argosmodel",
        "convert run.pt recipe.yaml --from system-a --heads 2",
        "convert nowhere.pt out --from fairseq",
        "serve no/such/model",
    ),
}
"""Words by the status with which the program ends."""


@pytest.mark.parametrize(
    ("words", "status"), [(words, status) for status in WRONG for words in WRONG[status]]
)
def test_errors_are_one_line_with_a_status(words, status, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("recipe.yaml", "run.pt"):
        (tmp_path / name).write_text("- 1\n")
    try:
        found = program.main(words.split())
    except SystemExit as ended:
        found = ended.code
    error = capsys.readouterr().err
    assert (found, error.count("\n")) == (status, 1)
    assert ": error: " in error
    assert {path.name for path in tmp_path.iterdir()} == {"recipe.yaml", "run.pt"}


def test_a_name_alone_shows_the_subcommands(capsys):
    with pytest.raises(SystemExit, match="0"):
        program.main([])
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in program.SUBCOMMANDS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("translate PRONOUNCE --target de a", "--target-language"),
        ("translate PRONOUNCEE a", "PRONOUNCE"),
        ("translate PRONOUNCE/config.json a", "it is a file"),
        ("translate PRONOUNCE PRONOUNCE/config.json", "give it by --input (lines) or --document"),
        ("translate PRONOUNCE --document .", "A directory, where a file is needed: '.'"),
        ("translate PRONOUNCE a --compute-type int4", "'int8'"),
        pytest.param("translate PRONOUNCE a --device cuda", "no such GPU", marks=WITHOUT_GPU),
    ],
)
def test_an_error_names_what_was_meant(words, told, capsys):
    model = str(REPOSITORY / "model_cards" / "pronounce")
    assert program.main(words.replace("PRONOUNCE", model).split()) in (1, 2)
    assert told.replace("PRONOUNCE", f"{model}'") in capsys.readouterr().err


TOLD_EARLY = (
    "translate runs/nothing a",
    "translate TEXTS --target-language xx a",
    "translate TEXTS --source-language ja --target-language de a",
    "translate TEXTS a",
    "translate WORDS --input no.txt",
    "translate WORDS --input full",
    "translate WORDS --memory no.tsv --input pairs.tsv",
    "translate TEXTS --target-language de --memory list.tsv --input pairs.tsv",
    "translate WORDS --document pairs.tsv --output no/out.tsv",
    "translate WORDS --document pairs.tsv",
    "translate WORDS a --glossary no.tsv",
    "translate WORDS a --glossary list.tsv",
    "translate WORDS --corpus pairs.tsv --output full",
    "evaluate WORDS WORDS runs/nothing --test-file pairs.tsv",
    "evaluate WORDS --test-file pairs.tsv --output pairs.tsv",
    "evaluate WORDS --test-file no.tsv",
    "evaluate WORDS --test-file full",
    "evaluate WORDS",
    "evaluate TEXTS --test-file pairs.tsv --target-language xx",
    "score WORDS --source pairs.tsv --target no.txt",
    "score WORDS --source pairs.tsv --target full",
    "score TEXTS --source pairs.tsv --target pairs.tsv --target-language ko",
    "align WORDS --source pairs.tsv --target pairs.tsv --output pairs.tsv",
    "export WORDS full --to onnx",
    "export WORDS out --to browser --runtime full",
    "vocabulary full out --keep-for pairs.tsv",
    "vocabulary WORDS out --keep-for no.txt",
    "vocabulary WORDS out --keep-for full",
    "vocabulary WORDS full --add-tokens x",
    "average runs/nothing WORDS --output out",
    "average WORDS WORDS --output full",
    "average runs/nothing --last 2 --output out",
    "convert no.pt out",
    "convert no.pt out --from fairseq",
    "convert WORDS full",
    "inspect no.pt",
    "inspect shapes runs/nothing",
    "inspect heads WORDS --source no.txt --target pairs.tsv",
    "inspect attention WORDS --text a --output maps.doc",
    "page WORDS runs/nothing",
    "serve en-de=runs/nothing",
    "serve WORDS --glossary a=no.tsv",
    "serve WORDS --glossary a=list.tsv",
    "corpora no.yaml",
    "corpora recipe.yaml",
    "prepare recipe.yaml --output-dir out",
    "prepare no.yaml --output-dir out",
    "train no.yaml --output-dir out",
    "train recipe.yaml --output-dir out",
    "train --train-file no.tsv --output-dir out",
    "train --train-file full --output-dir out",
    "train --train-file pairs.tsv",
    "train --output-dir out",
    "train --train-file pairs.tsv --output-dir out --target-language xx",
    "train --train-source pairs.tsv --output-dir out",
    "train --train-file pairs.tsv --output-dir full",
    "train --train-file pairs.tsv --output-dir out --model-name-or-path full",
    "train --train-file pairs.tsv --output-dir out --resume-from-checkpoint full",
    "adapt runs/nothing pairs.tsv --output-dir out",
    "adapt WORDS no.tsv --output-dir out",
    "adapt WORDS full --output-dir out",
    "adapt WORDS pairs.tsv --general-texts no.txt --output-dir out",
    "adapt WORDS pairs.tsv --general-texts full --output-dir out",
    "adapt WORDS pairs.tsv --output-dir full",
    "adapt WORDS recipe.yaml --output-dir out",
    "adapt TEXTS pairs.tsv --target-language xx --output-dir out",
    "distil runs/nothing pairs.tsv --output-dir out",
    "distil WORDS no.txt --output-dir out",
    "distil WORDS full --output-dir out",
    "distil WORDS pairs.tsv --test no.tsv --output-dir out",
    "distil TEXTS pairs.tsv --target-language ko --output-dir out",
    "distil WORDS full/mine.txt --output-dir full",
)
"""Words that are wrong in a path, a file, a language or a directory: this needs no model."""


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """What each of `TOLD_EARLY` prints, and whether torch has been imported then."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "full").mkdir()
    (folder / "full" / "mine.txt").write_text("Hello\n")
    (folder / "pairs.tsv").write_text("Hello\tHallo\n")
    (folder / "list.tsv").write_text("Hello, Hallo\n")
    (folder / "recipe.yaml").write_text("corpora: [{train: pairs.tsv}, {train: no.tsv}]\n")
    cards = {"WORDS": "pronounce", "TEXTS": "program-texts"}
    paths = {name: str(REPOSITORY / "model_cards" / card) for name, card in cards.items()}
    commands = [[paths.get(word, word) for word in words.split()] for words in TOLD_EARLY]
    done = run_python("-c", ALL_IN_TURN, json.dumps(commands), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len([*folder.iterdir()]) == 4
    return dict(zip(TOLD_EARLY, json.loads(done.stdout).values(), strict=True))


@pytest.mark.parametrize("words", TOLD_EARLY)
def test_what_needs_no_model_is_told_before_torch_is_imported(words, refused):
    out, lines, heavy = refused[words]
    assert not {"torch", "datasets"} & {*heavy}
    assert (out, len(lines)) == ("", 1)
    assert lines[0].startswith(f"vanilla-transformer {words.split()[0]}: error: ")


@pytest.mark.parametrize(("seconds", "told"), [(0.0, "Loading ...\n"), (60.0, "")])
def test_a_person_at_a_terminal_reads_why_nothing_happens(seconds, told, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with told_when_slow("Loading ...", seconds):
        time.sleep(0.2)
    assert terminal.getvalue() == told


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("trian", "did you mean train?"),
        ("train pairs.tsv", "--train-file"),
        ("translate runs a", "runs/one, runs/two"),
        ("translate runs/nothing a", "'runs/nothing', and the Hub"),
        ("train --train-file pairs.csv --output-dir x", "`source_column`"),
        (f"translate {REPOSITORY}/model_cards/pronounce --memory pairs.csv a", "after `--`"),
        (
            f"translate {REPOSITORY}/model_cards/pronounce --corpus pairs.csv --output out "
            "--memory no.tsv",
            "No such file",
        ),
        (f"evaluate {REPOSITORY}/model_cards/pronounce", "`test_file`"),
    ],
)
def test_an_error_names_what_to_give(words, remedy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text("{}")
    (tmp_path / "pairs.csv").write_text("foo,bar\nHello,Merhaba\n")
    try:
        status = program.main(words.split())
    except SystemExit as ended:
        status = ended.code
    assert status
    assert remedy in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError("a\n  b"), 1, "error: a b"),
        (FileNotFoundError(2, "No such file or directory", "x"), 1, "directory: 'x'"),
        (KeyError("lost"), 1, "error: KeyError: 'lost' (with --verbose"),
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
        program.main(["train", "--verbose"])


def test_the_machine_and_its_packages_are_told(capsys):
    assert program.main(["env"]) == 0
    printed = capsys.readouterr().out
    for name in ("torch", "transformers", "sacrebleu"):
        assert f"{name} {version(name)}" in printed
    assert "extras that are installed: train" in printed


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
    assert program.main(["average", str(model), "--output", str(tmp_path / "mean")]) == 0
    assert b"\\u2581run" in stream.getvalue()
