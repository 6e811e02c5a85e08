"""generate() against a hand-written loop over the uncached forward, and its outputs."""

import pytest
import torch

MAX_NEW = 8
POSITIONS = ["sinusoidal", "learned", "rope", "alibi", "relative", "none"]
LIVELY = {"tie_word_embeddings": False, "norm_placement": "pre"}  # does not repeat one token
VOCABS = [{}, {"decoder_vocab_size": 60}, {"vocab_size": 60, "decoder_vocab_size": 40}]


def greedy_by_hand(model, source, mask=None, steps=MAX_NEW, start=(0,)):
    """One row, no cache: the whole prefix is decoded anew for every token."""
    ids = torch.tensor([list(start)])
    for _ in range(steps):
        logits = model(source, attention_mask=mask, decoder_input_ids=ids, use_cache=False).logits
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
        if ids[0, -1] == 2:
            break
    return ids[0].tolist()


def rows_of(ids):
    """Rows without the padding after their end."""
    rows = []
    for row in ids.tolist():
        end = row.index(2) + 1 if 2 in row else len(row)
        assert all(token == 1 for token in row[end:])
        rows.append(row[:end])
    return rows


def source(tiny_batch, side="right", vocab=40, lens=(7, 4, 6)):
    batch = tiny_batch(lens, (2,) * len(lens), side=side, vocab=vocab)
    return {k: batch[k] for k in ("input_ids", "attention_mask")}


@pytest.mark.parametrize(("side", "attention"), [("left", "eager"), ("right", "sdpa")])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("vocabs", VOCABS)
def test_greedy_search_equals_a_loop_without_cache(
    tiny_model, tiny_batch, vocabs, positions, attention, side
):
    model = tiny_model(
        position_embedding_type=positions, attention=attention, seed=1, **LIVELY, **vocabs
    )
    inputs = source(tiny_batch, side, model.config.vocab_size)
    with torch.no_grad():
        expected = [
            greedy_by_hand(model, ids[mask == 1][None])
            for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
        ]
    if positions in ("sinusoidal", "learned"):
        assert len({tuple(row) for row in expected}) == 3, "rows must differ to tell anything"
    for use_cache in (True, False):
        ids = model.generate(**inputs, max_new_tokens=MAX_NEW, use_cache=use_cache)
        assert rows_of(ids) == expected


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_scores_attentions_and_hidden_states_are_returned(tiny_model, tiny_batch, attention):
    model, inputs = tiny_model(seed=1, **LIVELY, attention=attention), source(tiny_batch)
    output = model.generate(
        **inputs,
        max_new_tokens=4,
        min_new_tokens=4,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        output_attentions=True,
        output_hidden_states=True,
    )
    assert len(output.scores) == len(output.cross_attentions) == 4
    assert [layer.shape for layer in output.encoder_attentions] == [(3, 2, 7, 7)] * 2
    assert [layer.shape for layer in output.cross_attentions[2]] == [(3, 4, 1, 7)] * 3
    assert [layer.shape for layer in output.decoder_attentions[2]] == [(3, 4, 1, 3)] * 3
    assert len(output.decoder_hidden_states[0]) == 1 + 3
    assert len(output.encoder_hidden_states) == 1 + 2
    whole = model(**inputs, decoder_input_ids=output.sequences[:, :-1], output_attentions=True)
    torch.testing.assert_close(torch.stack(output.logits, 1), whole.logits, rtol=1e-4, atol=1e-4)
    steps = torch.cat([step[1] for step in output.cross_attentions], dim=2)
    torch.testing.assert_close(steps, whole.cross_attentions[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize(("cache", "beams"), [("dynamic", 2), ("static", 1)])
def test_left_padded_prompts_of_the_decoder_go_on_from_their_own_positions(
    tiny_model, tiny_batch, beams, cache, positions
):
    model = tiny_model(seed=1, **LIVELY, position_embedding_type=positions)
    model.generation_config.disable_compile = True
    inputs = source(tiny_batch)
    prompts = [[0], [0, 5, 9, 4], [0, 7]]
    options = {
        "max_new_tokens": 5,
        "eos_token_id": None,
        "num_beams": beams,
        "cache_implementation": cache,
    }
    if cache == "dynamic":
        del options["cache_implementation"]
    padded = torch.tensor([[1] * (4 - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (4 - len(p)) + [1] * len(p) for p in prompts])
    batched = model.generate(
        **inputs, decoder_input_ids=padded, decoder_attention_mask=mask, **options
    )
    for row, prompt in enumerate(prompts):
        single = model.generate(
            inputs["input_ids"][row : row + 1],
            attention_mask=inputs["attention_mask"][row : row + 1],
            decoder_input_ids=torch.tensor([prompt]),
            **options,
        )
        assert batched[row, 4:].tolist() == single[0, len(prompt) :].tolist()


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"position_embedding_type": scheme, "decoder_num_key_value_heads": 2, "fused_qkv": True}
            for scheme in ("rope", "alibi", "relative")
        ),
        *(
            {"encoder_layers": encoder, "decoder_layers": decoder}
            for encoder, decoder in ((2, 3), (3, 1), (1, 4))
        ),
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_a_static_cache_generates_the_same(tiny_model, tiny_batch, changes):
    model = tiny_model(seed=1, **LIVELY, **changes)
    model.generation_config.disable_compile = True
    inputs = source(tiny_batch)
    dynamic = model.generate(**inputs, max_new_tokens=MAX_NEW)
    static = model.generate(**inputs, max_new_tokens=MAX_NEW, cache_implementation="static")
    assert torch.equal(dynamic, static)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["sinusoidal", "rope", "alibi", "relative"])
def test_a_compiled_forward_generates_the_same(tiny_model, tiny_batch, scheme):
    model = tiny_model(seed=1, **LIVELY, position_embedding_type=scheme)
    inputs = source(tiny_batch)
    expected = model.generate(**inputs, max_new_tokens=4)
    model.forward = torch.compile(model.forward, fullgraph=True)
    found = model.generate(**inputs, max_new_tokens=4, cache_implementation="static")
    assert torch.equal(found, expected)
