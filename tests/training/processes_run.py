"""Run by test_processes.py, alone or in two processes: the same tokens under the package's Trainer.

Arguments: the folder for the report, then options of the trainer as JSON.
"""

import json
import os
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from small import losses, model, trainer
from transformers.distributed.configuration_utils import DistributedConfig

torch.set_num_threads(1)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def share(tensor):
    """The part of a tensor that this process holds."""
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).numel() / tensor.numel()


def main(folder, options):
    options = json.loads(options)
    net = model(dropout=0.0)
    size = options.pop("fsdp_size", None)
    if size:
        if int(os.environ["RANK"]) == 0:
            net.save_pretrained(Path(folder, "model"))
        PartialState(cpu=True).wait_for_everyone()
        net = type(net).from_pretrained(
            Path(folder, "model"), distributed_config=DistributedConfig(fsdp_size=size)
        )
    world = int(os.environ.get("WORLD_SIZE", "1"))
    run = trainer(
        folder,
        net=net,
        per_device_train_batch_size=8 // world,
        per_device_eval_batch_size=1,
        train_sampling_strategy="sequential",
        optim="sgd",  # Adam would blow up the rounding of gradients that are zero: keys' biases
        learning_rate=0.3,
        max_steps=4,
        logging_steps=1,
        predict_with_generate=size
        is None,  # generating skips the forward that gathers spread weights
        generation_max_length=6 + 3 * int(os.environ.get("RANK", "0")),  # differs, to be padded
        **options,
    )
    run.train()
    evaluation = run.predict(run.eval_dataset)
    generated = {"predictions": evaluation.predictions.tolist()} if size is None else {}
    report = {
        **generated,
        "losses": losses(run),
        "weights": {name: whole(p).tolist() for name, p in run.model.named_parameters()},
        "shares": {name: share(p) for name, p in run.model.named_parameters()},
        "eval_loss": evaluation.metrics["test_loss"],
        "labels": evaluation.label_ids.tolist(),
        "processes": run.args.world_size,
    }
    (Path(folder) / f"{run.args.process_index}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
