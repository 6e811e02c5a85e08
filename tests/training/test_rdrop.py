"""R-Drop and SimCut: the formulas, and the same normalisation as the plain loss in a run."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from tiny_training import assert_resumes_exactly, callback, model, rows, tokenizer, trainer
from transformers import DataCollatorForSeq2Seq

from vanilla_transformer.training.objectives import rdrop_loss, simcut_loss

NOTHING_CUT = {"simcut_alpha": 3.0, "simcut_cutoff": 0.0}


def batch(net, count=5):
    return dict(DataCollatorForSeq2Seq(tokenizer(), model=net)(rows(count)))


def gradients_of_a_step(folder, **options):
    """Returns the gradient of each parameter in the first step of a run without dropout."""
    found = {}

    def keep(state, control, net):
        found.update({name: p.grad.clone() for name, p in net.named_parameters()})

    options = {"max_steps": 1, "max_grad_norm": 0.0, "net": model(dropout=0.0), **options}
    options["train_sampling_strategy"] = "sequential"
    trainer(folder, callbacks=[callback("on_pre_optimizer_step", keep)], **options).train()
    return found


def test_it_is_half_of_the_papers_loss_over_real_tokens():
    net = model(dropout=0.3).train()
    inputs = batch(net)
    labels = inputs["labels"]
    assert (labels == -100).any()
    torch.manual_seed(5)
    found, _ = rdrop_loss(net, inputs, alpha=4.0, num_items_in_batch=17)
    torch.manual_seed(5)
    twice = {name: torch.cat([value] * 2) for name, value in inputs.items() if name != "labels"}
    one, two = net(**twice, use_cache=False).logits.log_softmax(-1).chunk(2)
    paper = 0.0
    for row, column in (labels != -100).nonzero().tolist():
        p, q, label = one[row, column], two[row, column], labels[row, column]
        kl = F.kl_div(q, p, log_target=True, reduction="sum")
        kl = kl + F.kl_div(p, q, log_target=True, reduction="sum")
        paper = paper - p[label] - q[label] + 4.0 * kl / 2
    torch.testing.assert_close(found, paper / 2 / 17)
    assert not torch.allclose(one, two)


def test_without_dropout_it_is_the_plain_loss_with_its_smoothing():
    net = model(dropout=0.0, label_smoothing=0.1).train()
    inputs = batch(net)
    found, outputs = rdrop_loss(net, inputs, alpha=5.0, label_smoothing=0.1)
    torch.testing.assert_close(found, net(**inputs).loss)
    assert len(outputs.logits) == 2 * len(inputs["labels"])


@pytest.mark.parametrize("padding_free", [True, False])
def test_simcut_compares_with_a_pass_that_does_not_see_some_tokens(padding_free):
    net = model(dropout=0.0, label_smoothing=0.1).train()
    net.set_padding_free(padding_free)
    inputs = batch(net)
    parameters = [p for p in net.parameters() if p.requires_grad]
    found, _ = simcut_loss(net, inputs, 3.0, cutoff=1.0, label_smoothing=0.1)
    plain = net(**inputs)
    blind = {name: inputs[name] for name in ("attention_mask", "labels")}
    for name, ids in (("", "input_ids"), ("decoder_", "decoder_input_ids")):
        blind[f"{name}inputs_embeds"] = torch.zeros(*inputs[ids].shape, net.config.d_model)
    counted = inputs["labels"] != -100
    p, q = (out.logits[counted].log_softmax(-1) for out in (plain, net(**blind)))
    expected = plain.loss + 3.0 * F.kl_div(q, p, log_target=True, reduction="batchmean")
    torch.testing.assert_close(found, expected)
    ours, theirs = (
        torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (found, expected)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)  # through both passes
    same, _ = simcut_loss(net, inputs, 3.0, cutoff=0.0, label_smoothing=0.1)
    torch.testing.assert_close(same, plain.loss)


def test_simcut_draws_the_tokens_of_the_second_pass_on_both_sides():
    net, hidden = model(dropout=0.0, position_embedding_type="none").train(), []
    for stack in (net.model.encoder, net.model.decoder):
        stack.embed_norm.register_forward_pre_hook(
            lambda _, args: hidden.append((args[0] == 0).all(-1))
        )
    ids = torch.randint(4, 30, (50, 20))
    simcut_loss(net, {"input_ids": ids, "decoder_input_ids": ids, "labels": ids}, 3.0, 0.3)
    assert len(hidden) == 2
    for is_cut in hidden:
        assert not is_cut[:50].any()
        assert 0.25 < is_cut[50:].float().mean() < 0.35
    assert (hidden[0] != hidden[1]).any()
    hidden.clear()
    net(input_ids=ids, labels=ids)
    assert not any(is_cut.any() for is_cut in hidden)


@pytest.mark.parametrize("items", [None, 0, torch.tensor(0)])
def test_a_batch_of_a_step_without_labels_has_the_loss_zero(items):
    net = model(dropout=0.3).train()
    inputs = batch(net)
    inputs["labels"] = torch.full_like(inputs["labels"], -100)
    assert rdrop_loss(net, inputs, alpha=5.0, num_items_in_batch=items)[0] == 0
    assert simcut_loss(net, inputs, 3.0, 0.1, num_items_in_batch=items)[0] == 0


@pytest.mark.parametrize("smoothing", [{}, {"label_smoothing_factor": 0.2}])
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("passes", [{"rdrop_alpha": 5.0}, NOTHING_CUT], ids=["rdrop", "simcut"])
def test_a_run_divides_it_as_the_plain_loss(tmp_path, passes, accumulation, smoothing):
    plain, two_passes = (
        gradients_of_a_step(
            tmp_path,
            gradient_accumulation_steps=steps,
            per_device_train_batch_size=16 // steps,
            **smoothing,
            **options,
        )
        for options, steps in (({}, 1), (passes, accumulation))
    )
    assert plain.keys() == two_passes.keys()
    for name, value in plain.items():
        torch.testing.assert_close(two_passes[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("passes", [{"rdrop_alpha": 5.0}, {"simcut_alpha": 3.0}])
def test_a_run_with_dropout_trains_evaluates_plainly_and_resumes(tmp_path, passes):
    options = {**passes, "max_steps": 6, "logging_steps": 1, "learning_rate": 0.01}
    options |= {"eval_strategy": "steps", "eval_steps": 3}
    whole, *_ = assert_resumes_exactly(partial(trainer, **options), tmp_path, 3)
    plain = trainer(tmp_path / "plain")
    plain.model.load_state_dict(whole.model.state_dict())
    assert plain.evaluate()["eval_loss"] == whole.evaluate()["eval_loss"]
