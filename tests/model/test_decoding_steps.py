"""The short way of `generate()`: the same tokens as the long way, by an ordinary cache."""

import copy
import pickle

import pytest
import torch
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache
from transformers.generation.streamers import BaseStreamer

from vanilla_transformer import VanillaTransformerForCausalLM
from vanilla_transformer.inspection import ablate_heads
from vanilla_transformer.model import decoding_cache, decoding_step
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES
from vanilla_transformer.model.decoding_cache import DecodingCache
from vanilla_transformer.model.decoding_step import DecodingStep

LIVELY = {"tie_word_embeddings": False, "norm_placement": "pre"}  # does not repeat one token
ARCHITECTURES = {
    "paper": {"tie_word_embeddings": False},
    "pre-norm, fused": {**LIVELY, "fused_qkv": True, "final_layer_norm": False},
    "no norm, scaled": {"norm_placement": "none", "residual_scale": 0.5},
    "DeepNorm": {"initializer": "deepnorm", "tie_word_embeddings": False},
    "gate, RMS norm": {**LIVELY, "gated_ffn": True, "activation_function": "silu"}
    | {"norm_type": "rms_norm", "ffn_bias": False, "normalize_embedding": True},
    "other norm, head bias": {**LIVELY, "norm_type": "unbiased_std", "lm_head_bias": True},
    "no biases, gelu": {**LIVELY, "attention_bias": False, "activation_function": "gelu"},
    "unscaled, two vocabularies": {**LIVELY, "decoder_vocab_size": 60, "scale_embedding": False},
    "learned activation": {**LIVELY, "activation_function": "prelu"},
    "fewer layers": {**LIVELY, "encoder_layers": 3, "decoder_layers": 1},
    "free factors": {**LIVELY, "head_dim": 6, "attention_scale": 1.0, "logit_scale": 0.3}
    | {"final_layer_norm": True, "final_dropout": 0.1, "position_offset": 2},
}
SCHEMES = CHOICES["position_embedding_type"]
HEADS = [4, 2, 1]
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
def steps(monkeypatch):
    """Counts the steps; little room makes the cache and the table of positions grow."""
    monkeypatch.setattr(decoding_cache, "_ROOM", 2)
    monkeypatch.setattr(decoding_step, "_POSITIONS_AHEAD", 3)
    taken, next_logits = [], DecodingStep.next_logits

    def count(self, *args):
        taken.append(self)
        return next_logits(self, *args)

    monkeypatch.setattr(DecodingStep, "next_logits", count)
    return taken


def plain_cache():
    return EncoderDecoderCache(DynamicCache(), DynamicCache())


def source(tiny_batch, lens=(7, 4, 6), side="right"):
    batch = tiny_batch(lens, (2,) * len(lens), side=side)
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


def generate(model, inputs, **options):
    torch.manual_seed(3)
    return model.generate(**inputs, **{"max_new_tokens": MAX_NEW, **options})


def assert_both_ways_agree(model, inputs, steps, cache=plain_cache, **options):
    steps.clear()
    found = generate(model, inputs, **options)
    assert len(steps) >= 2, "the short way was not taken"
    steps.clear()
    expected = generate(model, inputs, past_key_values=cache(), **options)
    assert not steps, "the long way was not taken"
    assert torch.equal(found, expected)
    return found


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_and_search(tiny_model, tiny_batch, steps, name, search):
    model = tiny_model(seed=1, **ARCHITECTURES[name])
    assert_both_ways_agree(model, source(tiny_batch), steps, **SEARCHES[search])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_with_shared_heads(
    tiny_model, tiny_batch, steps, scheme, heads, attention, side
):
    changes = {"position_embedding_type": scheme, "decoder_num_key_value_heads": heads}
    model = tiny_model(seed=1, attention=attention, **LIVELY, **changes)
    for beams in (1, 3):
        assert_both_ways_agree(model, source(tiny_batch, side=side), steps, num_beams=beams)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("beams", [1, 3])
def test_prompts_of_the_decoder_with_and_without_padding(
    tiny_model, tiny_batch, steps, scheme, beams
):
    model = tiny_model(seed=1, **LIVELY, position_embedding_type=scheme)
    prompt = torch.tensor([[1, 1, 0, 4], [0, 5, 9, 4], [1, 0, 7, 8]])
    for mask in (None, (prompt != 1).long()):
        inputs = {**source(tiny_batch), "decoder_input_ids": prompt, "decoder_attention_mask": mask}
        assert_both_ways_agree(model, inputs, steps, num_beams=beams)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("search", ["greedy", "many results", "sampling"])
def test_language_models(tiny_model, steps, search, scheme, attention):
    changes = {"position_embedding_type": scheme, "decoder_num_key_value_heads": 2}
    model = tiny_model(
        VanillaTransformerForCausalLM, seed=2, attention=attention, **LIVELY, **changes
    )
    ids = torch.tensor([[1, 1, 4, 9], [8, 5, 9, 4]])
    for mask in ((ids != 1).long(), torch.ones_like(ids)):
        inputs = {"input_ids": ids, "attention_mask": mask}
        assert_both_ways_agree(model, inputs, steps, cache=DynamicCache, **SEARCHES[search])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_positions_of_the_caller_take_the_long_way(tiny_model, steps, scheme):
    changes = {**LIVELY, "position_embedding_type": scheme}
    ids, position_ids = torch.tensor([[8, 5, 9, 4]]), torch.tensor([[3, 4, 5, 6]])
    language_model = tiny_model(VanillaTransformerForCausalLM, seed=1, **changes)
    inputs = {"input_ids": ids, "position_ids": position_ids}
    generate(language_model, inputs)
    assert not steps


@pytest.mark.parametrize("beams", [1, 4])
def test_a_row_alone_and_among_others(tiny_model, tiny_batch, steps, beams):
    model = tiny_model(seed=1, **LIVELY)
    inputs = source(tiny_batch, lens=[3 + row % 6 for row in range(32)])
    together = assert_both_ways_agree(model, inputs, steps, num_beams=beams, eos_token_id=None)
    for row in (0, 13, 31):
        alone = {name: part[row : row + 1] for name, part in inputs.items()}
        assert torch.equal(
            generate(model, alone, num_beams=beams, eos_token_id=None)[0], together[row]
        )


def change_in_place(model):
    with torch.no_grad():
        model.model.decoder.layers[1].self_attn.k_proj.weight.mul_(-1)


def change_by_training(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ids = torch.arange(3, 9)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()


def change_by_loading(model):
    model.load_state_dict({name: part.flip(0) for name, part in model.state_dict().items()})


def change_type(model):
    model.double()


def change_attention(model):
    model.set_attn_implementation("eager")


@pytest.mark.parametrize(
    "change",
    [change_in_place, change_by_training, change_by_loading, change_type, change_attention],
)
def test_changed_weights_count_at_once(tiny_model, tiny_batch, steps, change):
    model, inputs = tiny_model(seed=1, **LIVELY), source(tiny_batch)
    options = {"return_dict_in_generate": True, "output_logits": True}
    before = generate(model, inputs, **options).logits
    change(model)
    found = generate(model, inputs, **options).logits
    expected = generate(model, inputs, past_key_values=plain_cache(), **options).logits
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=1e-4, atol=1e-4)
    assert change is change_attention or not torch.equal(before[-1], found[-1].float())


def test_generating_leaves_the_model_as_it_was(tiny_model, tiny_batch, tmp_path):
    model = tiny_model(seed=1, **LIVELY)
    untouched = copy.deepcopy(model)
    attributes = [set(vars(module)) for module in model.modules()]
    found = generate(model, source(tiny_batch), num_beams=2)
    assert [set(vars(module)) for module in model.modules()] == attributes
    assert list(model.state_dict()) == list(untouched.state_dict())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(generate(other, source(tiny_batch), num_beams=2), found)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_the_returned_cache_is_an_ordinary_one(tiny_model, tiny_batch, steps, options):
    model, inputs = tiny_model(seed=1, **LIVELY), source(tiny_batch)
    records = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    options = {**options, **records, "eos_token_id": None}
    found = generate(model, inputs, **options)
    assert len(steps) == MAX_NEW - 1
    expected = generate(model, inputs, past_key_values=plain_cache(), **options)
    own, other = found.past_key_values, expected.past_key_values
    assert type(own) is EncoderDecoderCache
    assert own.get_seq_length() == other.get_seq_length() == MAX_NEW
    for ours, theirs in zip(own, other, strict=True):
        for part, expected_part in zip(ours, theirs, strict=True):
            if part is not None:
                torch.testing.assert_close(part, expected_part, rtol=1e-4, atol=1e-4)
    for name in ("scores", "logits"):
        torch.testing.assert_close(
            torch.stack(found[name]), torch.stack(expected[name]), rtol=1e-4, atol=1e-4
        )
    repeats = len(own.self_attention_cache.layers[0].keys) // 3
    repeated = {name: part.repeat_interleave(repeats, 0) for name, part in inputs.items()}
    ids = torch.full((3 * repeats, 1), 5)
    after = [
        model(**repeated, decoder_input_ids=ids, past_key_values=cache).logits
        for cache in (own, other)
    ]
    torch.testing.assert_close(*after, rtol=1e-4, atol=1e-4)


class Tokens(BaseStreamer):
    def __init__(self):
        self.tokens = []

    def put(self, value):
        self.tokens += value.flatten().tolist()

    def end(self):
        self.tokens.append("end")


def test_tokens_stream(tiny_model, tiny_batch, steps):
    model, streamer = tiny_model(seed=1, **LIVELY), Tokens()
    row = {name: part[:1] for name, part in source(tiny_batch).items()}
    ids = generate(model, row, streamer=streamer)
    assert steps
    assert streamer.tokens == [*ids[0].tolist(), "end"]


def with_hook(model):
    return model.model.decoder.layers[1].feed_forward.register_forward_hook(
        lambda module, args, output: output * 0
    )


def with_pre_hook(model):
    return model.model.decoder.register_forward_pre_hook(lambda module, args: None)


def with_own_forward(model):
    layer = model.model.decoder.layers[0].encoder_attn
    old = layer.forward
    layer.forward = lambda *args, **kwargs: (old(*args, **kwargs)[0] * 0, None)


def with_other_layer(model):
    class Halved(type(model.model.decoder.layers[0])):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs) / 2

    model.model.decoder.layers[0].__class__ = Halved


def with_other_model(model):
    class Cold(type(model)):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = -output.logits
            return output

    model.__class__ = Cold


def with_training_mode(model):
    model.train()


CHANGES = [
    with_hook,
    with_pre_hook,
    with_own_forward,
    with_other_layer,
    with_other_model,
    with_training_mode,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_step_would_leave_out_is_done_the_long_way(tiny_model, tiny_batch, steps, change):
    model, inputs = tiny_model(seed=1, **LIVELY), source(tiny_batch)
    change(model)
    found = generate(model, inputs)
    assert not steps
    assert torch.equal(found, generate(model, inputs, past_key_values=plain_cache()))


def test_ablated_heads_stay_ablated(tiny_model, tiny_batch, steps):
    model, inputs = tiny_model(seed=1, **LIVELY), source(tiny_batch)
    whole = generate(model, inputs)
    with ablate_heads(model, {"decoder.encoder_attn": {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}}):
        found = generate(model, inputs)
    assert not torch.equal(found, whole)


OPTIONS = {
    "no cache": {"use_cache": False},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
    "attention weights": {"output_attentions": True, "return_dict_in_generate": True},
    "hidden states": {"output_hidden_states": True, "return_dict_in_generate": True},
    "prompt lookup": {"prompt_lookup_num_tokens": 2},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_take_the_long_way(tiny_model, tiny_batch, steps, name):
    model = tiny_model(seed=1, **LIVELY)
    row = {name: part[:1] for name, part in source(tiny_batch).items()}
    expected = generate(model, row)
    steps.clear()
    found = generate(model, row, **OPTIONS[name])
    assert not steps
    assert torch.equal(getattr(found, "sequences", found), expected)


def test_weights_that_were_recorded_once_do_not_slow_later_calls(tiny_model, tiny_batch, steps):
    model, inputs = tiny_model(seed=1, **LIVELY), source(tiny_batch)
    generate(model, inputs, output_attentions=True, return_dict_in_generate=True)
    assert not steps
    assert_both_ways_agree(model, inputs, steps)


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_projections_are_called_as_they_are(tiny_model, tiny_batch, steps):
    model = tiny_model(seed=1, **LIVELY, decoder_ffn_dim=32)
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert_both_ways_agree(quantized, source(tiny_batch), steps)


@pytest.mark.parametrize("name", ["paper", "gate, RMS norm", "other norm, head bias"])
def test_large_matrices_have_an_operator_of_their_own(
    tiny_model, tiny_batch, steps, name, monkeypatch
):
    monkeypatch.setattr(decoding_step, "_LARGE", 1)
    monkeypatch.setattr(decoding_step, "_SEVERAL", 3)
    model = tiny_model(seed=1, **ARCHITECTURES[name])
    with torch.profiler.profile() as profile:
        generate(model, source(tiny_batch))
    assert any("linear_pointwise" in event.key for event in profile.key_averages())
    for beams in (1, 3):
        assert_both_ways_agree(model, source(tiny_batch), steps, num_beams=beams)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types(tiny_model, tiny_batch, steps, dtype):
    model = tiny_model(seed=1, **LIVELY).to(dtype)
    ids = generate(model, source(tiny_batch), num_beams=2)
    assert len(steps) >= 2
    assert ids.shape[0] == 3


@pytest.mark.parametrize("seed", range(5))
def test_beams_that_change_places_take_their_past_along(seed):
    """Against a list of rows that are copied whole."""
    generator = torch.Generator().manual_seed(seed)
    sources, copies, layers, heads, head_dim = 3, 4, 2, 2, 3
    rows = sources * copies

    def draw(*shape):
        return torch.rand(*shape, generator=generator)

    plain, first = DynamicCache(), [draw(sources, heads, 2, head_dim) for _ in range(2 * layers)]
    expected = [part.repeat_interleave(copies, 0) for part in first]
    for layer in range(layers):
        plain.update(*expected[2 * layer : 2 * layer + 2], layer)
    cache = DecodingCache(plain, copies)
    for _ in range(12):
        parents = torch.randint(0, copies, (sources, copies), generator=generator)
        parents[0] = torch.arange(copies)
        order = (parents + torch.arange(sources)[:, None] * copies).flatten()
        cache.reorder_cache(order)
        expected = [part[order] for part in expected]
        cache.begin_step()
        for layer in range(layers):
            new = draw(2, rows, heads, head_dim)
            found = cache.append(layer, new[0], new[1])
            for index, part in enumerate(found):
                place = 2 * layer + index
                expected[place] = torch.cat([expected[place], new[index][:, :, None]], dim=2)
                assert torch.equal(part, expected[place])
    returned = cache.to_plain()
    assert returned is plain
    kept = [part for layer in plain.layers for part in (layer.keys, layer.values)]
    assert all(map(torch.equal, kept, expected))
