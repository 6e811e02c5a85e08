"""The private names of transformers: each exists, and each that the package uses is in a table."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import vanilla_transformer
from vanilla_transformer.private_names import (
    LOADING,
    TRAINING,
    PrivateNames,
    missing_names,
)

PACKAGE = Path(vanilla_transformer.__file__).parent
LIBRARIES = ("transformers.", "accelerate.", "datasets.")
OWN_OR_OTHERS = {  # of torch, sacrebleu and the standard library, and of the package itself
    *("_ArgumentGroup", "_C", "_asdict", "_compiled_call_impl", "_exit", "_foreach_lerp_"),
    *("_extract_corpus_statistics", "_functorch", "_get_tracing_state", "_softmax_backward_data"),
    *("_is_avx512_bf16_supported", "_linear_pointwise", "_option_string_actions", "_replace"),
    "_version",
}
ROWS = (*LOADING, *TRAINING)
KNOWN = {name.removeprefix("self.") for row in ROWS for name in row.names}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.owner}.{row.names[0]}")
def test_the_names_exist(row):
    assert missing_names([row]) == []
    owner = importlib.import_module(row.owner.rpartition(".")[0])
    of_instances = [name for name in row.names if name.startswith("self.")]
    source = inspect.getsource(getattr(owner, row.owner.rpartition(".")[2])) if of_instances else ""
    assert [name for name in of_instances if name not in source] == []


def test_a_name_that_is_gone_is_told_with_its_reason():
    row = PrivateNames("transformers.trainer.Trainer", ("_no_such_name",), "epochs end", "a hook")
    gone = PrivateNames("transformers.no_such_module.Trainer", ("_run",), "epochs end", "a hook")
    for found in missing_names([row, gone]):
        assert "epochs end" in found
        assert "a hook" in found
    assert len(missing_names([row, gone])) == 2


def overridden_names(module):
    """Private names of a library's classes that the classes of a module define anew."""
    for own in vars(module).values():
        if inspect.isclass(own) and own.__module__ == module.__name__:
            for base in own.__mro__[1:]:
                if base.__module__.startswith(LIBRARIES):
                    yield from (name for name in vars(own) if name in vars(base))


def test_every_private_name_that_a_class_overrides_is_in_a_table():
    found = set()
    for module in pkgutil.walk_packages(vanilla_transformer.__path__, "vanilla_transformer."):
        if not module.name.endswith("__main__"):
            found |= set(overridden_names(importlib.import_module(module.name)))
    assert {name for name in found if is_private(name)} - {"_abc_impl"} <= KNOWN


def test_every_private_attribute_of_something_else_is_in_a_table():
    used, defined = set(), set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                defined.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            elif isinstance(node, ast.Attribute) and is_private(node.attr):
                used.add(node.attr)
    hooks = {name for name in used if name.endswith("_hooks")}  # of torch's modules
    assert used - defined - KNOWN - OWN_OR_OTHERS - hooks == set()
    assert {name for name in KNOWN if name not in used | defined} == set()
