"""Resumed trainings: from which checkpoint, with what, and with which figures."""

import os
import shutil
import signal

import pytest
import torch
from small import StopAt, losses, model, trainer
from transformers import TrainerCallback

from vanilla_transformer.training.moving_average import ExponentialMovingAverage

SAVED = {"save_strategy": "steps", "save_steps": 2, "learning_rate": 0.01, "logging_steps": 1}


def run(folder, steps=6, **options):
    return trainer(folder, net=model(dropout=0.3), **{"max_steps": steps, **SAVED, **options})


def assert_same_weights(one, other):
    for (name, value), second in zip(
        one.model.state_dict().items(), other.model.state_dict().values(), strict=True
    ):
        assert torch.equal(value, second), name


@pytest.mark.parametrize(
    "name",
    [
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "model.safetensors",
        "trainer_state.json",
    ],
)
def test_a_checkpoint_that_lacks_a_file_is_named_and_passed_over(tmp_path, caplog, name):
    whole = run(tmp_path)
    whole.train()
    (tmp_path / "checkpoint-4" / name).unlink()
    shutil.rmtree(tmp_path / "checkpoint-6")
    with pytest.raises(ValueError, match=f"checkpoint-4' is an incomplete .* it lacks {name}"):
        run(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    resumed = run(tmp_path)
    resumed.train(resume_from_checkpoint=True)
    assert f"it lacks {name}" in caplog.text
    assert losses(resumed) == losses(whole)
    assert_same_weights(resumed, whole)


def test_checkpoints_without_the_optimizer_are_not_resumed(tmp_path):
    run(tmp_path, 2, save_only_model=True).train()
    with pytest.raises(ValueError, match=r"lacks optimizer\.pt, scheduler\.pt, rng_state\.pth"):
        run(tmp_path).train(resume_from_checkpoint=True)


def test_a_checkpoint_of_several_processes_needs_all_their_random_numbers(tmp_path, caplog):
    run(tmp_path, 2).train()
    path = tmp_path / "checkpoint-2"
    state = path / "trainer_state.json"
    state.write_text(state.read_text().replace('"num_processes": 1', '"num_processes": 2'))
    (path / "rng_state.pth").rename(path / "rng_state_0.pth")
    with pytest.raises(ValueError, match=r"lacks rng_state_1\.pth"):
        run(tmp_path).train(resume_from_checkpoint=str(path))
    shutil.copy(path / "rng_state_0.pth", path / "rng_state_1.pth")
    run(tmp_path).train(resume_from_checkpoint=str(path))
    assert "saved by 2 processes and is resumed by 1" in caplog.text


def test_a_younger_checkpoint_of_another_training_is_not_passed_over(tmp_path):
    run(tmp_path, 8).train()
    branch = run(tmp_path, 8, learning_rate=0.01)
    branch.add_callback(StopAt(4))
    branch.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    with pytest.raises(ValueError, match=r"checkpoint-4 .* is younger than checkpoint-8"):
        run(tmp_path, 8).train(resume_from_checkpoint=True)


def test_the_clock_does_not_matter_within_one_training(tmp_path):
    stopped = run(tmp_path, 8)
    stopped.add_callback(StopAt(2))
    stopped.train()
    stopped = run(tmp_path, 8)
    stopped.add_callback(StopAt(6))
    stopped.train(resume_from_checkpoint=True)
    os.utime(tmp_path / "checkpoint-6" / "trainer_state.json", (1, 1))  # as after a copy
    resumed = run(tmp_path, 8)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.record.processes[-1][0] == 6


def test_a_complete_training_trains_no_further_step(tmp_path):
    whole = run(tmp_path, 5, save_steps=5)
    figures = whole.train().metrics
    resumed = run(tmp_path, 5, save_steps=5)
    again = resumed.train(resume_from_checkpoint=True).metrics
    assert resumed.state.global_step == 5
    assert_same_weights(resumed, whole)
    assert again["train_loss"] == pytest.approx(figures["train_loss"])
    assert again["train_runtime"] >= resumed.record.seconds_before > 0


def test_the_figures_after_a_resumption_cover_the_whole_training(tmp_path):
    whole = run(tmp_path / "whole").train().metrics
    stopped = run(tmp_path / "parts", logging_steps=3)
    stopped.add_callback(StopAt(2))
    stopped.train()
    middle = run(tmp_path / "parts", logging_steps=3)
    middle.add_callback(StopAt(4))
    middle.train(resume_from_checkpoint=True)
    before = middle.record.seconds
    resumed = run(tmp_path / "parts", logging_steps=3)
    figures = resumed.train(resume_from_checkpoint=True).metrics
    assert figures["train_loss"] == pytest.approx(whole["train_loss"])
    assert figures["train_runtime"] > before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0.02}, r"`learning_rate` \(initial_lr\) is 0.02, but .* has 0.01"),
        ({"weight_decay": 0.1}, r"`weight_decay` is 0.1, but .* has 0.0"),
        ({"adam_beta2": 0.98}, r"`adam_beta2` \(betas\)"),
        ({"optim": "sgd"}, r"another optimizer|belongs to another `--optim`"),
        ({"optim": "adafactor"}, r"another optimizer|belongs to another `--optim`"),
    ],
)
def test_settings_that_a_resumed_training_would_ignore_are_refused(tmp_path, changes, message):
    run(tmp_path, 2).train()
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **changes).train(resume_from_checkpoint=True)


def test_a_changed_factor_of_the_papers_schedule_is_refused(tmp_path):
    paper = {"lr_scheduler_type": "noam", "warmup_steps": 4, "learning_rate": 5e-5}
    run(tmp_path, 2, **paper).train()
    with pytest.raises(ValueError, match=r"`lr_scheduler_kwargs` \(factor\) is 2.0"):
        run(tmp_path, **paper, lr_scheduler_kwargs={"factor": 2.0}).train(True)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_a_truncated_state_is_named(tmp_path, name):
    run(tmp_path, 2).train()
    path = tmp_path / "checkpoint-2" / name
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"optimizer.pt or scheduler.pt in .*checkpoint-2"):
        run(tmp_path).train(resume_from_checkpoint=True)


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
    def make(folder, **options):
        callbacks = [ExponentialMovingAverage(decay) for decay in mean]
        options |= {"gradient_accumulation_steps": 2, "save_steps": 100}
        return run(tmp_path / folder, callbacks=callbacks, **options)

    whole = make("whole")
    whole.train()
    terminated = make("parts", enable_jit_checkpoint=True)
    terminated.add_callback(SignalAt(terminated, 2))
    terminated.train()
    assert terminated.was_terminated
    assert (tmp_path / "parts" / "checkpoint-3").is_dir()
    resumed = make("parts")
    resumed.train(resume_from_checkpoint=True)
    assert losses(resumed) == losses(whole)
    assert_same_weights(resumed, whole)
