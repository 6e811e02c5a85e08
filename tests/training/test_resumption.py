"""Resumed trainings: from which checkpoint, with what, and with which figures."""

import json
import os
import re
import shutil
import signal

import pytest
from tiny_training import (
    ScheduleFree,
    assert_resumes_exactly,
    assert_same_weights,
    logged,
    losses,
    model,
    trainer,
)
from transformers import TrainerCallback

from vanilla_transformer.training.averaging import select_checkpoints
from vanilla_transformer.training.deadline import Deadline
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.store import FILE_SIZES

SAVED = {"save_strategy": "steps", "save_steps": 2, "learning_rate": 0.01, "logging_steps": 1}

PAPER = {"lr_scheduler_type": "noam", "warmup_steps": 4, "learning_rate": 5e-5}
PLATEAU = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps", "eval_steps": 1}


def run(folder, steps=6, **options):
    return trainer(folder, net=model(dropout=0.3), **{"max_steps": steps, **SAVED, **options})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A training of six steps with three checkpoints."""
    made = run(tmp_path_factory.mktemp("whole"))
    made.train()
    return made


@pytest.fixture
def copy(whole, tmp_path):
    """A copy of its directory."""
    return shutil.copytree(whole.args.output_dir, tmp_path / "copy")


NEEDED = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


@pytest.mark.parametrize("name", [*NEEDED, "tokenizer.json", FILE_SIZES])
def test_a_checkpoint_that_lacks_a_file_is_named_and_passed_over(whole, copy, caplog, name):
    (copy / "checkpoint-4" / name).unlink()
    shutil.rmtree(copy / "checkpoint-6")
    if name != FILE_SIZES:
        with pytest.raises(ValueError, match=f"checkpoint-4' is .* {name}"):
            run(copy).train(resume_from_checkpoint=str(copy / "checkpoint-4"))
    resumed = run(copy)
    resumed.train(resume_from_checkpoint=True)
    assert "checkpoint-4' is " in caplog.text
    assert name in caplog.text
    assert resumed.began_at == 2
    assert losses(resumed) == losses(whole)
    assert_same_weights(resumed, whole)


def test_a_checkpoint_of_another_program_is_resumed_by_its_name_alone(whole, copy):
    """The stock Trainer writes no list of sizes and no record."""
    for step in (2, 6):
        shutil.rmtree(copy / f"checkpoint-{step}")
    path = copy / "checkpoint-4"
    (path / FILE_SIZES).unlink()
    state = json.loads((path / "trainer_state.json").read_text())
    del state["stateful_callbacks"]["training_record"]
    (path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match=f"checkpoint-4' is .*: {FILE_SIZES} missing"):
        run(copy).train(resume_from_checkpoint=True)
    resumed = run(copy)
    resumed.train(resume_from_checkpoint=str(path))
    assert_same_weights(resumed, whole)


def test_checkpoints_without_the_optimizer_are_not_resumed(tmp_path):
    run(tmp_path, 2, save_only_model=True).train()
    with pytest.raises(ValueError, match=r"optimizer\.pt, rng_state\.pth, scheduler\.pt missing"):
        run(tmp_path).train(resume_from_checkpoint=True)


def test_later_checkpoints_than_the_named_one_are_in_the_way(tmp_path):
    run(tmp_path, 8, save_steps=3).train()
    with pytest.raises(ValueError, match=r"checkpoint-3, but .* also holds checkpoint-6, checkpoi"):
        run(tmp_path, 8).train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    branch = run(tmp_path / "branch", 5, save_steps=3)
    branch.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert [path.name for path in select_checkpoints(branch.args.output_dir, 1)] == ["checkpoint-5"]


@pytest.mark.parametrize("name", ["best", "latest", ".", "checkpoint-last"])
def test_a_checkpoint_may_have_any_name(whole, copy, monkeypatch, name):
    shutil.rmtree(copy / "checkpoint-6")
    if name == "latest":
        (copy / name).symlink_to("checkpoint-4")
    elif name == ".":
        monkeypatch.chdir(copy / "checkpoint-4")
    else:
        (copy / "checkpoint-4").rename(copy / name)
    resumed = run(copy)
    resumed.train(resume_from_checkpoint=name if name == "." else str(copy / name))
    assert resumed.began_at == 4
    assert_same_weights(resumed, whole)
    again = run(copy)
    with pytest.raises(ValueError, match="also holds checkpoint-6"):
        again.train(resume_from_checkpoint=name if name == "." else str(copy / name))


def test_a_checkpoint_with_a_cut_file_is_passed_over(whole, copy, caplog):
    weights = copy / "checkpoint-6" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    resumed = run(copy)
    resumed.train(resume_from_checkpoint=True)
    assert "checkpoint-6' is an incomplete checkpoint: model.safetensors" in caplog.text
    assert_same_weights(resumed, whole)


def test_a_checkpoint_that_is_saved_anew_is_not_whole_before_its_end(whole, copy, monkeypatch):
    """Another training of more steps has left a whole checkpoint of the same name."""

    def fail(*_):
        raise KeyboardInterrupt

    second = run(copy, 2)
    monkeypatch.setattr(second, "_save_optimizer_and_scheduler", fail)
    with pytest.raises(KeyboardInterrupt):
        second.train()
    assert not (copy / "checkpoint-2" / FILE_SIZES).exists()
    assert (copy / "checkpoint-4" / FILE_SIZES).exists()


def test_a_complete_training_trains_no_further_step(whole, copy):
    again = run(copy)
    figures = again.train(resume_from_checkpoint=True).metrics
    assert again.state.global_step == 6
    assert_same_weights(again, whole)
    assert "train_loss" not in figures  # of no step


def test_the_loss_of_a_resumed_training_is_that_of_its_own_steps(whole, tmp_path):
    run(tmp_path, stop_at=4).train()
    figures = run(tmp_path).train(resume_from_checkpoint=True).metrics
    last = [losses(whole)[step] for step in (5, 6)]
    assert figures["train_loss"] == pytest.approx(sum(last) / 2, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.02}, r"`learning_rate` \(0.01, now 0.02\) changed"),
        ({"learning_rate": 0.02, **PLATEAU}, r"`learning_rate` \(0.01, now 0.02\)"),
        (
            {"lr_scheduler_kwargs": {"factor": 2.0}, **PAPER},
            r"`lr_scheduler_kwargs` .*now .*'factor': 2.0",
        ),
        ({"optim": "adafactor"}, r"`optim` \(adamw_torch_fused, now adafactor\)"),
    ],
)
def test_settings_that_a_resumed_training_would_ignore_are_refused(tmp_path, changes, message):
    schedule = PAPER if changes.items() >= PAPER.items() else PLATEAU
    first = schedule if changes.items() >= schedule.items() else {}
    run(tmp_path, 2, **first).train()
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **changes).train(resume_from_checkpoint=True)


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"max_tokens": 40}, r"`max_tokens` \(60, now 40\) changed"),
        (
            {"lr_scheduler_type": "cosine", "warmup_steps": 1},
            r"`lr_scheduler_type` \(linear, now cosine\), `warmup_steps` \(0, now 1\) changed",
        ),
        ({}, None),
    ],
)
def test_another_course_of_the_training_is_reported(tmp_path, caplog, changes, reported):
    run(tmp_path, 4, stop_at=2, max_tokens=60).train()
    run(tmp_path, 4, **{"max_tokens": 60, **changes}).train(resume_from_checkpoint=True)
    if reported is None:
        assert "changed" not in caplog.text
    else:
        assert re.search(reported, caplog.text)


class SignalAt(TrainerCallback):
    """Sends SIGTERM at the beginning of a step."""

    def __init__(self, run, step):
        self.run, self.step = run, step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            found = self.run.callback_handler.callbacks
            manager = next(one.jit_manager for one in found if hasattr(one, "jit_manager"))
            manager.kill_wait = 0
            os.kill(os.getpid(), signal.SIGTERM)
            while not manager.is_checkpoint_requested:  # a timer of transformers sets it
                pass


@pytest.mark.parametrize("mean", [[], [0.5]])
def test_a_training_that_is_terminated_goes_on_to_the_last_bit(tmp_path, mean):
    def make(folder, stop_at=None, **options):
        callbacks = [ExponentialMovingAverage(decay) for decay in mean]
        options |= {"gradient_accumulation_steps": 2, "save_steps": 100}
        options |= {"enable_jit_checkpoint": stop_at is not None}
        made = run(folder, callbacks=callbacks, **options)
        if stop_at:
            made.add_callback(SignalAt(made, stop_at - 1))
        return made

    _, terminated, _ = assert_resumes_exactly(make, tmp_path, 3)
    assert terminated.was_terminated
    assert (tmp_path / "parts" / "checkpoint-3").is_dir()


@pytest.mark.parametrize("scored", [{}, {"eval_strategy": "steps", "eval_steps": 0.9}])
def test_a_training_in_minutes_that_is_terminated_keeps_its_last_step(tmp_path, scored):
    made = run(tmp_path, save_steps=0.9, enable_jit_checkpoint=True, **scored)
    made.add_callback(SignalAt(made, 2))
    made.add_callback(Deadline())
    made.train()
    assert made.was_terminated
    assert (tmp_path / "checkpoint-3").is_dir()


def test_the_weights_of_a_schedule_free_optimizer_are_saved_as_they_are_scored(tmp_path):
    def make(folder, steps=4):
        net = model(dropout=0.3)
        extra = {"optimizers": (ScheduleFree(net.parameters(), 0.01), None)}
        options = {"eval_strategy": "steps", "eval_steps": 2, **SAVED, "max_steps": steps}
        return trainer(folder, net=net, extra=extra, **options)

    whole = make(tmp_path)
    whole.train()
    whole.save_model(str(tmp_path / "model"))
    scores = logged(whole, "eval_loss")
    for step, name in ((2, "checkpoint-2"), (4, "checkpoint-4"), (4, "model")):
        saved = type(whole.model).from_pretrained(tmp_path / name)
        assert trainer(tmp_path, net=saved).evaluate()["eval_loss"] == scores[step]
    shutil.rmtree(tmp_path / "checkpoint-4")
    resumed = make(tmp_path)
    resumed.train(resume_from_checkpoint=True)
    assert_same_weights(resumed, whole)
    averaged = make(tmp_path)
    averaged.add_callback(ExponentialMovingAverage(0.9))
    with pytest.raises(ValueError, match=r"\(ScheduleFree\) evaluates a mean .* choose another"):
        averaged.train()


def test_the_rest_of_a_killed_run_does_not_cost_new_checkpoints(tmp_path):
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}
    trainer(tmp_path, stop_at=2, **options).train()
    cut_off = shutil.copytree(tmp_path / "checkpoint-2", tmp_path / "checkpoint-9")
    (cut_off / "trainer_state.json").unlink()
    trainer(tmp_path, **options).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-6"]
