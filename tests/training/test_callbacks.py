"""Sentences are shown during training, without an effect on the training."""

import io
import sys

import pytest
import torch
from small import ScheduleFree, assert_same_weights, model, tokenizer, trainer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy import SIZES, arguments, main

from vanilla_transformer.model.modes import evaluation_mode
from vanilla_transformer.training.callbacks import ShowTranslations
from vanilla_transformer.training.moving_average import ExponentialMovingAverage

SOURCES = ["w1 w2", "w2 w3 w4", "w3", "w4 w1"]
TARGETS = ["w11 w12", "w12 w13 w14", "w13", "w14 w11"]


@pytest.fixture
def make_trainer(tmp_path):
    def make(schedule_free=False, **options):
        encoded = tokenizer()(SOURCES, text_target=TARGETS)
        data = [dict(zip(encoded, row, strict=True)) for row in zip(*encoded.values(), strict=True)]
        options = {"max_steps": 4, "learning_rate": 0.01, **options}
        net, extra = model(dropout=0.3, **SIZES), {}
        if schedule_free:
            extra["optimizers"] = (ScheduleFree(net.parameters(), 0.01), None)
        return trainer(tmp_path, net=net, data=data, extra=extra, **options)

    return make


def show(trainer, every, count=2):
    trainer.add_callback(ShowTranslations(trainer, SOURCES[:count], TARGETS[:count], every))
    return trainer


def shown(text):
    return [line for line in text.splitlines() if line.startswith(("step ", "  "))]


def test_it_shows_every_so_many_steps(make_trainer, capsys):
    show(make_trainer(), 2).train()
    lines = shown(capsys.readouterr().out)
    assert len(lines) == 2 * (1 + 2 * 4)
    assert [line.split(":")[0] for line in lines if line.startswith("step")] == ["step 2", "step 4"]
    assert lines[1:3] == ["  source     w1 w2", "  reference  w11 w12"]
    assert [line.split()[0] for line in lines[1:5]] == ["source", "reference", "forced", "greedy"]


def test_a_model_that_has_learned_shows_the_references(make_trainer, capsys):
    trainer = show(make_trainer(max_steps=60), 60, count=4)
    trainer.train()
    lines = shown(capsys.readouterr().out)
    assert [line[13:] for line in lines if line.startswith("  forced")] == TARGETS
    assert [line[13:] for line in lines if line.startswith("  greedy")] == TARGETS
    trainer.model.eval()
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(4)])
    with torch.no_grad():
        loss = trainer.model(**batch).loss.item()
    assert float(lines[0].split()[-1]) == pytest.approx(loss, abs=2e-4)


@pytest.mark.parametrize("schedule_free", [False, True], ids=["moving average", "schedule-free"])
def test_it_shows_the_weights_that_are_saved(make_trainer, capsys, schedule_free):
    trainer = make_trainer(schedule_free, max_steps=6, learning_rate=0.1)
    if not schedule_free:
        trainer.add_callback(ExponentialMovingAverage(0.9))
    show(trainer, 6, count=4).train()
    if schedule_free:
        trainer.optimizer.eval()
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(4)])
    with evaluation_mode(trainer.model):
        loss = trainer.model(**batch).loss.item()
    assert float(shown(capsys.readouterr().out)[0].split()[-1]) == pytest.approx(loss, abs=2e-4)


@pytest.mark.parametrize(("decay", "schedule_free"), [(None, False), (0.9, False), (None, True)])
def test_training_is_the_same_with_and_without_it(make_trainer, decay, schedule_free):
    def made():
        trainer = make_trainer(schedule_free)
        if decay is not None:
            trainer.add_callback(ExponentialMovingAverage(decay))
        return trainer

    plain = made()
    plain.train()
    after = torch.get_rng_state()
    watched = show(made(), 1)
    watched.train()
    assert torch.equal(torch.get_rng_state(), after)
    assert_same_weights(watched, plain)
    assert watched.model.training == plain.model.training


def test_other_processes_show_nothing(make_trainer, capsys):
    trainer = show(make_trainer(), 1)
    trainer.state.global_step, trainer.state.is_world_process_zero = 1, False
    callback = trainer.callback_handler.callbacks[-1]
    callback.on_step_end(trainer.args, trainer.state, trainer.control, model=trainer.model)
    assert capsys.readouterr().out == ""
    trainer.state.is_world_process_zero = True
    callback.on_step_end(trainer.args, trainer.state, trainer.control, model=trainer.model)
    assert capsys.readouterr().out.startswith("step 1")


def test_an_option_of_a_run_shows_validation_examples_here_and_in_tensorboard(
    corpus, tmp_path, capsys
):
    options = {"show_every": 2, "show_examples": 1, "max_steps": 2, "save_strategy": "no"}
    argv = arguments(corpus, tmp_path, "train", "validation", report_to="tensorboard", **options)
    main(argv)
    first = (corpus / "val.en").read_text(encoding="utf-8").splitlines()[0]
    text = capsys.readouterr().out
    assert shown(text)[1] == f"  source     {first}"
    assert text.count("  source     ") == 1
    (folder,) = {path.parent for path in tmp_path.rglob("events.out.tfevents*")}
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    (event,) = events.Tensors("translations/text_summary")
    assert event.step == 2
    assert first in event.tensor_proto.string_val[0].decode()


def test_an_output_that_is_not_utf_8_shows_escapes(make_trainer, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    trainer = make_trainer(max_steps=1)
    trainer.add_callback(ShowTranslations(trainer, ["ein Bäume"], ["über"], every=1))
    trainer.train()
    sys.stdout.flush()
    assert rb"source     ein B\xe4ume" in written.getvalue()
