"""A training whose numbers are no longer finite stops, and keeps its last good checkpoint."""

import pytest
import torch
from tiny_training import callback, trainer

from vanilla_transformer.training.divergence import DivergenceCheck, DivergenceError

SAVED = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}


def spoilt(folder, event, step, **options):
    """A trainer whose weights become NaN at an event."""

    def spoil(state, control, net):
        if state.global_step == step:
            torch.nn.init.constant_(next(net.parameters()), torch.nan)

    return trainer(folder, callbacks=[callback(event, spoil)], **{**SAVED, **options})


@pytest.mark.parametrize(
    ("event", "step", "options", "message", "kept"),
    [
        ("on_step_begin", 2, {}, r"loss at step 3 is nan\. .* checkpoints are kept", 1),
        ("on_step_end", 4, {}, r"weights .* after step 4 are not finite", 1),
        ("on_step_end", 6, {"save_strategy": "no"}, "after step 6", 0),
    ],
)
def test_what_is_not_finite_stops_the_training(tmp_path, event, step, options, message, kept):
    with pytest.raises(DivergenceError, match=message):
        spoilt(tmp_path, event, step, **options).train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"][:kept]


def test_a_gradient_that_is_not_finite_changes_no_weight(tmp_path):
    run = trainer(tmp_path, **SAVED)
    run.model.get_input_embeddings().weight.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(DivergenceError, match="norm of the gradient at step 1"):
        run.train()
    assert all(parameter.isfinite().all() for parameter in run.model.parameters())


def test_a_loss_scaler_may_skip_some_steps():
    values = DivergenceCheck()
    for _ in range(3):
        for _ in range(100):
            values.check(torch.tensor(torch.inf), 1, has_scaler=True)
        values.check(1.0, 1, has_scaler=True)
    for _ in range(100):
        values.check(torch.inf, 7, has_scaler=True)
    with pytest.raises(DivergenceError, match="norm of the gradient at step 8 is inf"):
        values.check(torch.inf, 7, has_scaler=True)
