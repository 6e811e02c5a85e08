"""Run by test_processes.py, alone or in two processes: the same tokens under the package's Trainer.

Arguments: the folder for the report, then options of the trainer as JSON.
"""

import json
import os
import sys
from pathlib import Path

import torch
from small import losses, model, trainer

torch.set_num_threads(1)


def main(folder, options):
    options = json.loads(options)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    run = trainer(
        folder,
        net=model(dropout=0.0),
        per_device_train_batch_size=8 // world,
        per_device_eval_batch_size=4,
        train_sampling_strategy="sequential",
        learning_rate=0.01,
        max_steps=4,
        logging_steps=1,
        predict_with_generate=True,
        generation_max_length=6 + 3 * int(os.environ.get("RANK", "0")),  # differs, to be padded
        **options,
    )
    run.train()
    evaluation = run.predict(run.eval_dataset)
    report = {
        "losses": losses(run),
        "weights": {name: p.tolist() for name, p in run.model.named_parameters()},
        "eval_loss": evaluation.metrics["test_loss"],
        "predictions": evaluation.predictions.tolist(),
        "labels": evaluation.label_ids.tolist(),
        "processes": run.args.world_size,
        "kind": str(run.accelerator.distributed_type),
        "precision": run.accelerator.mixed_precision,
    }
    (Path(folder) / f"{run.args.process_index}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
