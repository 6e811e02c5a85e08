"""Shared fixtures: a tiny config, tiny models and a padded batch, all seeded and offline."""

import gc
import logging
import os
import secrets
from functools import partial

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from hypothesis import settings
from made_up_language import (  # noqa: F401 - fixtures for all tests
    corpus,
    padded,
    separate_words,
    shared_words,
    trained,
)
from strangers import run_stranger
from tiny_models import make_batch, make_config, make_model
from transformers.utils.logging import warning_once

torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption(
        "--slow", action="store_true", help="also run the tests that take more than some seconds"
    )
    parser.addoption(
        "--fuzz",
        type=int,
        metavar="N",
        help="run N random examples per property instead of the fixed ones",
    )
    parser.addoption(
        "--fuzz-seed",
        type=int,
        metavar="SEED",
        help="first seed of the architectures that --fuzz draws; a failure prints its seed",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than some seconds; runs with --slow")
    config.addinivalue_line("markers", "gpu: shows what it shows on a GPU")
    settings.register_profile("fixed", derandomize=True, deadline=None)
    settings.register_profile("fuzz", max_examples=config.getoption("--fuzz") or 1, deadline=None)
    settings.load_profile("fuzz" if config.getoption("--fuzz") else "fixed")


def pytest_collection_modifyitems(config, items):
    # The longest test begins first: no worker waits for it at the end.
    items.sort(key=lambda item: not item.nodeid.endswith("_are_clean[types]"))
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs --slow"))


def pytest_collection_finish(session):
    """Frees each collection of garbage (a Trainer starts several) from what was imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def tiny_config():
    return make_config


@pytest.fixture
def tiny_model():
    return make_model


@pytest.fixture
def tiny_batch():
    return make_batch


@pytest.fixture(scope="session", autouse=True)
def exports(tmp_path_factory):
    """The folder of models that CTranslate2 has read: no test touches that of the user."""
    folder = tmp_path_factory.mktemp("exports")
    os.environ["VANILLA_TRANSFORMER_CACHE"] = str(folder)
    return folder


@pytest.fixture(autouse=True)
def forget_what_was_compiled(request):
    """Torch compiles a function a limited number of times in a process."""
    yield
    if request.node.get_closest_marker("slow") is not None:
        torch.compiler.reset()


@pytest.fixture
def heard(monkeypatch, caplog):
    """What our code and transformers log in this test, those that are said only once included."""
    warning_once.cache_clear()
    for name in ("transformers", "vanilla_transformer"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    with caplog.at_level(logging.WARNING):
        yield caplog


@pytest.fixture(scope="session")
def seeds_to_draw(pytestconfig):
    """The seeds of random architectures.

    These are the first 32, or 64 with `--slow`, or N from a random one with `--fuzz N`.
    """
    first, count = pytestconfig.getoption("--fuzz-seed"), pytestconfig.getoption("--fuzz")
    if count is None:
        return range(64 if pytestconfig.getoption("--slow") else 32)
    first = secrets.randbelow(10**9) if first is None else first
    return range(first, first + count)


@pytest.fixture
def load_as_a_stranger(tmp_path):
    return partial(run_stranger, tmp_path=tmp_path)
