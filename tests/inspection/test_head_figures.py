"""Pictures of head scores: a panel for each module, one scale, a number in each cell."""

import io

import pytest
import torch

from vanilla_transformer.inspection import head_scores, plot_head_scores

pytest.importorskip("matplotlib", reason="needs the extra `plot`")


def panels_of(figure):
    figure.savefig(io.BytesIO(), dpi=40)
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def test_each_module_has_a_panel_with_its_changes(tiny_model, tiny_batch):
    model, batch = tiny_model(), tiny_batch()
    changes = head_scores(model, lambda scored: scored(**batch).loss.item())
    panels = panels_of(plot_head_scores(changes, score="loss in $nats$", title="all"))
    assert [axes.get_title() for axes in panels] == list(changes)
    most = max(change.abs().max().item() for change in changes.values())
    for axes, change in zip(panels, changes.values(), strict=True):
        drawn = torch.tensor(axes.images[0].get_array().data)
        torch.testing.assert_close(drawn, change.float())
        assert axes.images[0].get_clim() == pytest.approx((-most, most))
        numbers = [float(text.get_text()) for text in axes.texts]
        assert numbers == pytest.approx(change.flatten().tolist(), abs=most / 15)


@pytest.mark.parametrize(
    ("most", "texts"),
    [
        (2.6, ["+2.6", "-1.3", "+0.0"]),
        (0.0075, ["+0.0075", "-0.0037", "+0.0000"]),
        (31.0, ["+31", "-16", "+0"]),
        (1e-7, ["+1e-07", "-5e-08", "+0e+00"]),
    ],
)
def test_numbers_have_a_sign_and_two_digits_of_the_largest(most, texts):
    (axes,) = panels_of(plot_head_scores({"x": torch.tensor([[most, -most / 2, 0]]).double()}))
    assert [text.get_text() for text in axes.texts] == texts


def test_numbers_fit_their_cells():
    changes = {"a": torch.full((3, 8), -0.0123), "b": torch.rand(2, 16)}
    figure = plot_head_scores(changes)
    for axes in panels_of(figure):
        cell = axes.get_window_extent().width / axes.images[0].get_array().shape[1]
        assert all(text.get_window_extent().width < cell for text in axes.texts)
        assert axes.texts


def test_many_heads_have_no_numbers_and_no_change_is_drawn():
    (axes,) = panels_of(plot_head_scores({"x": torch.zeros(2, 32)}))
    assert not axes.texts
    assert axes.images[0].get_array().shape == (2, 32)


def test_what_are_no_changes_is_refused():
    with pytest.raises(ValueError, match="`changes` are empty"):
        plot_head_scores({})
    with pytest.raises(ValueError, match=r"`changes` of 'x' have the shape \(4,\)"):
        plot_head_scores({"x": torch.zeros(4)})
