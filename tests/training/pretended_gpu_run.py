"""Computes on a CPU and on a pretended GPU; test_pretended_gpu.py runs it in a process of its own.

Arguments: the folder of the trainings.
"""

import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from pretended_gpu import NAME, PretendedGpu, register
from tiny_training import linked_rows, losses, model, rows, trainer

from vanilla_transformer.model import losses as loss_functions
from vanilla_transformer.model import token_layout
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES
from vanilla_transformer.training.moving_average import ExponentialMovingAverage

torch.set_num_threads(1)
DEVICE = f"{NAME}:0"
IDS = torch.tensor([[5, 6, 7, 2], [8, 2, 1, 1]])
BATCH = {"input_ids": IDS, "attention_mask": (IDS != 1).long()}
LABELS = torch.tensor([[9, 4, 2], [6, 2, -100]])
SIZES = ({}, {"decoder_vocab_size": 27, "norm_placement": "pre"})
STEPS, BATCHES = 4, 2
TRAININGS = {
    "adamw": {},
    "muon": {"optim": "muon"},
    "guided": {"guided_alignment": "links", "guided_alignment_weight": 0.5},
    "rdrop": {"rdrop_alpha": 1.0},
}


def there(net):
    """Moves a model to the device."""
    net.to(DEVICE).tie_weights()  # a parameter of another type is a new one on each move
    return net


def compute(net):
    """Returns what a model computes in training, in evaluation and when it generates."""
    batch = {name: tensor.to(net.device) for name, tensor in BATCH.items()}
    labels = LABELS.to(net.device)
    loss = net.train()(**batch, labels=labels).loss
    loss.backward()
    found = {f"gradient of {name}": p.grad for name, p in net.named_parameters()}
    logits = net.eval()(**batch, labels=labels).logits
    found |= {"loss": loss, "logits": logits}
    for kind, options in (("greedy", {}), ("beams", {"num_beams": 2})):
        found[kind] = net.generate(**batch, max_new_tokens=4, **options)
    return {name: tensor.detach().cpu() for name, tensor in found.items()}


def compare(scheme, changes):
    options = {"dropout": 0.0, "position_embedding_type": scheme, **changes}
    expected = compute(model(**options))
    with PretendedGpu():
        found = compute(there(model(**options)))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=name)


def make_run(folder, kind, on_device):
    """Makes a trainer on the CPU or on the device."""
    data = linked_rows() if kind == "guided" else rows()
    run = trainer(
        folder / f"{kind}_{on_device}",
        net=model(dropout=0.0, attention_bias=False),
        data=data,
        callbacks=[ExponentialMovingAverage(0.9)],
        max_tokens=60,
        max_steps=STEPS,
        gradient_accumulation_steps=BATCHES,
        logging_steps=STEPS,
        learning_rate=1e-3,
        **TRAININGS[kind],
    )
    if on_device:
        run.accelerator.state.device = run.args.__dict__["_setup_devices"] = torch.device(DEVICE)
        there(run.model)
    return run


def main(folder):
    register()
    torch.cpu._is_avx512_bf16_supported = lambda: True  # Muon's products in bfloat16, as on a GPU
    # Only these two look at the class of a tensor; they take those of a GPU for plain ones.
    plain = patch.object(token_layout, "_is_plain_tensor", lambda x, shape: x.shape == shape)
    with plain, patch.object(loss_functions, "is_plain_product", lambda head: True):
        with PretendedGpu(), pytest.raises(RuntimeError, match="tensors of two devices"):
            torch.ones(2, device=DEVICE) + torch.ones(2)
        for scheme in CHOICES["position_embedding_type"]:
            for changes in SIZES:
                compare(scheme, changes)
        for kind in TRAININGS:
            whole = make_run(Path(folder), kind, False)
            whole.train()
            with PretendedGpu():
                run = make_run(Path(folder), kind, True)
                run.train()
            assert losses(run) == pytest.approx(losses(whole), rel=1e-3), kind


if __name__ == "__main__":
    main(sys.argv[1])
