"""A run that is killed by SIGKILL and resumed; test_killed_processes.py runs it in two processes.

Arguments: the folder, then actions: "whole", "kill" or "resume", and "buckets" or "stream" after a
colon. Everything that draws or counts is in use: dropout, accumulation, a running mean.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from datasets import IterableDataset
from small import losses, model, rows, trainer, write_report
from watch import callback

from vanilla_transformer.training.moving_average import ExponentialMovingAverage

SAVED_AT, KILLED_AT, STEPS = 6, 8, 10


def main(folder, *actions):
    torch.set_num_threads(1)

    def kill(state, control, net):
        """Kills this process, as the kernel does when the machine is out of memory."""
        if action == "kill" and state.global_step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    for action, kind in (text.split(":") for text in actions):
        data = rows(60)
        if kind == "stream":
            data = IterableDataset.from_generator(rows, gen_kwargs={"count": 60})
        run = trainer(
            Path(folder, f"{kind}_whole" if action == "whole" else kind),
            data=data,
            net=model(dropout=0.3),
            callbacks=[ExponentialMovingAverage(0.9), callback("on_step_end", kill)],
            max_tokens=60,
            stream_buffer=25,
            max_steps=STEPS,
            logging_steps=1,
            learning_rate=0.01,
            gradient_accumulation_steps=2,
            save_strategy="steps",
            save_steps=SAVED_AT,
        )
        run.train(resume_from_checkpoint=action == "resume")
        weights = {name: value.tolist() for name, value in run.model.state_dict().items()}
        report = {"losses": losses(run), "weights": weights}
        write_report(folder, f"{kind}_{action}", os.environ["RANK"], report)


if __name__ == "__main__":
    main(*sys.argv[1:])
