"""The order of imports, what the files of the model may import, and lint, format and types."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vanilla_transformer import VanillaTransformerTokenizer

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "vanilla_transformer"
MODEL = PACKAGE / "model"
ROOMS = {  # what each room may import, besides itself
    "model": set(),
    "data": {"model"},
    "inference": {"model", "data", "interop"},
    "inspection": {"model", "data"},
    "interop": {"model", "data"},
    "training": {"model", "data"},
    "serving": {"model", "data", "inference"},
    "page": {"model", "data", "inference", "inspection"},
    "run": {"model", "data", "inference", "interop", "training"},
    "commands": {
        "model",
        "data",
        "inference",
        "inspection",
        "interop",
        "training",
        "run",
        "serving",
        "page",
    },
}
LEVELS = {
    "modes": 0,
    "normalization": 0,
    "presets": 0,
    "sharing": 0,
    "decoding_cache": 1,
    "configuration_vanilla_transformer": 2,
    "dropout": 1,
    "inputs": 1,
    "pipeline_vanilla_transformer": 1,
    "feed_forward": 2,
    "losses": 2,
    "positions": 2,
    "token_layout": 2,
    "context": 3,
    "attention": 4,
    "initialization": 5,
    "layers": 6,
    "pretrained_model": 6,
    "generation": 7,
    "stacks": 7,
    "modeling_vanilla_transformer": 8,
}
MODEL_FILES = [*LEVELS, "tokenization_vanilla_transformer"]
ALLOWED = {"torch", "transformers"} | set(sys.stdlib_module_names)
ALSO_ALLOWED = {  # transformers depends on them
    "tokenization_vanilla_transformer": {"tokenizers"},
    "sharing": {"huggingface_hub"},
}
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES_OF_BASE_CLASSES = {"_tokenizer", "_decode", "_forward", "_info", "_compute", "_sample"}
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


def upward_imports(name, source):
    """The imports of a file of the model that do not run down the order of the design."""
    allowed = {module for module, height in LEVELS.items() if height < LEVELS.get(name, 0)}
    libraries = ALLOWED | ALSO_ALLOWED.get(name, set())
    problems = []
    for dots, module, _ in imports(source):
        if dots == 1 and module not in allowed:
            problems.append(f"{name} imports .{module}")
        if dots > 1 or (dots == 0 and module.split(".")[0] not in libraries):
            problems.append(f"{name} imports {'.' * dots}{module}")
    return problems


def branches_in_forward(source):
    """Conditions inside any function called forward."""
    return [
        (node.lineno, type(node).__name__)
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef) and function.name == "forward"
        for node in ast.walk(function)
        if isinstance(node, ast.If | ast.IfExp | ast.Match | ast.BoolOp)
    ]


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_file_of_the_model_imports_only_what_stands_below_it(name):
    assert upward_imports(name, (MODEL / f"{name}.py").read_text()) == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("attention", "from .layers import EncoderLayer"),
        ("attention", "def f():\n    from .modeling_vanilla_transformer import x"),
        ("normalization", "from .positions import x"),
        ("layers", "from . import attention"),
        ("layers", "from .training.batching import x"),
        ("layers", "from vanilla_transformer.model.attention import SelfAttention"),
        ("layers", "import numpy"),
        ("tokenization_vanilla_transformer", "from .configuration_vanilla_transformer import x"),
    ],
)
def test_the_check_of_imports_sees_what_is_wrong(name, line):
    assert upward_imports(name, line)
    assert not upward_imports(name, "import torch\nfrom transformers.cache_utils import Cache")


@pytest.mark.parametrize("name", MODEL_FILES)
def test_no_line_looks_like_an_import_of_a_file_that_is_not_there(name):
    text = (MODEL / f"{name}.py").read_text()
    for expression in RELATIVE_IMPORTS:
        assert set(expression.findall(text)) <= set(MODEL_FILES)


def test_the_levels_name_every_file_of_the_model():
    files = {path.stem for path in MODEL.glob("*.py")} - {"__init__"}
    assert files == set(MODEL_FILES)


def test_a_saved_model_carries_exactly_the_files_of_the_model_room(tiny_model, tmp_path):
    tokenizer = VanillaTransformerTokenizer.train(["a b c"], kind="word")
    tiny_model().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    saved = {path.name: path.read_text() for path in tmp_path.glob("*.py")}
    room = {path.name: path.read_text() for path in MODEL.glob("*.py")}
    assert room.pop("__init__.py").count("\n") == 1  # a docstring, which no other file needs
    assert saved == room


def rooms_imported(source):
    """The rooms of the package that a file outside of `model` imports."""
    for _, module, names in imports(source):
        parts = module.split(".")
        if parts[0] == "vanilla_transformer":
            yield from parts[1:2] or names


ROOM_FILES = [path for path in FILES if path.parent != PACKAGE]


@pytest.mark.parametrize("path", ROOM_FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_of_rooms_run_one_way(path):
    room = path.relative_to(PACKAGE).parts[0]
    used = {name for name in rooms_imported(path.read_text()) if name in ROOMS}
    assert used <= ROOMS[room] | {room}
    roots = {module.split(".")[0] for _, module, _ in imports(path.read_text())}
    assert not roots & {"scripts", "tests"}


def test_every_folder_of_the_package_is_a_room():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == set(ROOMS)


def test_a_layer_forward_has_no_branch():
    assert branches_in_forward((MODEL / "layers.py").read_text()) == []
    assert branches_in_forward("def forward(x):\n    if x:\n        return 1") == [(2, "If")]
    assert branches_in_forward("def forward(x):\n    return 1 if x else 2") == [(2, "IfExp")]


def function_names(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_private_names_say_something(path):
    for name in function_names(path.read_text()):
        is_private = name.startswith("_") and not name.startswith("__")
        assert not is_private or "_" in name[1:] or name in NAMES_OF_BASE_CLASSES, name


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
