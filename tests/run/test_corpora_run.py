"""Runs on several corpora: tags, shares, scores of each corpus, the card, and a resumption."""

import json
import shutil

import pytest
from made_up_language import arguments, main
from safetensors.torch import load_file

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.batches import mixing
from vanilla_transformer.files.text_files import read_lines


@pytest.fixture(scope="module")
def recipe(corpus, tmp_path_factory):
    """A recipe of a clean corpus and a tagged one, with validation data for both."""
    folder = tmp_path_factory.mktemp("recipe")
    lines = list(zip(*(list(read_lines(corpus / f"train.{s}")) for s in ("en", "de")), strict=True))
    other = [f"{target}\t{source}\n" for source, target in lines[:60]]
    (folder / "back.tsv").write_text("".join([*other, "nur deutsch\t\n"]), encoding="utf-8")
    (folder / "valid.tsv").write_text("Hund .\ta small dog .\nKatze .\ta small cat .\n")
    entries = [
        {
            "name": "clean",
            "train": [str(corpus / f"train.{side}") for side in ("en", "de")],
            "validation": [str(corpus / f"val.{side}") for side in ("en", "de")],
            "languages": ["en", "de"],
            "weight": 1,
        },
        {
            "name": "back",
            "train": str(folder / "back.tsv"),
            "validation": str(folder / "valid.tsv"),
            "columns": [2, 1],
            "tag": "<bt>",
            "weight": 3,
        },
    ]
    (folder / "recipe.json").write_text(json.dumps({"corpora": entries}))
    return str(folder / "recipe.json")


def argv(corpus, recipe, folder, **changes):
    options = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 3, "ema_decay": 0.9}
    words = arguments(corpus, folder, "test", **{**options, **changes})
    return [recipe, *words]


def test_a_run_on_corpora_and_its_resumption(corpus, recipe, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(mixing, "PAIRS_OF_A_BLOCK", 128)  # as if they were too many to be sorted
    monkeypatch.setattr(mixing, "PAIRS_OF_A_RUN", 16)
    caplog.set_level("INFO", "vanilla_transformer")
    first = tmp_path / "first"
    figures = main(argv(corpus, recipe, first))
    assert {"eval_bleu", "eval_bleu_clean", "eval_chrf_back", "test_bleu_low"} <= figures.keys()
    assert figures["eval_bleu_en-de"] == figures["eval_bleu_clean"]
    assert "test_bleu_clean" not in figures
    dropped = "44 of 61 pairs are used (held_out 10, duplicate 6, empty 1); 75.0% of an epoch."
    assert f"Corpus back: {dropped}" in caplog.text
    card = (first / "README.md").read_text()
    score = f"{figures['eval_chrf_back']:.2f}"
    assert "| back | 61 | 44 | 75.0% | held_out 10, duplicate 6, empty 1 | validation bleu" in card
    assert f"chrf {score} |" in card
    tokenizer = VanillaTransformerTokenizer.from_pretrained(first)
    assert tokenizer("<bt> a dog .", add_special_tokens=False).tokens()[0] == "<bt>"
    second = tmp_path / "second"
    shutil.copytree(first / "checkpoint-3", second / "checkpoint-3")
    main(argv(corpus, recipe, second, resume_from_checkpoint=True))
    weights = [load_file(folder / "model.safetensors") for folder in (first, second)]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    assert json.loads((second / "trainer_state.json").read_text())["global_step"] > 6


def test_wrong_runs_are_refused_before_anything_is_written(corpus, recipe, trained, tmp_path):
    folder = tmp_path / "run"
    for changes, message in (
        ({"model_name_or_path": trained}, "'<bt>' is no token of the tokenizer"),
        ({"max_tokens": None}, "set `max_tokens`"),
        ({"guided_alignment": corpus / "train.en"}, "`guided_alignment` names a file of links"),
    ):
        words = argv(corpus, recipe, folder, **changes)
        if "max_tokens" in changes:
            at = words.index("--max_tokens")
            del words[at : at + 2]
        if "model_name_or_path" in changes:
            words = [recipe, "--model_name_or_path", str(trained), "--output_dir", str(folder)]
        with pytest.raises(ValueError, match=message):
            main(words)
        assert not folder.exists()


def test_a_temperature_of_data_that_are_no_corpora_changes_nothing(corpus, tmp_path):
    argv = arguments(corpus, tmp_path, "train", max_steps=1, corpora_temperature=2)
    assert "train_loss" in main(argv)
