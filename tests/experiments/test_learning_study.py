"""The study of learning: its grid, its runs, what a restart does, and its report."""

import json
import shutil
from dataclasses import asdict, replace

import learning_study
import pytest
import torch
from learning_study import (
    StudyArguments,
    append_result,
    format_table,
    group_by_scheme,
    list_runs,
    load_texts,
    main,
    make_task,
    make_trainer,
    read_results,
    train,
)
from toy import experiment

TINY = {"layers": [1], "d_models": [32], "steps": 4, "max_tokens": 200, "validations": 2}
SHARED = {"vocab_size": 80, "validation_examples": 10, "warmup_steps": [1]}


def options(corpus, folder, **changes):
    return StudyArguments(str(folder), data=str(corpus), **{**TINY, **SHARED, **changes})


def words_of(settings):
    """The command line of the options, as a user types it."""
    default = StudyArguments("nowhere")
    words = []
    for name, value in asdict(settings).items():
        if value != getattr(default, name):
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


@pytest.fixture(scope="module")
def task(corpus):
    study = options(corpus, "nowhere")
    return make_task(study, load_texts(study))


def test_the_grid_has_each_legal_combination_once():
    study = StudyArguments(
        "nowhere",
        initializers=["xavier", "deepnorm"],
        norm_placements=["post", "pre"],
        layers=[3, 6],
        optimizers=["adamw:0.003", "muon:0.003:0.01"],
        seeds=[1, 2],
    )
    runs = list_runs(study)
    assert len(runs) == len(set(runs)) == 2 * 2 * 2 * 3
    assert [run.seed for run in runs] == [1] * 12 + [2] * 12
    assert {run.norm_placement for run in runs if run.initializer == "deepnorm"} == {"post"}
    assert {run.muon_learning_rate for run in runs if run.optimizer == "adamw"} == {None}
    assert {run.task for run in runs} == {"pronunciation"}


def test_two_processes_share_the_runs():
    whole = list_runs(StudyArguments("nowhere", layers=[1, 2, 3]))
    parts = [StudyArguments("nowhere", layers=[1, 2, 3], part=f"{k}/2") for k in (1, 2)]
    slices = [list_runs(one)[one.own_part()[0] :: one.own_part()[1]] for one in parts]
    assert sorted(map(str, slices[0] + slices[1])) == sorted(map(str, whole))
    assert [len(one) for one in slices] == [3, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initializers": ["kaiming"]}, "`initializers` .*kaiming.* are unknown"),
        ({"norm_placements": ["sandwich"]}, "`norm_placements` .*sandwich.* are unknown"),
        ({"d_models": [100]}, "`d_models` .100. are no multiples of 32"),
        ({"optimizers": ["adamw"]}, "`optimizers` 'adamw' is none"),
        ({"optimizers": ["muon:0.1"]}, "`optimizers` 'muon:0.1' is none"),
        ({"optimizers": ["sgd:x"]}, "`optimizers` 'sgd:x' is none"),
        ({"part": "3/2"}, "`part` is '3/2'"),
        ({"steps": 0}, "`steps` is 0"),
        ({"languages": ["en"]}, "`languages` are"),
        ({"layers": [1, 0]}, "`layers` .0. are too small"),
        ({"warmup_steps": [-1]}, "`warmup_steps` .-1. are too small"),
        ({"optimizers": ["adamw:nan"]}, "`optimizers` 'adamw:nan' is none"),
        ({"lr_scheduler_type": "noam"}, "`lr_scheduler_type` is 'noam': choose from linear"),
        ({"dropout": 1.0}, "`dropout` is 1.0"),
    ],
)
def test_options_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        StudyArguments("nowhere", **changes)


def test_combinations_that_leave_no_run_are_refused():
    options = StudyArguments("nowhere", initializers=["deepnorm"], norm_placements=["pre"])
    with pytest.raises(ValueError, match="deepnorm need `norm_placements` post"):
        list_runs(options)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"train\.en does not exist, with or without \.gz"):
        load_texts(StudyArguments("nowhere", data=str(tmp_path)))


def test_the_validation_words_of_the_dictionary_have_all_initials():
    words = load_texts(StudyArguments("nowhere"))["validation"]["source"]
    assert len(words) == 500
    assert {word[0] for word in words} >= set("abcdefghijklmnoprstw")


@pytest.mark.parametrize(("bf16", "kernel"), [(False, "sdpa"), (True, "eager")])
def test_a_study_has_the_attention_of_a_run(task, tmp_path, bf16, kernel):
    settings = list_runs(options("nowhere", "nowhere", bf16=bf16, norm_placements=["post"]))[0]
    trainer = make_trainer(settings, task, str(tmp_path))
    assert trainer.model.config._attn_implementation == kernel


def test_seeds_change_the_model_and_not_the_batches(corpus, task, tmp_path):
    (first,) = list_runs(options(corpus, "nowhere", norm_placements=["post"]))
    trainers = [make_trainer(replace(first, seed=seed), task, str(tmp_path)) for seed in (1, 2)]
    batches = [next(iter(one.get_train_dataloader()))["input_ids"] for one in trainers]
    weights = [one.model.get_input_embeddings().weight for one in trainers]
    assert torch.equal(*batches)
    assert not torch.equal(*weights)


def test_a_run_is_repeated_exactly_and_has_its_settings(corpus, task):
    study = options(corpus, "nowhere", optimizers=["muon:0.003:0.01"], initializers=["deepnorm"])
    (settings,) = list_runs(study)
    one, again = train(settings, task), train(settings, task)
    assert one["losses"] == again["losses"]
    assert [step for step, _ in one["losses"]] == [1, 2, 3, 4]
    assert [row[0] for row in one["validations"]] == [2, 4]
    assert one["diverged"] is None
    seconds = [row[3] for row in one["validations"]]
    assert 0 < seconds[0] < seconds[1] <= one["processor_seconds"]
    assert one["settings"] == asdict(settings)


def test_the_last_step_is_validated(corpus, task):
    settings = list_runs(options(corpus, "nowhere", steps=5))[0]
    assert [row[0] for row in train(settings, task)["validations"]] == [3, 5]


def test_a_run_that_diverges_is_a_result(corpus, task):
    settings = list_runs(options(corpus, "nowhere", optimizers=["adamw:1e38"]))[0]
    result = train(settings, task)
    assert 0 < result["diverged"] < 4
    table = format_table(group_by_scheme([result]))
    assert "| 1 | 1 | - | - | - |" in table


def test_a_restart_trains_what_is_not_finished(corpus, tmp_path, monkeypatch, capsys):
    study = options(corpus, tmp_path, norm_placements=["pre"], steps=2)
    study = replace(study, optimizers=["adamw:0.003", "adamw:0.01"])
    trained = []

    def record(settings, task):
        trained.append(settings)
        return train(settings, task)

    monkeypatch.setattr(learning_study, "train", record)
    main(words_of(study))
    path = tmp_path / "runs.jsonl"
    lines = path.read_text().splitlines()
    assert len(trained) == len(lines) == 2
    path.write_text("\n".join([lines[0], lines[1][:50]]))  # killed while it wrote
    trained.clear()
    main(words_of(replace(study, seeds=[1, 2])))
    assert len(trained) == 3
    assert len(read_results(path)) == 4
    trained.clear()
    main(words_of(replace(study, seeds=[1, 2])))
    assert not trained
    assert "4 runs, 4 of them finished before" in capsys.readouterr().out


def test_results_of_other_texts_or_threads_are_not_reused(corpus, tmp_path, monkeypatch, capsys):
    study = options(corpus, tmp_path / "out", norm_placements=["pre"], steps=2)
    other = shutil.copytree(corpus, tmp_path / "other" / corpus.name)  # the same last part
    with (other / "val.de").open("r+", encoding="utf-8") as file:
        file.write("ein")

    def finish(settings, task):
        return make_result(1.0, settings.seed) | {"settings": asdict(settings)}

    monkeypatch.setattr(learning_study, "train", finish)
    monkeypatch.setattr(learning_study, "make_task", lambda *_: None)
    for changes in ({}, {"data": str(other)}, {"threads": 2}):
        for finished in (0, 1):
            main(words_of(replace(study, **changes)))
            assert f"1 runs, {finished} of them finished before" in capsys.readouterr().out
    torch.set_num_threads(1)
    results = read_results(tmp_path / "out" / "runs.jsonl")
    assert [len(group.results) for group in group_by_scheme(results)] == [1, 1, 1]
    table = format_table(group_by_scheme(results))
    assert "threads 2, texts " in table


def make_result(loss, seed, **changes):
    settings = asdict(list_runs(StudyArguments("nowhere"))[0]) | {"seed": seed, **changes}
    return {
        "settings": settings,
        "parameters": 10,
        "losses": [[1, loss + 1], [2, loss]],
        "validations": [[1, loss + 1, 0.1, 1.0 * seed], [2, loss, 0.5, 2.0 * seed]],
        "diverged": None,
        "processor_seconds": 3.0,
    }


def test_the_report_has_means_and_ranges_over_the_seeds(tmp_path):
    results = [make_result(2.0, 1), make_result(3.0, 2), make_result(1.0, 1, layers=6)]
    groups = group_by_scheme(results)
    assert [len(group.results) for group in groups] == [2, 1]
    assert groups[0].curve("losses") == [(1, 3.5, 3.0, 4.0), (2, 2.5, 2.0, 3.0)]
    assert groups[0].seconds_at(2) == 3.0
    rows = format_table(groups).splitlines()[2:]
    assert rows[0].startswith("| 6+6 layers | 1 | 0 | 1.000 | 1.000 to 1.000 | 50.0% |")
    assert rows[1].startswith("| 3+3 layers | 2 | 0 | 2.500 | 2.000 to 3.000 | 50.0% | 1: 3.50")
    for result in results:
        append_result(tmp_path / "runs.jsonl", result)
    main(["--output_dir", str(tmp_path), "--report_only"])
    assert len(list(tmp_path.glob("curves-*.png"))) == 2
    assert (tmp_path / "table.md").read_text() == format_table(groups)


def test_a_run_that_diverged_leaves_the_figures_of_the_others_alone(tmp_path):
    whole = [make_result(2.0, 1), make_result(3.0, 2)]
    early = make_result(9.0, 3) | {"validations": [], "losses": [[1, 9.0]], "diverged": 1}
    late = make_result(9.0, 4) | {"diverged": 2, "processor_seconds": 1.0}
    (alone,), (group,) = group_by_scheme(whole), group_by_scheme([*whole, early, late])
    for key in ("losses", "validations"):
        assert group.curve(key) == alone.curve(key)
    assert group.seconds_at(2) == alone.seconds_at(2)
    cells, expected = (format_table([one]).splitlines()[2].split(" | ") for one in (group, alone))
    assert cells[1:3] == ["4", "2"]
    assert cells[3:] == expected[3:]
    append_result(tmp_path / "runs.jsonl", early)
    assert "| 1 | 1 | - | - | - | - | - |" in learning_study.write_report(tmp_path)


def test_it_is_a_program(corpus, tmp_path):
    study = options(corpus, tmp_path, norm_placements=["pre"], optimizers=["muon:0.003:0.01"])
    done = experiment("learning_study.py", *words_of(study))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "| all runs | 1 | 0 |" in done.stdout
    assert json.loads((tmp_path / "runs.jsonl").read_text())["settings"]["optimizer"] == "muon"
