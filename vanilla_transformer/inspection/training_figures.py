"""Draws the curves of one or several trainings from the log that Trainer keeps."""

import itertools
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.inspection.figures import make_labels, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Entries = Sequence[Mapping[str, Any]]
"""What Trainer logs, as in `trainer.state.log_history`: one entry with a `step` each time."""

_STATE_FILE = "trainer_state.json"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_STYLES = ("-", "--", ":", "-.")  # for shades of grey
_NOT_METRICS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
_X_LABELS = {"step": "steps", "epoch": "epochs", "seconds": "seconds of training"}


@dataclass(frozen=True)
class TrainingLog:
    """The log of one run.

    Attributes:
        clock: Steps, in increasing order, and the seconds of training up to each, as far as they
            are known; (0, 0) comes first.
    """

    name: str
    entries: Entries
    clock: tuple[tuple[int, float], ...] = ()

    def curve(self, field: str, x: str) -> tuple[list[float], list[float]]:
        """Returns the positions on the x axis and the values of a field, in the order of the log.

        Args:
            field: Field of the entries, such as "loss" or "eval_bleu".
            x: "step", "epoch" or "seconds".
        """
        logged = [entry for entry in self.entries if isinstance(entry.get(field), int | float)]
        places = [self._place_of(entry, x) for entry in logged]
        return places, [float(entry[field]) for entry in logged]

    def _place_of(self, entry: Mapping[str, Any], x: str) -> float:
        """Returns the place of an entry. Seconds lie between known ones in proportion to steps."""
        if x != "seconds":
            return float(entry.get(x, float("nan")))
        step = int(entry["step"])
        index = min(max(bisect_left(self.clock, (step, 0.0)), 1), len(self.clock) - 1)
        (first, start), (second, end) = self.clock[index - 1 : index + 1]
        return start + (end - start) * (step - first) / max(second - first, 1)


def plot_training(
    *runs: str | Path | Entries,
    names: Sequence[str] | None = None,
    x: Literal["step", "epoch", "seconds"] = "step",
) -> "Figure":
    """Draws loss, metrics and learning rate of one or several runs.

    Each quantity has a panel, in which each run has one colour and one style of line. The loss of
    the training is a thin line, and that of the validation has dots, as have other metrics. A
    metric that was measured only once, in one run, has no panel beside the losses.

    Args:
        *runs: For each run: its directory, a checkpoint, a trainer_state.json, or the entries that
            Trainer logged (`trainer.state.log_history`). Of a directory without a
            trainer_state.json of its own, the checkpoint with the most steps is read.
        names: Names for the legend. None: the names of the directories.
        x: What runs from left to right: "step", "epoch" or "seconds". The seconds of training are
            known at the checkpoints that this package writes and at the end of a training; between
            these they grow with the steps.

    Raises:
        FileNotFoundError: If there is no trainer_state.json.
        ValueError: If there is no run, if a file is damaged, if a run has nothing to draw, or if
            its epochs or seconds are not known.
    """
    if x not in _X_LABELS:
        raise ValueError(f"`x` is {x!r}: choose one of {list(_X_LABELS)}.")
    if not runs or (names is not None and len(names) != len(runs)):
        raise ValueError(f"There are {len(runs)} `runs` and `names` {names}: name each run once.")
    logs = [read_training(run, f"run {number}") for number, run in enumerate(runs, start=1)]
    shown = make_labels([log.name for log in logs] if names is None else names, longest=40)
    for log in logs:
        _check_places(log, x)
    panels = _choose_panels(logs)
    end = max(
        place for log in logs for field in _fields_of(log) for place in log.curve(field, x)[0]
    )
    wide = 2 if len(panels) == 4 else min(len(panels), 3)
    high = -(-len(panels) // wide)
    figure = new_figure((max(3.2 * wide, 5.0), 0.8 + 2.6 * high))
    grid = figure.subplots(high, wide, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, fields) in zip(grid.flat, panels.items(), strict=False):
        for (number, log), field in itertools.product(enumerate(logs), fields):
            is_metric = field.startswith("eval_")
            axes.plot(
                *log.curve(field, x), **_style_of(number), markersize=4,
                linewidth=1.8 if is_metric or len(fields) == 1 else 1.0,
                marker="o" if is_metric else "",
            )  # fmt: skip
        label = make_labels([title], longest=30)
        axes.set_title(label.texts[0], fontsize=11, **label.style)
        axes.set_xlabel(_X_LABELS[x])
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.ticklabel_format(axis="y", scilimits=(-2, 4))
        axes.xaxis.get_major_locator().set_params(nbins=5)
        axes.set_xlim(0, 1.03 * end or 1)
    _add_legend(figure, shown.texts, shown.style, len(panels.get("loss", ())) == 2)
    return figure


def read_training(run: str | Path | Entries, name: str = "run") -> TrainingLog:
    """Reads the log of a run.

    Args:
        name: Name of a run that is given by its entries.
    """
    if not isinstance(run, str | Path):
        entries = list(run)
        return TrainingLog(name, entries, _make_clock(_end_of(entries)))
    folder = Path(run)
    if folder.name == _STATE_FILE:
        folder = folder.parent
    states = [folder / _STATE_FILE, *folder.glob(f"checkpoint-*/{_STATE_FILE}")]
    read = [_read_state(path) for path in states if path.is_file()]
    if not read:
        raise FileNotFoundError(
            f"{str(run)!r} has no {_STATE_FILE}, nor has a checkpoint in it: give the directory of "
            "a training, or one of its checkpoints."
        )
    own = read[0] if states[0].is_file() else max(read, key=lambda state: state["global_step"])
    entries = own["log_history"]
    known = [seconds for state in read for seconds in _seconds_of(state)] or _end_of(entries)
    return TrainingLog(folder.resolve().name, entries, _make_clock(known))


def _read_state(path: Path) -> dict[str, Any]:
    """Reads a trainer_state.json, and checks the parts that are used."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(state["log_history"], list) and isinstance(state["global_step"], int):
            return dict(state)
    except (ValueError, TypeError, KeyError):
        pass
    raise ValueError(f"{str(path)!r} is damaged: it holds no log of a Trainer.")


def _seconds_of(state: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Returns step and seconds of a state, if this package's training recorded them."""
    record = state.get("stateful_callbacks", {}).get("TrainingRecord", {})
    seconds = record.get("attributes", {}).get("seconds", 0) if isinstance(record, dict) else 0
    return [(state["global_step"], float(seconds))] if seconds else []


def _end_of(entries: Entries) -> list[tuple[int, float]]:
    """Returns step and seconds at the end of a training, if the log tells."""
    ends = [entry for entry in entries if entry.get("train_runtime") and entry.get("step")]
    return [(int(entry["step"]), float(entry["train_runtime"])) for entry in ends[-1:]]


def _make_clock(known: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    return ((0, 0.0), *sorted(set(known))) if known else ()


def _check_places(log: TrainingLog, x: str) -> None:
    """Checks that a run has curves, and that their places are known."""
    fields = _fields_of(log)
    if not fields:
        raise ValueError(
            f"The log of {log.name!r} has no loss, metric or learning rate: there is nothing to "
            "draw. Set `logging_steps` or `eval_strategy` in the training."
        )
    if x == "seconds" and not log.clock:
        raise ValueError(f"The seconds of {log.name!r} are not known: choose the x 'step'.")
    field = "step" if x == "seconds" else x
    if any(field not in entry for entry in log.entries):
        raise ValueError(f"The log of {log.name!r} has an entry without {field!r}.")


def _fields_of(log: TrainingLog) -> dict[str, None]:
    """Returns the fields of a run that are drawn, in their order."""
    fields = [field for entry in log.entries for field in entry if field.startswith("eval_")]
    metrics = [field for field in fields if not field.endswith(_NOT_METRICS)]
    found = dict.fromkeys(["loss", *metrics, "learning_rate"])
    return {field: None for field in found if log.curve(field, "epoch")[1]}


def _choose_panels(logs: Sequence[TrainingLog]) -> dict[str, tuple[str, ...]]:
    """Returns the fields of each panel by its title."""
    fields = dict.fromkeys(field for log in logs for field in _fields_of(log))
    losses = tuple(field for field in ("loss", "eval_loss") if field in fields)
    panels: dict[str, tuple[str, ...]] = {"loss": losses} if losses else {}
    for name in fields:
        points = sum(len(log.curve(name, "epoch")[1]) for log in logs)
        if name not in (*losses, "learning_rate") and (points > 1 or not losses):
            panels[name.removeprefix("eval_")] = (name,)
    return panels | ({"learning rate": ("learning_rate",)} if "learning_rate" in fields else {})


def _style_of(number: int) -> dict[str, Any]:
    """Returns colour and style of the lines of a run."""
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _STYLES[number % len(_STYLES)],
    }


def _add_legend(
    figure: "Figure", names: Sequence[str], style: Mapping[str, Any], has_both_losses: bool
) -> None:
    """Names the runs below the panels, and the two kinds of loss."""
    with optional_packages():
        from matplotlib.lines import Line2D

    handles = [Line2D([], [], **_style_of(number), lw=2) for number in range(len(names))]
    labels = list(names)
    if has_both_losses:
        handles += [Line2D([], [], color="grey", lw=1), Line2D([], [], color="grey", marker="o")]
        labels += ["loss in training", "loss in validation"]
    columns = max(1, int(figure.get_figwidth() * 10 / (max(map(len, labels)) + 8)))
    legend = figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )
    for text in legend.get_texts():
        text.set(**style)
