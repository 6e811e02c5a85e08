"""A model that is evaluated returns to the mode it was in, however many threads evaluate it."""

import threading

import pytest
import torch

from vanilla_transformer.model.evaluation import evaluation_mode


def test_a_model_returns_to_the_modes_of_its_modules(tiny_model):
    model = tiny_model().train()
    model.model.encoder.eval()

    def fail():
        with evaluation_mode(model):
            assert not any(module.training for module in model.modules())
            assert not torch.is_grad_enabled()
            raise RuntimeError("as if interrupted")

    with pytest.raises(RuntimeError, match="as if"):
        fail()
    assert model.training
    assert model.model.decoder.training
    assert not any(module.training for module in model.model.encoder.modules())


def test_two_evaluations_that_overlap_return_the_model_together(tiny_model):
    model = tiny_model().train()
    second_began, first_ended = threading.Event(), threading.Event()
    seen = []

    def evaluate():
        with evaluation_mode(model):
            second_began.set()
            assert first_ended.wait(60)
            seen.append(model.training)

    thread = threading.Thread(target=evaluate)
    with evaluation_mode(model):
        thread.start()
        assert second_began.wait(60)
    first_ended.set()
    thread.join()
    assert seen == [False]  # the end of the first does not change the mode of the second
    assert model.training
    assert all(module.training for module in model.modules())
