"""Run by test_parallel.py in each of two processes: a model, or a batch, split over both.

Arguments: the folder for the reports, then the directories of saved models.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from transformers.distributed.configuration_utils import DistributedConfig

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.trainer import group_tied_modules

torch.set_num_threads(1)
KINDS = ("tp_size", "fsdp_size", "fsdp by Accelerate")
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


def shard_by_accelerate(directory):
    """Shards a model as `Accelerator.prepare` does, by the layers that the model names itself."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        reshard_after_forward=True,
        cpu_ram_efficient_loading=False,
    )
    prepared = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin), mixed_precision="no", is_main_process=True
    )
    model = VanillaTransformerForConditionalGeneration.from_pretrained(directory)
    group_tied_modules(model, plugin)
    model = fsdp2_prepare_model(prepared, model)
    dist.fsdp.register_fsdp_forward_method(model, "generate")
    return model


def compare(directory, kind):
    make = VanillaTransformerForConditionalGeneration.from_pretrained
    expected, expected_tokens, _ = run(make(directory))
    if kind == "fsdp by Accelerate":
        model = shard_by_accelerate(directory)
    else:
        model = make(directory, distributed_config=DistributedConfig(**{kind: 2}))
    found, tokens, shares = run(model)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=name)
    assert tokens.tolist() == expected_tokens.tolist()
    return shares


def compare_shared_batch(directory):
    """Each process trains on a row of its own, one of them with padding (DDP)."""
    model = VanillaTransformerForConditionalGeneration.from_pretrained(directory)
    expected = training_step(model)
    rank = slice(dist.get_rank(), dist.get_rank() + 1)
    rows = {name: tensor[rank] for name, tensor in BATCH.items()}
    parallel = torch.nn.parallel.DistributedDataParallel(model.train())
    items = (LABELS != -100).sum() / dist.get_world_size()  # DDP takes the mean of the processes
    parallel(**rows, labels=LABELS[rank], num_items_in_batch=items).loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, expected[f"training {name}"], rtol=1e-4, atol=1e-5, msg=name
        )


def main(folder, *directories):
    report = {}
    for directory in directories:
        for kind in KINDS:
            report[f"{Path(directory).name} {kind}"] = compare(directory, kind)
        compare_shared_batch(directory)
    (Path(folder) / f"{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
