"""Shared fixtures of the model's tests: the warnings that a test hears."""

import logging

import pytest
from transformers.utils.logging import warning_once


@pytest.fixture
def heard(monkeypatch, caplog):
    """What our code and transformers log in this test, those that are said only once included."""
    warning_once.cache_clear()
    for name in ("transformers", "vanilla_transformer"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    with caplog.at_level(logging.WARNING):
        yield caplog
