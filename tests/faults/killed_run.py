"""Runs of which one process is killed by SIGKILL; test_killed_processes.py runs it in two.

Arguments: the folder. It makes the runs "whole" and "killed". When the program is started again,
runs that have ended are left out, and the killed one is resumed.
Everything that draws or counts is in use: dropout, accumulation, a running mean.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from small import losses, model, rows, trainer, write_report
from watch import callback

from vanilla_transformer.training.moving_average import ExponentialMovingAverage

SAVED_AT, KILLED_AT, STEPS = 6, 8, 10


def main(folder):
    torch.set_num_threads(1)
    rank = os.environ["RANK"]

    def kill(state, control, net):
        """Kills one process, as the kernel does when the machine is out of memory."""
        if name == "killed" and not is_resumed and rank == "1" and state.global_step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("whole", "killed"):
        directory = Path(folder, name)
        is_resumed = any(directory.glob("checkpoint-*"))
        if Path(folder, f"{directory.name}_{rank}.json").exists():
            continue
        run = trainer(
            directory,
            data=rows(60),
            net=model(dropout=0.3),
            callbacks=[ExponentialMovingAverage(0.9), callback("on_step_end", kill)],
            max_tokens=60,
            max_steps=STEPS,
            logging_steps=1,
            learning_rate=0.01,
            gradient_accumulation_steps=2,
            save_strategy="steps",
            save_steps=SAVED_AT,
        )
        run.train(resume_from_checkpoint=is_resumed)
        weights = {name: value.tolist() for name, value in run.model.state_dict().items()}
        report = {"losses": losses(run), "weights": weights, "resumed": run.began_at}
        write_report(folder, directory.name, rank, report)


if __name__ == "__main__":
    main(*sys.argv[1:])
