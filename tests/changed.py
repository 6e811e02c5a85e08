"""Prints the tests of what has changed since the branch left main, for `scripts/test.sh --changed`.

Changes are those of commits, of the working tree and of files that git does not know yet.
"""

import re
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
ALWAYS = ("tests/test_architecture.py",)
RULES = (
    (r"tests/(?:.+/)?test_\w+\.py", (r"\g<0>",)),
    (r"tests/(\w+)/.*", (r"tests/\1",)),
    (r"tests/\w+\.py", ("tests/smoke", "tests/test_contributing.py")),
    (r"vanilla_transformer/(\w+)/.*", (r"tests/\1",)),
    (r"vanilla_transformer/(\w+)\.py", (r"tests/test_\1.py",)),
    (r"scripts/experiments/(\w+)\.py", (r"tests/experiments/test_\1.py",)),
    (r"scripts/recipes/.*", ("tests/experiments/test_recipes.py",)),
    (r"scripts/docker/.*", ("tests/test_docker.py",)),
    (r"pyproject\.toml", ("tests/test_packaging.py", "tests/test_docker.py")),
    (r"(?:README\.md|mkdocs\.yml|docs/.*)", ("tests/docs",)),
    (r"(?:\.github/|\.pre-commit|scripts/\w+\.sh).*", ("tests/test_contributing.py",)),
)
"""(expression for the whole path of a changed file, its tests); the first that matches counts."""


def tests_of(path: str) -> list[str]:
    """Returns the tests of a changed file that exist."""
    for expression, tests in RULES:
        if match := re.fullmatch(expression, path):
            paths = [match.expand(test) for test in tests]
            return [path for path in paths if (REPOSITORY / path).exists()]
    return []


def changed_files(repository: Path = REPOSITORY) -> list[str]:
    """Returns the files that differ from the commit at which the branch left main."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(
            ["git", "-c", "core.quotePath=off", *words],
            cwd=repository,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.splitlines() if done.returncode == 0 else []

    base = git("merge-base", "HEAD", "main") or git("merge-base", "HEAD", "origin/main") or ["HEAD"]
    files = git("diff", "--name-only", base[0])
    return sorted({*files, *git("ls-files", "--others", "--exclude-standard")})


if __name__ == "__main__":
    selected = {test for path in changed_files() for test in tests_of(path)}
    whole = {test for test in selected if (REPOSITORY / test).is_dir()}
    single = {test for test in selected if str(Path(test).parent) not in whole}
    print(*sorted({*whole, *single, *ALWAYS}), sep="\n")
