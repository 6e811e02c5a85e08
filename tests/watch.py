"""What tests of different rooms use to watch and to stop a computation."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import TrainerCallback


class LargestTensor(TorchDispatchMode):
    """Sees the largest number of elements that any operation returns."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, torch.Tensor):
                self.elements = max(self.elements, part.numel())
        return result


class StopAt(TrainerCallback):
    """Stops the training after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


def callback(event, function):
    """Returns a callback that calls a function of state, control and model at an event."""
    made = TrainerCallback()

    def called(args, state, control, model=None, **kwargs):
        function(state, control, model)

    setattr(made, event, called)
    return made
