"""Adapting a model: better on the new texts, kept where nothing is gained, refused where wrong."""

import json
import re
from itertools import combinations
from pathlib import Path

import pytest
import torch
from converted_models import save_marian, save_of_many_languages, train_pieces
from huggingface_hub import ModelCard
from made_up_language import NOUNS, VERBS
from safetensors.torch import load_file
from several_processes import run_in_two_processes
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.adapt import adaptation
from vanilla_transformer.adapt.adaptation import Adapted, describe_adaptation
from vanilla_transformer.adapt.adaptation_data import split_data
from vanilla_transformer.adapt.options import AdaptArguments
from vanilla_transformer.command_line import UsageError
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.corpus_entries import SPLITS
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.files.directory_lock import locked_directory
from vanilla_transformer.files.text_files import read_lines
from vanilla_transformer.names import MUON
from vanilla_transformer.run.comparison import compare_outputs


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Pairs in which one word is translated in a new way, and a second file of the old way."""
    folder = tmp_path_factory.mktemp("pairs")
    for name, likes in (("new", "findet"), ("old", "mag")):
        verbs = {**VERBS, "likes": likes}
        rows = [
            f"a {subject} {verb} a {thing} .\t{NOUNS[subject]} {verbs[verb]} {NOUNS[thing]} .\n"
            for verb in VERBS
            for subject in NOUNS
            for thing in NOUNS
            if verb == "likes" or name == "old"
        ]
        (folder / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
    for name, recipe in RECIPES.items():
        (folder / f"{name}.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def plain_pairs(pairs, tmp_path_factory):
    """New pairs without what the vocabularies of toys of other systems lack."""
    folder = tmp_path_factory.mktemp("plain")
    text = (pairs / "new.tsv").read_text(encoding="utf-8")
    (folder / "new.tsv").write_text(text.lower().replace(" .", ""), encoding="utf-8")
    return folder


RECIPES = {
    "wide": {"corpora": [{"train": "new.tsv"}], "d_model": 64},
    "untrained": {"test_source": "new.tsv", "test_target": "new.tsv"},
    "own": {"corpora": [{"train": "new.tsv"}]},
}


def adapt(trained, pairs, output, *words):
    options = ["--learning-rate", "0.005", "--epochs", "2"]
    options += ["--held-out", "20", "--max-tokens", "200"]
    recipe = [word for word in words if word.endswith(".yaml")]
    files = recipe or [str(pairs / "new.tsv")]
    words = [word for word in words if word not in recipe]
    argv = [str(trained), *files, "--output-dir", str(output), *options, *words]
    run_subcommand("adapt", argv)


def data_of(output):
    """Returns the pairs of each file that an adaptation has written, by its name."""
    files = (output / "data").glob("*.jsonl")
    return {path.stem: [json.loads(line) for line in read_lines(path)] for path in files}


def sources_of(output):
    return {name: {pair["source"] for pair in pairs} for name, pairs in data_of(output).items()}


def test_a_model_is_adapted_and_does_not_forget(trained, pairs, tmp_path, capsys):
    output = tmp_path / "out"
    words = ("--general", str(pairs / "old.tsv"), "--general-share", "0.9")
    words += ("--metrics", "chrf", "bleu")
    adapt(trained, pairs, output, *words)
    printed, messages = capsys.readouterr()
    assert "90.0% of an epoch" in messages  # though the pairs are too few for that
    assert "eval_chrf_general" in (output / "training" / "all_results.json").read_text()
    used = torch.load(output / "training" / "training_args.bin", weights_only=False)
    assert used.eval_max_tokens == used.max_tokens == 200  # a stock batch of 8 is slow
    assert "The adapted model is significantly better in chrf" in printed
    table = printed.split("\n\n")[0]
    assert re.search(r"own test set \(\d texts\)\n.*\ngeneral test set \(12 texts\)\n", table, re.S)
    card = (output / "model" / "README.md").read_text(encoding="utf-8")
    assert table in card.split("## Adaptation")[1]
    assert "vanilla-transformer adapt" in card
    assert f"\n# {output.name}\n" in card
    assert f"path = {json.dumps(str(output / 'model'))}\n" in card
    own = json.loads((output / "own.json").read_text())
    general = json.loads((output / "general.json").read_text())
    _, after = own["models"]
    assert own["scores"]["chrf"]["models"][after]["chrf"] > 90
    assert 0 < len(own["sources"]) <= 6  # a tenth of the pairs
    data = sources_of(output)
    assert not data["train"] & set(own["sources"])
    for name in ("train", "train-2", "general-validation"):
        assert not data[name] & set(general["sources"])
    weights = [load_file(output / name / "model.safetensors") for name in ("model", "training")]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    with pytest.raises(ValueError, match="in use by an adaptation with other options"):
        adapt(trained, pairs, output)
    again = (output / "training" / "model.safetensors").stat().st_mtime_ns
    adapt(trained, pairs, output, *words)  # it is finished: nothing is trained again
    assert (output / "training" / "model.safetensors").stat().st_mtime_ns == again


def test_the_old_model_is_kept_where_nothing_is_gained(trained, pairs, tmp_path, capsys):
    rows = list(read_lines(pairs / "old.tsv"))
    (tmp_path / "new.tsv").write_text("".join(f"{row}\n" for row in rows[::2]))
    texts = tmp_path / "texts.en"
    texts.write_text("".join(f"{row.split(chr(9))[0]}\n" for row in rows))
    words = ("--general-texts", str(texts), "--epochs", "1", "--learning-rate", "1e-9")
    adapt(trained, tmp_path, tmp_path / "out", *words)
    printed = capsys.readouterr().out
    assert "No significant difference in bleu (p = 1.000): the old model is kept." in printed
    saved = tmp_path / "out" / "model" / "model.safetensors"
    assert saved.read_bytes() == (trained / "model.safetensors").read_bytes()
    read = sources_of(tmp_path / "out")
    (own_outputs,) = (tmp_path / "out" / "own-outputs").iterdir()
    assert set(rows) >= set(read_lines(own_outputs))  # the model knows them
    # To repeat itself is no quality: own outputs do not choose the epoch.
    assert read.keys() == {"train", "validation", "test", "train-2"}
    assert not any(one & other for one, other in combinations(read.values(), 2))


def test_a_tag_hides_no_shared_source_and_is_not_given_to_a_model_that_lacks_it(
    trained, pairs, tmp_path
):
    """The files hold the same sources, and the old model knows the targets."""
    rows = list(read_lines(pairs / "old.tsv"))
    (tmp_path / "old.tsv").write_text("".join(f"{row}\n" for row in rows))
    corpus = {"train": str(tmp_path / "old.tsv"), "tag": "<app>"}
    recipe = tmp_path / "recipe.yaml"
    general = tmp_path / "general.tsv"
    entries = [corpus, {"name": "general", "train": str(general)}]
    recipe.write_text(json.dumps({"corpora": entries}))
    more = [f"the {row}" for row in rows]
    general.write_text("".join(f"{row}\n" for row in [*rows, *more]))
    words = (str(recipe), "--epochs", "1", "--learning-rate", "1e-9")
    adapt(trained, pairs, tmp_path / "out", *words)
    sources = sources_of(tmp_path / "out")
    assert len(sources) == 6
    assert not any(one & other for one, other in combinations(sources.values(), 2))
    own = json.loads((tmp_path / "out" / "own.json").read_text())
    assert all(text.startswith("<app> ") for text in own["sources"])
    assert own["scores"]["chrf"]["models"][str(trained)]["chrf"] > 99


def test_other_pairs_in_a_directory_of_a_data_set_are_another_adaptation(trained, tmp_path):
    def split(count):
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        rows = [f'{{"source": "a {n}", "target": "ein {n}"}}\n' for n in range(count)]
        (folder / "train.jsonl").write_text("".join(rows))
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(json.dumps({"corpora": [{"name": "a", "dataset": str(folder)}]}))
        return split_data(AdaptArguments(str(trained), [str(recipe)], "out"))

    assert split(60) == split(60) != split(61)


def test_outputs_for_general_texts_outlive_a_wrong_option(trained, pairs, tmp_path):
    texts = tmp_path / "texts.en"
    texts.write_text("".join(f"{row.split(chr(9))[0]}\n" for row in read_lines(pairs / "old.tsv")))
    words, output = ("--general-texts", str(texts), "--epochs", "1"), tmp_path / "out"
    with pytest.raises(ValueError, match="more than `max_tokens` of 4"):
        adapt(trained, pairs, output, *words, "--max-tokens", "4")
    (written,) = (output / "own-outputs").iterdir()
    before = written.stat().st_mtime_ns
    with locked_directory(output, True), pytest.raises(ValueError, match="Another run"):
        adapt(trained, pairs, output, *words)
    adapt(trained, pairs, output, *words)
    assert [path.stat().st_mtime_ns for path in (output / "own-outputs").iterdir()] == [before]


@pytest.mark.parametrize(
    ("words", "mine"),
    [
        (["out/data/train.jsonl"], "data/train.jsonl"),
        (["recipe.yaml"], "data/pairs.tsv"),
        (["new.tsv", "--test", "out/data/test.jsonl"], "data/test.jsonl"),
        (["new.tsv", "--general-texts", "out/own-outputs/mine.en"], "own-outputs/mine.en"),
        (["new.tsv"], "data/notes.txt"),
        (["new.tsv"], "before/notes.txt"),
        (["new.tsv"], "grown/data/old.tsv"),
    ],
)
def test_no_file_of_a_person_in_the_output_directory_is_deleted(
    trained, pairs, tmp_path, monkeypatch, words, mine
):
    """What a former adaptation has left there is deleted before another one begins."""
    monkeypatch.chdir(tmp_path)
    rows = list(read_lines(pairs / "old.tsv"))
    (tmp_path / "new.tsv").write_text("".join(f"{row}\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text("corpora: [{train: out/data/pairs.tsv}]\n")
    (tmp_path / "out" / mine).parent.mkdir(parents=True)
    (tmp_path / "out" / "adapt.json").write_text("{}")
    sides = (dict(zip(("source", "target"), row.split("\t"), strict=True)) for row in rows)
    lines = (json.dumps(row) for row in sides) if mine.endswith(".jsonl") else rows
    text = "".join(f"{line}\n" for line in lines)
    (tmp_path / "out" / mine).write_text(text)
    with pytest.raises(ValueError, match="choose another directory"):
        run_subcommand("adapt", [str(trained), *words, "--output-dir", "out", "--epochs", "1"])
    assert (tmp_path / "out" / mine).read_text() == text


def test_a_model_of_marian_on_the_hub_is_converted_and_adapted(
    plain_pairs, tmp_path, capsys, monkeypatch
):
    (tmp_path / "pieces").mkdir()
    marian = tmp_path / "marian"
    save_marian(train_pieces(tmp_path / "pieces"), marian, separate=False)
    words = ("--epochs", "1", "--metrics", "chrf")
    hub = {"somebody/marian": str(marian)}
    monkeypatch.setattr(adaptation, "snapshot_download", lambda name, **_: hub[name])
    monkeypatch.setattr("vanilla_transformer.adapt.options.check_on_hub", lambda name: None)
    adapt("somebody/marian", plain_pairs, tmp_path / "out", *words)
    assert (tmp_path / "out" / "training" / "model.safetensors").exists()
    card = ModelCard.load(tmp_path / "out" / "model" / "README.md")
    assert card.data.base_model == "somebody/marian"


def test_adapters_of_a_large_model_are_merged(trained, pairs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("vanilla_transformer.adapt.adaptation._LARGE", 1000)
    output, target = tmp_path / "out", pairs / "new.tsv"
    words = ["--output-dir", str(output), "--epochs", "12", "--max-tokens", "100"]
    words += ["--metrics", "chrf", "--patience", "12"]
    run_subcommand("adapt", [str(trained), str(target), *words])
    printed = capsys.readouterr()
    assert "Adapters of rank 16 are trained." in printed.err
    old, new = (load_file(path / "model.safetensors") for path in (trained, output / "training"))
    changed = {name for name, weight in old.items() if not weight.equal(new[name])}
    assert old.keys() == new.keys()
    assert changed
    assert all(name.endswith("weight") and "embed" not in name for name in changed)
    assert "significantly better in chrf" in printed.out


def test_general_pairs_of_a_recipe_have_their_share(trained, pairs, tmp_path):
    recipe = tmp_path / "recipe.yaml"

    def weights(**changes):
        entries = [{"name": "app", "train": str(pairs / "new.tsv")}]
        entries.append({"name": "general", "train": str(pairs / "old.tsv"), **changes})
        recipe.write_text(json.dumps({"corpora": entries}))
        options = {"general_share": 0.75, "held_out": 4}
        found = split_data(AdaptArguments(str(trained), [str(recipe)], "out", **options))
        return found.weights

    found = weights()
    assert found["general"] == pytest.approx(3 * found["app"])
    assert weights(weight=2) == {"general": 2}


def test_the_languages_of_rows_reach_the_training_and_the_scores(trained, tmp_path):
    rows = [
        {
            "source": f"text {number}",
            "target": f"{target} {number}",
            "source_language": "en",
            "target_language": target,
            "references": [f"{target} {number}", f"{target} other"],
        }
        for number in range(80)
        for target in ("de", "fr")
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    splits = split_data(AdaptArguments(str(trained), [str(file)], "out", held_out=10))
    entries = splits.write(tmp_path / "data")
    seen = 0
    for corpora in entries.values():
        read = load_parallel_data(DataArguments(corpora=list(map(json.dumps, corpora))))
        for pairs in read.splits.values():
            for row in pairs:
                assert row["target"].split()[0] == row["target_language"]
                assert row["source_language"] == "en"
                assert row["references"][1] == f"{row['target_language']} other"
                seen += 1
    assert seen == len(rows)


@pytest.mark.parametrize("general", [["a.en", "a.de"], ["a.tmx"], ["a.tsv"]])
def test_columns_are_those_of_tables(general):
    languages = {"source_language": "en", "target_language": "de"}
    columns = {"columns": ["2", "1", "3"], **languages}
    options = AdaptArguments("x", ["own.tsv"], "out", general=general, **columns)
    found = [entry.columns for entry in options.data().entries]
    assert found == [[2, 1, 3], [2, 1] if general == ["a.tsv"] else None]
    texts = AdaptArguments("x", ["a.en", "a.de"], "out", general=["a.tsv"], **columns)
    assert [entry.columns for entry in texts.data().entries] == [None, [2, 1]]
    with pytest.raises(ValueError, match=r"own: `columns` \[2, 1, 3\] have no effect"):
        assert AdaptArguments("x", ["a.en", "a.de"], "out", **columns).data().entries


ROWS = [
    {
        "source": f"see %s the {'xyz'[number % 3] * (1 + number // 3)}",
        "target": f"das %s {number} sehen",
        "other": f"anderes %s {number}",
    }
    for number in range(90)
]


@pytest.mark.parametrize(
    "option",
    [
        {"target_column": "other"},
        {"source_language": "en"},
        {"corpora_temperature": 5},
        {"case_augment": 0.1},
        {"placeholder_share": 0.25},
        {"terms": "annotate"},
        {"max_train_samples": 70},
        {"max_source_length": 7},
    ],
    ids=lambda option: next(iter(option)),
)
def test_an_option_of_the_data_of_a_recipe_has_an_effect(trained, tmp_path, option):
    file, recipe = tmp_path / "all.jsonl", tmp_path / "recipe.yaml"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    found = []
    for more in ({}, option):
        recipe.write_text(json.dumps({"train_file": str(file), **more}))
        arguments = AdaptArguments(str(trained), [str(recipe)], "out", held_out=5)
        found.append(split_data(arguments))
    assert found[0] != found[1]


def test_the_options_of_training_that_adapt_has_reach_the_training(
    trained, pairs, tmp_path, monkeypatch
):
    seen = []

    def keep(arguments):
        seen.append(arguments.given)
        raise KeyboardInterrupt

    monkeypatch.setattr(adaptation.training_run, "run", keep)
    given = {"optim": "muon", "muon_learning_rate": 0.003, "max_tokens": 300, "seed": 7}
    given |= {"metrics": ["chrf"], "bleu_tokenize": "char", "placeholder_share": 0.25}
    given |= {"num_train_epochs": 4, "early_stopping_patience": 3, "max_source_length": 9}
    recipe = {**RECIPES["own"], "placeholder_share": 0.25, "max_source_length": 9}
    (pairs / "options.yaml").write_text(json.dumps(recipe))
    monkeypatch.chdir(pairs)
    words = ["--optim", "muon", "--learning-rate", "0.003", "--max-tokens", "300", "--seed", "7"]
    words += ["--metrics", "chrf", "--bleu-tokenize", "char", "--epochs", "4", "--patience", "3"]
    with pytest.raises(KeyboardInterrupt):
        adapt(trained, pairs, tmp_path / "out", *words, "options.yaml")
    assert {name: seen[0][name] for name in given} == given


def test_texts_keep_their_white_space_and_forms_of_a_source_stay_together(trained, tmp_path):
    text = "{}\u00a0000\u202f% \u3000xylophones  are here"
    forms = (text, f" {text}\u2028", text.replace(" ", "\u00a0"), text.replace("x", "X"))
    pairs = [
        {"source": form.format(number), "target": f"houses\r\n{number}\u00a0e\u0301"}
        for number in range(60)
        for form in forms
    ]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs), encoding="utf-8")
    found = split_data(AdaptArguments(str(trained), [str(file)], "out", held_out=8))
    splits = (found.training, *found.held_out.values())
    parts = [pairs for corpora in splits for pairs in corpora.values()]
    sources = [pair.source for part in parts for pair in part]
    assert sorted(sources) == sorted(pair["source"] for pair in pairs)
    assert "houses 7\u00a0e\u0301" in {pair.target for part in parts for pair in part}
    numbers = [{pair.source.split()[0] for pair in part} for part in parts]
    assert not any(one & other for one, other in combinations(numbers, 2))


def test_adapters_train_the_embeddings_too_where_tokens_are_new(trained, pairs, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    entries = [{"train": str(pairs / "new.tsv"), "tag": "<new>"}]
    recipe.write_text(json.dumps({"corpora": entries}), encoding="utf-8")
    words = ("--lora", "4", "--epochs", "1", "--learning-rate", "1e-2")
    adapt(trained, pairs, tmp_path / "out", str(recipe), *words)
    grown, new = (
        load_file(tmp_path / "out" / name / "model.safetensors") for name in ("grown", "training")
    )
    assert grown.keys() == new.keys()
    changed = {name.split(".")[-2] for name, weight in grown.items() if not weight.equal(new[name])}
    assert {"shared", "q_proj", "fc1"} <= changed
    assert not any("norm" in name for name in changed)


def test_a_recipe_keeps_whole_documents_apart(trained, pairs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = list(read_lines(pairs / "new.tsv"))
    documents = [f"{row}\tdocument {number // 4}\n" for number, row in enumerate(rows)]
    Path("app.tsv").write_text("".join(documents), encoding="utf-8")
    back = [f"strange {row}\n" for row in rows]
    Path("back.tsv").write_text("".join(back), encoding="utf-8")
    entries = [
        {"train": "app.tsv", "columns": [1, 2, 3], "weight": 2},
        {"train": "back.tsv", "tag": "<bt>", "weight": 1},
        {"name": "general", "train": str(pairs / "old.tsv"), "weight": 1},
    ]
    Path("recipe.yaml").write_text(json.dumps({"corpora": entries}), encoding="utf-8")
    words = ["--output-dir", "out", "--epochs", "1", "--optim", "muon", "--learning-rate", "1e-3"]
    run_subcommand("adapt", [str(trained), "recipe.yaml", *words, "--metrics", "chrf"])
    data = data_of(Path("out"))
    of_row = {row.split("\t")[0]: number // 4 for number, row in enumerate(rows)}
    splits = [{of_row[pair["source"]] for pair in data[name]} for name in SPLITS]
    assert not any(one & other for one, other in combinations(splits, 2))
    assert [len(data[name]) for name in ("validation", "test")] == [4, 4]
    held_out = {pair["target"] for name in ("validation", "test") for pair in data[name]}
    assert data["train-2"]
    assert all(pair["source"].startswith("strange a ") for pair in data["train-2"])
    assert not held_out & {pair["target"] for pair in data["train-2"]}
    grown = AutoTokenizer.from_pretrained(Path("out", "training"))
    assert "<bt>" in grown.get_vocab()
    assert "Corpus back: " in capsys.readouterr().err
    options = torch.load(Path("out", "training", "training_args.bin"), weights_only=False)
    rates = options.optim, options.muon_learning_rate, options.learning_rate
    assert rates == (MUON, 1e-3, 1.5e-4)


def test_two_processes_adapt_one_model(trained, pairs, tmp_path):
    program = Path(__file__).with_name("adapt_run.py")
    words = ("--epochs", "4", "--held-out", "10", "--max-tokens", "100", "--metrics", "chrf")
    words += ("--learning-rate", "0.005")
    files = (trained, pairs / "new.tsv", "--output-dir", tmp_path / "out")
    run_in_two_processes(program, *files, *words)
    assert "on 2 CPU processes" in (tmp_path / "out" / "model" / "README.md").read_text()
    found = json.loads((tmp_path / "out" / "own.json").read_text())["scores"]["chrf"]["models"]
    before, after = (scores["chrf"] for scores in found.values())
    assert before < after


def test_a_model_of_many_languages_is_adapted(plain_pairs, tmp_path):
    source = tmp_path / "m2m100"
    (tmp_path / "pieces").mkdir()
    save_of_many_languages("m2m100", source, train_pieces(tmp_path / "pieces"))
    for name, field in (("tokenizer", "tgt_lang"), ("generation", "forced_bos_token_id")):
        file = source / f"{name}_config.json"  # nothing saved names a target
        saved = {**json.loads(file.read_text(encoding="utf-8")), field: None}
        file.write_text(json.dumps(saved), encoding="utf-8")
    words = ["--epochs", "1", "--learning-rate", "1e-3", "--metrics", "chrf"]
    words += ["--source-language", "en", "--target-language", "fr"]
    adapt(source, plain_pairs, tmp_path / "out", *words)
    folder = tmp_path / "out" / "training"
    french = AutoTokenizer.from_pretrained(folder).get_lang_id("fr")
    settings = AutoModelForSeq2SeqLM.from_pretrained(folder).generation_config
    assert settings.forced_bos_token_id == french


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--general", "old.tsv", "--general-texts", "old.tsv"], "exclude each other"),
        (["--general", "new.tsv"], "only 0 general pairs whose source is not one of your own"),
        (["--lora", "4", "--optim", "muon"], "`lora` 4 does not work with `optim` 'muon'"),
        (["wide.yaml"], "sets --d-model=64: `adapt` takes the data of a recipe alone"),
        (["untrained.yaml"], "only 0 training pairs in the corpus"),
        (["own.yaml", "--test", "new.tsv"], "belongs in the recipe 'own.yaml'"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    trained, pairs, tmp_path, monkeypatch, words, message
):
    monkeypatch.chdir(pairs)
    with pytest.raises((ValueError, UsageError, FileNotFoundError), match=message):
        adapt(trained, pairs, tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("languages", [("en", "tr"), ("tr", "de"), ("en", "xx")])
def test_a_language_that_the_model_lacks_is_refused_before_a_training(pairs, tmp_path, languages):
    model = Path(__file__).parents[2] / "model_cards" / "program-texts"
    words = ("--source-language", languages[0], "--target-language", languages[1])
    with pytest.raises(ValueError, match="language"):
        adapt(model, pairs, tmp_path / "out", *words, "--held-out", "10")
    assert not (tmp_path / "out" / "training").exists()


def test_a_model_that_nobody_has_is_refused_before_anything_is_written(pairs, tmp_path):
    with pytest.raises(FileNotFoundError, match="'nobody/nothing'"):
        adapt("nobody/nothing", pairs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("before", "after", "wanted", "metrics", "better"),
    [
        ("wrong", "right", "right", ["chrf"], True),
        ("wrong", "wrong", "right", ["chrf"], False),
        ("wrong", "", "right", ["chrf"], False),
        ("wrong", "right", "right", ["bleu", "chrf"], True),  # the BLEU of texts of one word is 0
    ],
)
def test_a_model_is_better_by_a_score_that_tells_something(before, after, wanted, metrics, better):
    texts = {"old": [before] * 20, "new": [after] * 20}
    found = compare_outputs(["a"] * 20, texts, [[wanted]] * 20, metrics, ["13a"] * 20)
    done = Adapted(Path("model"), found, None)
    assert done.is_better is better
    assert any("the old model is kept" in line for line in describe_adaptation(done)) is not better


def test_a_test_that_decides_nothing_says_how_many_pairs_would():
    def compared(times):
        wanted = [f"the text number {number}" for number in range(20)] * times
        old = ["the text" if row % 20 in (3, 5) else text for row, text in enumerate(wanted)]
        new = ["the text" if row % 20 == 7 else text for row, text in enumerate(wanted)]
        systems = {"old": old, "new": new}
        references = [[text] for text in wanted]
        found = compare_outputs(wanted, systems, references, ["chrf"], [""] * len(wanted))
        return Adapted(Path("model"), found, None)

    told = " ".join(describe_adaptation(compared(1)))
    needed = int(re.search(r"about ([\d,]+) would decide", told)[1].replace(",", ""))
    assert needed > 20
    assert compared(needed // 20).is_better
    assert "would decide" not in " ".join(describe_adaptation(compared(needed // 20)))
