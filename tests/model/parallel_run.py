"""Run by test_parallel.py in each of two processes: a model split over both.

Arguments: the folder for the reports, then the directories of saved models.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from transformers.distributed.configuration_utils import DistributedConfig

from vanilla_transformer import VanillaTransformerForConditionalGeneration

torch.set_num_threads(1)
KINDS = ("tp_size", "fsdp_size")
SOURCE = torch.tensor([[3, 4, 5, 6, 2], [7, 8, 2, 1, 1]])
BATCH = {"input_ids": SOURCE, "attention_mask": (SOURCE != 1).long()}
LABELS = torch.tensor([[4, 5, 2], [6, 2, -100]])


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def training_step(model):
    """Returns loss, logits and gradients of a step that computes no padding."""
    for module in model.train().modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    outputs = model(**BATCH, labels=LABELS)
    outputs.loss.backward()
    computed = {"training loss": outputs.loss, "training logits": whole(outputs.logits)}
    computed |= {f"training {n}": whole(p.grad) for n, p in model.named_parameters()}
    model.zero_grad()
    return computed


def run(model):
    """Returns what a model computes, also after a step, and the share of it that is held here."""
    trained = training_step(model)
    model.eval()
    shares = {
        name: (p.to_local() if hasattr(p, "to_local") else p).numel() / p.numel()
        for name, p in model.named_parameters()
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outputs = model(**BATCH, labels=LABELS)
    outputs.loss.backward()
    gradients = {name: whole(p.grad) for name, p in model.named_parameters()}
    optimizer.step()
    again = model(**BATCH, labels=LABELS)
    tokens = model.generate(**BATCH, max_new_tokens=6, num_beams=2)
    computed = {"logits": outputs.logits, "loss": outputs.loss, "next logits": again.logits}
    return {**computed, **gradients, **trained}, tokens, shares


def compare(directory, kind):
    make = VanillaTransformerForConditionalGeneration.from_pretrained
    expected, expected_tokens, _ = run(make(directory))
    model = make(directory, distributed_config=DistributedConfig(**{kind: 2}))
    found, tokens, shares = run(model)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=name)
    assert tokens.tolist() == expected_tokens.tolist()
    return shares


def main(folder, *directories):
    report = {}
    for directory in directories:
        for kind in KINDS:
            report[f"{Path(directory).name} {kind}"] = compare(directory, kind)
    (Path(folder) / f"{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
