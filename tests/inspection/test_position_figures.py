"""Pictures of positions: what the module of the model computes, for every scheme."""

import io
import math

import pytest
import torch

from vanilla_transformer import VanillaTransformerEncoderModel, VanillaTransformerForCausalLM
from vanilla_transformer.inspection import plot_positions
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES
from vanilla_transformer.model.positions import alibi_slopes
from vanilla_transformer.model.stacks import VanillaTransformerDecoder

pytest.importorskip("matplotlib", reason="needs the extra `plot`")

ADDED = ("sinusoidal", "sinusoidal_half", "sinusoidal_fairseq", "learned")
SCHEMES = CHOICES["position_embedding_type"]


def images_of(figure):
    return [
        torch.tensor(axes.images[0].get_array().data)
        for axes in figure.axes
        if axes.images and axes.get_label() != "<colorbar>"
    ]


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "none"])
def test_every_scheme_is_drawn(tiny_model, scheme):
    stack = "encoder" if scheme in ("learned", "relative") else "decoder"
    model = tiny_model(position_embedding_type=scheme, position_offset=2 * (scheme in ADDED))
    figure = plot_positions(model, stack, length=12)
    module = getattr(model.model, stack).embed_positions
    assert figure.get_suptitle() == f"{stack}: {type(module).__name__}"
    assert images_of(figure)
    figure.savefig(io.BytesIO(), dpi=40)


@pytest.mark.parametrize("scheme", ADDED)
def test_added_values_are_those_of_the_model(tiny_model, scheme):
    model = tiny_model(position_embedding_type=scheme, position_offset=3)
    positions = torch.arange(10)[None]
    expected = model.model.encoder.embed_positions(positions, torch.float32).embedding[0]
    values, similarity = images_of(plot_positions(model, length=10))
    torch.testing.assert_close(values, expected.detach())
    cosines = torch.cosine_similarity(expected[:, None], expected[None], dim=-1)
    torch.testing.assert_close(similarity, cosines.detach())


def test_the_rotation_is_an_angle_that_grows_with_the_position(tiny_model):
    model = tiny_model(position_embedding_type="rope")  # 2 heads of 8 dimensions, 4 pairs
    (angles,) = images_of(plot_positions(model, "encoder", length=6))
    assert angles.shape == (6, 4)
    for position in range(6):
        for pair in range(4):
            turned = math.degrees(position * 10000 ** (-pair / 4))
            assert angles[position, pair] == pytest.approx(turned % 360, abs=1e-3)


def test_biases_are_curves_over_the_distance(tiny_model):
    model = tiny_model(position_embedding_type="alibi")
    for stack, heads, last in (("encoder", 2, 5), ("decoder", 4, 0)):
        figure = plot_positions(model, stack, length=6)
        distances = torch.arange(-5, last + 1)
        expected = -alibi_slopes(heads)[:, None] * distances.abs()
        curves = figure.axes[0].lines
        assert len(curves) == heads
        for head, curve in enumerate(curves):
            assert curve.get_xdata().tolist() == distances.tolist()
            assert curve.get_ydata() == pytest.approx(expected[head].numpy(), rel=1e-5)
        torch.testing.assert_close(images_of(figure)[0], expected)


def test_trained_biases_are_those_of_the_model(tiny_model):
    model = tiny_model(position_embedding_type="relative")
    module = model.model.decoder.embed_positions
    expected = module(torch.arange(9)[None], torch.float32).bias[0, :, -1].detach()
    (found,) = images_of(plot_positions(model, "decoder", length=9))
    torch.testing.assert_close(found, expected)


def test_of_many_heads_eight_have_a_curve_and_all_a_row(tiny_model):
    sizes = {"d_model": 32, "encoder_attention_heads": 16}
    figure = plot_positions(tiny_model(position_embedding_type="alibi", **sizes), length=4)
    names = [curve.get_label() for curve in figure.axes[0].lines]
    assert len(names) == 8
    assert (names[0], names[-1]) == ("head 0", "head 15")
    assert images_of(figure)[0].shape == (16, 7)


def test_models_of_one_stack_and_stacks_have_positions(tiny_model):
    for cls, name in (
        (VanillaTransformerEncoderModel, "encoder"),
        (VanillaTransformerForCausalLM, "decoder"),
        (VanillaTransformerDecoder, "decoder"),
    ):
        model = tiny_model(cls).train()
        assert plot_positions(model, length=4).get_suptitle().startswith(name)
        assert model.training


def test_what_has_no_positions_is_refused(tiny_model):
    with pytest.raises(ValueError, match="`position_embedding_type` is 'none'"):
        plot_positions(tiny_model(position_embedding_type="none"))
    with pytest.raises(ValueError, match=r"no decoder with positions; it has \['encoder'\]"):
        plot_positions(tiny_model(VanillaTransformerEncoderModel), "decoder")
    with pytest.raises(ValueError, match="`stack` is 'middle'"):
        plot_positions(tiny_model(), "middle")
    with pytest.raises(ValueError, match="`length` is 1"):
        plot_positions(tiny_model(), length=1)
    with pytest.raises(ValueError, match="`max_position_embeddings` is 64"):
        plot_positions(tiny_model(position_embedding_type="learned"), length=65)
