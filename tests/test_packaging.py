"""What is imported is declared, and an extra that is missing is named."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from programs import REPOSITORY, run_python

from vanilla_transformer.extras import EXTRAS

PACKAGE = REPOSITORY / "vanilla_transformer"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


FILES = sorted(PACKAGE.rglob("*.py"))


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


def imported_by(path):
    """The top-level names that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


PEERS = {"onmt", "opennmt-py", "eole", "fxtranslate"}
"""What a conversion or an experiment compares its result with where it is installed. OpenNMT-py
asks for an older torch and Eole for much else, so no extra installs them."""


def test_what_is_imported_is_a_requirement_or_in_an_extra():
    files = [*FILES, *REPOSITORY.glob("scripts/**/*.py"), *REPOSITORY.glob("tests/**/*.py")]
    own = {name for path in files for name in (path.stem, path.parent.name)}
    modules = {name for path in files for name in imported_by(path)}
    names = packages_distributions()
    needed = {
        names.get(module, [module])[0].lower().replace("_", "-")
        for module in modules - own - set(sys.stdlib_module_names)
    }
    assert needed <= declared(*PROJECT["optional-dependencies"]) | PEERS


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


def test_a_plain_install_has_the_models_and_every_subcommand():
    # The package itself comes before: transformers asks once which packages there are.
    program = f"""{WITHOUT_EXTRAS}
from importlib import import_module
import vanilla_transformer
from vanilla_transformer import inspection
from vanilla_transformer.commands.program import SUBCOMMANDS
from vanilla_transformer.interop import funnel
for name in SUBCOMMANDS:
    import_module(f"vanilla_transformer.commands.{{name}}")
for name in ("VanillaTransformerForConditionalGeneration", "Translator"):
    getattr(vanilla_transformer, name)
print("imported")
"""
    done = run_python("-c", program)
    assert done.stdout == "imported\n", done.stderr[-2000:]


MODEL = REPOSITORY / "model_cards" / "pronounce"
MISSING = {  # words of a subcommand: the extra
    "train --output_dir out --dataset_name x": "train",
    f"evaluate {MODEL} --dataset_name x": "train",
    f"page {MODEL}": "page",
    f"serve {MODEL}": "serve",
}


def test_a_missing_extra_is_one_line(tmp_path):
    program = f"{WITHOUT_EXTRAS}\nfrom vanilla_transformer.commands.program import main\n"
    program += f"print(*(main(words.split()) for words in {list(MISSING)}))"
    done = run_python("-c", program, cwd=tmp_path)
    assert done.stdout.split() == ["1"] * len(MISSING), done.stderr
    for line, (words, extra) in zip(done.stderr.splitlines(), MISSING.items(), strict=True):
        assert line.startswith(f"vanilla-transformer {words.split()[0]}: error: The package '")
        assert line.endswith(f'pip install ".[{extra}]"')
    assert not list(tmp_path.iterdir())
