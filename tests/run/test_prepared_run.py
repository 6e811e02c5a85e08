"""Data that are prepared once: kills, damage, and trainings that open them."""

import json
import os
import shutil

import datasets
import numpy as np
import pytest
from datasets import Dataset
from made_up_language import arguments

from vanilla_transformer.batches import encoding, shards
from vanilla_transformer.commands.program import main
from vanilla_transformer.run.tokenizer_and_config import tokenizer_sample

COURSE = {"lr_scheduler_type": "constant", "save_strategy": "steps", "save_steps": 2}
CHANGES = {"eval_strategy": "no", "num_train_epochs": 1, **COURSE}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch, tmp_path):
    monkeypatch.setattr(shards, "ROWS_OF_A_SHARD", 100)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def prepare(corpus, folder, **changes):
    return main(["prepare", *arguments(corpus, folder, **changes)])


def train(corpus, out, *splits, **changes):
    return main(["train", *arguments(corpus, out, *splits, **{**CHANGES, **changes})])


def weights(out):
    return (out / "model.safetensors").read_bytes()


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "train").glob("*.[an]*"))}


def test_prepared_data_train_the_same_model(corpus, tmp_path):
    assert prepare(corpus, tmp_path / "data", num_proc=min(2, os.cpu_count())) == 0
    assert len(contents(tmp_path / "data")) == 5  # 400 pairs, and their lengths
    assert not (tmp_path / "cache").exists()
    prepared = {"prepared": tmp_path / "data"}
    assert train(corpus, tmp_path / "plain", max_steps=4) == 0
    assert train(corpus, tmp_path / "resumed", max_steps=2, **prepared) == 0
    options = {"max_steps": 4, "resume_from_checkpoint": True, **prepared}
    assert train(corpus, tmp_path / "resumed", **options) == 0
    assert weights(tmp_path / "resumed") == weights(tmp_path / "plain")
    figures = [
        json.loads((tmp_path / name / "all_results.json").read_text())["test_chrf"]
        for name in ("plain", "resumed")
    ]
    assert figures[0] == figures[1]


def test_a_killed_preparation_makes_only_what_is_missing(corpus, tmp_path, monkeypatch):
    written, limit = [], 2
    write = shards._write_shard

    def write_some(make, key, task):
        if len(written) == limit:
            raise KeyboardInterrupt
        written.append(task[0].name)
        return write(make, key, task)

    monkeypatch.setattr(shards, "_write_shard", write_some)
    assert prepare(corpus, tmp_path / "data") == 130
    limit = None
    assert prepare(corpus, tmp_path / "data") == 0
    assert written[:4] == ["00000.arrow", "00001.arrow", "00002.arrow", "00003.arrow"]
    assert prepare(corpus, tmp_path / "whole") == 0
    assert contents(tmp_path / "whole") == contents(tmp_path / "data")
    # A shard that is lost, and one that is cut off, are made again.
    written.clear()
    (tmp_path / "data/train/00001.arrow").unlink()
    os.truncate(tmp_path / "data/train/00002.arrow", 900)
    assert prepare(corpus, tmp_path / "data") == 0
    assert written == ["00001.arrow", "00002.arrow"]
    assert contents(tmp_path / "whole") == contents(tmp_path / "data")
    # So are the lengths, from the shards; a training makes what is missing, too.
    np.save(tmp_path / "data/train/lengths.npy", np.zeros((3, 2), np.uint16))
    (tmp_path / "data/validation/lengths.npy").unlink()
    assert train(corpus, tmp_path / "out", max_steps=1, prepared=tmp_path / "data") == 0
    assert written == ["00001.arrow", "00002.arrow"]
    assert contents(tmp_path / "whole") == contents(tmp_path / "data")


def test_a_tokenizer_is_trained_on_a_sample_of_all_pairs():
    rows = Dataset.from_dict({"source": list(map(str, range(1000))), "target": ["a"] * 1000})
    first, again = (tokenizer_sample(rows, 50) for _ in range(2))
    assert len(first) == 50
    assert first["source"][:] == again["source"][:]
    found = [int(text) for text in first["source"]]
    assert len(set(found)) == 50
    assert min(found) < 200 < 800 < max(found)
    assert tokenizer_sample(rows, 1000)["source"][:] == rows["source"][:]


@pytest.fixture(scope="module")
def made(corpus, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "ROWS_OF_A_SHARD", 100)
        folder = tmp_path_factory.mktemp("made") / "data"
        assert prepare(corpus, folder) == 0
    return folder


@pytest.mark.parametrize(
    "changes",
    [{"train_source": "train.de"}, {"vocab_size": 20}, {"max_source_length": 4}],
    ids=lambda changes: next(iter(changes)),
)
@pytest.mark.parametrize("command", [prepare, train])
def test_prepared_data_of_other_options_are_refused(
    corpus, made, tmp_path, capsys, command, changes
):
    folder = shutil.copytree(made, tmp_path / "data")
    before = contents(folder)
    if "train_source" in changes:
        changes = {"train_source": corpus / "train.de"}
    if command is train:
        code = train(corpus, tmp_path / "out", prepared=folder, **changes)
    else:
        code = prepare(corpus, folder, **changes)
    assert code == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert str(folder) in said
    assert "was made of other texts" in said
    assert not (tmp_path / "out").exists()
    assert contents(folder) == before


def test_prepared_data_that_other_code_has_made_are_refused(
    corpus, made, tmp_path, capsys, monkeypatch
):
    folder = shutil.copytree(made, tmp_path / "data")
    monkeypatch.setattr(encoding, "readers_digest", lambda: "another version")
    assert train(corpus, tmp_path / "out", prepared=folder) == 1
    assert "another version of this package" in capsys.readouterr().err


def test_a_folder_that_nobody_may_write_to_is_used_and_stays(corpus, made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "data")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert train(corpus, tmp_path / "out", max_steps=1, prepared=folder) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
