"""Runs that are resumed: finished ones, cut-off ones, and directories with other contents."""

import json
import logging
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from made_up_language import arguments, main
from safetensors.torch import load_file
from test_run_refusals import contents, copy  # noqa: F401 - a fixture
from tiny_training import callback
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.files.atomic_files import LOCK
from vanilla_transformer.files.directory_lock import locked_directory
from vanilla_transformer.run import assembly
from vanilla_transformer.training.callbacks import OverwriteGuard
from vanilla_transformer.training.store import OutputDirectory

STEPS = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "warmup_steps": 0}


@pytest.fixture(scope="module")
def argv(corpus):
    """Makes the arguments of a run of a few steps."""
    return lambda folder, *splits, **changes: arguments(
        corpus, folder, *splits, **{**STEPS, **changes}
    )


def versions(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_what_a_run_leaves_that_is_killed_before_its_first_checkpoint_is_no_obstacle(
    argv, tmp_path
):
    (tmp_path / "runs").mkdir()
    (tmp_path / "train.log").write_text("what the program that starts it again has kept")
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "config.json").write_text("{")
    assert "train_loss" in main(argv(tmp_path, "train", resume_from_checkpoint=True))


def test_the_resume_command_of_a_finished_run_changes_nothing(argv, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    figures = main(argv(tmp_path))
    before = versions(tmp_path)
    assert main(argv(tmp_path, resume_from_checkpoint=True)) == pytest.approx(figures)
    assert versions(tmp_path) == before
    assert "is finished: nothing is changed" in caplog.text
    more = main(argv(tmp_path, resume_from_checkpoint=True, max_steps=6))
    assert more["train_runtime"] > 0
    assert "logging_steps" not in caplog.text
    assert versions(tmp_path) != before
    assert (tmp_path / "checkpoint-6").is_dir()


def test_adapters_are_trained_further(argv, trained, tmp_path):
    changes = {"model_name_or_path": trained, "lora_rank": 2, "ema_decay": 0.5}
    changes["lr_scheduler_type"] = "constant"
    main(argv(tmp_path / "whole", "train", **changes))
    main(argv(tmp_path / "parts", "train", **changes, max_steps=2))
    main(argv(tmp_path / "parts", "train", **changes, resume_from_checkpoint=True))
    words = [str(tmp_path / "whole"), "--last", "2", "--output", str(tmp_path / "mean")]
    with pytest.raises(ValueError, match="holds adapters: average models"):
        run_subcommand("average", words)
    assert not (tmp_path / "mean").exists()
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(weight.equal(parts[name]) for name, weight in whole.items())


def test_a_model_of_half_precision_is_trained_in_float32(argv, trained, tmp_path):
    half = tmp_path / "half"
    shutil.copytree(trained, half, ignore=shutil.ignore_patterns("checkpoint-*", "file_sizes*"))
    AutoModelForSeq2SeqLM.from_pretrained(trained).half().save_pretrained(half)
    main(argv(tmp_path / "out", "train", model_name_or_path=half))
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float32}


def test_a_finished_run_is_scored_again_on_other_data(argv, corpus, tmp_path, caplog):
    main(argv(tmp_path))
    (tmp_path.parent / "other.en").write_text((corpus / "val.en").read_text())
    (tmp_path.parent / "other.de").write_text((corpus / "val.de").read_text())
    other = {"test_source": tmp_path.parent / "other.en", "test_target": corpus / "val.de"}
    figures = main(argv(tmp_path, resume_from_checkpoint=True, **other))
    assert figures["test_loss"] == figures["eval_loss"]
    assert "test data changed" in caplog.text
    main(argv(tmp_path, resume_from_checkpoint=True, **other, generation_num_beams=1))
    assert "search settings changed" in caplog.text
    assert "train data" not in caplog.text


def test_two_runs_do_not_write_to_one_directory(argv, tmp_path):
    """A process that is killed leaves no lock, nor does one of its workers that lives on."""
    folder, (ready, locked) = tmp_path / "out", os.pipe()
    if (first := os.fork()) == 0:
        with locked_directory(folder, True):
            if (worker := os.fork()) == 0:
                signal.pause()
            os.write(locked, worker.to_bytes(8))
            signal.pause()
    worker = int.from_bytes(os.read(ready, 8))
    try:
        with pytest.raises(
            ValueError, match=r"Another run is writing to the output directory '.*out'"
        ):
            main(argv(folder, "train"))
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        assert list(folder.iterdir()) == [folder / LOCK]
        assert "train_loss" in main(argv(folder, "train"))
        assert not (folder / LOCK).exists()
    finally:
        os.kill(worker, signal.SIGKILL)


def test_other_training_data_and_limits_are_reported(argv, tmp_path, caplog):
    links = {"guided_alignment": "auto"}
    main(argv(tmp_path, "train", **links))
    changes = {"max_train_samples": 300, "max_source_length": 4, "guided_alignment_weight": 0}
    main(argv(tmp_path, "train", resume_from_checkpoint=True, **links, **changes))
    (line,) = [line for line in caplog.messages if line.startswith("Since the checkpoint")]
    assert "train data" in line
    assert "`max_source_length` (None, now 4)" in line
    assert "`guided_alignment_weight` (0.3, now 0" in line


def test_a_run_that_has_stopped_early_is_finished(argv, tmp_path, caplog):
    early = {"max_steps": 8, "learning_rate": 0, "early_stopping_patience": 2, "save_steps": 1}
    early |= {"eval_strategy": "steps", "eval_steps": 1}
    main(argv(tmp_path, **early))
    before = versions(tmp_path)
    main(argv(tmp_path, **early, resume_from_checkpoint=True))
    assert versions(tmp_path) == before
    assert "is finished" in caplog.text
    main(argv(tmp_path, **{**early, "early_stopping_patience": 4}, resume_from_checkpoint=True))
    assert json.loads((tmp_path / "trainer_state.json").read_text())["global_step"] == 5


@pytest.mark.parametrize("damaged", ["all_results.json", "trainer_state.json", "file_sizes.json"])
def test_a_run_that_was_cut_off_at_its_end_is_completed(argv, tmp_path, caplog, damaged):
    figures = main(argv(tmp_path))
    path = tmp_path / damaged
    if damaged == "file_sizes.json":
        path.unlink()
    else:
        path.write_text(path.read_text()[:20])
    again = main(argv(tmp_path, resume_from_checkpoint=True))
    assert "train_loss" not in again  # no step was trained
    assert again["test_loss"] == pytest.approx(figures["test_loss"])
    assert json.loads((tmp_path / "all_results.json").read_text()) == pytest.approx(again)
    assert json.loads((tmp_path / "trainer_state.json").read_text())["global_step"] == 4
    assert path.exists()
    assert damaged != "all_results.json" or "all_results.json changed since" in caplog.text


def test_figures_of_former_weights_do_not_survive(argv, tmp_path):
    main(argv(tmp_path))
    main(argv(tmp_path, "train", resume_from_checkpoint=True, max_steps=6))
    names = set(json.loads((tmp_path / "all_results.json").read_text()))
    assert "train_loss" in names
    assert not [name for name in names if name.startswith(("eval", "test"))]


def test_a_terminated_run_is_not_a_finished_one(argv, tmp_path, monkeypatch):
    def terminate(**options):
        with monkeypatch.context() as patched:
            patched.setattr(assembly.TokenBudgetSeq2SeqTrainer, "was_terminated", True)
            with pytest.raises(SystemExit) as ended:
                main(argv(tmp_path, "train", enable_jit_checkpoint=True, **options))
        assert ended.value.code == 143

    terminate()
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-2", "checkpoint-4"}
    main(argv(tmp_path, "train", resume_from_checkpoint=True))
    assert (tmp_path / "trainer_state.json").exists()
    terminate(resume_from_checkpoint=True, max_steps=6)  # the training has gone on
    main(argv(tmp_path, "train", resume_from_checkpoint=True))
    assert json.loads((tmp_path / "trainer_state.json").read_text())["global_step"] == 6


@pytest.mark.parametrize(
    ("number", "ended", "save_strategy", "kept"),
    [
        (signal.SIGTERM, SystemExit, "steps", "checkpoint-2' is kept"),
        (signal.SIGINT, KeyboardInterrupt, "no", "nothing is kept"),
    ],
)
def test_a_training_that_a_signal_ends_says_what_is_kept(
    argv, tmp_path, monkeypatch, caplog, number, ended, save_strategy, kept
):
    def make_trainer(*args):
        made, ends = make(*args), callback("on_step_begin", end)
        made.add_callback(ends)
        return made

    def end(state, *_):
        if state.global_step == 3:
            signal.raise_signal(number)

    make = assembly.make_trainer
    monkeypatch.setattr(assembly, "make_trainer", make_trainer)
    handler = signal.getsignal(signal.SIGTERM)
    # A shell that starts the tests in the background has them ignore it.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(ended):
        run_subcommand("train", argv(tmp_path / "run", "train", save_strategy=save_strategy))
    assert "ended early, after step 3: " in caplog.text
    assert kept in caplog.text
    assert (tmp_path / "run").exists() == (save_strategy == "steps")
    assert signal.getsignal(signal.SIGTERM) == handler
    signal.signal(signal.SIGINT, former)


def test_the_old_run_stays_whole_until_the_first_step(copy):  # noqa: F811
    before = contents(copy)
    guard = OverwriteGuard(OutputDirectory(copy, None, True), True)
    assert contents(copy) == before
    (copy / "runs").mkdir()
    (copy / "runs" / "log").write_text("new")
    guard.on_step_begin(None, None, None)
    assert contents(copy) == {Path("runs/log"): b"new"}
    (copy / "config.json").write_text("new")
    guard.delete()
    assert {path.name for path in copy.iterdir()} == {"runs", "config.json"}
