"""Steps of packed batches: on a CPU, where nothing is recorded, a replay computes a step again."""

import numpy as np
import pytest
import torch
from gpu_stand_ins import StandInRecorder, pack_in_one_size, pretend_to_pack
from tiny_training import callback, losses, model, rows, trainer

from vanilla_transformer.training import captured_steps
from vanilla_transformer.training.captured_steps import CapturedSteps, choose_sizes, pack_batch


@pytest.fixture
def stand_in(monkeypatch):
    pretend_to_record(monkeypatch)


def pretend_to_record(monkeypatch):
    pretend_to_pack(monkeypatch)
    monkeypatch.setattr(captured_steps, "Recorder", StandInRecorder)


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
        packed = pack_in_one_size(batch, net.config)
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
    packed = [pack_in_one_size(batch, net.config) for batch in batches]
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
        CapturedSteps(net, dtype)(pack_in_one_size(make_batch(0), net.config), torch.tensor(27))
        assert net.unused.grad is None


CHANGES = {
    "another model": lambda net: model(),
    "a moved weight": lambda net: setattr(net.lm_head.weight, "data", net.lm_head.weight.clone()),
    "a frozen weight": lambda net: net.lm_head.requires_grad_(False),
    "dropout": lambda net: setattr(net.model.encoder.dropout, "p", 0.3),
    "label smoothing": lambda net: setattr(net.config, "label_smoothing", 0.2),
    "scale": lambda net: setattr(net.model.encoder.layers[0].self_attn, "scaling", 0.2),
    "mode": lambda net: net.model.encoder.eval(),
    "rotations": lambda net: net.model.encoder.embed_positions._frequencies_on("meta"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_graphs_are_of_a_model_that_stays_as_it_is(stand_in, change):
    net = model(position_embedding_type="rope").train()
    steps = CapturedSteps(net)
    assert steps.is_current_for(net)
    other = CHANGES[change](net)
    assert not steps.is_current_for(net if change != "another model" else other)


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
            pretend_to_record(monkeypatch)
        made = trainer(tmp_path, net=model(dropout=0.0), **OPTIONS, **options)
        made.train()
        assert made._packs_batches == captures
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
def test_other_trainings_are_not_packed(tmp_path, stand_in, options):
    made = trainer(tmp_path, data=rows(), **{**OPTIONS, **options})
    (batch, *_) = made.get_train_dataloader()
    assert "cu_seq_lens_q" not in batch


def test_a_loss_of_the_users_gets_padded_batches(tmp_path, monkeypatch, stand_in):
    runs = [trainer(tmp_path, **OPTIONS)]
    runs[0].compute_loss = lambda *given: None
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "false")
    runs.append(trainer(tmp_path, torch_compile=True, **OPTIONS))
    for made in runs:
        (batch, *_) = made.get_train_dataloader()
        assert "cu_seq_lens_q" not in batch


def packing(made):
    """Gives a trainer a collator that packs its batches."""
    collate, config = made.data_collator, made.model.config
    made.data_collator = lambda features: pack_in_one_size(collate(features), config)
    return made


@pytest.mark.parametrize("options", [{"rdrop_alpha": 5.0}, {"simcut_alpha": 3.0}])
def test_losses_of_two_passes_refuse_packed_batches(tmp_path, options):
    made = packing(trainer(tmp_path, **{**OPTIONS, **options, "max_tokens": None}))
    with pytest.raises(ValueError, match="padded batches"):
        made.train()


@pytest.mark.parametrize("options", [{}, {"bf16": True}])
def test_packed_batches_of_the_users_are_not_recorded(tmp_path, options):
    options, runs = {**OPTIONS, **options, "max_tokens": None}, []
    for prepare in (lambda made: made, packing):
        made = prepare(trainer(tmp_path, net=model(dropout=0.0), **options))
        made.train()
        assert made._captured is None
        runs.append(losses(made))
    assert runs[1] == pytest.approx(runs[0], rel=0.02 if "bf16" in options else 1e-4)


def count_hooks(calls):
    """What a callback may add to a model when a training begins."""

    def replace_forward(net):
        once = net.forward
        net.forward = lambda *args, **options: calls.append(1) or once(*args, **options)

    def replace_forward_of_layer(net):
        replace_forward(net.model.encoder.layers[0])

    def hook(module):
        return lambda net: module(net).register_forward_hook(lambda *_: calls.append(1))

    def hook_weight(net):
        net.lm_head.weight.register_hook(lambda gradient: calls.append(1))

    def hook_gradient(net):
        net.lm_head.weight.register_post_accumulate_grad_hook(lambda weight: calls.append(1))

    return {
        "forward": replace_forward,
        "forward of a layer": replace_forward_of_layer,
        "hook of the model": hook(lambda net: net),
        "hook of a layer": hook(lambda net: net.model.decoder.layers[0]),
        "hook of a weight": hook_weight,
        "hook of a gradient": hook_gradient,
    }


@pytest.mark.parametrize("kind", count_hooks([]))
def test_what_a_callback_adds_is_called_at_each_step(tmp_path, stand_in, kind):
    calls = []

    def begin(state, control, model):
        count_hooks(calls)[kind](model)

    made = trainer(tmp_path, callbacks=[callback("on_train_begin", begin)], **OPTIONS)
    made.train()
    assert len(calls) == OPTIONS["max_steps"]


def test_masks_between_tokens_are_not_packed():
    config = model().config
    batch = {**make_batch(0), "weights": torch.ones(3)}
    assert pack_in_one_size(batch, config) == batch  # the model gets the rest too
    sizes = choose_sizes([range(3)], *[np.full(3, 9)] * 2, 100)
    batch = make_batch(0)
    batch["attention_mask"] = torch.ones(3, 1, 9, 9)
    assert pack_batch(batch, config, sizes, 100) == batch
    del batch["attention_mask"]  # nothing is padding
    assert (pack_batch(batch, config, sizes, 100)["attention_mask"] == 1).sum() == 27
    batch = make_batch(0, 70)  # no size has room for it
    assert pack_batch(batch, config, sizes, 100) == batch


def test_a_batch_without_padding_token_has_the_error_of_a_padded_one(stand_in):
    net = model()
    net.config.pad_token_id = None
    with pytest.raises(ValueError, match="pad_token_id"):
        pack_in_one_size(make_batch(0), net.config)


def test_a_process_that_reads_data_leaves_the_gpu_alone(monkeypatch):
    def forked():
        raise RuntimeError("CUDA error: initialization error")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", forked)
    assert "cu_seq_lens_q" in pack_in_one_size(make_batch(0), model().config)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_weights_converted_at_once_compute_what_autocast_does(stand_in, tied, frozen):
    net = model(dropout=0.0, tie_word_embeddings=tied).train()
    net.model.encoder.layers[0].requires_grad_(not frozen)
    batch, items = pack_in_one_size(make_batch(0), net.config), torch.tensor(27)
    with torch.autocast("cpu", torch.bfloat16):
        inputs = {name: value for name, value in batch.items() if name != "attention_mask"}
        expected = net(**inputs, num_items_in_batch=items).loss
    expected.backward()
    gradients = [parameter.grad for parameter in net.parameters()]
    steps = CapturedSteps(net, torch.bfloat16)
    for _ in range(2):
        net.zero_grad()
        assert steps(batch, items) == expected
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        assert (parameter.grad is None) is (gradient is None)
        if gradient is not None:
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-2, atol=1e-5)
