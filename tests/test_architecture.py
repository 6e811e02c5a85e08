"""The order of imports, what the files of the model may import, and lint, format and types."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from room_imports import IMPORTS

from vanilla_transformer import VanillaTransformerTokenizer

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "vanilla_transformer"
MODEL = PACKAGE / "model"
MODEL_FILES = [path.stem for path in MODEL.glob("[!_]*.py")]
ALLOWED = {"torch", "transformers"} | set(sys.stdlib_module_names)
ALSO_ALLOWED = {  # transformers depends on them
    "tokenization_vanilla_transformer": {"tokenizers"},
    "sharing": {"huggingface_hub"},
}
FILES = sorted(PACKAGE.rglob("*.py"))
RELATIVE_IMPORTS = (  # the two expressions by which transformers finds files to copy
    re.compile(r"^\s*import\s+\.(\S+)\s*$", re.MULTILINE),
    re.compile(r"^\s*from\s+\.(\S+)\s+import", re.MULTILINE),
)


def imports(source):
    """(dots, module, names) of each import statement, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", [alias.name for alias in node.names]


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_file_of_the_model_imports_its_own_folder_and_what_every_user_has(name):
    text = (MODEL / f"{name}.py").read_text()
    for dots, module, _ in imports(text):
        if dots:
            assert dots == 1
            assert module in MODEL_FILES
        else:
            assert module.split(".")[0] in ALLOWED | ALSO_ALLOWED.get(name, set())
    for expression in RELATIVE_IMPORTS:  # a docstring may look like an import
        assert set(expression.findall(text)) <= set(MODEL_FILES)


def files_imported(path):
    """The files of its own room that a file imports, wherever the import stands."""
    room = ".".join(("vanilla_transformer", *path.relative_to(PACKAGE).parts[:-1]))
    for dots, module, names in imports(path.read_text()):
        if module == room:
            yield from names
        elif dots:
            yield module
        elif module.rpartition(".")[0] == room:
            yield module.rpartition(".")[2]


ROOMS = [name for name in IMPORTS if (PACKAGE / name).is_dir()]


@pytest.mark.parametrize("room", [*ROOMS, ""])
def test_imports_of_the_files_of_a_room_run_one_way(room):
    below = {path.stem: {*files_imported(path)} for path in (PACKAGE / room).glob("[!_]*.py")}
    order = list(TopologicalSorter(below).static_order())  # fails where there is a circle
    if room == "model":
        path = ["normalization", "attention", "layers", "stacks", "modeling_vanilla_transformer"]
        assert sorted(path, key=order.index) == path


def branches_in_forward(source):
    """Conditions inside any function called forward."""
    return [
        (node.lineno, type(node).__name__)
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef) and function.name == "forward"
        for node in ast.walk(function)
        if isinstance(node, ast.If | ast.IfExp | ast.Match | ast.BoolOp)
    ]


def test_a_saved_model_carries_exactly_the_files_of_the_model_room(tiny_model, tmp_path):
    tokenizer = VanillaTransformerTokenizer.train(["a b c"], kind="word")
    tiny_model().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    saved = {path.name: path.read_text() for path in tmp_path.glob("*.py")}
    room = {path.name: path.read_text() for path in MODEL.glob("*.py")}
    assert room.pop("__init__.py").count("\n") == 1  # a docstring, which no other file needs
    assert saved == room


def rooms_imported(source):
    """The subpackages and files beside them that a file outside of `model` imports."""
    for _, module, names in imports(source):
        package, _, rest = module.partition(".")
        if package == "vanilla_transformer":
            inner = [rest.partition(".")[0]] if rest else names
            yield from (name if name in IMPORTS else "__init__" for name in inner)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_of_rooms_run_one_way(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert {*rooms_imported(path.read_text())} <= {*IMPORTS[room], room}
    roots = {module.split(".")[0] for _, module, _ in imports(path.read_text())}
    assert not roots & {"scripts", "tests"}


@pytest.mark.parametrize("room", IMPORTS)
def test_the_table_of_imports_names_nothing_that_no_file_imports(room):
    paths = [*(PACKAGE / room).rglob("*.py"), *PACKAGE.glob(f"{room}.py")]
    used = {name for path in paths for name in rooms_imported(path.read_text())}
    assert {*IMPORTS[room]} <= used


def test_the_table_of_imports_has_no_circle_and_every_room():
    names = {
        path.name.removesuffix(".py") for path in PACKAGE.glob("[!_.]*") if path.suffix != ".typed"
    }
    assert names | {"__init__", "__main__"} == {*IMPORTS}
    tuple(TopologicalSorter(IMPORTS).static_order())


def test_a_layer_forward_has_no_branch():
    assert branches_in_forward((MODEL / "layers.py").read_text()) == []
    assert branches_in_forward("def forward(x):\n    if x:\n        return 1") == [(2, "If")]
    assert branches_in_forward("def forward(x):\n    return 1 if x else 2") == [(2, "IfExp")]


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
    ],
    ids=["lint", "format", "types"],
)
def test_lint_format_and_types_are_clean(command):
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
