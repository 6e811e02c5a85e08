"""What a training tells: the share of a GPU's peak."""

import re
from types import SimpleNamespace

import pytest
from small import model, trainer
from transformers.utils import logging

from vanilla_transformer.training import training_log
from vanilla_transformer.training.training_log import TrainingLog, products_of_tokens


def test_operations_of_a_source_and_of_a_target_token():
    net = model(encoder_layers=2, vocab_size=40)  # of width 16
    attention, feed_forward = 4 * 16 * 16, 2 * 16 * 16
    assert products_of_tokens(net) == {
        "attention_mask": 6 * (2 * (attention + feed_forward) + 2 * 16 * 16),
        "labels": 6 * (attention + 2 * 16 * 16 + feed_forward + 16 * 40),
    }


@pytest.mark.parametrize("peak", [1e9, None])
def test_the_share_of_the_peak_is_told_on_a_gpu(tmp_path, monkeypatch, capsys, peak):
    monkeypatch.setattr(training_log, "peak_of", lambda device: peak)
    logging.set_verbosity_info()
    made = trainer(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2)
    scorer = SimpleNamespace(num_cut=0, last_predictions=[])
    log = TrainingLog(made, scorer)
    made.add_callback(log)
    lines = []
    monkeypatch.setattr(training_log.logger, "info", lines.append)
    made.train()
    shares = [re.search(r"tokens/s \((\d+\.\d)% of peak\)", line) for line in lines]
    assert any(shares) == (peak is not None)
