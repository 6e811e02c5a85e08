"""A training that ends in time where its steps take longer than those that were timed."""

import json
import math

import pytest
from made_up_language import arguments

from vanilla_transformer.run.arguments import parse_arguments
from vanilla_transformer.run.training_run import run
from vanilla_transformer.training import deadline
from vanilla_transformer.training.deadline import Deadline

STEPS = 60


@pytest.fixture
def clock(monkeypatch):
    """The time, which only the steps of a training and its evaluations move on."""
    now = [1000.0]
    monkeypatch.setattr(deadline, "monotonic", lambda: now[0])
    return now


class Slow(deadline.TrainerCallback):
    """Lets a step take as long as `seconds_of` says, and an evaluation five seconds."""

    def __init__(self, clock, seconds_of):
        self.clock, self.seconds_of = clock, seconds_of

    def on_step_begin(self, args, state, *_, **__):
        self.clock[0] += self.seconds_of(state.global_step)

    def on_evaluate(self, *_, **__):
        self.clock[0] += 5


def train(corpus, out, clock, seconds_of, until, **changes):
    """Trains at most `STEPS` steps, and returns the seconds, steps and learning rates."""
    options = {"max_steps": STEPS, "logging_steps": 1, "learning_rate": 1e-3, "eval_steps": 0.25}
    options |= {"eval_strategy": "steps", "save_strategy": "steps", "save_steps": 0.25}
    argv = arguments(corpus, out, "train", "validation", **{**options, **changes})
    limit = Deadline(clock[0] + until, seconds_per_step=1.0, per_evaluation=5.0)
    began = clock[0]
    run(parse_arguments(argv), callbacks=[Slow(clock, seconds_of), limit])
    state = json.loads((out / "trainer_state.json").read_text(encoding="utf-8"))
    log = state["log_history"]
    rates = [entry["learning_rate"] for entry in log if "learning_rate" in entry]
    evaluated = [entry["step"] for entry in log if "eval_loss" in entry]
    return clock[0] - began, state["global_step"], rates, evaluated


@pytest.mark.parametrize(
    ("name", "seconds_of", "until", "least"),
    [
        ("as timed", lambda _: 1.0, 85, STEPS),
        ("as timed, for fewer", lambda _: 1.0, 60, 40),
        ("faster", lambda _: 0.5, 85, STEPS),
        ("faster at the end", lambda step: 0.4 if step > 20 else 1.0, 55, 40),
        ("half as fast", lambda _: 2.0, 85, 30),
        ("slower at the end", lambda step: 3.0 if step > 40 else 1.0, 85, 45),
        ("slower for a while", lambda step: 3.0 if 10 < step < 20 else 1.0, 85, 38),
    ],
)
def test_a_training_ends_in_time_and_its_schedule_with_it(
    corpus, tmp_path, clock, name, seconds_of, until, least
):
    seconds, steps, rates, evaluated = train(corpus, tmp_path, clock, seconds_of, until)
    assert seconds - 5 <= until + 3, name  # the last scores, and one step
    assert least <= steps <= STEPS
    assert (steps == STEPS) == (name in {"as timed", "faster"})
    assert len(rates) == steps
    assert evaluated[-1] == steps
    assert 0 < rates[-1] < max(rates) / 10
    assert rates[20:] == sorted(rates[20:], reverse=True)


def test_a_time_that_is_over_ends_a_training(corpus, tmp_path, clock):
    _, steps, *_ = train(corpus, tmp_path, clock, lambda _: 100.0, 85)
    assert steps == 3  # those until the first plan, and the last one


def test_shares_of_a_training_are_those_of_the_steps_that_it_has(corpus, tmp_path, clock):
    options = {"logging_steps": 0.125, "save_total_limit": 9}
    _, steps, rates, evaluated = train(corpus, tmp_path, clock, lambda _: 1.0, 40, **options)
    assert steps == 20
    assert evaluated == [6, 11, 15, 20, 20]  # the last one is of the saved model
    assert len(rates) == 8 + 1
    assert {int(path.name[11:]) for path in tmp_path.glob("checkpoint-*")} == {*evaluated}


@pytest.mark.parametrize("schedule", ["noam", "constant", "reduce_lr_on_plateau", "cosine"])
def test_each_schedule_is_shortened(corpus, tmp_path, clock, schedule):
    options = {"lr_scheduler_type": schedule}
    seconds, steps, rates, _ = train(corpus, tmp_path, clock, lambda _: 2.0, 85, **options)
    assert seconds - 5 <= 88
    assert 30 <= steps < STEPS
    assert all(map(math.isfinite, rates))


@pytest.mark.parametrize("is_over", [False, True])
def test_a_resumed_training_ends_as_it_was_planned(corpus, tmp_path, clock, is_over):
    _, steps, *_ = train(corpus, tmp_path / "whole", clock, lambda _: 2.0, 85)
    saved = {int(path.name[11:]): path for path in (tmp_path / "whole").glob("checkpoint-*")}
    checkpoint = saved[steps if is_over else min(saved)]
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    options = {"resume_from_checkpoint": str(checkpoint)}
    ended = train(corpus, tmp_path / "ended", clock, lambda _: 0.1, math.inf, **options)
    assert ended[1] == state["stateful_callbacks"]["Deadline"]["attributes"]["max_steps"] < STEPS
    assert (ended[1] == steps) or not is_over
    assert ended[2][-1] < max(ended[2]) / 10


def test_checkpoints_of_a_training_without_evaluations_are_saved(corpus, tmp_path, clock):
    options = {
        "eval_strategy": "no",
        "save_steps": 10,
        "load_best_model_at_end": False,
    }
    train(corpus, tmp_path, clock, lambda _: 1.0, 85, **options)
    saved = {int(path.name.rpartition("-")[2]) for path in tmp_path.glob("checkpoint-*")}
    assert {10, 20, 50, 60} <= saved
