"""The search with recorded steps: the tokens of `generate()`. Nothing is recorded on a CPU."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vanilla_transformer.inference import captured_search as module
from vanilla_transformer.inference.captured_search import captured_search
from vanilla_transformer.model import inputs as model_inputs
from vanilla_transformer.model import positions
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES
from vanilla_transformer.model.modes import record

LIVELY = {"tie_word_embeddings": False, "norm_placement": "pre", "lm_head_bias": True}
ENDS = [2, 7]
SEARCHES = {
    "greedy": {},
    "greedy that ends": {"eos_token_id": ENDS},
    "greedy without end": {"eos_token_id": None},
    "2 beams": {"num_beams": 2},
    "without end": {"num_beams": 4, "eos_token_id": None},
    "several results": {"num_beams": 4, "num_return_sequences": 3, "eos_token_id": ENDS},
    "until the beams are full": {"num_beams": 3, "eos_token_id": ENDS, "early_stopping": True},
    "the best": {"num_beams": 4, "eos_token_id": ENDS, "early_stopping": "never"},
    "short": {"num_beams": 4, "eos_token_id": ENDS, "length_penalty": 0.0},
    "long": {
        **{"num_beams": 3, "eos_token_id": ENDS, "early_stopping": "never"},
        "length_penalty": 1.4,
    },
    "all end at once": {"num_beams": 2, "eos_token_id": list(range(2, 40)), "early_stopping": True},
    "forced": {"num_beams": 2, "forced_bos_token_id": 9, "forced_eos_token_id": 2},
    "forbidden": {
        **{"num_beams": 3, "bad_words_ids": [[1], [5]], "suppress_tokens": [6, 7]},
        **{"begin_suppress_tokens": [8, 9], "eos_token_id": ENDS},
    },
    "not too short": {"num_beams": 3, "min_new_tokens": 4, "eos_token_id": ENDS},
    "greedy with rules": {
        **{"forced_bos_token_id": 9, "min_length": 5, "bad_words_ids": [[1]]},
        **{"eos_token_id": ENDS, "forced_eos_token_id": 2},
    },
}


@pytest.fixture
def lively_model(tiny_model):
    """Makes models that do not repeat one token, and end some outputs early."""

    def make(**changes):
        model = tiny_model(**LIVELY, **changes)
        with torch.no_grad():
            model.lm_head.bias[ENDS] += 1.0
        return model

    return make


def source(tiny_batch, side="right"):
    batch = tiny_batch((7, 4, 6), (2, 2, 2), side=side)
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


@pytest.fixture(autouse=True)
def searches(monkeypatch):
    """Counts the searches whose steps could be recorded; their caches must grow soon."""
    monkeypatch.setattr(module, "_ROOM", 3)
    made, begin = [], module._Decoder.__init__
    monkeypatch.setattr(module._Decoder, "__init__", lambda *args: made.append(1) or begin(*args))
    return made


def assert_equal_tokens(model, inputs, searches, **options):
    options = {"max_new_tokens": 14, **options}
    expected = model.generate(**inputs, **options)
    found = model.generate(**inputs, **options, custom_generate=captured_search)
    assert searches
    assert found.tolist() == expected.tolist()
    return found


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("search", SEARCHES)
def test_every_search(lively_model, tiny_batch, searches, search, side):
    for seed in (1, 2, 3):
        model = lively_model(seed=seed, decoder_num_key_value_heads=2)
        assert_equal_tokens(model, source(tiny_batch, side), searches, **SEARCHES[search])


@pytest.mark.parametrize("scheme", CHOICES["position_embedding_type"])
@pytest.mark.parametrize("beams", [1, 3])
def test_prompts_of_the_decoder(lively_model, tiny_batch, searches, scheme, beams):
    model = lively_model(seed=1, position_embedding_type=scheme)
    prompt = torch.tensor([[1, 1, 0, 4], [0, 5, 9, 4], [1, 0, 7, 8]])
    for mask in (None, (prompt != 1).long()):
        inputs = {**source(tiny_batch), "decoder_input_ids": prompt, "decoder_attention_mask": mask}
        assert_equal_tokens(model, inputs, searches, num_beams=beams, eos_token_id=ENDS)


@pytest.mark.parametrize("new_tokens", [1, 2, 3])
def test_few_tokens(lively_model, tiny_batch, searches, new_tokens):
    model = lively_model(seed=1)
    for beams in (1, 4):
        inputs = source(tiny_batch)
        assert_equal_tokens(model, inputs, searches, num_beams=beams, max_new_tokens=new_tokens)


@pytest.mark.parametrize(
    "options",
    [
        {"no_repeat_ngram_size": 2},
        {"bad_words_ids": [[5, 6]], "num_beams": 2},
        {"do_sample": True, "top_k": 3},
        {"num_beams": 2, "return_dict_in_generate": True, "output_scores": True},
        {"use_cache": False},
    ],
)
def test_other_searches_are_those_of_transformers(lively_model, tiny_batch, searches, options):
    model, inputs = lively_model(seed=1), source(tiny_batch)
    found = []
    for search in ({}, {"custom_generate": captured_search}):
        torch.manual_seed(0)
        output = model.generate(**inputs, **options, **search, max_new_tokens=8)
        found.append(output if torch.is_tensor(output) else output.sequences)
    assert not searches
    assert found[0].tolist() == found[1].tolist()


class Recorder(TorchDispatchMode):
    """Refuses what a recorded step must not do: read values, or bring them from the processor."""

    refused = ("_local_scalar_dense", "nonzero", "lift_fresh", "isin", "_unique2", "masked_select")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in self.refused, function
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("scheme", CHOICES["position_embedding_type"])
@pytest.mark.parametrize("beams", [1, 3])
def test_a_step_asks_nothing_of_the_device(tiny_model, tiny_batch, monkeypatch, scheme, beams):
    """On a GPU, checks of values are left out: here they are told that none are readable."""
    for checked in (model_inputs, positions):
        monkeypatch.setattr(checked, "has_readable_values", lambda tensor: False)
    steps, decode = [], module._Decoder.decode
    cls = module._Beams if beams > 1 else module._Greedy
    advance = cls.advance

    def recorded(function):
        def run(*args):
            steps.append(function)
            if len(steps) < 4:  # the first steps are not recorded
                return function(*args)
            with Recorder():
                return function(*args)

        return run

    monkeypatch.setattr(module._Decoder, "decode", recorded(decode))
    monkeypatch.setattr(cls, "advance", recorded(advance))
    model = tiny_model(seed=1, **LIVELY, position_embedding_type=scheme)
    prompt = torch.tensor([[1, 1, 0], [0, 5, 9], [1, 0, 7]])
    inputs = {"decoder_input_ids": prompt, "decoder_attention_mask": (prompt != 1).long()}
    options = {"suppress_tokens": [6], "bad_words_ids": [[1]], "eos_token_id": ENDS}
    model.generate(
        **source(tiny_batch),
        **inputs,
        **options,
        max_new_tokens=9,
        num_beams=beams,
        custom_generate=captured_search,
    )
    assert len(steps) > 8


def test_threads_record_one_after_the_other(monkeypatch):
    recording, most = [], []

    @contextmanager
    def graph(*args, **options):
        recording.append(1)
        most.append(len(recording))
        yield
        recording.pop()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(record, [lambda: time.sleep(0.02)] * 3))
    assert most == [1, 1, 1]
