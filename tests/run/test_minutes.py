"""A run of a given time: which model and how many steps it has."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from datasets import Dataset
from made_up_language import arguments, main

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.commands import program
from vanilla_transformer.run import assembly, fitting, pace, training_run
from vanilla_transformer.run.architecture_options import ARCHITECTURE_FIELDS
from vanilla_transformer.run.arguments import RunArguments, parse_arguments
from vanilla_transformer.run.defaults import TABLE, RunFacts, choose_defaults
from vanilla_transformer.run.fitting import fit_into
from vanilla_transformer.run.machine import Machine
from vanilla_transformer.run.model_size import bytes_in_8_bits, narrow_to_size
from vanilla_transformer.run.pace import Pace, Timing
from vanilla_transformer.run.training_run import run

CPU = Machine(on_cpu=True, has_bfloat16=True)
OLD_CPU = Machine(on_cpu=True)
SIDES = {"source": "en", "target": "de"}
WORDS = [f"{first}{second}" for first in "abcde" for second in "fghij"]


def pace_of(pairs_a_second, num_pairs, epochs=10, **times):
    """A pace of steps of 100 pairs, with four evaluations."""
    training = SimpleNamespace(eval_strategy="steps", eval_steps=0.25)
    others = {"until_ready": 0.0, "per_evaluation": 0.0, "last_scores": 0.0, **times}
    steps = num_pairs * epochs // 100
    plan = SimpleNamespace(training=training)
    return Pace(plan, num_pairs, steps, 100.0, 100 / pairs_a_second, **others)


@pytest.mark.parametrize(
    ("num_pairs", "minutes", "width"),
    [
        (500, 2, 128),
        (500, 0.25, 64),
        (56_000, 1, 64),
        (56_000, 15, 128),
        (56_000, 60, 192),
        (56_000, 200, 256),
        (5_000_000, 10_000, 256),
    ],
)
def test_a_model_is_as_wide_as_it_can_learn_in_the_time(num_pairs, minutes, width):
    """The speeds are those of docs/sizing.md."""
    timed = []

    def measure(row):
        timed.append(row.d_model)
        return pace_of({64: 800, 128: 271, 192: 159, 256: 112}[row.d_model], num_pairs)

    rows = RunFacts.of(num_pairs, 100, True, CPU).rows_by_width()
    fit = fit_into(minutes, lambda: 0.0, rows, measure)
    row = fit.sizes
    assert row.d_model == width
    assert fit.steps > 0
    assert timed[0] == 128, "most runs need no narrower model"
    assert max(timed) - width <= 64, "a model was timed that is far too wide"
    full = next(row for row in TABLE if row.pairs is None or num_pairs <= row.pairs)
    assert (row.dropout, row.num_train_epochs) == (full.dropout, full.num_train_epochs)


@pytest.mark.parametrize(
    ("width", "least"), [(96, 100_000), (128, 100_000), (192, 200_000), (256, 500_000)]
)
def test_a_given_width_needs_the_pairs_of_such_a_width(width, least):
    loaded = SimpleNamespace(facts=RunFacts.of(120_000, 100, True, CPU))
    asked = SimpleNamespace(defaults={}, given={"d_model": width})
    (sizes,) = fitting.candidate_sizes(asked, loaded)
    assert (sizes.layers, sizes.least_pairs) == (4, least)


@pytest.mark.parametrize(("layers", "limit"), [((6, 2), 8e6), ((2, 2), 1e6), ((4, 4), 2e7)])
def test_a_model_is_within_its_size(layers, limit):
    given = {"encoder_layers": layers[0], "decoder_layers": layers[1], "size": int(limit)}
    given |= {"output_dir": "out"}
    whole = RunFacts.of(200_000, 150, True, OLD_CPU)
    facts = narrow_to_size(whole, RunArguments.of(given))
    sizes = [_bytes(row, given) for row in facts.rows_by_width()]
    assert sizes == sorted(sizes)
    assert sizes[-1] <= limit
    assert facts.sizes.num_train_epochs == whole.sizes.num_train_epochs
    is_whole = facts.sizes == whole.sizes
    assert is_whole or _bytes(facts.narrowed(facts.sizes.d_model + 32).sizes, given) > limit


def _bytes(row, given):
    facts = replace(RunFacts.of(200_000, 150, True, OLD_CPU), sizes=row, has_time=True)
    chosen = {**choose_defaults(given, facts), **given}
    fields = {name: chosen[name] for name in ARCHITECTURE_FIELDS if name in chosen}
    model = VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig(vocab_size=chosen["vocab_size"], **fields)
    )
    return bytes_in_8_bits(model)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"size": 50_000}, "too small for 100 different"),
        ({"size": 9_000_000, "d_model": 512}, "too small"),
        ({"size": 9_000_000, "model_name_or_path": "runs/a"}, "beside a saved model"),
        ({"size": 9_000_000, "tokenizer_name_or_path": "runs/a"}, "names one"),
    ],
)
def test_a_size_that_cannot_be_is_refused(given, wrong):
    with pytest.raises(ValueError, match=wrong):
        narrow_to_size(
            RunFacts.of(9_000, 100, True, CPU), RunArguments.of({**given, "output_dir": "out"})
        )


def test_what_is_not_training_is_within_the_time():
    timed = pace_of(100, 100_000, until_ready=20.0, per_evaluation=5.0, last_scores=30.0)
    assert timed.steps_within(100) == 50  # with four evaluations
    assert timed.steps_within(400) == 330  # 30 of 400 seconds are for the last scores
    assert timed.steps_within(30) == 0
    assert timed.steps_within(1e6) == timed.num_steps == 10_000
    timed.plan.training.eval_strategy = "epoch"
    assert timed.seconds_of(2500) == 20 + 2500 + 3 * 5


@pytest.mark.parametrize(("max_steps", "num_steps"), [(-1, 500), (50, 50)])
def test_the_times_of_a_run_follow_from_those_of_a_sample(max_steps, num_steps):
    whole, some = (
        {name: Dataset.from_dict({"source": ["a"] * n, "target": ["b"] * n}) for name, n in counts}
        for counts in (
            [("train", 1000), ("validation", 300), ("test", 20)],
            [("train", 100), ("validation", 64), ("test", 20)],
        )
    )
    timing = Timing(sample_ready=3.0, steps=[9.0, 0.5, 0.5], epochs=0.6, max_steps=50, per_text=0.1)
    plan = SimpleNamespace(training=SimpleNamespace(max_steps=max_steps, max_tokens=None))
    timed = Pace.of(plan, whole, some, timing)
    assert timed.num_steps == num_steps  # of ten times as many pairs
    assert timed.pairs_per_step == pytest.approx(20)  # 60 pairs in three steps
    assert timed.seconds_per_step == 0.5
    assert (timed.until_ready, timed.per_evaluation) == (30.0, 20.0)  # of 200 texts
    assert timed.last_scores == pytest.approx(2 * 0.1 * 320)


@pytest.mark.parametrize("seconds", [2.0, 0.5])
def test_a_step_is_timed_with_the_making_of_its_batch(monkeypatch, seconds):
    """The text may be split anew for each step, before Trainer begins it."""
    now = [100.0]
    monkeypatch.setattr(pace, "monotonic", lambda: now[0])
    clock, args = pace._StepClock(), SimpleNamespace(device=SimpleNamespace(type="cpu"))

    def train():
        clock.on_train_begin()
        for step in range(1, 100):
            now[0] += seconds
            state = SimpleNamespace(global_step=step, max_steps=99, epoch=0.1)
            clock.on_step_begin(args, state, None)
            clock.on_step_end(args, state)

    with pytest.raises(pace._EnoughStepsError):
        train()
    assert set(clock.seconds) == {seconds}
    assert len(clock.seconds) == max(6, 10 / seconds)


@pytest.fixture
def timed(monkeypatch):
    """Replaces the times that the machine needs: a step takes ten seconds."""
    measured = []

    def measure(arguments, loaded, row):
        found = pace_of.measure(arguments, loaded, row)
        measured.append(found)
        changed = {"seconds_per_step": 10.0, "until_ready": 0.0}
        changed |= {"per_evaluation": 1.0, "last_scores": 1.0}
        return Pace(**{**vars(found), **changed})

    pace_of.measure = pace.measure_pace
    monkeypatch.setattr(pace, "_SECONDS", 0.0)
    monkeypatch.setattr(fitting, "_HEADROOM", 1)
    monkeypatch.setattr(fitting, "measure_pace", measure)
    return measured


def state_of(folder):
    return json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))


def test_a_run_of_some_minutes_ends_its_schedule_in_time_and_is_resumed(
    corpus, tmp_path, timed, capsys
):
    out = tmp_path / "out"
    options = {"logging_steps": 1, "choose_defaults": True, "warmup_steps": 0.1, "minutes": 3}
    argv = arguments(corpus, out, "train", "validation", **options)
    main(argv)
    steps = timed[0].num_steps
    assert steps > 16
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert config["dropout"] == pytest.approx(0.3 * state_of(out)["epoch"] / 40, abs=0.001)
    log = state_of(out)["log_history"]
    rates = [entry["learning_rate"] for entry in log if "learning_rate" in entry]
    assert len(rates) == 17
    assert max(rates) == max(rates[:3])
    assert rates[-1] < max(rates) / 8
    scored = [entry["step"] for entry in log if "eval_loss" in entry]
    assert scored[:4] == [5, 9, 13, 17]
    told = capsys.readouterr().err
    assert "17 steps" in told
    assert "--max_steps 17" in (out / "README.md").read_text(encoding="utf-8")
    assert "As an idea of the result: " not in told  # of so few pairs, none is known
    (needed,) = re.findall(r"too short .* about (\d+) minutes", told)
    assert 6 * int(needed) >= steps  # all of so few pairs, in steps of ten seconds
    del timed[:]
    again = [*argv, "--resume_from_checkpoint", "True"]
    assert "train_loss" in main(again)
    assert not timed
    assert state_of(out)["global_step"] == 17
    for changed in (["--minutes", "4"], ["--num_train_epochs", "90"]):
        with pytest.raises(ValueError, match=r"minutes` .*changed"):
            main([*again, *changed])


def test_a_time_that_suffices_is_that_of_all_epochs(corpus, tmp_path, timed):
    options = {"minutes": 1000, "use_cpu": True, "num_train_epochs": 2}
    argv = arguments(corpus, tmp_path / "out", "train", **options)
    run(parse_arguments(argv))
    assert state_of(tmp_path / "out")["epoch"] == 2
    assert state_of(tmp_path / "out")["global_step"] == timed[0].num_steps
    with pytest.raises(ValueError, match="`num_train_epochs` beside `minutes` changed"):
        run(parse_arguments([*argv, "--resume_from_checkpoint=True", "--num_train_epochs=3"]))


def test_steps_are_counted_of_batches_that_are_as_full_as_those_of_all_pairs(
    tmp_path, timed, monkeypatch
):
    """Of few pairs, few are of one length, so that a batch has more padding and fewer pairs."""
    monkeypatch.setattr(pace, "TIMED_PAIRS", 100)
    chance = random.Random(0)
    for suffix in ("en", "de"):
        texts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 30))) for _ in range(2000)]
        (tmp_path / f"train.{suffix}").write_text("\n".join(texts) + "\n")
    options = {"minutes": 1000, "num_train_epochs": 1, "max_tokens": 300, "tokenizer_kind": "word"}
    run(parse_arguments(arguments(tmp_path, tmp_path / "out", "train", **options)))
    steps = state_of(tmp_path / "out")["global_step"]
    assert timed[0].num_steps == pytest.approx(steps, rel=0.06)


@pytest.mark.parametrize(("scored", "least"), [(3, 3), (1000, 16)])
def test_a_sample_is_scored_where_the_time_is_over(
    corpus, tmp_path, timed, monkeypatch, capsys, scored, least
):
    monkeypatch.setattr(training_run, "_LEAST_SCORED", scored)
    monkeypatch.setattr(training_run, "_SHARE_OF_MINUTES", 0.0)
    monkeypatch.setattr(assembly, "SCORED_WITHIN_MINUTES", 5)
    options = {"minutes": 1000, "num_train_epochs": 2, "logging_steps": 1}
    argv = arguments(corpus, tmp_path / "out", "train", "validation", "test", **options)
    figures = main(argv)
    assert (figures["eval_samples"], figures["test_samples"]) == (least, least)
    told = f"Test (a sample of {least} of 16 texts, for want of time)"
    assert (told in capsys.readouterr().err) == (least < 16)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert (f"a sample of {least} of the 16" in card) == (least < 16)
    steps = [row["step"] for row in state_of(tmp_path / "out")["log_history"] if "eval_bleu" in row]
    assert len(steps) == len(set(steps)), "a timing is no score"


@pytest.mark.parametrize(("texts", "scored"), [(150, 128), (110, 110)])
def test_a_sample_is_large_enough_for_a_calibration(
    corpus, tmp_path, timed, monkeypatch, capsys, texts, scored
):
    monkeypatch.setattr(training_run, "_SHARE_OF_MINUTES", 0.0)
    argv = arguments(corpus, tmp_path / "out", "train", minutes=1000, num_train_epochs=1)
    for side in ("source", "target"):
        train = Path(argv[argv.index(f"--train_{side}") + 1])
        lines = train.read_text(encoding="utf-8").splitlines(keepends=True)[:texts]
        (tmp_path / f"{side}.txt").write_text("".join(lines), encoding="utf-8")
        argv += [f"--validation_{side}", str(tmp_path / f"{side}.txt")]
    assert main(argv)["eval_samples"] == scored
    told = capsys.readouterr().err
    assert f"calibrated on {scored} outputs" in told
    assert "it takes 100 outputs" not in told


def test_scoring_that_is_interrupted_is_done_by_the_same_command(
    corpus, tmp_path, monkeypatch, capsys
):
    argv = arguments(corpus, tmp_path, "train", "validation", "test", num_train_epochs=1)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training_run, "warn_of_copies", interrupt)
        with pytest.raises(KeyboardInterrupt):
            main(argv)
    assert "The scoring ended early" in capsys.readouterr().err
    assert not (tmp_path / "README.md").exists()
    figures = main([*argv, "--resume_from_checkpoint", "True"])
    assert {"eval_chrf", "test_chrf"} <= figures.keys()
    assert (tmp_path / "README.md").exists()


def test_what_is_told_once_is_told_by_the_run_and_not_by_its_timing(
    corpus, tmp_path, timed, monkeypatch, capsys
):
    told = "Only this time."
    make_plan = pace.make_plan

    def tell_and_plan(*args):
        fitting.logger.warning_once(told)
        return make_plan(*args)

    monkeypatch.setattr(pace, "make_plan", tell_and_plan)
    main(arguments(corpus, tmp_path / "out", "train", minutes=1000, num_train_epochs=1))
    assert told not in capsys.readouterr().err
    fitting.logger.warning_once(told)
    assert told in capsys.readouterr().err


def test_a_time_is_refused_that_cannot_be_kept(corpus, tmp_path, timed):
    argv = arguments(corpus, tmp_path / "out", "train", minutes=0.01, use_cpu=True)
    with pytest.raises(ValueError, match="minutes"):
        run(parse_arguments(argv))
    assert not (tmp_path / "out").exists()
    for wrong in ({"max_steps": 3}, {"minutes": 0}):
        with pytest.raises(ValueError, match="minutes"):
            parse_arguments(arguments(corpus, tmp_path, "train", **{"minutes": 1, **wrong}))


def test_a_dry_run_warns_of_a_time_that_is_too_short(corpus, tmp_path, timed, capsys):
    argv = arguments(corpus, tmp_path / "out", "train", minutes=1, choose_defaults=True)
    assert program.main(["train", *argv, "--dry-run"]) == 0
    printed = capsys.readouterr().err
    assert "--minutes 1: 5 steps" in printed
    assert printed.count("too short for a new model") == 1


def test_no_time_is_needed_that_is_longer_than_all_epochs(
    corpus, tmp_path, timed, capsys, monkeypatch
):
    usual = fitting.measure_pace

    def measure(arguments, loaded, row):
        found = usual(arguments, loaded, row)
        return replace(found, seconds_per_step=30.0) if row.d_model == 64 else found

    monkeypatch.setattr(fitting, "measure_pace", measure)
    files = {f"--train_{side}": corpus / f"train.{name}" for side, name in SIDES.items()}
    argv = [f"{name}={value}" for name, value in (files | {"--output_dir": tmp_path}).items()]
    assert program.main(["train", *argv, "--minutes=1", "--dry-run"]) == 0
    printed = capsys.readouterr().err
    (needed,) = re.findall(r"too short for a new model .* about (\d+) minutes", printed)
    hours, minutes, _ = re.search(r"All: .*; (?:(\d+):)?(\d+):(\d+)\.", printed).groups("0")
    assert int(needed) <= 60 * int(hours) + int(minutes) + 1


def test_a_dry_run_counts_the_steps_that_are_given(corpus, tmp_path, timed, capsys):
    argv = arguments(corpus, tmp_path / "out", "train", max_steps=3)
    assert program.main(["train", *argv, "--dry-run"]) == 0
    assert "All: 3 steps" in capsys.readouterr().err
