"""Our models pass the common tests that transformers' own models pass, with no more skips.

The tests are in the source distribution of transformers, not in its wheel. pip downloads the
distribution of the installed version once, into a cache outside the repository. The distribution
does not contain the tests of generation; for these see test_generation.py.
"""

import importlib.util
import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import transformers

CASES = Path(__file__).with_name("transformers_suite.py")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vanilla_transformer"
# These take the source embedding for the target's; Marian also fails them with two embeddings.
WRONG_FOR_SEPARATE_VOCABULARIES = {
    "test_inputs_embeds_matches_input_ids",
    "test_resize_embeddings_untied",
}
FAST = {"Vanilla": set(), "Separate": WRONG_FOR_SEPARATE_VOCABULARIES}
ALL = {
    **FAST,
    "PreNorm": set(),
    "SharedUntied": set(),
    "Untied": WRONG_FOR_SEPARATE_VOCABULARIES,
    "Learned": set(),
    "Rotary": set(),
    "Grouped": set(),
    "Fused": set(),
    "Alibi": set(),
}
# T5 keeps some matrices in float32, and these tests check it.
ONLY_T5 = {"test_keep_in_fp32_modules", "test_keep_in_fp32_modules_exist"}


def download(folder):
    """Downloads the source distribution; returns its path or None, and pip's error output."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--no-binary", "transformers", "--dest", folder]
    command += [f"transformers=={transformers.__version__}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return next(Path(folder).glob("transformers-*.tar.gz"), None), done.stderr.strip()


@pytest.fixture(scope="module")
def suite():
    """The folder of the tests of the installed version of transformers."""
    if importlib.util.find_spec("parameterized") is None:
        pytest.skip("transformers' tests need the package `parameterized`")
    folder = CACHE / f"transformers-{transformers.__version__}-tests"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        archive, complaint = download(temporary)
        if archive is None:
            pytest.skip(f"no source distribution of transformers: {complaint[-300:]}")
        with tarfile.open(archive) as tar:
            top = archive.name.removesuffix(".tar.gz")
            wanted = [m for m in tar.getmembers() if m.name.startswith(f"{top}/tests/")]
            tar.extractall(temporary, members=wanted, filter="data")
        tests = Path(temporary) / top / "tests"
        (tests / "__init__.py").touch()  # one of its modules imports the folder as a package
        try:
            tests.rename(folder)
        except OSError:  # another process was faster
            assert folder.is_dir()
    return folder


def outcomes(suite, configurations, tmp_path):
    """Runs the tests in a new process; returns {configuration: {test: outcomes}} and the output."""
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    command += ["--tb=short", "--show-capture=no", f"--junitxml={report}"]
    command += [f"{CASES}::{name}Test" for name in configurations]
    environment = {**os.environ, "TRANSFORMERS_SUITE": str(suite), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=1200, check=False
    )
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    results = {name: {} for name in configurations}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if kinds else "passed"
        name = case.get("classname").rpartition(".")[2].removesuffix("Test")
        results[name].setdefault(case.get("name"), set()).add(outcome)
    return results, done.stdout[-3000:]


slow = pytest.mark.slow
RUNS = {  # configurations, references, the least number of tests that pass
    "the default": ({"Vanilla": set()}, [], 81),
    "two, as Marian": (FAST, ["Marian"], 81),
    "all, as Marian and BART": (ALL, ["Marian", "Bart"], 81),
    "encoders, as T5's": ({f"{name}Encoder": ONLY_T5 for name in ALL}, ["T5Encoder"], 81),
}  # fmt: skip


@pytest.mark.parametrize(
    ("configurations", "references", "least"),
    [
        pytest.param(*run, id=name, marks=slow if number else ())
        for number, (name, run) in enumerate(RUNS.items())
    ],
)
def test_the_configurations_pass(suite, tmp_path, configurations, references, least):
    """No test fails; at least `least` and all those that the references pass do pass."""
    results, output = outcomes(suite, [*configurations, *references], tmp_path)
    expected = {t for name in references for t, o in results[name].items() if o == {"passed"}}
    assert len(expected) >= least or not references
    for name, excused in configurations.items():
        failed = {test for test, outcome in results[name].items() if "failed" in outcome}
        assert not failed, (name, failed, output)
        passed = {test for test, outcome in results[name].items() if outcome == {"passed"}}
        assert len(passed) >= least, (name, output)
        assert expected - passed == excused, name
