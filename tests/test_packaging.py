"""What is imported is declared, and the wheel works in an environment that holds nothing else."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions

import pytest
import torch
from toy import REPOSITORY, arguments, run_python

from vanilla_transformer import __version__
from vanilla_transformer.extras import EXTRAS

PACKAGE = REPOSITORY / "vanilla_transformer"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE_ROOMS = {"model", "inference", "inspection", "interop", "commands", "page", "serving"}
BASE_FILES = {  # of the rooms that otherwise need the extra `train`
    "data/__init__.py",
    "data/arguments.py",
    "data/corpus_entries.py",
    "data/filters.py",
    "data/tmx.py",
    "data/file_contents.py",
    "data/model_directory.py",
    "data/text_files.py",
    "run/__init__.py",
    "run/options.py",
    "run/recipes.py",
    "training/__init__.py",
}


FILES_OF_EXTRAS = {  # imported only where the extra is installed
    "ctranslate2": {"interop/ctranslate2.py", "inference/ctranslate2_engine.py"},
    "onnx": {"interop/onnx.py"},
    "page": {"page/app.py", "page/events.py", "page/components.py"},
    "serve": {
        f"serving/{name}.py"
        for name in (
            "batching",
            "bodies",
            "connections",
            "errors",
            "generation_routes",
            "guard",
            "libretranslate",
            "models",
            "monitoring",
            "server",
            "service",
        )
    },
}


def is_base(path):
    inside = path.relative_to(PACKAGE)
    if is_of_extra(path):
        return False
    return len(inside.parts) == 1 or inside.parts[0] in BASE_ROOMS or str(inside) in BASE_FILES


def is_of_extra(path):
    return str(path.relative_to(PACKAGE)) in set().union(*FILES_OF_EXTRAS.values())


FILES = sorted(PACKAGE.rglob("*.py"))
BASE = [path for path in FILES if is_base(path)]


def distribution(requirement):
    """The name of a requirement, as package indexes compare names."""
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def declared(*extras):
    """The distributions that the package requires, with those of the extras."""
    found, waiting = {distribution(text) for text in PROJECT["dependencies"]}, list(extras)
    while waiting:
        for text in PROJECT["optional-dependencies"][waiting.pop()]:
            if distribution(text) == PROJECT["name"]:
                waiting += re.search(r"\[(.*)\]", text)[1].split(",")
            found.add(distribution(text))
    return found


def handles_its_absence(node):
    """Whether what a block imports may be missing: it is for type checkers, or reported."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.dump(node.test)
    if isinstance(node, ast.Try):
        return any("ImportError" in ast.dump(handler.type) for handler in node.handlers)
    return isinstance(node, ast.With) and "optional_packages" in ast.dump(node.items[0])


def modules_imported(node, needed=True):
    """(top-level name, whether it is needed) of every import in a syntax tree."""
    if isinstance(node, ast.Import):
        yield from ((alias.name.partition(".")[0], needed) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        yield node.module.partition(".")[0], needed
    for child in ast.iter_child_nodes(node):
        yield from modules_imported(child, needed and not handles_its_absence(node))


def distributions_imported(paths):
    """(distribution, whether it is needed) of what files import from outside."""
    own = {
        name
        for folder in ("tests", "scripts")
        for path in (REPOSITORY / folder).rglob("*.py")
        for name in (path.stem, path.parent.name)
    }
    own |= {PACKAGE.name} | set(sys.stdlib_module_names)
    names = packages_distributions()
    for path in paths:
        for module, needed in modules_imported(ast.parse(path.read_text(encoding="utf-8"))):
            if module not in own:
                yield names.get(module, [module])[0].lower().replace("_", "-"), needed


def test_the_base_needs_only_what_a_plain_install_brings():
    needed = {name for name, is_needed in distributions_imported(BASE) if is_needed}
    assert needed == declared()


def test_training_needs_only_its_extra():
    files = [path for path in FILES if not is_of_extra(path)]
    needed = {name for name, is_needed in distributions_imported(files) if is_needed}
    assert needed == declared("train") - {PROJECT["name"]}


@pytest.mark.parametrize("extra", FILES_OF_EXTRAS)
def test_the_files_of_an_extra_need_only_that_extra(extra):
    files = [PACKAGE / name for name in FILES_OF_EXTRAS[extra]]
    needed = {name for name, is_needed in distributions_imported(files) if is_needed}
    assert needed <= declared(extra)


PEERS = {"onmt", "opennmt-py", "eole"}
"""What a conversion compares its result with where it is installed. OpenNMT-py asks for an older
torch and Eole for much else, so no extra installs them."""


def test_what_may_be_missing_is_in_an_extra():
    everything = [*FILES, *REPOSITORY.glob("scripts/**/*.py"), *REPOSITORY.glob("tests/**/*.py")]
    imported = {name for name, _ in distributions_imported(everything)}
    assert imported <= declared(*PROJECT["optional-dependencies"]) | PEERS


def test_the_table_of_extras_is_that_of_the_project():
    """`extras.py` names modules, pyproject.toml names distributions."""
    names = packages_distributions()
    for extra, modules in EXTRAS.items():
        listed = {distribution(text) for text in PROJECT["optional-dependencies"][extra]}
        found = {names[module][0].lower().replace("_", "-") for module in modules}
        assert found == listed - {PROJECT["name"]}, extra


WITHOUT_EXTRAS = """
import sys
from vanilla_transformer.extras import EXTRAS
for packages in EXTRAS.values():
    for package in set(packages) - {"numpy"}:  # transformers needs it itself
        sys.modules[package] = None
"""


def test_the_base_imports_without_the_extras():
    modules = [
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        for path in BASE
        if path.stem not in ("__init__", "__main__")
    ]
    # The package itself comes before: transformers asks once which packages there are.
    program = f"{WITHOUT_EXTRAS}\nfrom importlib import import_module\n"
    program += f"for name in {modules}: import_module(name)\nprint('imported')"
    done = run_python("-c", program)
    assert done.stdout == "imported\n", done.stderr[-2000:]


MISSING = {  # words of a subcommand: package, extra
    "train --output_dir out": ("accelerate", "train"),
    "evaluate runs/x --dataset_name x": ("accelerate", "train"),
    "page runs/x": ("gradio", "page"),
    "average . --last 2 --output out": ("accelerate", "train"),
    "inspect attention runs/x --text a --output x.png": ("matplotlib", "plot"),
    "serve runs/x": ("babel", "serve"),
}


def test_a_missing_extra_is_one_line(tmp_path):
    program = f"{WITHOUT_EXTRAS}\nfrom vanilla_transformer.commands.program import main\n"
    program += f"print(*(main(words.split()) for words in {list(MISSING)}))"
    done = run_python("-c", program, cwd=tmp_path)
    assert done.stdout.split() == ["1"] * len(MISSING), done.stderr
    assert done.stderr.splitlines() == [
        f"vanilla-transformer {words.split()[0]}: error: The package '{package}' is not "
        f'installed. In the clone of the repository, type: pip install ".[{extra}]"'
        for words, (package, extra) in MISSING.items()
    ]
    assert not list(tmp_path.iterdir())


LOAD_AND_GENERATE = """
import sys
import vanilla_transformer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
assert "site-packages" in vanilla_transformer.__file__, vanilla_transformer.__file__
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = model.generate(**tokenizer(["a dog sees a cat ."], return_tensors="pt"))
print(tokenizer.batch_decode(ids, skip_special_tokens=True)[0])
"""


def run_there(*argv, cwd, check=True):
    """Runs a program without anything of this process's environment that leads to the package."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, argv)), cwd=cwd, env=kept, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
    return done


@pytest.fixture
def wheel(tmp_path):
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, REPOSITORY)
    run_there(*build, cwd=tmp_path)
    return next(tmp_path.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_loads_generates_and_trains_in_an_empty_environment(
    wheel, trained, corpus, tmp_path
):
    assert wheel.name.split("-")[1] == __version__
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        PACKAGE.name,
        wheel.name.split("-py3")[0] + ".dist-info",
    }
    assert {f"{PACKAGE.name}/{path.relative_to(PACKAGE)}" for path in FILES} <= set(names)
    assert f"{PACKAGE.name}/py.typed" in names
    assert f"{PACKAGE.name}/run/model_card_template.md" in names
    assert {f"{PACKAGE.name}/page/page.{kind}" for kind in ("css", "js")} <= set(names)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(tmp_path / "env", with_pip=True)
    programs = tmp_path / "env" / "bin"
    install = (programs / "python", "-m", "pip", "install", "--quiet")
    run_there(*install, f"torch=={torch.__version__.partition('+')[0]}", wheel, cwd=elsewhere)
    command = programs / "vanilla-transformer"

    assert "Subcommands:" in run_there(command, "--help", cwd=elsewhere).stdout
    said = run_there(programs / "python", "-c", LOAD_AND_GENERATE, trained, cwd=elsewhere)
    assert said.stdout.splitlines()[-1] == "Hund sieht Katze ."
    said = run_there(command, "translate", trained, "a dog sees a cat .", cwd=elsewhere)
    assert said.stdout == "Hund sieht Katze .\n"
    shapes = run_there(command, "inspect", "shapes", trained, cwd=elsewhere)
    assert shapes.stdout.splitlines()[-1].startswith("total")
    argv = arguments(corpus, "toy", "train", "test", max_steps=5)
    refused = run_there(command, "train", *argv, cwd=elsewhere, check=False)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].endswith('pip install ".[train]"')
    assert not list(elsewhere.iterdir())

    run_there(*install, f"{wheel}[train]", cwd=elsewhere)
    run_there(command, "train", *argv, cwd=elsewhere)
    results = json.loads((elsewhere / "toy" / "all_results.json").read_text(encoding="utf-8"))
    assert "test_bleu" in results
