"""What contributors rely on: the workflow, the choice of tests, the scripts."""

import re
import shlex
import tomllib
from importlib.util import find_spec
from itertools import chain

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from programs import REPOSITORY, run_python

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
GITHUB = REPOSITORY / ".github"
SCHEMAS = {
    **dict.fromkeys(GITHUB.glob("workflows/*.yml"), "vendor.github-workflows"),
    **dict.fromkeys(GITHUB.glob("ISSUE_TEMPLATE/*.yml"), "vendor.github-issue-forms"),
    GITHUB / "dependabot.yml": "vendor.dependabot",
    REPOSITORY / "CITATION.cff": "vendor.citation-file-format",
}
JOBS = {
    name: job
    for path in GITHUB.glob("workflows/*.yml")
    for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items()
}


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


def test_the_pinned_versions_are_those_of_all_dependencies():
    lines = (REPOSITORY / "scripts" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}
    named = map(Requirement, [*PROJECT["project"]["dependencies"], *chain(*EXTRAS.values())])
    for requirement in named:
        if requirement.name != "vanilla-transformer":
            version = versions[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), requirement


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)
def test_what_github_reads_has_the_fields_of_its_schema(path, tmp_path):
    bad = tmp_path / path.name
    bad.write_text("on: push\njobs: {x: {steps: []}}\n")
    for file, is_good in ((path, True), (bad, False)):
        check = ("-m", "check_jsonschema", "--builtin-schema", SCHEMAS[path])
        done = run_python(*check, file)
        assert (done.returncode == 0) is is_good, done.stdout + done.stderr
