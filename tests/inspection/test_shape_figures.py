"""Drawings of shapes: the boxes of the real model, with the shapes that were recorded."""

import io

import pytest
import torch

from vanilla_transformer import (
    VanillaTransformerForSequenceClassification,
)
from vanilla_transformer.inspection import plot_shapes, shape_walk

pytest.importorskip("matplotlib", reason="needs the extra `plot`")

IDS = {"input_ids": torch.tensor([[4, 5, 6, 2]])}
BOTH = {**IDS, "decoder_input_ids": torch.tensor([[0, 7, 8]])}


def columns_of(model, inputs=BOTH):
    """The texts of each column, from bottom to top."""
    figure = plot_shapes(shape_walk(model, inputs))
    figure.savefig(io.BytesIO(), dpi=40)
    check_texts_fit(figure)
    columns = {}
    for text in figure.axes[0].texts:
        if text.get_text():
            columns.setdefault(round(text.get_position()[0], 2), []).append(text)
    ordered = [
        [text.get_text() for text in sorted(texts, key=lambda text: text.get_position()[1])]
        for _, texts in sorted(columns.items())
        if len(texts) > 1
    ]
    counts = [texts[0].get_text() for _, texts in sorted(columns.items()) if len(texts) == 1]
    return ordered, counts


def check_texts_fit(figure):
    axes = figure.axes[0]
    boxes = [patch.get_window_extent() for patch in axes.patches]
    for text in axes.texts:
        extent = text.get_window_extent()
        around = [box for box in boxes if box.contains(*extent.get_points().mean(0))]
        inner = min(around, key=lambda box: box.width, default=None)
        if text.get_text() and inner is not None:
            assert inner.x0 <= extent.x0 + 1, text
            assert extent.x1 - 1 <= inner.x1, text


def test_the_paper_s_model_is_drawn_as_in_its_figure(tiny_model):
    (encoder, decoder), counts = columns_of(tiny_model())
    assert counts == ["2 \u00d7", "3 \u00d7"]
    assert encoder == [
        "input_ids (1, 4)",
        "embed_tokens (1, 4, 16)",
        "Embedding",
        "embed_positions (1, 4, 16)",
        "Add SinusoidalPositions",
        "q, k, v (1, 4, 16)",
        "self_attn (1, 4, 16)",
        "Multi-Head Attention",
        "self_attn_post_norm (1, 4, 16)",
        "Add & LayerNorm",
        "fc1 (1, 4, 32)",
        "feed_forward (1, 4, 16)",
        "Feed Forward (ReLU)",
        "feed_forward_post_norm (1, 4, 16)",
        "Add & LayerNorm",
        "hidden states (1, 4, 16)",
    ]
    headings = [text for text in decoder if "(1" not in text]
    assert headings == [
        "Embedding",
        "Add SinusoidalPositions",
        "Masked Multi-Head Attention",
        "Add & LayerNorm",
        "Multi-Head Attention",
        "Add & LayerNorm",
        "Feed Forward (ReLU)",
        "Add & LayerNorm",
        "Linear",
    ]
    assert decoder[0] == "decoder_input_ids (1, 3)"
    assert decoder[-1] == "logits (1, 3, 40)"
    assert "q (1, 3, 16)  k, v (1, 4, 16)" in decoder
    assert "fc1 (1, 3, 24)" in decoder


def test_the_drawing_follows_the_choices_of_the_model(tiny_model):
    (encoder, decoder), _ = columns_of(
        tiny_model(
            norm_placement="pre",
            norm_type="rms_norm",
            gated_ffn=True,
            activation_function="silu",
            position_embedding_type="rope",
            decoder_num_key_value_heads=2,
            fused_qkv=True,
            normalize_embedding=True,
        )
    )
    assert [text for text in encoder if "(1" not in text] == [
        "Embedding",
        "RMSNorm",
        "RMSNorm",
        "(RotaryPositions)",
        "Multi-Head Attention",
        "Add",
        "RMSNorm",
        "Gated Feed Forward (SiLU)",
        "Add",
        "RMSNorm",
    ]
    assert "rotated by embed_positions (1, 1, 4, 8)" in encoder
    assert "gate, fc1 (1, 4, 32)" in encoder
    assert "embed_norm (1, 4, 16)" in encoder
    assert "final_norm (1, 4, 16)" in encoder
    assert "qkv (1, 3, 32)" in decoder  # 16 + 2 · 2 heads of 4
    assert "q (1, 3, 16)  k, v (1, 4, 8)" in decoder


def test_without_norms_only_sums_are_drawn(tiny_model):
    (encoder, decoder), _ = columns_of(
        tiny_model(norm_placement="none", position_embedding_type="alibi")
    )
    assert encoder.count("Add") == 2
    assert decoder.count("Add") == 3
    assert not [text for text in (*encoder, *decoder) if "Norm" in text]
    assert "biased by embed_positions (1, 4, 3, 3)" in decoder


@pytest.mark.parametrize("placement", ["post", "pre", "none"])
def test_each_sublayer_has_a_residual_connection(tiny_model, placement):
    figure = plot_shapes(shape_walk(tiny_model(norm_placement=placement), BOTH))
    ways = [line.get_xydata() for line in figure.axes[0].lines if len(line.get_xdata()) == 4]
    around = [way for way in ways if way[0][1] == way[1][1] < way[2][1] == way[3][1]]
    assert len(around) == 2 + 3
    assert len(ways) == 2 + 3 + 1  # and the way from the encoder to the decoder


def test_models_of_one_stack_have_one_column(tiny_model):
    (encoder,), counts = columns_of(tiny_model(VanillaTransformerForSequenceClassification), IDS)
    assert counts == ["2 \u00d7"]
    assert encoder[-3:] == ["classifier (1, 2)", "Linear", "logits (1, 2)"]
