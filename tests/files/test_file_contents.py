"""Digests of the code that makes rows: nothing is taken from a cache that other code has made."""

import ast
import shutil

from programs import REPOSITORY

from vanilla_transformer.files import file_contents
from vanilla_transformer.files.file_contents import readers_digest

PACKAGE = REPOSITORY / "vanilla_transformer"
MAKE_NO_ROWS = ("extras.py", "options.py", "progress.py", "rules.py")


def imported_by(path):
    """Yields the files of the package that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            file = (REPOSITORY / node.module.replace(".", "/")).with_suffix(".py")
            if file.is_relative_to(PACKAGE) and file.is_file():
                yield file


def test_a_change_of_code_that_decides_rows_changes_the_digest(tmp_path, monkeypatch):
    """What the subpackages of rows import, in any number of steps."""
    needed, found = set(), [*PACKAGE.glob("data/*.py"), *PACKAGE.glob("batches/*.py")]
    while found:
        needed |= {*found}
        found = [file for path in found for file in imported_by(path) if file not in needed]
    assert {PACKAGE / name for name in MAKE_NO_ROWS} <= needed
    copy = tmp_path / "vanilla_transformer"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(file_contents, "__file__", str(copy / "files" / "file_contents.py"))

    def digest():
        readers_digest.cache_clear()
        return readers_digest()

    before = digest()
    for name in {str(path.relative_to(PACKAGE)) for path in needed} - {*MAKE_NO_ROWS}:
        text = (copy / name).read_text(encoding="utf-8")
        (copy / name).write_text(f"{text}# changed", encoding="utf-8")
        assert digest() != before, name
        (copy / name).write_text(text, encoding="utf-8")
    assert digest() == before
