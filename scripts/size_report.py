"""Prints the files, lines and tokens of each room as a table, and the change since a revision.

    python scripts/size_report.py HEAD^

A room is a folder of the package, or another folder of the repository. Comments and layout are no
tokens, docstrings are.
"""

import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter

PACKAGE = "vanilla_transformer"
NO_TOKENS = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def sizes_of(revision: str) -> dict[str, Counter[str]]:
    """Returns the sizes of each room of a revision, and of the package and all Python files."""
    command = ["git", "archive", revision]
    archive = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    sizes: dict[str, Counter[str]] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            if not member.name.endswith(".py"):
                continue
            source = files.extractfile(member).read()  # type: ignore[union-attr]  # it is a file
            parts = tokenize.tokenize(io.BytesIO(source).readline)
            tokens = sum(part.type not in NO_TOKENS for part in parts)
            size = Counter(files=1, lines=source.count(b"\n"), tokens=tokens)
            folders = member.name.split("/")[:-1] or ["."]
            groups = [PACKAGE, "/".join(folders[:2])] if folders[0] == PACKAGE else folders[:1]
            for group in {*groups, "all"}:
                sizes.setdefault(group, Counter()).update(size)
    return sizes


def table(before: dict[str, Counter[str]], now: dict[str, Counter[str]]) -> str:
    """Makes a table in Markdown, of which each number stands before its change."""
    lines = ["| room | files | lines | tokens |", "|---|--:|--:|--:|"]
    for room in sorted({*before, *now}):
        new, old = now.get(room, Counter()), before.get(room, Counter())
        changes = {name: new[name] - old[name] for name in ("files", "lines", "tokens")}
        cells = [f"{new[n]:,}" + (f" ({by:+,})" if by else "") for n, by in changes.items()]
        lines.append(f"| {room} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(sizes_of(sys.argv[1]), sizes_of("HEAD")))
