"""What contributors rely on: the workflow, the hooks, the choice of tests, the version."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import changed
import pytest
import yaml
from toy import REPOSITORY, run_python

import vanilla_transformer

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
WORKFLOW = REPOSITORY / ".github" / "workflows" / "tests.yml"
JOBS = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
HOOKS = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
CONTRIBUTING = (REPOSITORY / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")


def steps(job):
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def check_words(line):
    """Checks the script, module, paths and extras that a command line names."""
    words = shlex.split(line)
    if words[0] == "bash":
        assert (REPOSITORY / words[1]).is_file(), line
    if words[:2] == ["python", "-m"]:
        assert find_spec(words[2]), line
    for word in words:
        if extras := re.fullmatch(r"\.\[([\w,]+)\]", word):
            assert set(extras[1].split(",")) <= set(EXTRAS), line
        if re.fullmatch(r"(?:tests|scripts|docs)/[\w/.]+", word):
            assert (REPOSITORY / word).exists(), line


@pytest.mark.parametrize("job", JOBS)
def test_what_the_workflow_runs_exists(job):
    for line in steps(job):
        check_words(line)
    assert set(JOBS[job].get("needs", ())) <= set(JOBS)


def test_the_workflow_has_the_versions_and_systems_that_are_promised():
    oldest = re.search(r"transformers>=([\d.]+)", str(PROJECT["project"]["dependencies"]))[1]
    assert JOBS["linux"]["strategy"]["matrix"]["transformers"] == [oldest, ""]
    assert JOBS["other-systems"]["strategy"]["matrix"]["os"] == ["macos-latest", "windows-latest"]
    assert "python -m mkdocs build --strict" in steps("site")
    python = PROJECT["project"]["requires-python"].removeprefix(">=")
    uses = [step["with"] for job in JOBS.values() for step in job["steps"] if "with" in step]
    assert {one["python-version"] for one in uses if "python-version" in one} == {python}


def test_the_workflow_has_the_fields_of_its_schema(tmp_path):
    bad = tmp_path / "bad.yml"
    bad.write_text("on: push\njobs: {x: {steps: []}}\n")
    for path, is_good in ((WORKFLOW, True), (bad, False)):
        check = ("-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows")
        done = run_python(*check, path)
        assert (done.returncode == 0) is is_good, done.stdout + done.stderr


def test_the_hooks_are_the_checks_of_the_tests(tmp_path):
    """In a repository of its own, where one file has a fault that each hook but mypy finds."""
    hooks = {hook["id"]: shlex.split(hook["entry"]) for hook in HOOKS["repos"][0]["hooks"]}
    checks = (REPOSITORY / "tests" / "test_architecture.py").read_text(encoding="utf-8")
    assert {tuple(entry[:2]) for entry in hooks.values()} == {("python", "-m")}
    for _, _, tool, *_ in hooks.values():
        assert f'["{tool}"' in checks
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PRE_COMMIT_HOME": str(tmp_path / "home"),
    }
    folder = tmp_path / "work"
    folder.mkdir()
    for name in (".pre-commit-config.yaml", "pyproject.toml"):
        (folder / name).write_bytes((REPOSITORY / name).read_bytes())
    (folder / "bad.py").write_text('"""A module."""\nimport  os\n', encoding="utf-8")

    def run(*words):
        return subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    for words in (["init", "-q"], ["add", "."]):
        assert run("git", *words).returncode == 0
    for hook, status in (("lint", 1), ("format", 1)):
        done = run(sys.executable, "-m", "pre_commit", "run", hook, "--all-files")
        assert done.returncode == status, done.stdout + done.stderr
        assert "Failed" in done.stdout


# The tests of a change ----------------------------------------------------------------------------


def test_every_room_has_tests_and_every_rule_leads_to_some():
    rooms = {path.parent.name for path in REPOSITORY.glob("vanilla_transformer/*/__init__.py")}
    for room in rooms - {"model"}:
        assert changed.tests_of(f"vanilla_transformer/{room}/x.py") == [f"tests/{room}"]
    named = [test for _, tests in changed.RULES for test in tests if "\\" not in test]
    for test in (*named, *changed.ALWAYS):
        assert (REPOSITORY / test).exists(), test


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("vanilla_transformer/model/layers.py", list(changed.OF_THE_MODEL)),
        ("vanilla_transformer/search.py", ["tests/test_search.py", "tests/test_registration.py"]),
        ("vanilla_transformer/names.py", ["tests/test_registration.py"]),
        ("tests/data/test_data.py", ["tests/data/test_data.py"]),
        ("tests/data/test_gone.py", []),
        ("tests/serving/servers.py", ["tests/serving"]),
        ("scripts/experiments/demo.py", ["tests/experiments/test_demo.py"]),
        ("README.md", ["tests/docs"]),
        ("LICENSE", []),
    ],
)
def test_a_changed_file_has_its_tests(path, tests):
    assert changed.tests_of(path) == tests


def test_changes_are_those_since_the_branch_left_main(tmp_path):
    def git(*words):
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    def write(name):
        (tmp_path / name).write_text(name, encoding="utf-8")

    git("init", "-q", "-b", "main")
    for name in ("kept", "edited"):
        write(name)
    git("add", ".")
    git("commit", "-qm", "first")
    git("switch", "-qc", "branch")
    for name in ("committed", "staged"):
        write(name)
        git("add", name)
        if name == "committed":
            git("commit", "-qm", name)
    write("ünknown")
    (tmp_path / "edited").write_text("other", encoding="utf-8")
    git("switch", "-qc", "main2", "main")  # what main gets later does not count
    write("later")
    git("add", "later")
    git("commit", "-qm", "later", "--", "later")
    git("branch", "-qf", "main", "main2")
    git("switch", "-q", "branch")
    found = changed.changed_files(tmp_path)
    assert found == ["committed", "edited", "staged", "ünknown"]


def test_the_script_runs_the_chosen_tests():
    script = (REPOSITORY / "scripts" / "test.sh").read_text(encoding="utf-8")
    assert "$(python tests/changed.py)" in script
    deselected = re.search(r"--deselect '(\S+?)::(\w+)\[", script)
    assert f"def {deselected[2]}(" in (REPOSITORY / deselected[1]).read_text(encoding="utf-8")
    done = run_python(REPOSITORY / "tests" / "changed.py")
    assert set(changed.ALWAYS) <= set(done.stdout.split())


# The page and the version -------------------------------------------------------------------------


def test_the_page_names_what_exists():
    for block in re.findall(r"```bash\n(.*?)```", CONTRIBUTING, re.DOTALL):
        for line in block.splitlines():
            check_words(line)
    for line in re.findall(r"^\| `(.*?)` \|", CONTRIBUTING, re.MULTILINE):
        check_words(re.sub(r"^TRANSFORMERS=\S+ ", "", line))
    for link in re.findall(r"\]\(([^)#]+)", CONTRIBUTING):
        assert (REPOSITORY / ".github" / link).exists(), link
    for path in re.findall(r"`((?:vanilla_transformer|docs|scripts)/[\w./]+)`", CONTRIBUTING):
        assert (REPOSITORY / path).exists(), path


def test_the_version_has_one_source():
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = REPOSITORY / PROJECT["tool"]["hatch"]["version"]["path"]
    assert source.samefile(vanilla_transformer.__file__)
    line = f'__version__ = "{vanilla_transformer.__version__}"'  # as hatchling reads it
    assert line in source.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("installs", [False, True])
def test_the_scripts_install_the_tree_again_where_another_copy_is_installed(tmp_path, installs):
    """As after `pip install .` in their environment; its `pip` only writes down its arguments."""
    copied = tmp_path / "site" / "vanilla_transformer"
    copied.mkdir(parents=True)
    (copied / "__init__.py").touch()
    (tmp_path / ".vanilla_transformer_test").write_bytes(
        (REPOSITORY / "pyproject.toml").read_bytes()
    )
    program = tmp_path / "python"
    program.write_text(
        f"""#!/bin/sh
case "$*" in
    "-m pip"*) echo "$*" >> {tmp_path}/installed ;;
    *sys.prefix*) echo {tmp_path} ;;
    *) exec {sys.executable} "$@" ;;
esac
"""
    )
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(tmp_path),
        "PYTHONPATH": str(copied.parent if installs else REPOSITORY),
    }
    script = ["bash", "-euc", "source scripts/environment.sh test"]
    subprocess.run(script, cwd=REPOSITORY, env=environment, check=True)
    made = tmp_path / "installed"
    assert made.exists() == installs
    if installs:
        assert "--editable .[test]" in made.read_text()
