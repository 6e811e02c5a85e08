"""The sizes of rooms, and their changes, are those of the files in two revisions."""

import subprocess

from programs import REPOSITORY, run

FIRST = {"vanilla_transformer/a/x.py": "x = 1\n", "README.md": "no code\n", "setup.py": "f()\n"}
SECOND = {"vanilla_transformer/a/x.py": "# why\nx = 1\ny = (x,\n)\n", "tests/t.py": "pass\n"}


def test_each_number_stands_before_its_change(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", tmp_path, *words], check=True, capture_output=True)

    git("init")
    for files in (FIRST, SECOND):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        git("add", ".")
        git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-m", "a")
    done = run(REPOSITORY / "scripts" / "size_report.py", "HEAD^", cwd=tmp_path)
    assert done.stdout.splitlines()[2:] == [
        "| . | 1 | 1 | 3 |",
        "| all | 3 (+1) | 6 (+4) | 13 (+7) |",
        "| tests | 1 (+1) | 1 (+1) | 1 (+1) |",
        "| vanilla_transformer | 1 | 4 (+3) | 9 (+6) |",
        "| vanilla_transformer/a | 1 | 4 (+3) | 9 (+6) |",
    ]
