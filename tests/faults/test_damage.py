"""Damaged bytes of every file that is read: the right result, or an error that names the file."""

import shutil

import datasets
import pytest
from damage import damaged, is_valid_json
from files import FREE, OF_A_MODEL, READERS, write_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    write_files(folder)
    for name in OF_A_MODEL:
        shutil.copy(trained / name, folder)
    return folder


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def outcome(path, read, right):
    """What reading a file comes to: "right", "other", or an error of ours that names it."""
    try:
        return "right" if read(path) == right else "other"
    except (ValueError, OSError) as error:
        is_named = any(sign in str(error) for sign in (path.name, "`", "argument"))
        return "error" if is_named else f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_named_or_makes_no_difference(folder, name):
    path, read = folder / name, READERS[name]
    content, right = path.read_bytes(), READERS[name](folder / name)

    # Drawn bytes shrink badly and read slowly: a seed is drawn instead.
    @settings(max_examples=max(settings().max_examples // 8, 1), suppress_health_check=HealthCheck)
    @given(st.integers(0, 10**9))
    def check(seed):
        bad, kind = damaged(content, seed)
        path.write_bytes(bad)
        found = outcome(path, read, right)
        # Changed values of a JSON object are values.
        is_free = kind in FREE.get(name, ()) or (name.endswith(".json") and is_valid_json(bad))
        allowed = ("right", "error", *(["other"] if is_free else []))
        assert found in allowed, f"{kind} (seed {seed}): {found}"

    try:
        check()
    finally:
        path.write_bytes(content)
    assert read(path) == right


def test_every_file_of_a_model_is_damaged_here(trained):
    kinds = (".json", ".safetensors")
    read = {path.name for path in trained.iterdir() if path.suffix in kinds}
    figures = {name for name in read if name.endswith("_results.json")} | {"trainer_state.json"}
    assert read - figures - {"probe.json"} == set(OF_A_MODEL)
