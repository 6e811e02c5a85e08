"""Every code block of the README and of docs/ runs, or its options are checked.

Blocks run as printed, in a folder that holds toy data and toy models under the names of the pages.
Not run are installations, trainings and other experiments that take long, and what starts several
processes: of these, options and files are checked.
"""

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from pages import NOT_RUN, PAGES, blocks
from programs import REPOSITORY

from vanilla_transformer.commands.program import main, parse
from vanilla_transformer.commands.train import DRY_RUN
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.run.arguments import parse_arguments

pytest_plugins = ["workspace"]
RECIPES = sorted((REPOSITORY / "scripts" / "recipes").glob("*.yaml"))
ADDRESS = "127.0.0.1:8000"
SCRIPT = re.compile(r"scripts/experiments/(\w+)\.py")


def pages_with(*languages):
    found = [page for page in PAGES if any(block.language in languages for block in blocks(page))]
    return pytest.mark.parametrize("page", found, ids=lambda page: page.stem)


@pages_with("python")
def test_python_blocks_run_in_order(page, workspace, monkeypatch, request):
    monkeypatch.chdir(workspace)
    namespace = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "python" and block.mark is None:
            exec(compile(with_server(block.code, request), str(page), "exec"), namespace)


@pages_with("bash")
def test_bash_blocks_run_in_order(page, workspace, monkeypatch, capsys, request):
    monkeypatch.chdir(workspace)
    for block in blocks(page):
        if block.language == "bash" and block.mark is None:
            loops = re.search("^for ", block.code, re.MULTILINE)
            for line in [block.code] if loops else commands_of(block.code):
                run_command(with_server(line, request))


def with_server(code, request):
    """Leads what asks the server of the pages to one that runs."""
    if ADDRESS not in code:
        return code
    return code.replace(ADDRESS, f"127.0.0.1:{request.getfixturevalue('page_server').port}")


def commands_of(code):
    """The command lines of a block: continued lines are joined, comments are dropped."""
    lines = code.replace("\\\n", " ").splitlines()
    return [line.split("  # ")[0].strip() for line in lines if line.strip()]


def run_command(line):
    """Runs a line, or checks its options where running it would take long."""
    words = [word for word in shlex.split(line) if not word.startswith(("TRANSFORMERS=", "TORCH_"))]
    match words:
        case ["vanilla-transformer", "serve", *options]:  # the pages ask the server of a fixture
            assert parse("serve", options).models
        case ["curl", *_]:
            done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
            assert done.stdout
            assert '"error"' not in done.stdout
        case ["vanilla-transformer", "train", *options]:
            check_training_options([word for word in options if word not in DRY_RUN])
        case ["vanilla-transformer", "distil", *options]:
            parse("distil", options)
        case ["vanilla-transformer", "page", *options]:  # it would run until Ctrl-C
            parse("page", options)
        case ["vanilla-transformer", *options]:
            assert not main(options)
        case ["cat", file, "|", "vanilla-transformer", *options] | [
            "head",
            "-n",
            _,
            file,
            "|",
            "vanilla-transformer",
            *options,
        ]:
            with open(file) as stream, pytest.MonkeyPatch.context() as patch:
                patch.setattr("sys.stdin", stream)
                assert not main(options)
        case ["accelerate", "launch", *options] if "adapt" in options:
            parse("adapt", options[options.index("adapt") + 1 :])
        case ["accelerate", "launch", *options]:
            launch_file, script = Path(options[1]), options.index("scripts/train.py")
            assert options[0] == "--config_file"
            assert launch_file.is_file()
            check_training_options(options[script + 1 :])
        case ["torchrun", *options]:
            check_training_options(options[options.index("scripts/train.py") + 1 :])
        case ["python", script, *options] if found := SCRIPT.fullmatch(script):
            check_experiment(found[1], options)
        case ["python", "-m", "pytest", *options]:
            paths = [word for word in options if "/" in word]
            assert paths
            assert all((REPOSITORY / path).exists() for path in paths)
        case ["sacrebleu", *options]:
            subprocess.run([sys.executable, "-m", "sacrebleu", *options], check=True, timeout=60)
        case ["cd", _, "&&", "sha256sum", *_]:
            subprocess.run(["bash", "-ec", line], check=True, timeout=60)
        case ["python", script, *_] | ["bash", script, *_]:
            assert (REPOSITORY / script).is_file()
        case ["pip", "install", package, *_]:
            assert set(re.findall(r"[\w]+", package)) <= extras()
        case [
            "awk" | "cat" | "echo" | "for" | "head" | "mkdir" | "printf" | "paste" | "sed" | "tail",
            *_,
        ]:
            subprocess.run(["bash", "-ec", line], check=True, timeout=60)
        case _:
            pytest.fail(f"The test does not know how to check {line!r}: add a case.")


def check_training_options(options):
    """Parses the options of a training, and makes the config that they ask for."""
    if "--output_dir" not in options:
        options = [*options, "--output_dir", "runs/x"]
    arguments = parse_arguments(options)
    VanillaTransformerConfig(**arguments.architecture)


def check_experiment(name, options):
    """Looks up each option in the help text of the experiment."""
    module = importlib.import_module(name)
    subcommand = [word for word in options[:1] if not word.startswith("-")]
    help_text = StringIO()
    with redirect_stdout(help_text), pytest.raises(SystemExit):
        module.main([*subcommand, "--help"])
    known = help_text.getvalue().replace("-", "_")
    for option in options:
        if option.startswith("--"):
            assert option.replace("-", "_") in known, option


def extras():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


def test_every_block_has_a_language_and_every_mark_a_reason():
    for page in PAGES:
        for block in blocks(page):
            assert block.language in ("python", "bash", "yaml", "js", "text"), block.code
            assert block.mark is None or block.mark in NOT_RUN


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_are_legal(recipe, tmp_path):
    arguments = parse_arguments([str(recipe), "--output_dir", str(tmp_path)])
    VanillaTransformerConfig(**arguments.architecture)
