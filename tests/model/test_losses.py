"""The loss without all logits is the cross-entropy of all logits."""

import pytest
import torch
import torch.nn.functional as F
from largest_tensor import LargestTensor
from torch import nn

from vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForSequenceClassification,
)
from vanilla_transformer.model.losses import CHUNK_ROWS, leaves_out_logits, projected_token_loss

ML = "multi_label_classification"
ROWS, WIDTH, VOCAB = 2 * CHUNK_ROWS + 60, 8, 50


def problem(bias=True, vocab=VOCAB, rows=ROWS, dtype=torch.float32):
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, vocab, bias=bias).to(dtype)
    hidden = torch.randn(2, rows // 2, WIDTH, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, vocab, (2, rows // 2))
    return hidden, head, labels.masked_fill(torch.rand(labels.shape) < 0.2, -100)


def run(function, hidden, head, labels, *args):
    hidden.grad = None
    head.zero_grad()
    loss = function(hidden, head, labels, *args)
    loss.backward()
    return loss.detach(), [hidden.grad, *(p.grad for p in head.parameters())]


def reference(hidden, head, labels, smoothing=0.0, items=None):
    """What torch says, from all the logits."""
    total = F.cross_entropy(
        head(hidden).flatten(0, 1).float(),
        labels.flatten(),
        reduction="sum",
        label_smoothing=smoothing,
    )
    return total / ((labels != -100).sum() if items is None else items)


@pytest.mark.parametrize("items", [None, 700, torch.tensor(700)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("bias", [True, False])
def test_the_loss_and_its_gradients_are_torchs(bias, smoothing, items):
    args = problem(bias=bias)
    loss, gradients = run(projected_token_loss, *args, smoothing, items)
    expected, expected_gradients = run(reference, *args, smoothing, items)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for found, gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(found, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rows", [2, CHUNK_ROWS, CHUNK_ROWS + 2])
@pytest.mark.parametrize("vocab", [WIDTH - 2, WIDTH + 1])
def test_small_problems_too(rows, vocab):
    args = problem(rows=rows, vocab=vocab)
    args[2][0, 0] = 1
    for smoothing in (0.0, 0.2):
        found, expected = (
            run(function, *args, smoothing) for function in (projected_token_loss, reference)
        )
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_where_there_is_nothing_to_predict_the_loss_is_zero():
    hidden, head, labels = problem()
    labels.fill_(-100)
    loss, gradients = run(projected_token_loss, hidden, head, labels, 0.1)
    assert loss == 0
    assert all((gradient == 0).all() for gradient in gradients)


def test_double_precision_stays():
    args = problem(dtype=torch.float64)
    expected = F.cross_entropy(args[1](args[0]).flatten(0, 1), args[2].flatten())
    torch.testing.assert_close(projected_token_loss(*args), expected)


@pytest.mark.parametrize("ignored", [0, 1])
def test_a_class_that_is_impossible_leaves_the_loss_finite(ignored):
    hidden, head, labels = problem()
    with torch.no_grad():
        head.bias[0] = -torch.inf
    labels[labels == 0] = 1
    labels[:ignored] = -100
    found, expected = (
        run(function, hidden, head, labels) for function in (projected_token_loss, reference)
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert found[0].isfinite()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision(dtype, autocast):
    hidden, head, labels = problem(dtype=torch.float32 if autocast else dtype)
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        found, gradients = run(projected_token_loss, hidden, head, labels, 0.1)
        expected, expected_gradients = run(reference, hidden, head, labels, 0.1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    for mine, theirs in zip(gradients, expected_gradients, strict=True):
        assert mine.dtype == theirs.dtype
        assert (mine - theirs).norm() <= 0.02 * theirs.norm()


@pytest.mark.parametrize("is_half", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_logits_are_never_there_together(smoothing, is_half):
    hidden, head, labels = problem(vocab=300)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_half)
    with LargestTensor() as seen, autocast:
        run(projected_token_loss, hidden, head, labels, smoothing)
    assert seen.elements <= CHUNK_ROWS * 300 < ROWS * 300
    with LargestTensor() as seen:
        run(reference, hidden, head, labels, smoothing)
    assert seen.elements >= ROWS * 300


def test_a_second_backward_through_one_graph():
    hidden, head, labels = problem()
    loss = projected_token_loss(hidden, head, labels)
    loss.backward(retain_graph=True)
    once = head.weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(head.weight.grad, 2 * once)


@pytest.mark.parametrize("change", ["hook", "class", "wrapped forward"])
def test_a_head_that_does_more_gets_all_logits(change):
    hidden, head, _ = problem(bias=False)
    assert leaves_out_logits(hidden, head)
    assert not leaves_out_logits(hidden[:, :2], head)
    if change == "hook":
        head.register_forward_hook(lambda module, inputs, output: 2 * output)
    elif change == "class":

        class Doubled(nn.Linear):
            def forward(self, input):
                return 2 * super().forward(input)

        head.__class__ = Doubled
    else:
        once = head.forward
        head.forward = lambda input: 2 * once(input)
    assert not leaves_out_logits(hidden, head)


def test_a_gradient_of_the_gradient_is_refused_and_not_wrong():
    hidden, head, labels = problem()
    loss = projected_token_loss(hidden, head, labels)
    with pytest.raises(RuntimeError, match="set_padding_free"):
        torch.autograd.grad(loss, head.weight, create_graph=True)


# --- the number of labels ------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, torch.tensor(0)])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("cls", "changes"),
    [
        (VanillaTransformerForConditionalGeneration, {}),
        (VanillaTransformerForSequenceClassification, {"num_labels": 4}),
        (VanillaTransformerForSequenceClassification, {"problem_type": ML, "num_labels": 4}),
    ],
)
def test_a_batch_of_a_step_without_labels_has_the_loss_zero(
    tiny_model, tiny_batch, cls, changes, training, number
):
    """Trainer passes 0 if no batch of an optimizer step has a label."""
    model, ids = tiny_model(cls, **changes).train(training), tiny_batch()["input_ids"]
    shape = (3, 4) if "problem_type" in changes else (3,)
    if cls is not VanillaTransformerForSequenceClassification:
        shape = ids.shape
    nothing, target = torch.full(shape, -100), {}
    if cls is VanillaTransformerForConditionalGeneration:
        target = {"decoder_input_ids": ids}
    if "problem_type" in changes:
        nothing = nothing.float()
    loss = model(ids, **target, labels=nothing, num_items_in_batch=number).loss
    assert loss.item() == 0
    loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
