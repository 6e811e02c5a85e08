"""Trains on the same tokens in one process or two; test_processes.py runs it.

Arguments: the folder for the reports, then kinds of runs: plain, rdrop, fsdp, average, budget,
guided, muon.
"""

import os
import sys
from pathlib import Path

import pytest
import torch
from accelerate import PartialState
from datasets import Dataset
from small import linked_rows, losses, model, rows, trainer, write_report
from transformers.distributed.configuration_utils import DistributedConfig

from vanilla_transformer.training.averaging import AverageCheckpoints
from vanilla_transformer.training.muon import make_muon

torch.set_num_threads(1)
DEFAULTS = (("RANK", "0"), ("WORLD_SIZE", "1"))
# Adam would blow up the rounding of gradients that are zero: keys' biases.
SGD = {"optim": "sgd", "learning_rate": 0.3}
SAME_PAIRS = {"train_sampling_strategy": "sequential"}
OPTIONS = {
    "rdrop": {"rdrop_alpha": 1.0},  # adds nothing without dropout, if it is divided right
    "average": {"save_strategy": "steps", "save_steps": 1},
    # one process takes two batches a step, or two processes one each
    "guided": {"guided_alignment": "links", "guided_alignment_weight": 0.5},
    "budget": {"max_tokens": 60, "train_sampling_strategy": "random"},
    "muon": {"optim": "muon", "learning_rate": 1e-3, "muon_learning_rate": 0.1},
}


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def share(tensor):
    """Returns the share of a tensor that this process holds."""
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).numel() / tensor.numel()


def spread(net, folder):
    """Returns the model with its weights sharded over two processes by transformers."""
    if int(os.environ["RANK"]) == 0:
        net.save_pretrained(Path(folder, "model"))
    PartialState(cpu=True).wait_for_everyone()
    split = DistributedConfig(fsdp_size=2)
    return type(net).from_pretrained(Path(folder, "model"), distributed_config=split)


def train(folder, kind):
    rank, world = (int(os.environ.get(name, default)) for name, default in DEFAULTS)
    net = model(dropout=0.0, attention_bias=kind != "muon")
    run = trainer(
        Path(folder, kind),
        net=spread(net, folder) if kind == "fsdp" else net,
        data=linked_rows() if kind == "guided" else rows(),
        per_device_train_batch_size=8 // world,
        per_device_eval_batch_size=1,
        max_steps=4,
        logging_steps=3,  # the last step is in no entry of the log
        predict_with_generate=kind != "fsdp",  # its weights are gathered in forward alone
        generation_max_length=6 + 3 * rank,  # differs, to be padded
        callbacks=[AverageCheckpoints(2)] if kind == "average" else [],
        gradient_accumulation_steps=2 // world if kind == "budget" else 1,
        **{**SGD, **SAME_PAIRS, **OPTIONS.get(kind, {})},
    )
    figures = run.train().metrics
    evaluation = run.predict(run.eval_dataset)
    run.args.per_device_eval_batch_size = 3
    uneven = run.predict(rows(7, seed=2))  # two processes get rows twice
    run.args.eval_max_tokens = 1  # seven batches, which two processes cannot share
    shared = run.evaluate(Dataset.from_list(rows(7, seed=2)))
    report = {
        "losses": losses(run),
        "train_loss": figures["train_loss"],
        "weights": {name: whole(p).tolist() for name, p in run.model.named_parameters()},
        "shares": {name: share(p) for name, p in run.model.named_parameters()},
        "eval_loss": evaluation.metrics["test_loss"],
        "uneven_loss": uneven.metrics["test_loss"],
        "shared_loss": shared["eval_loss"],
        "uneven_labels": len(uneven.label_ids),
        "labels": evaluation.label_ids.tolist(),
        "processes": run.args.world_size,
    }
    if kind == "fsdp":
        with pytest.raises(ValueError, match="a parameter is a shard"):
            make_muon(run.model)
    else:
        report["predictions"] = evaluation.predictions.tolist()
    write_report(folder, kind, rank, report)


def main(folder, *kinds):
    torch.cpu._is_avx512_bf16_supported = lambda: False  # Muon's bfloat16 would blow up rounding
    for kind in kinds:
        train(folder, kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
