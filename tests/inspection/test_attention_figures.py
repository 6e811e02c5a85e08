"""Pictures of attention: the right weights in the right place, at any length and in any script."""

import io

import pytest
import torch

from vanilla_transformer.inspection import head_scores, plot_alignment, plot_head_scores, plot_heads

image = pytest.importorskip("matplotlib.image", reason="needs the extra `plot`")

ROWS, COLUMNS = ["ein", "Hund", "</s>"], ["a", "dog", ".", "</s>"]


def random_weights(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1)


def panels_of(figure):
    return [axes for axes in figure.axes if axes.images and axes.get_visible()]


def values_of(axes):
    return torch.tensor(axes.images[0].get_array().data)


def names_of(axes, axis):
    return [label.get_text() for label in getattr(axes, f"get_{axis}ticklabels")()]


def draw(figure):
    """The pixels of a figure."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40)
    stream.seek(0)
    return image.imread(stream)


def test_a_layer_has_a_panel_for_each_head():
    weights = random_weights(5, 3, 4)
    panels = panels_of(figure := plot_heads(weights, ROWS, COLUMNS, title="of $layer$ 1"))
    assert [axes.get_title() for axes in panels] == [f"head {head}" for head in range(5)]
    for axes, expected in zip(panels, weights, strict=True):
        assert torch.equal(values_of(axes), expected)
        assert axes.images[0].get_clim() == (0, 1)
    assert names_of(panels[0], "y") == ROWS
    assert [names_of(axes, "x") for axes in panels] == [[]] + 4 * [COLUMNS]  # 4, then 1 below
    assert draw(figure).std() > 0


def test_an_alignment_has_source_columns_and_target_rows():
    weights = random_weights(3, 4)
    figure = plot_alignment(
        COLUMNS, ROWS, weights, links=[(1, 1), (3, 2)], source_label="English", title="a $dog$"
    )
    (axes,) = panels_of(figure)
    assert torch.equal(values_of(axes), weights)
    assert names_of(axes, "x") == COLUMNS
    assert names_of(axes, "y") == ROWS
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("English", "target")
    assert axes.collections[0].get_offsets().tolist() == [[1, 1], [3, 2]]
    draw(figure)
    with pytest.raises(ValueError, match=r"`weights` has the shape \(3, 4\), but 4 tokens attend"):
        plot_alignment(ROWS, COLUMNS, weights)


def test_each_module_has_a_panel_with_its_changes(tiny_model, tiny_batch):
    model, batch = tiny_model(), tiny_batch()
    changes = head_scores(model, lambda scored: scored(**batch).loss.item())
    figure = plot_head_scores(changes, score="loss in $nats$", title="all")
    draw(figure)
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert [axes.get_title() for axes in panels] == list(changes)
    most = max(change.abs().max().item() for change in changes.values())
    for axes, change in zip(panels, changes.values(), strict=True):
        drawn = torch.tensor(axes.images[0].get_array().data)
        torch.testing.assert_close(drawn, change.float())
        assert axes.images[0].get_clim() == pytest.approx((-most, most))
        numbers = [float(text.get_text()) for text in axes.texts]
        assert numbers == pytest.approx(change.flatten().tolist(), rel=0.06)
