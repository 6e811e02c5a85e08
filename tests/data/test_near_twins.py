"""Held-out texts that are nearly equal to training texts."""

import json

import pytest
from made_up_language import arguments, main

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.near_twins import TWIN, mark_twins
from vanilla_transformer.data.parallel_data import load_parallel_data

TRAINED = (
    "Cannot open the file %s.",
    "You have to enter a file name",
    "Zoom to fit the page in the window",
    "The message could not be sent",
)


def write(path, sources):
    path.write_text(
        "".join(f"{source}\tein Ziel {number}\n" for number, source in enumerate(sources))
    )
    return str(path)


@pytest.mark.parametrize(
    ("text", "has_twin"),
    [
        ("Cannot open the file %d", True),
        ("cannot open the file {name}!", True),
        ("You have to enter a user name", True),
        ("Zoom to fit the page in window", True),
        ("The message could not be sent", True),
        ("Cannot find the file %s.", True),
        ("Cannot find this file %s.", False),
        ("The file could not be opened", False),
        ("Zoom", False),
    ],
)
def test_texts_of_which_four_of_five_words_are_those_of_a_training_text_are_twins(
    tmp_path, text, has_twin
):
    files = {
        "train_file": write(tmp_path / "train.tsv", TRAINED),
        "test_file": write(tmp_path / "test.tsv", [text]),
    }
    splits = load_parallel_data(DataArguments(**files)).splits
    marked = mark_twins(splits["test"], splits["train"], (), "test")
    assert (TWIN in marked.column_names) == has_twin
    assert TWIN not in splits["train"].column_names


def test_the_filter_drops_twins_of_held_out_texts(tmp_path):
    corpus = {
        "train": write(tmp_path / "train.tsv", TRAINED),
        "test": write(tmp_path / "test.tsv", ["Cannot open the file %d", "A boat"]),
    }
    for filters, kept in (({"twin": True}, TRAINED[1:]), ({}, TRAINED)):
        entry = json.dumps(
            {**corpus, "filters": {"length_ratio": 9, "placeholders": False, **filters}}
        )
        splits = load_parallel_data(DataArguments(corpora=[entry])).splits
        assert splits["train"]["source"] == list(kept)
        marked = mark_twins(splits["test"], splits["train"], (), "test")
        assert (TWIN in marked.column_names) == (not filters)


def test_a_run_tells_its_scores_without_twins(corpus, tmp_path, capsys):
    test = tmp_path / "test.en"
    lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    lines[:4] = (f"no word of line {name} stands there" for name in ("one", "two", "six", "ten"))
    test.write_text("\n".join(lines) + "\n", encoding="utf-8")
    argv = arguments(corpus, tmp_path / "out", "train", "test", num_train_epochs=1)
    argv[argv.index("--test_source") + 1] = str(test)
    main(argv)
    figures = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert figures["test_chrf_without_twins"] != figures["test_chrf"]
    assert "Test: 12 of 16 texts are nearly equal to a training text" in capsys.readouterr().err


def test_a_report_of_corpora_counts_twins_of_held_out_texts(tmp_path, capsys):
    entry = {
        "name": "ours",
        "train": write(tmp_path / "train.tsv", TRAINED),
        "validation": write(tmp_path / "validation.tsv", ["A boat", "A horse"]),
        "test": write(tmp_path / "test.tsv", ["Cannot open the file %d", "A boat"]),
        "filters": {"placeholders": False},
    }
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"corpora": [entry]}), encoding="utf-8")
    assert run_subcommand("corpora", [str(recipe)]) is None
    lines = capsys.readouterr().out.splitlines()
    assert "ours, test: 1 of 2 texts are nearly equal to a training text" in lines
    assert "ours, validation: 0 of 2 texts are nearly equal to a training text" in lines
