"""Scheduled sampling: which tokens are replaced, and which tokens replace them."""

import pytest
import torch
from small import model, trainer

from vanilla_transformer.training.objectives import mix_predictions


@pytest.fixture
def case(tiny_model, tiny_batch):
    batch = tiny_batch()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}
    return tiny_model(dropout=0.5).train(), inputs


def fed_by(model, inputs):
    return model.prepare_decoder_input_ids_from_labels(inputs["labels"])


def test_a_rate_of_one_feeds_what_the_model_predicts(case):
    model, inputs = case
    mixed = mix_predictions(model, inputs, 1.0)
    assert model.training
    fed = fed_by(model, inputs)
    with torch.no_grad():
        logits = model.eval()(
            inputs["input_ids"], inputs["attention_mask"], decoder_input_ids=fed
        ).logits
    real = inputs["labels"][:, :-1] != -100
    ids = mixed["decoder_input_ids"]
    assert torch.equal(ids[:, 1:][real], logits[:, :-1].argmax(-1)[real])
    assert torch.equal(ids[:, 1:][~real], fed[:, 1:][~real])
    assert torch.equal(ids[:, 0], fed[:, 0])
    assert mixed["labels"] is inputs["labels"]
    assert (ids != fed).any()


def test_a_rate_of_zero_is_teacher_forcing(case):
    model, inputs = case
    assert torch.equal(
        mix_predictions(model, inputs, 0.0)["decoder_input_ids"], fed_by(model, inputs)
    )


def test_a_rate_in_between_replaces_that_share_of_the_tokens(case):
    model, inputs = case
    whole = mix_predictions(model, inputs, 1.0)["decoder_input_ids"]
    can_change = whole != fed_by(model, inputs)
    torch.manual_seed(0)
    shares = [
        (mix_predictions(model, inputs, 0.3)["decoder_input_ids"] == whole)[can_change]
        for _ in range(60)
    ]
    assert torch.cat(shares).float().mean().item() == pytest.approx(0.3, abs=0.08)


def test_what_makes_no_sense_is_refused(case):
    model, inputs = case
    with pytest.raises(ValueError, match=r"`rate` is 1\.5"):
        mix_predictions(model, inputs, 1.5)
    with pytest.raises(ValueError, match="no labels"):
        mix_predictions(model, {"input_ids": inputs["input_ids"]}, 0.5)


def test_a_run_moves_from_true_tokens_to_predicted_ones(tmp_path):
    net, shares = model(dropout=0.0), []

    def look(module, args, kwargs):
        if kwargs.get("labels") is not None:
            true = module.prepare_decoder_input_ids_from_labels(kwargs["labels"])
            changed = (kwargs["decoder_input_ids"] != true)[:, 1:]
            shares.append(changed[kwargs["labels"][:, :-1] != -100].float().mean().item())

    handle = net.register_forward_pre_hook(look, with_kwargs=True)
    options = {"max_steps": 10, "learning_rate": 0.0, "seed": 0}
    trainer(tmp_path / "run", net=net, scheduled_sampling=1.0, **options).train()
    handle.remove()
    assert len(shares) == 10
    assert shares[0] == 0
    assert shares[9] > shares[2] > 0
    assert shares[9] > 0.6
