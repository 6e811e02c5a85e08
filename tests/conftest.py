"""Shared fixtures: a tiny config, tiny models and a padded batch, all seeded and offline."""

import gc
import json
import logging
import os
import secrets
from functools import partial

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import forks
import pytest
import torch
from hypothesis import settings
from toy import corpus, padded, separate_words, shared_words, trained  # noqa: F401 - fixtures for all tests
from transformers.utils.logging import warning_once

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)

torch.set_num_threads(1)

TINY = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "initializer": "xavier",  # outputs that differ from row to row
}


def make_config(**changes):
    return VanillaTransformerConfig(**{**TINY, **changes})


def add_noise(model, size=0.2):
    """Moves every parameter (biases and norms too) off its value."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return model


def make_model(
    cls=VanillaTransformerForConditionalGeneration, seed=0, attention=None, noise=0.2, **changes
):
    """A model in eval mode, every parameter of which (biases, norms) differs from its default."""
    torch.manual_seed(seed)
    model = add_noise(cls(make_config(**changes)), noise)
    if attention is not None:
        model.set_attn_implementation(attention)
    return model.eval()


def make_batch(
    source_lens=(7, 4, 6), target_lens=(5, 6, 3), vocab=40, decoder_vocab=None, side="right", seed=0
):
    """Random rows of the given lengths, padded on one side: ids, masks and labels."""
    generator = torch.Generator().manual_seed(seed)

    def rows(lengths, size):
        ids = torch.full((len(lengths), max(lengths)), 1)
        mask = torch.zeros_like(ids)
        for row, length in enumerate(lengths):
            where = slice(0, length) if side == "right" else slice(max(lengths) - length, None)
            ids[row, where] = torch.randint(3, size, (length,), generator=generator)
            mask[row, where] = 1
        return ids, mask

    input_ids, attention_mask = rows(source_lens, vocab)
    decoder_input_ids, decoder_attention_mask = rows(target_lens, decoder_vocab or vocab)
    labels, label_mask = rows(target_lens, decoder_vocab or vocab)
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "decoder_input_ids": decoder_input_ids,
        "decoder_attention_mask": decoder_attention_mask,
        "labels": labels.masked_fill(label_mask == 0, -100),
    }


WITHOUT_THE_PACKAGE = """
import importlib.abc, sys

class NotInstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "vanilla_transformer":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
try:
    import vanilla_transformer
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("the package is importable here: the test would prove nothing")

import json, torch
torch.set_num_threads(1)
"""
STRANGER = """
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

directory, again, ids = sys.argv[1], sys.argv[2], torch.tensor(json.loads(sys.argv[3]))
config = AutoConfig.from_pretrained(directory, trust_remote_code=True)
model = AutoModelForSeq2SeqLM.from_pretrained(directory, trust_remote_code=True)
bare = AutoModel.from_pretrained(directory, trust_remote_code=True)
tokens = model.generate(ids, max_new_tokens=6)
hidden = bare(ids, decoder_input_ids=tokens[:, :2]).last_hidden_state
model.save_pretrained(again)
modules = [type(x).__module__ for x in (config, model, bare)]
assert all(name.startswith("transformers_modules.") for name in modules), modules
assert "vanilla_transformer" not in sys.modules
print(json.dumps({"tokens": tokens.tolist(), "hidden": hidden.sum().item()}))
"""


def run_stranger(directory, again, ids, tmp_path, program=STRANGER):
    """Loads, generates and saves in a process that cannot import the package."""
    (tmp_path / "empty").mkdir(exist_ok=True)
    file = tmp_path / "empty" / "stranger.py"
    file.write_text(WITHOUT_THE_PACKAGE + program, encoding="utf-8")
    result = forks.run(
        *(file, directory, again, json.dumps(ids)),
        cwd=tmp_path / "empty",
        environment={"HF_MODULES_CACHE": str(tmp_path / f"modules_{again.name}")},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


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
