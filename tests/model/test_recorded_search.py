"""The search with recorded steps: the tokens of `generate()`. Nothing is recorded on a CPU."""

from functools import partial

import pytest
import torch
from gpu_stand_ins import pretend_to_record_searches
from recorded_searches import (
    ENDS,
    LIVELY,
    SEARCHES,
    count_records,
    lively_model,
    plainly,
    source_batch,
)
from tiny_models import make_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.generation.stopping_criteria import (
    EosTokenCriteria,
    MaxLengthCriteria,
    MaxTimeCriteria,
)
from transformers.generation.streamers import BaseStreamer

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.model import inputs as model_inputs
from vanilla_transformer.model import positions
from vanilla_transformer.model import recorded_search as module
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES
from vanilla_transformer.model.evaluation import banned_ids


@pytest.fixture
def searches(monkeypatch):
    """Counts the searches that are recorded by the stand-in; their caches must grow soon."""
    pretend_to_record_searches(monkeypatch)
    monkeypatch.setattr(module, "_ROOM", 3)
    return count_records(monkeypatch)


def assert_equal_tokens(monkeypatch, model, inputs, searches, **options):
    options = {"max_new_tokens": 14, **inputs, **options}
    expected = plainly(monkeypatch, model, **options)
    assert not searches
    found = model.generate(**options)
    assert searches
    searches.clear()
    assert found.tolist() == expected.tolist()
    return found


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("search", SEARCHES)
def test_every_search(monkeypatch, searches, search, side):
    for seed in (1, 2, 3):
        model = lively_model(seed=seed, decoder_num_key_value_heads=2)
        inputs = source_batch(side=side)
        assert_equal_tokens(monkeypatch, model, inputs, searches, **SEARCHES[search])


@pytest.mark.parametrize("scheme", CHOICES["position_embedding_type"])
@pytest.mark.parametrize("beams", [1, 3])
def test_prompts_of_the_decoder(monkeypatch, searches, scheme, beams):
    model = lively_model(seed=1, position_embedding_type=scheme)
    prompt = torch.tensor([[1, 1, 0, 4], [0, 5, 9, 4], [1, 0, 7, 8]])
    for mask in (None, (prompt != 1).long()):
        inputs = {**source_batch(), "decoder_input_ids": prompt, "decoder_attention_mask": mask}
        options = {"num_beams": beams, "eos_token_id": ENDS}
        assert_equal_tokens(monkeypatch, model, inputs, searches, **options)


@pytest.mark.parametrize("new_tokens", [1, 2, 3])
def test_few_tokens(monkeypatch, searches, new_tokens):
    model = lively_model(seed=1)
    for beams in (1, 4):
        inputs = source_batch()
        options = {"num_beams": beams, "max_new_tokens": new_tokens}
        assert_equal_tokens(monkeypatch, model, inputs, searches, **options)


class Streamer(BaseStreamer):
    def __init__(self):
        self.calls = []

    def put(self, value):
        self.calls.append(value.tolist())

    def end(self):
        self.calls.append("end")


@pytest.mark.parametrize(
    "options",
    [
        {"no_repeat_ngram_size": 2},
        {"bad_words_ids": [[5, 6]], "num_beams": 2},
        {"do_sample": True, "top_k": 3},
        {"do_sample": True, "num_beams": 3},
        {"num_beams": 2, "return_dict_in_generate": True, "output_scores": True},
        {"use_cache": False},
        {"stopping_criteria": [MaxLengthCriteria(4)]},
        {"stopping_criteria": [MaxLengthCriteria(4)], "num_beams": 3},
        {"stopping_criteria": [EosTokenCriteria(9)], "num_beams": 2},
        {"stopping_criteria": [MaxTimeCriteria(1000.0)]},
        {"max_time": 1000.0},
    ],
)
def test_other_searches_are_those_of_transformers(monkeypatch, searches, options):
    model, found = lively_model(seed=1), []
    options = {**source_batch(), **options, "max_new_tokens": 8}
    for generate in (partial(plainly, monkeypatch, model), model.generate):
        torch.manual_seed(0)
        output = generate(**options)
        found.append(output if torch.is_tensor(output) else output.sequences)
    assert not searches
    assert found[0].tolist() == found[1].tolist()


def test_a_streamer_gets_each_token(tiny_batch, searches):
    batch, streamer = tiny_batch((7,), (2,)), Streamer()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    tokens = lively_model(seed=1).generate(**inputs, max_new_tokens=4, streamer=streamer)
    assert streamer.calls == [[[tokens[0, 0]]], *[[token] for token in tokens[0, 1:]], "end"]


@pytest.mark.parametrize("beams", [1, 3])
def test_stop_strings(monkeypatch, toy_translation, searches, beams):
    model, tokenizer, inputs = toy_translation
    options = {**inputs, "num_beams": beams, "max_new_tokens": 9}
    text = tokenizer.batch_decode(model.generate(**options), skip_special_tokens=True)[0]
    options |= {"stop_strings": text.split()[0], "tokenizer": tokenizer}
    with pytest.raises(ValueError, match="tokenizer"):
        model.generate(**{**options, "tokenizer": None})
    expected = plainly(monkeypatch, model, **options)
    assert model.generate(**options).tolist() == expected.tolist()


@pytest.fixture
def toy_translation():
    torch.manual_seed(0)
    words = [chr(97 + number) * 3 for number in range(12)]
    tokenizer = VanillaTransformerTokenizer.train([" ".join(words)], kind="bpe", vocab_size=60)
    model = make_model(vocab_size=len(tokenizer), **LIVELY)
    return model, tokenizer, tokenizer([" ".join(words[:4])], return_tensors="pt")


def test_hooks_are_called_at_each_step(searches):
    model, calls = lively_model(seed=1), []
    hook = model.model.decoder.register_forward_hook(lambda *_: calls.append(1))
    options = {**source_batch(), "max_new_tokens": 9, "eos_token_id": None}
    model.generate(**options)
    assert len(calls) == 9
    assert not searches
    hook.remove()
    with banned_ids(model, [5]):  # a hook that a recorded step repeats
        assert 5 not in model.generate(**options)[:, 1:]
    assert searches


class Watch(TorchDispatchMode):
    """Refuses what a recorded step must not do: read values, or bring them from the processor."""

    refused = ("_local_scalar_dense", "nonzero", "lift_fresh", "isin", "_unique2", "masked_select")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in self.refused, function
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("scheme", CHOICES["position_embedding_type"])
@pytest.mark.parametrize("beams", [1, 3])
def test_a_step_asks_nothing_of_the_device(tiny_model, monkeypatch, searches, scheme, beams):
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
            with Watch():
                return function(*args)

        return run

    monkeypatch.setattr(module._Decoder, "decode", recorded(decode))
    monkeypatch.setattr(cls, "advance", recorded(advance))
    model = tiny_model(seed=1, **LIVELY, position_embedding_type=scheme)
    prompt = torch.tensor([[1, 1, 0], [0, 5, 9], [1, 0, 7]])
    inputs = {"decoder_input_ids": prompt, "decoder_attention_mask": (prompt != 1).long()}
    options = {"suppress_tokens": [6], "bad_words_ids": [[1]], "eos_token_id": ENDS}
    model.generate(
        **source_batch(),
        **inputs,
        **options,
        max_new_tokens=9,
        num_beams=beams,
    )
    assert len(steps) > 8
