"""Trains on the same tokens in one process or two; test_processes.py runs it.

Arguments: the folder for the reports, then kinds of runs: plain, rdrop, simcut, fsdp, accelerate,
budget, guided, muon.
"""

import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from accelerate import PartialState
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType
from accelerate.utils.launch import prepare_multi_gpu_env
from datasets import Dataset
from programs import REPOSITORY
from several_processes import write_report
from tiny_training import linked_rows, losses, model, rows, trainer
from transformers.distributed.configuration_utils import DistributedConfig

from vanilla_transformer.training.muon import make_muon

torch.set_num_threads(1)
DEFAULTS = (("RANK", "0"), ("WORLD_SIZE", "1"))
# Adam would blow up the rounding of gradients that are zero: keys' biases.
SGD = {"optim": "sgd", "learning_rate": 0.3}
ADAPTIVE = ("accelerate", "muon")
SAME_PAIRS = {"train_sampling_strategy": "sequential"}
OPTIONS = {
    "rdrop": {"rdrop_alpha": 1.0},  # adds nothing without dropout, if it is divided right
    "simcut": {"simcut_alpha": 1.0, "simcut_cutoff": 0.0},  # likewise
    # one process takes two batches a step, or two processes one each
    "guided": {"guided_alignment": "links", "guided_alignment_weight": 0.5},
    "budget": {"max_tokens": 60, "train_sampling_strategy": "random"},
    "accelerate": {
        "save_strategy": "steps",
        "save_steps": 2,
        "optim": "adamw_torch",
        "learning_rate": 1e-3,
    },
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


def by_accelerate():
    """Lets Accelerate shard the weights as it does on GPUs, with our launch file, on CPUs too."""
    launch_file = REPOSITORY / "scripts" / "accelerate" / "fsdp.yaml"
    words = ["--config_file", str(launch_file), "--num_processes", "2", "program.py"]
    launched, *_ = _validate_launch_command(launch_command_parser().parse_args(words))
    launched.mixed_precision = "no"
    make = PartialState.__init__

    def make_as_on_gpus(state, *args, **options):
        is_new = not PartialState._shared_state
        make(state, *args, **options)
        if is_new:
            state.distributed_type = DistributedType.MULTI_GPU

    patched = patch.object(PartialState, "__init__", make_as_on_gpus)
    return patch.dict(os.environ, prepare_multi_gpu_env(launched)), patched


def make_run(folder, kind):
    rank, world = (int(os.environ.get(name, default)) for name, default in DEFAULTS)
    net = model(dropout=0.0, attention_bias=kind not in ADAPTIVE)
    batches = {"budget": 4 // world, "accelerate": 2}.get(kind, 1)
    return trainer(
        Path(folder, kind),
        net=spread(net, folder) if kind == "fsdp" else net,
        data=linked_rows() if kind == "guided" else rows(),
        per_device_train_batch_size=8 // world // (2 if kind == "accelerate" else 1),
        per_device_eval_batch_size=1,
        max_steps=4,
        logging_steps=3,  # the last step is in no entry of the log
        predict_with_generate=kind != "fsdp",  # its weights are gathered in forward alone
        generation_max_length=6 + 3 * rank,  # differs, to be padded
        gradient_accumulation_steps=batches,
        **{**SGD, **SAME_PAIRS, **OPTIONS.get(kind, {})},
    )


def whole_weights(run):
    return {name: whole(p).tolist() for name, p in run.model.named_parameters()}


def train(folder, kind):
    run = make_run(folder, kind)
    figures = run.train().metrics
    evaluation = run.predict(run.eval_dataset)
    run.args.per_device_eval_batch_size = 3
    uneven = run.predict(rows(7, seed=2))  # two processes get rows twice
    run.args.eval_max_tokens = 1  # seven batches, which two processes cannot share
    shared = run.evaluate(Dataset.from_list(rows(7, seed=2)))
    report = {
        "losses": losses(run),
        "train_loss": figures["train_loss"],
        "weights": whole_weights(run),
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
    if kind == "accelerate":
        run.save_model()
        if run.is_world_process_zero():
            shutil.rmtree(Path(folder, kind, "checkpoint-4"))
        run.accelerator.wait_for_everyone()
        resumed = make_run(folder, kind)
        resumed.train(resume_from_checkpoint=True)
        assert resumed.began_at == 2
        report["resumed"] = whole_weights(resumed)
    write_report(folder, kind, run.args.process_index, report)


def main(folder, *kinds):
    torch.cpu._is_avx512_bf16_supported = lambda: False  # Muon's bfloat16 would blow up rounding
    for kind in kinds:
        with ExitStack() as changes:
            is_sharded = kind == "accelerate" and "RANK" in os.environ
            for change in by_accelerate() if is_sharded else ():
                changes.enter_context(change)
            train(folder, kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
