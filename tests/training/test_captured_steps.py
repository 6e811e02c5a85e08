"""Steps of packed batches: on a CPU, where nothing is recorded, a replay computes a step again."""

from types import SimpleNamespace

import pytest
import torch
from packed_sequences import pretend_to_pack
from small import losses, model, rows, trainer
from watch import callback

from vanilla_transformer.training import captured_steps
from vanilla_transformer.training.captured_steps import CapturedSteps, pack_batch


def record(step, other=None):
    return SimpleNamespace(replay=step)


@pytest.fixture
def stand_in(monkeypatch):
    pretend_to_pack(monkeypatch)
    monkeypatch.setattr(captured_steps, "record", record)


def make_batch(seed, length=9):
    ids = torch.randint(4, 30, (3, length), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def test_losses_and_gradients_of_repeated_shapes(stand_in):
    net = model(dropout=0.0).train()
    steps = CapturedSteps(net)
    for seed, length in ((0, 9), (1, 9), (2, 70), (3, 9), (4, 70), (5, 70)):
        batch, items = make_batch(seed, length), torch.tensor(40)
        net.zero_grad()
        output = net(**batch, num_items_in_batch=items)
        output.loss.backward()
        expected = [parameter.grad.clone() for parameter in net.parameters()]
        packed = pack_batch(batch, net.config, max_tokens=100)
        net.zero_grad()
        torch.testing.assert_close(steps(packed, items), output.loss.detach())
        torch.testing.assert_close([p.grad for p in net.parameters()], expected)
        steps(packed, items)  # the gradients of further batches are added
        doubled = [2 * gradient for gradient in expected]
        torch.testing.assert_close([p.grad for p in net.parameters()], doubled)


def test_gradients_of_other_steps_are_kept(stand_in):
    net, items = model(dropout=0.0).train(), torch.tensor(54)
    steps, batches = CapturedSteps(net), [make_batch(0), make_batch(1)]
    for batch in batches:
        net(**batch, num_items_in_batch=items).loss.backward()
    expected = [parameter.grad.clone() for parameter in net.parameters()]
    packed = [pack_batch(batch, net.config, max_tokens=100) for batch in batches]
    for turn in range(6):
        net.zero_grad()
        if turn % 2:
            steps(packed[0], items)
            net(**batches[1], num_items_in_batch=items).loss.backward()
        else:
            net(**batches[0], num_items_in_batch=items).loss.backward()
            steps(packed[1], items)
        torch.testing.assert_close([p.grad for p in net.parameters()], expected)


def test_a_weight_that_the_loss_does_not_reach(stand_in):
    net = model().train()
    net.unused = torch.nn.Parameter(torch.ones(2))
    for dtype in (None, torch.bfloat16):
        net.zero_grad()
        CapturedSteps(net, dtype)(pack_batch(make_batch(0), net.config, 100), torch.tensor(27))
        assert net.unused.grad.tolist() == [0.0, 0.0]


def test_graphs_are_of_weights_that_stay_where_they_are():
    net = model()
    steps = CapturedSteps(net)
    assert steps.fits(net)
    assert not steps.fits(model())
    net.lm_head.weight.data = net.lm_head.weight.data.clone()
    assert not steps.fits(net)


def thaw_later(state, control, model):
    model.model.encoder.layers.requires_grad_(state.global_step >= 4)


OPTIONS = {"max_tokens": 60, "max_steps": 12, "logging_steps": 1}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bf16": True},
        {"gradient_accumulation_steps": 2},
        {"optim": "muon", "max_grad_norm": 0.1},
        {"callbacks": [callback("on_step_begin", thaw_later)], "learning_rate": 0.01},
    ],
)
def test_a_training_is_that_of_plain_steps(tmp_path, monkeypatch, options):
    runs = []
    for captures in (False, True):
        if captures:
            pretend_to_pack(monkeypatch)
            monkeypatch.setattr(captured_steps, "record", record)
        made = trainer(tmp_path, net=model(dropout=0.0), **OPTIONS, **options)
        made.train()
        assert made._captures_steps == captures
        runs.append((losses(made), made.num_tokens))
    (plain, tokens), (captured, tokens_again) = runs
    assert tokens == tokens_again
    assert captured == pytest.approx(plain, rel=0.02 if "bf16" in options else 1e-4)


@pytest.mark.parametrize(
    "options",
    [
        *({"rdrop_alpha": 1.0}, {"label_smoothing_factor": 0.1}, {"max_tokens": None}),
        *({"activation_checkpointing": True}, {"optim": "lomo"}),
    ],
)
def test_other_trainings_are_not_recorded(tmp_path, stand_in, options):
    made = trainer(tmp_path, data=rows(), **{**OPTIONS, **options})
    (batch, *_) = made.get_train_dataloader()
    assert "source_bounds" not in batch


def test_what_users_add_to_a_step_is_not_recorded(tmp_path, monkeypatch, stand_in):
    runs = [trainer(tmp_path, **OPTIONS) for _ in range(3)]
    runs[0].compute_loss = lambda *given: None
    runs[1].model.lm_head.weight.register_hook(lambda gradient: gradient)
    runs[2].model.lm_head.weight.register_post_accumulate_grad_hook(lambda weight: None)
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "false")
    runs.append(trainer(tmp_path, torch_compile=True, **OPTIONS))
    for made in runs:
        (batch, *_) = made.get_train_dataloader()
        assert "source_bounds" not in batch


def test_masks_between_tokens_are_not_packed():
    batch = {**make_batch(0), "weights": torch.ones(3)}
    assert pack_batch(batch, model().config, max_tokens=100) == batch  # the model gets the rest too
    batch = make_batch(0)
    batch["attention_mask"] = torch.ones(3, 1, 9, 9)
    assert pack_batch(batch, model().config, max_tokens=100) == batch
    del batch["attention_mask"]  # nothing is padding
    assert (pack_batch(batch, model().config, max_tokens=100)["attention_mask"] == 1).sum() == 27


def test_a_process_that_reads_data_leaves_the_gpu_alone(monkeypatch):
    def forked():
        raise RuntimeError("CUDA error: initialization error")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", forked)
    assert "source_bounds" in pack_batch(make_batch(0), model().config, max_tokens=100)
