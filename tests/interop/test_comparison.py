"""A model is compared with its source on random input."""

import pytest

from vanilla_transformer.interop.comparison import compare_logits


def compare(model, source, change=lambda logits: logits):
    def logits(inputs):
        return change(source(**inputs).logits)

    return compare_logits(model, "Other 3", logits)


def test_the_inputs_reach_distances_beyond_a_short_sentence(tiny_model):
    """The weights are equal; only the code computes otherwise."""
    model, other = (
        tiny_model(position_embedding_type="relative", relative_attention_max_distance=distance)
        for distance in (64, 24)
    )
    other.load_state_dict(model.state_dict())
    assert compare(model, model).agrees
    assert not compare(model, other).agrees


@pytest.mark.parametrize(
    "change",
    [
        lambda logits: logits[..., :-1],
        lambda logits: logits.masked_fill(logits == logits.max(), float("nan")),
        lambda logits: logits + 1e-3 * logits.abs().max(),
    ],
)
def test_another_shape_no_number_and_a_small_difference_are_noticed(tiny_model, change):
    model = tiny_model()
    assert not compare(model, model, change).agrees


@pytest.mark.parametrize(
    "changes",
    [
        {"pad_token_id": None, "decoder_start_token_id": 39},
        {"position_embedding_type": "learned", "max_position_embeddings": 3},
    ],
)
def test_inputs_fit_every_model(tiny_model, changes):
    assert compare(tiny_model(**changes).train(), tiny_model(**changes)).difference < 1e-5
