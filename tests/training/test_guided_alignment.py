"""Guided alignment: its loss, its normalisation in a run, resumption, and other options."""

import pytest
import torch
from test_rdrop import gradients_of_a_step
from tiny_training import (
    assert_resumes_exactly,
    linked_rows,
    losses,
    model,
    rows,
    tokenizer,
    trainer,
)
from transformers import DataCollatorForSeq2Seq

from vanilla_transformer.training.guided_alignment import (
    LinkCollator,
    guided_loss,
    learn_lexicon,
    recorded_heads,
)

GUIDED = {"guided_alignment": "links", "guided_alignment_weight": 0.5}


def batch(net, count=6, words=None):
    collator = DataCollatorForSeq2Seq(words or tokenizer(), model=net)
    return dict(LinkCollator(collator)(linked_rows(count)))


def recorded_loss(net, inputs):
    plain = {name: value for name, value in inputs.items() if name != "alignment"}
    with recorded_heads(net) as records:
        net(**plain)
    return guided_loss(records, inputs)


def weights_of(net, inputs):
    """Returns what attention returns for head 0 of each layer: (batch, target_len, source_len)."""
    plain = {name: value for name, value in inputs.items() if name != "alignment"}
    return [layer[:, 0] for layer in net(**plain, output_attentions=True).cross_attentions]


ARCHITECTURES = {
    "default": {},
    "grouped": {"decoder_attention_heads": 4, "decoder_num_key_value_heads": 2},
    "pre": {"norm_placement": "pre", "fused_qkv": True, "qk_norm": "all"},
    "wide": {"head_dim": 12, "attention_scale": 0.7, "position_embedding_type": "relative"},
}


@pytest.mark.parametrize("padding_free", [True, False])
@pytest.mark.parametrize("changes", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_it_is_the_mean_cross_entropy_of_the_weights_of_a_head_of_each_layer(changes, padding_free):
    net = model(decoder_layers=2, dropout=0.0, **changes).train()
    net.set_padding_free(padding_free)
    inputs = batch(net)
    inputs["labels"][1, 0] = -100
    found, layers = recorded_loss(net, inputs), weights_of(net, inputs)
    expected = 0.0
    for row, links in enumerate(inputs["alignment"].tolist()):
        pairs = [(s, t) for s, t in links if s >= 0 and inputs["labels"][row, t] != -100]
        for source, target in pairs:
            share = sum(t == target for _, t in pairs)
            for weights in layers:
                loss = -weights[row, target, source].log() / share
                expected = expected + loss / len(layers)
    torch.testing.assert_close(found, expected)
    one, other = (
        torch.autograd.grad(value, net.parameters(), allow_unused=True)
        for value in (found, expected)
    )
    for first, second in zip(one, other, strict=True):
        assert (first is None) == (second is None)
        if first is not None:
            torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-5)


def test_links_follow_the_tokens_of_a_batch_that_is_padded_on_the_left():
    words = tokenizer()
    right = batch(model(), words=words)
    words.padding_side = "left"
    left = batch(model(), words=words)
    assert (left["labels"][:, 0] == -100).any()
    for row, links in enumerate(right["alignment"].tolist()):
        moved = left["alignment"][row].tolist()
        for (source, target), (moved_source, moved_target) in zip(links, moved, strict=True):
            if source < 0:
                assert (moved_source, moved_target) == (-1, -1)
                continue
            assert right["input_ids"][row, source] == left["input_ids"][row, moved_source]
            assert right["labels"][row, target] == left["labels"][row, moved_target] != -100
            assert left["attention_mask"][row, moved_source] == 1


@pytest.mark.parametrize("alpha", [None, 5.0])
def test_accumulated_steps_have_the_gradient_of_one(tmp_path, alpha):
    one, other = (
        gradients_of_a_step(
            tmp_path,
            data=linked_rows(16),
            gradient_accumulation_steps=steps,
            per_device_train_batch_size=16 // steps,
            rdrop_alpha=alpha,
            **GUIDED,
        )
        for steps in (1, 4)
    )
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-6)


def plain_and_guided(folder, **options):
    """Returns the losses of a run without links and of one with links, by step."""
    runs = [
        trainer(folder, net=model(dropout=0.0), logging_steps=1, **options, **extra)
        for extra in ({}, GUIDED)
    ]
    for run in runs:
        run.train()
    return [losses(run) for run in runs]


def test_the_loss_of_a_run_is_that_of_the_tokens_and_the_weighted_links(tmp_path):
    net = model(dropout=0.0)
    inputs = batch(net, 24)
    links = recorded_loss(net.train(), inputs)
    mean = links.item() / int((inputs["labels"] != -100).sum())
    options = {"per_device_train_batch_size": 24, "train_sampling_strategy": "sequential"}
    plain, guided = plain_and_guided(tmp_path, data=linked_rows(), max_steps=1, **options)
    assert guided[1] - plain[1] == pytest.approx(0.5 * mean, rel=1e-3)


@pytest.mark.parametrize("links", ["links", "auto"])
def test_a_run_learns_links_names_the_head_and_resumes_to_the_bit(links, tmp_path):
    options = {"max_steps": 6, "logging_steps": 1, "learning_rate": 0.01, **GUIDED}
    options |= {"max_tokens": 64, "label_smoothing_factor": 0.1, "guided_alignment": links}
    data = linked_rows() if links == "links" else rows()

    def run(folder, **more):
        net = model(dropout=0.3, decoder_layers=3, decoder_layerdrop=0.2)
        return trainer(folder, net=net, data=data, **{**options, **more})

    whole, *_ = assert_resumes_exactly(run, tmp_path, 3)
    assert whole.model.config.alignment_heads == [[1, 0]]


def test_a_weight_of_zero_turns_it_off(tmp_path):
    options = {**GUIDED, "guided_alignment": "auto", "guided_alignment_weight": 0}
    run = trainer(tmp_path, data=rows(), max_steps=1, **options)
    run.train()
    assert run.model.config.alignment_heads is None


def test_links_are_learnt_from_the_tokens_that_go_together():
    made = [{**row, "labels": [token + 1 for token in row["input_ids"]]} for row in rows(200)]
    net = model()
    learnt = LinkCollator(DataCollatorForSeq2Seq(tokenizer(), model=net), learn_lexicon(made, 40))(
        made[:20]
    )
    for row, links in zip(made, learnt["alignment"].tolist(), strict=False):
        found = {(source, target) for source, target in links if source >= 0}
        ids, count = row["input_ids"], len(row["input_ids"]) - 1  # without the end
        assert {(index, index) for index in range(count)} <= found
        assert all(ids[source] == ids[target] for source, target in found)


def test_steps_with_nothing_to_predict_or_to_link_do_no_harm(tmp_path):
    unlabelled = [{**row, "labels": [-100] * len(row["labels"])} for row in linked_rows(4)]
    assert plain_and_guided(tmp_path, data=unlabelled, max_steps=1)[1] == {1: 0}
    unlinked = [{**row, "alignment": []} for row in rows()]
    plain, guided = plain_and_guided(tmp_path, data=unlinked, max_steps=2)
    assert plain == guided


@pytest.mark.parametrize("links", ["links", "auto"])
def test_evaluation_and_generation_know_no_links(links, tmp_path):
    run = trainer(
        tmp_path,
        data=linked_rows() if links == "links" else rows(),
        extra={"eval_dataset": linked_rows(6) if links == "links" else rows(6)},
        max_steps=1,
        **{**GUIDED, "guided_alignment": links},
    )
    run.train()
    if links == "auto":
        assert all("alignment" not in inputs for inputs in run.get_eval_dataloader())
        assert all("alignment" in inputs for inputs in run.get_train_dataloader())
    plain = trainer(tmp_path, net=run.model, extra={"eval_dataset": rows(6)})
    assert run.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]
    run.args.predict_with_generate = True
    assert run.evaluate(max_length=4)["eval_loss"] == plain.evaluate()["eval_loss"]
