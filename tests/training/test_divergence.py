"""A training whose numbers are no longer finite stops, and keeps its last good checkpoint."""

import pytest
import torch
from small import trainer
from transformers import TrainerCallback

from vanilla_transformer.training.finite_values import DivergenceError, FiniteValues

SAVED = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}


class Spoil(TrainerCallback):
    """Changes weights or gradients at a step."""

    def __init__(self, when, step, change):
        self.step, self.change = step, change
        setattr(self, when, self.spoil)

    def spoil(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            with torch.no_grad():
                self.change(next(model.parameters()))


def spoilt(folder, *given, **options):
    return trainer(folder, callbacks=[Spoil(*given)], **{**SAVED, **options})


def to_nan(parameter):
    parameter.fill_(torch.nan)


def test_a_loss_that_is_not_finite_stops_the_training(tmp_path):
    run = spoilt(tmp_path, "on_step_begin", 2, to_nan)
    with pytest.raises(DivergenceError, match=r"loss at step 3 is nan\. .* checkpoints are kept"):
        run.train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    run = spoilt(tmp_path, "on_step_end", 4, to_nan)
    with pytest.raises(DivergenceError, match=r"weights .* after step 4 are not finite"):
        run.train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]
    run = spoilt(tmp_path / "last", "on_step_end", 6, to_nan, save_strategy="no")
    with pytest.raises(DivergenceError, match="after step 6"):
        run.train()


def test_a_gradient_that_is_not_finite_changes_no_weight(tmp_path):
    run = trainer(tmp_path, **SAVED)
    run.model.get_input_embeddings().weight.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(DivergenceError, match="norm of the gradient at step 1"):
        run.train()
    assert all(parameter.isfinite().all() for parameter in run.model.parameters())


def test_a_loss_scaler_may_skip_some_steps():
    values = FiniteValues()
    for _ in range(3):
        for _ in range(100):
            values.check("norm", torch.tensor(torch.inf), 1, has_scaler=True)
        values.check("norm", 1.0, 1, has_scaler=True)
    for _ in range(100):
        values.check("norm", torch.inf, 7, has_scaler=True)
    with pytest.raises(DivergenceError, match="norm at step 8 is inf"):
        values.check("norm", torch.inf, 7, has_scaler=True)
