"""A moving average of the weights in real runs: evaluation, saving and resumption."""

import pytest
import torch
from safetensors.torch import load_file
from tiny_training import (
    assert_resumes_exactly,
    assert_same_weights,
    callback,
    logged,
    losses,
    model,
    trainer,
)
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer

from vanilla_transformer.training.deadline import Deadline
from vanilla_transformer.training.moving_average import ExponentialMovingAverage

DECAY = 0.8
SAVED = {"save_strategy": "steps", "save_steps": 3, "learning_rate": 0.01, "logging_steps": 1}


def weights(net):
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def run(folder, decay=DECAY, **options):
    """Returns a trainer with a mean, and the weights in training after each of its steps."""
    seen = []
    # It is called before the mean is: later, the model has the weights of the mean.
    recorder = callback("on_step_end", lambda state, control, net: seen.append(weights(net)))
    callbacks = [recorder, ExponentialMovingAverage(decay)]
    return trainer(folder, callbacks=callbacks, **{"max_steps": 8, **SAVED, **options}), seen


def mean_of(seen):
    mean = seen[0]
    for count, one in enumerate(seen[1:], 1):
        decay = min(DECAY, (1 + count) / (10 + count))
        mean = {name: decay * mean[name] + (1 - decay) * one[name] for name in mean}
    return mean


def assert_same(found, expected, exactly=False):
    assert found.keys() == expected.keys()
    tolerance = {"rtol": 0, "atol": 0} if exactly else {"rtol": 1e-5, "atol": 1e-7}
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=name, **tolerance)


def test_training_is_the_same_and_the_mean_is_what_is_saved(tmp_path):
    plain = trainer(tmp_path / "plain", max_steps=8, **{**SAVED, "save_strategy": "no"})
    plain.train()
    averaged, seen = run(tmp_path / "mean")
    averaged.train()
    assert losses(averaged) == losses(plain)
    assert_same(seen[-1], weights(plain.model), exactly=True)
    assert_same(weights(averaged.model), mean_of(seen))
    for step in (3, 6):
        saved = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean" / f"checkpoint-{step}")
        assert_same(weights(saved), mean_of(seen[:step]))
        raw = load_file(tmp_path / "mean" / f"checkpoint-{step}" / "training_weights.safetensors")
        assert_same(raw, seen[step - 1], exactly=True)


def test_the_mean_is_what_is_evaluated(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 4, "eval_on_start": True}
    averaged, seen = run(tmp_path, **options, save_strategy="no")
    averaged.train()
    other = trainer(tmp_path / "other", net=model())
    by_step = logged(averaged, "eval_loss")
    assert list(by_step) == [0, 4, 8]
    assert other.evaluate()["eval_loss"] == by_step[0]
    for step in (4, 8):
        with torch.no_grad():
            for name, p in other.model.named_parameters():
                p.copy_(mean_of(seen[:step])[name])
        assert other.evaluate()["eval_loss"] == pytest.approx(by_step[step], rel=1e-5)


def asks_at_step_5():
    return callback(
        "on_step_end",
        lambda state, control, _: setattr(control, "should_evaluate", state.global_step in (3, 5)),
    )


@pytest.mark.parametrize("later", [Deadline, asks_at_step_5])
def test_the_mean_is_evaluated_also_where_a_later_callback_asks_for_it(tmp_path, later):
    options = {"eval_strategy": "steps", "eval_steps": 0.3}  # of Trainer: at steps 3 and 6
    averaged, seen = run(tmp_path, **options, save_strategy="no")
    found = {}
    for added in (
        later(),
        callback(
            "on_evaluate", lambda state, _, net: found.update({state.global_step: weights(net)})
        ),
    ):
        averaged.add_callback(added)
    averaged.train()
    assert {3, 5} <= found.keys()
    for step, evaluated in found.items():
        assert_same(evaluated, mean_of(seen[:step]))


def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path):
    whole, *_ = assert_resumes_exactly(
        lambda *args, **options: run(*args, **options)[0], tmp_path, 5, 3
    )
    # The stock Trainer does not tell the callback where the checkpoint is.
    checkpoint = (tmp_path / "parts" / "checkpoint-3").rename(tmp_path / "moved")
    mean = ExponentialMovingAverage(DECAY, checkpoint)
    resumed = trainer(tmp_path / "new", callbacks=[mean], max_steps=8, **SAVED)
    Seq2SeqTrainer.train(resumed, str(checkpoint))
    assert losses(resumed) == losses(whole)
    assert_same_weights(resumed, whole)
    # Its arguments may name it; a checkpoint of this number beside it is of another training.
    run(tmp_path / "other", learning_rate=0.02)[0].train()
    for folder in ("other", "empty"):
        resumed, _ = run(tmp_path / folder)
        with pytest.raises(ValueError, match="`checkpoint` of step 3"):
            Seq2SeqTrainer.train(resumed, str(checkpoint))
    resumed, _ = run(tmp_path / "other", resume_from_checkpoint=str(checkpoint))
    Seq2SeqTrainer.train(resumed, str(checkpoint))
    assert_same_weights(resumed, whole)


def test_the_best_mean_is_loaded_at_the_end(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 3, "load_best_model_at_end": True}
    averaged, seen = run(tmp_path, **options, save_strategy="best")
    averaged.train()
    best = averaged.state.best_global_step
    assert best in (3, 6, 8)
    assert_same(weights(averaged.model), mean_of(seen[:best]))
    raw = load_file(tmp_path / f"checkpoint-{best}" / "training_weights.safetensors")
    assert_same(raw, seen[best - 1], exactly=True)


def test_what_cannot_be_is_refused(tmp_path):
    half = trainer(
        tmp_path, net=model().bfloat16(), max_steps=1, callbacks=[ExponentialMovingAverage(0.9)]
    )
    with pytest.raises(ValueError, match="needs float32 weights"):
        half.train()
    trainer(tmp_path / "plain", max_steps=3, **SAVED).train()
    late, _ = run(tmp_path / "plain")
    with pytest.raises(ValueError, match=r"`ema_decay` \(None, now "):
        late.train(resume_from_checkpoint=True)
    run(tmp_path / "mean", max_steps=3)[0].train()
    with pytest.raises(ValueError, match=r"`ema_decay` \(.*, now None\) changed"):
        trainer(tmp_path / "mean", max_steps=6, **SAVED).train(resume_from_checkpoint=True)
