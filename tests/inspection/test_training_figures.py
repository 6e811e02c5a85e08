"""Pictures of trainings: every logged number at its place, from directories and from lists."""

import io
import json
import math

import pytest

from vanilla_transformer.inspection import plot_training
from vanilla_transformer.inspection.training_figures import read_training

pytest.importorskip("matplotlib", reason="needs the extra `plot`")

LOG = [
    {"loss": 3.0, "learning_rate": 0.1, "grad_norm": 1.0, "epoch": 0.5, "step": 10},
    {"loss": 2.0, "learning_rate": 0.2, "grad_norm": 1.0, "epoch": 1.0, "step": 20},
    {"eval_loss": 2.5, "eval_bleu": 11.0, "eval_runtime": 3.0, "epoch": 1.0, "step": 20},
    {"loss": 1.0, "learning_rate": 0.1, "grad_norm": 1.0, "epoch": 2.0, "step": 40},
    {"eval_loss": 1.5, "eval_bleu": 22.0, "eval_runtime": 3.0, "epoch": 2.0, "step": 40},
    {"train_loss": 2.0, "train_runtime": 80.0, "epoch": 2.0, "step": 40},
]


def panels_of(figure):
    """The curves of each panel, as (x, y) by title."""
    return {
        axes.get_title(): [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
        for axes in figure.axes
        if axes.get_visible()
    }


def names_of(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(
    ("x", "places"),
    [("step", [10, 20, 40]), ("epoch", [0.5, 1, 2]), ("seconds", [20, 40, 80])],
)
def test_every_logged_number_stands_at_its_place(x, places):
    assert panels_of(plot_training(LOG, x=x)) == {
        "loss": [(places, [3, 2, 1]), (places[1:], [2.5, 1.5])],
        "bleu": [(places[1:], [11, 22])],
        "learning rate": [(places, [0.1, 0.2, 0.1])],
    }


def test_runs_share_panels_and_differ_in_colour_and_line():
    other = [
        {"loss": 5.0, "step": 7, "epoch": 0.1},
        {"eval_chrf": 7.0, "step": 9, "epoch": 0.2},
        {"eval_chrf": 8.0, "step": 18, "epoch": 0.4},
    ]
    figure = plot_training(LOG, other, names=["base $x$", "other"])
    figure.savefig(io.BytesIO(), dpi=40)
    panels = panels_of(figure)
    assert list(panels) == ["loss", "bleu", "chrf", "learning rate"]
    assert panels["loss"][2:] == [([7], [5]), ([], [])]
    assert panels["chrf"] == [([], []), ([9, 18], [7, 8])]
    assert names_of(figure) == ["base $x$", "other", "loss in training", "loss in validation"]
    first, _, second, _ = figure.axes[0].lines
    assert first.get_color() != second.get_color()
    assert first.get_linestyle() != second.get_linestyle()


def test_a_real_run_is_read(trained):
    state = json.loads((trained / "trainer_state.json").read_text(encoding="utf-8"))
    losses = [entry["eval_loss"] for entry in state["log_history"] if "eval_loss" in entry]
    figure = plot_training(trained)
    assert panels_of(figure)["loss"][0][1] == losses
    assert len(losses) >= 1
    assert names_of(figure) == [trained.name]
    assert panels_of(plot_training(str(trained / "trainer_state.json"))) == panels_of(figure)
    (checkpoint,) = trained.glob("checkpoint-*")
    with pytest.raises(ValueError, match="there is nothing to draw"):  # it was saved before
        plot_training(checkpoint)
    ends = panels_of(plot_training(trained, x="seconds"))["loss"][0][0]
    recorded = state["stateful_callbacks"]["TrainingRecord"]["attributes"]["seconds"]
    assert 0 < ends[-1] <= recorded * 1.001


def save_checkpoint(folder, step, seconds, entries):
    folder.mkdir(parents=True)
    record = {"TrainingRecord": {"args": {}, "attributes": {"seconds": seconds}}}
    state = {"global_step": step, "log_history": entries, "stateful_callbacks": record}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")


def test_an_unfinished_run_is_read_from_its_last_checkpoint(tmp_path):
    save_checkpoint(tmp_path / "run" / "checkpoint-9", 9, 10.0, LOG[:1])
    save_checkpoint(tmp_path / "run" / "checkpoint-20", 20, 100.0, LOG[:3])
    assert panels_of(plot_training(tmp_path / "run"))["loss"][0] == ([10, 20], [3, 2])
    # 10 seconds for 9 steps, then 90 seconds for 11 steps
    places = panels_of(plot_training(tmp_path / "run", x="seconds"))["loss"][0][0]
    assert places == pytest.approx([10 + 90 / 11, 100])


def test_a_number_that_is_not_finite_leaves_a_gap(tmp_path):
    save_checkpoint(tmp_path / "run", 40, 80.0, [{**LOG[0], "loss": float("nan")}, *LOG[1:]])
    values = panels_of(plot_training(tmp_path / "run"))["loss"][0][1]
    assert math.isnan(values[0])
    assert values[1:] == [2, 1]


def test_a_metric_that_was_measured_once_has_a_panel_only_where_runs_are_compared():
    once = [entry for entry in LOG if "eval_bleu" not in entry or entry["step"] == 40]
    assert list(panels_of(plot_training(once))) == ["loss", "learning rate"]
    assert panels_of(plot_training(once, once))["bleu"] == [([40], [22]), ([40], [22])]
    assert list(panels_of(plot_training([{"eval_bleu": 3.0, "step": 1, "epoch": 1.0}]))) == ["bleu"]


def test_many_runs_fit():
    figure = plot_training(*[LOG] * 12, names=[f"a run with a long name {n}" for n in range(12)])
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert len(names_of(figure)) == 14
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert all(axes.get_window_extent().y0 > box.y1 for axes in figure.axes if axes.get_visible())


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no trainer_state"):
        plot_training(tmp_path)
    (tmp_path / "trainer_state.json").write_text('{"log_history": [', encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged: it holds no log"):
        plot_training(tmp_path)
    with pytest.raises(ValueError, match="`x` is 'days'"):
        plot_training(LOG, x="days")
    with pytest.raises(ValueError, match="There are 0 `runs`"):
        plot_training()
    with pytest.raises(ValueError, match="There are 1 `runs` and `names`"):
        plot_training(LOG, names=["a", "b"])
    with pytest.raises(ValueError, match="The seconds of 'run 1' are not known"):
        plot_training(LOG[:3], x="seconds")
    with pytest.raises(ValueError, match="'run 1' has no loss, metric or learning rate"):
        plot_training([{"grad_norm": 1.0, "step": 1}])
    with pytest.raises(ValueError, match="'run 2' has an entry without 'epoch'"):
        plot_training(LOG, [{"loss": 1.0, "step": 1}], x="epoch")


def test_a_log_has_the_name_of_its_directory(trained):
    assert read_training(trained).name == trained.name
    assert read_training(LOG, "mine").name == "mine"
