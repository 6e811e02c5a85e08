"""The cache of `generate()`: the same tokens as with an ordinary cache."""

import copy
import pickle

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache

from vanilla_transformer.model import decoding_cache
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES
from vanilla_transformer.model.decoding_cache import GrowingCache, SourceCache

LIVELY = {"tie_word_embeddings": False, "norm_placement": "pre"}  # does not repeat one token
SCHEMES = CHOICES["position_embedding_type"]
SEARCHES = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "many results": {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.5},
    "sampling": {"do_sample": True, "top_k": 0, "num_return_sequences": 2},
    "sampling of beams": {"do_sample": True, "top_k": 0, "num_beams": 3},
    "constraints": {"num_beams": 2, "no_repeat_ngram_size": 2, "bad_words_ids": [[5]]},
    "ends early": {"num_beams": 3, "eos_token_id": [2, 7, 8, 9], "early_stopping": True},
}
MAX_NEW = 9


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """Counts how often room is made; it is so little that it must grow."""
    monkeypatch.setattr(decoding_cache, "_ROOM", 2)
    made, make_room = [], GrowingCache._make_room

    def count(self, length):
        made.append(length)
        make_room(self, length)

    monkeypatch.setattr(GrowingCache, "_make_room", count)
    return made


def plain_cache():
    return EncoderDecoderCache(DynamicCache(), DynamicCache())


def source(tiny_batch, lens=(7, 4, 6), side="right"):
    batch = tiny_batch(lens, (2,) * len(lens), side=side)
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


def generate(model, inputs, **options):
    torch.manual_seed(3)
    return model.generate(**inputs, **{"max_new_tokens": MAX_NEW, **options})


def assert_both_caches_agree(model, inputs, room, cache=plain_cache, **options):
    room.clear()
    found = generate(model, inputs, **options)
    assert len(room) >= 2, "the cache with room was not used"
    room.clear()
    expected = generate(model, inputs, past_key_values=cache(), **options)
    assert not room, "the ordinary cache was not used"
    assert torch.equal(found, expected)
    return found


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("search", SEARCHES)
def test_every_search(tiny_model, tiny_batch, room, search, side):
    """With every architecture: `test_properties.py`."""
    model = tiny_model(seed=1, **LIVELY, decoder_num_key_value_heads=2, decoder_vocab_size=60)
    assert_both_caches_agree(model, source(tiny_batch, side=side), room, **SEARCHES[search])


@pytest.mark.parametrize("beams", [1, 4])
def test_a_row_alone_and_among_others(tiny_model, tiny_batch, room, beams):
    model = tiny_model(seed=1, **LIVELY)
    inputs = source(tiny_batch, lens=[3 + row % 6 for row in range(32)])
    together = assert_both_caches_agree(model, inputs, room, num_beams=beams, eos_token_id=None)
    for row in (0, 13, 31):
        alone = {name: part[row : row + 1] for name, part in inputs.items()}
        assert torch.equal(
            generate(model, alone, num_beams=beams, eos_token_id=None)[0], together[row]
        )


RECORDS = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}


def repeated(inputs, count):
    return {name: part.repeat_interleave(count, 0) for name, part in inputs.items()}


def continued(model, inputs, cache, **options):
    ids = torch.arange(5, 5 + len(inputs["input_ids"]))[:, None]
    return model(**inputs, decoder_input_ids=ids, past_key_values=cache, **options)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_the_returned_cache_goes_on_as_an_ordinary_one(
    tiny_model, tiny_batch, room, options, attention
):
    model, inputs = tiny_model(seed=1, attention=attention, **LIVELY), source(tiny_batch)
    options = {**options, **RECORDS, "eos_token_id": None}
    found = generate(model, inputs, **options)
    expected = generate(model, inputs, past_key_values=plain_cache(), **options)
    own, other = found.past_key_values, expected.past_key_values
    assert isinstance(own.cross_attention_cache, SourceCache)
    assert own.get_seq_length() == other.get_seq_length() == MAX_NEW
    for name in ("scores", "logits"):
        torch.testing.assert_close(
            torch.stack(found[name]), torch.stack(expected[name]), rtol=1e-4, atol=1e-4
        )
    for cache in ("self_attention_cache", "cross_attention_cache"):
        shapes = [getattr(side, cache).layers[0].keys.shape for side in (own, other)]
        assert shapes[0] == shapes[1]
    rows = repeated(inputs, len(own.self_attention_cache.layers[0].keys) // 3)
    after = [continued(model, rows, cache).logits for cache in (own, other)]
    torch.testing.assert_close(*after, rtol=1e-4, atol=1e-4)


def crop(cache):
    cache.crop(-2)


def select(cache):
    cache.batch_select_indices(torch.tensor([0, 4, 5, 8]))


def repeat(cache):
    cache.batch_repeat_interleave(2)


def reorder_across_sources(cache):
    cache.reorder_cache(torch.tensor([8, 4, 0, 3, 2, 7, 1, 1, 5]))


def reorder_within_sources(cache):
    cache.reorder_cache(torch.tensor([2, 0, 0, 3, 4, 5, 7, 6, 8]))


CHANGES = [crop, select, repeat, reorder_across_sources, reorder_within_sources]
SAME_ROWS = {
    select: torch.tensor([0, 4, 5, 8]),
    repeat: torch.arange(9).repeat_interleave(2),
    reorder_across_sources: torch.tensor([8, 4, 0, 3, 2, 7, 1, 1, 5]),
}
COPIES = {
    "itself": lambda cache: cache,
    "deep copy": copy.deepcopy,
    "pickled": lambda cache: pickle.loads(pickle.dumps(cache)),
}


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_returned_cache_may_be_changed(tiny_model, tiny_batch, change, copied):
    model, inputs = tiny_model(seed=1, **LIVELY), source(tiny_batch)
    options = {**RECORDS, "num_beams": 3, "eos_token_id": None}
    own = COPIES[copied](generate(model, inputs, **options).past_key_values)
    other = generate(model, inputs, past_key_values=plain_cache(), **options).past_key_values
    rows = repeated(inputs, 3)
    rows = {name: part[SAME_ROWS.get(change, torch.arange(9))] for name, part in rows.items()}
    for cache in (own, other):
        change(cache)
    for options in ({}, {"output_attentions": True}):
        with torch.no_grad():
            after = [continued(model, rows, cache, **options) for cache in (own, other)]
        torch.testing.assert_close(after[0].logits, after[1].logits, rtol=1e-4, atol=1e-4)
    for found, expected in zip(after[0].cross_attentions, after[1].cross_attentions, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("begin", [torch.no_grad, torch.inference_mode])
def test_a_returned_cache_goes_on_in_another_mode(tiny_model, tiny_batch, begin):
    model, inputs = tiny_model(seed=1, **LIVELY), source(tiny_batch)
    with begin():
        own = generate(model, inputs, **RECORDS, eos_token_id=None).past_key_values
        other = copy.deepcopy(own)
        expected = [continued(model, inputs, other).logits for _ in range(3)][-1]
    with torch.set_grad_enabled(begin is torch.no_grad):
        after = [continued(model, inputs, own).logits for _ in range(3)][-1]
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-4)
    assert begin is torch.inference_mode or after.sum().backward() is None


def test_a_prompt_under_a_mask_of_four_dimensions(tiny_model, tiny_batch, room):
    model, inputs = tiny_model(seed=1, **LIVELY), source(tiny_batch)
    prompt = torch.tensor([[0, 5, 9, 4], [0, 4, 8, 8], [0, 9, 7, 8]])
    inputs = {
        "inputs_embeds": model.get_input_embeddings()(inputs["input_ids"]).detach(),
        "attention_mask": inputs["attention_mask"].bool()[:, None, None],
        "decoder_input_ids": prompt,
    }
    assert_both_caches_agree(model, inputs, room, num_beams=3)


OPTIONS = {
    "no cache": {"use_cache": False},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_keep_the_cache_of_transformers(tiny_model, tiny_batch, room, name):
    model = tiny_model(seed=1, **LIVELY)
    row = {name: part[:1] for name, part in source(tiny_batch).items()}
    expected = generate(model, row)
    room.clear()
    found = generate(model, row, **OPTIONS[name])
    assert not room
    assert torch.equal(found, expected)


@pytest.mark.parametrize("seed", range(5))
def test_beams_that_change_their_order_take_their_past_along(seed):
    """Against an ordinary cache, whose rows are copied whole."""
    generator = torch.Generator().manual_seed(seed)
    sources, beams, layers, heads, head_dim = 3, 4, 2, 2, 3
    own, plain = GrowingCache(beams), DynamicCache()

    def append(length):
        for layer in range(layers):
            new = torch.rand(2, sources * beams, heads, length, head_dim, generator=generator)
            with torch.no_grad():
                assert all(map(torch.equal, own.update(*new, layer), plain.update(*new, layer)))

    append(2)
    for _ in range(12):
        parents = torch.randint(0, beams, (sources, beams), generator=generator)
        parents[0] = torch.arange(beams)
        order = (parents + torch.arange(sources)[:, None] * beams).flatten()
        append(1)
        own.reorder_cache(order)
        plain.reorder_cache(order)


def test_a_step_of_beam_search_does_not_wait_for_a_gpu(tiny_model):
    """Tensors of the device "meta" have no values: reading one is an error."""
    with torch.device("meta"), torch.no_grad():
        model = tiny_model().to("meta")
        ids = torch.ones(6, 5, dtype=torch.long)
        cache = EncoderDecoderCache(GrowingCache(3), SourceCache(3))
        encoded = model.get_encoder()(ids)
        for _ in range(4):
            model(encoder_outputs=encoded, decoder_input_ids=ids[:, :1], past_key_values=cache)
            cache.reorder_cache(torch.zeros(6, dtype=torch.long))
        assert cache.get_seq_length() == 4
        assert len(cache.cross_attention_cache.layers[0].keys) == 2
