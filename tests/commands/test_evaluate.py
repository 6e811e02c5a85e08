"""`vanilla-transformer evaluate`: scores of a saved model."""

import json
import math
import shutil

import pytest
import torch
from programs import REPOSITORY, command
from tiny_models import add_noise
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.commands import evaluate
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.run import evaluation
from vanilla_transformer.run.comparison import compare_outputs
from vanilla_transformer.training.metrics import interval_ends

MODEL = str(REPOSITORY / "model_cards" / "pronounce")


def test_it_scores_a_split_and_writes_a_report(trained, corpus, tmp_path):
    data = ("--test_source", corpus / "test.en", "--test_target", corpus / "test.de")
    argv = (trained, *data, "--output", tmp_path / "report.json")
    done = command("evaluate", *argv, "--metrics", "bleu", "ter", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    trained_score = json.loads((trained / "all_results.json").read_text())["test_bleu"]
    assert abs(report["scores"]["bleu"]["bleu"] - trained_score) < 1e-6
    assert json.loads(done.stdout) == report["scores"]
    assert "bs:1000" in report["scores"]["bleu"]["signature"]
    low, high = report["scores"]["bleu"]["interval"]
    assert low - 1e-9 <= report["scores"]["bleu"]["bleu"] <= high + 1e-9
    card = (trained / "README.md").read_text(encoding="utf-8")
    assert f"{trained_score:.2f} ({low:.2f} to {high:.2f})" in card
    assert len(report["predictions"]) == len(report["sources"]) == 16
    assert "examples" not in done.stderr  # a bar of datasets
    assert f"{tmp_path / 'report.json'}: written." in done.stderr

    again = command("evaluate", *argv)
    assert "add --overwrite" in again.stderr.splitlines()[-1]
    missing = command("evaluate", trained, *data, "--split", "validation")
    assert "`split` 'validation' is not in the data" in missing.stderr.splitlines()[-1]


@pytest.mark.parametrize(("first", "count"), [(0, 0), (4, 12), (0, 16)])
def test_scores_are_told_without_texts_like_those_of_the_training(
    trained, corpus, tmp_path, capsys, first, count
):
    """The first texts of the test are like none of the others."""
    lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    lines[:first] = [f"no word of {name} is there" for name in ("one", "two", "six", "ten")][:first]
    german = (corpus / "test.de").read_text(encoding="utf-8").splitlines()
    sides = {
        "known": (lines[first:] if count else ["no such text"]),
        "test": lines,
        "rest": lines[:first],
    }
    for name, texts in sides.items():
        (tmp_path / f"{name}.tsv").write_text(
            "".join(f"{text}\t{german[n]}\n" for n, text in enumerate(texts)), encoding="utf-8"
        )

    def scores_of(test, *options):
        words = ["--test-file", str(tmp_path / test), "--metrics", "chrf", *options]
        assert run_subcommand("evaluate", [str(trained), *words]) is None
        return capsys.readouterr().out

    known = ("--train-file", str(tmp_path / "known.tsv"))
    scores = json.loads(scores_of("test.tsv", *known, "--json"))["chrf"]
    assert ("without_twins" in scores) == (0 < count < 16)
    if "without_twins" in scores:
        alone = json.loads(scores_of("rest.tsv", "--json"))["chrf"]
        assert scores["without_twins"] == {"score": alone["chrf"], "texts": first}
        assert "nearly equal to training texts: " in scores_of("test.tsv", *known)


def test_outputs_that_are_no_better_than_their_sources_are_called_so(trained, corpus, capsys):
    for references, is_told in (("test.en", True), ("test.de", False)):
        data = ["--test-source", str(corpus / "test.en"), "--test-target", str(corpus / references)]
        run_subcommand("evaluate", [str(trained), *data])
        assert ("no better than the unchanged" in capsys.readouterr().err) is is_told


def test_columns_that_are_swapped_for_the_languages_of_the_model_are_told(tmp_path, capsys):
    english = ["The file could not be opened because it does not exist.", "Save the changes now?"]
    german = ["Die Datei existiert nicht und wurde nicht geöffnet.", "Änderungen jetzt speichern?"]
    model = [str(REPOSITORY / "model_cards" / "program-texts"), "--target-language"]
    for sides, language, count in (
        ((german, english), ["de"], 1),
        ((german, english), ["de", "--source-language", "en"], 1),
        ((english, german), ["de"], 0),
    ):
        pairs = zip(*sides, strict=True)
        (tmp_path / "test.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
        run_subcommand("evaluate", [*model, *language, "--test-file", str(tmp_path / "test.tsv")])
        assert capsys.readouterr().err.count("swapped") == count


def test_the_search_is_that_of_the_options(trained, corpus, monkeypatch):
    calls, stream = [], Translator.stream
    monkeypatch.setattr(Translator, "stream", lambda *a, **k: calls.append(a[2]) or stream(*a, **k))
    data = ("--test-source", corpus / "test.en", "--test-target", corpus / "test.de")
    words = (trained, *data, "--num-beams", "2", "--length-penalty", "-1.5")
    run_subcommand("evaluate", [str(word) for word in words])
    assert [(call.num_beams, call.length_penalty) for call in calls] == [(2, -1.5)]


def test_the_scores_are_printed_where_the_report_cannot_be_written(
    trained, corpus, tmp_path, monkeypatch, capsys
):
    def fails(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr(evaluate.json, "dump", fails)
    data = ["--test-source", str(corpus / "test.en"), "--test-target", str(corpus / "test.de")]
    report = tmp_path / "report"
    report.write_text("older")
    argv = [str(trained), *data, "--max-test-samples", "2", "--output", str(report), "--overwrite"]
    with pytest.raises(OSError, match="the disk is full"):
        run_subcommand("evaluate", argv)
    assert "\nchrf: " in capsys.readouterr().out
    assert report.read_text() == "older"


@pytest.fixture
def other(trained, corpus, tmp_path):
    """The same model with weights that make other outputs."""
    model = AutoModelForSeq2SeqLM.from_pretrained(trained)
    torch.manual_seed(0)
    shutil.copytree(trained, tmp_path / "other")
    add_noise(model).save_pretrained(tmp_path / "other")
    return tmp_path / "other"


def test_models_are_compared(trained, other, corpus, tmp_path, capsys):
    copy = shutil.copytree(trained, tmp_path / "copy")
    sides = [(corpus / f"test.{side}").read_text().splitlines() for side in ("en", "de")]
    rows = [{"source": source, "target": target} for source, target in zip(*sides, strict=True)]
    rows[0]["source"] += " " + " ".join(row["source"] for row in rows[1:4])
    (tmp_path / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data = ["--test-file", str(tmp_path / "test.jsonl"), "--metrics", "bleu", "chrf", "wer"]
    models = [str(trained), str(other), str(copy)]
    files = ["--output", str(tmp_path / "all.json")]
    run_subcommand("evaluate", [*models, *data, *files])
    printed = capsys.readouterr().out
    report = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    scores = report["scores"]
    bleu = scores["bleu"]
    assert f"{models[0]} and {models[2]}: no significant difference (p = 1.000)" in printed
    assert f"{models[0]} and {models[1]}: significant (p = 0.0" in printed
    p_values = {tuple(pair["models"]): pair["p_value"] for pair in bleu["pairs"]}
    assert p_values[models[0], models[2]] == 1  # equal outputs
    assert p_values[models[0], models[1]] == p_values[models[1], models[2]] < 0.05
    run_subcommand("evaluate", [models[1], *data])
    lines = capsys.readouterr().out.splitlines()
    run_subcommand("evaluate", [models[1], *data, "--json"])
    alone = json.loads(capsys.readouterr().out)
    low, high = alone["chrf"]["interval"]
    assert lines[1].startswith(f"chrf: {alone['chrf']['chrf']:.2f} ({low:.2f} to {high:.2f})")
    for metric in ("bleu", "chrf", "wer"):
        assert scores[metric]["models"][models[1]] == {
            metric: alone[metric][metric],
            "interval": pytest.approx(alone[metric]["interval"]),
        }


def test_equal_scores_do_not_differ_and_no_interval_goes_below_0():
    outputs = {"first": ["abc", *"xxxxx"], "second": ["abc", *"zzzzz"]}
    references = [["abc"], *[["defghi"]] * 5]
    found = compare_outputs([*"123456"], outputs, references, ["chrf"], ["13a"] * 6)
    (test,) = found.scores["chrf"].pairs
    assert (test.difference, test.p_value) == (0, 1)
    assert found.scores["chrf"].models["first"]["interval"][0] == 0
    assert all(map(math.isnan, interval_ends("bleu", math.nan, 0.0)))


@pytest.mark.parametrize(("count", "p_value"), [(1, 0.5), (2, 0.25), (4, 1 / 16), (20, 1 / 1001)])
def test_few_texts_do_not_make_a_difference_significant(count, p_value):
    outputs = {"first": ["a b c d"] * count, "second": ["a b x y"] * count}
    references = [["a b c d"]] * count
    tokenizers = ["13a"] * count
    found = compare_outputs(["a"] * count, outputs, references, ["bleu", "chrf"], tokenizers)
    for compared in found.scores.values():
        assert [test.p_value for test in compared.pairs] == [pytest.approx(p_value)]


def test_a_score_that_is_not_finite_is_null(trained, corpus, monkeypatch, capsys):
    scores = {"ter": math.inf, "chrf": 1.0, "signature": "s"}
    monkeypatch.setattr(evaluation, "score_texts", lambda *_, **__: scores)
    data = ["--test-source", str(corpus / "test.en"), "--test-target", str(corpus / "test.de")]
    run_subcommand("evaluate", [str(trained), *data, "--metrics", "ter", "--json"])
    assert json.loads(capsys.readouterr().out)["ter"]["ter"] is None


def test_a_report_never_replaces_its_data_and_is_possible(tmp_path):
    for name in ("t.en", "t.de", "t.json"):
        (tmp_path / name).write_text("a dog\n")
    files = ["--test-source", tmp_path / "t.en", "--test-target", tmp_path / "t.de"]
    for data, option, output in (
        (files, "--test-target", tmp_path / "t.de"),
        (["--test-file", tmp_path / "t.json"], "--test-file", tmp_path / "t.json"),
        ([*files, "--memory", tmp_path / "t.json"], "file .*t.json", tmp_path / "t.json"),
        (["--corpora", f'{{"test": "{tmp_path}/t.en"}}'], "file .*t.en", tmp_path / "t.en"),
    ):
        words = [MODEL, *data, "--output", output, "--overwrite"]
        with pytest.raises(ValueError, match=f"is also the `{option}`"):
            run_subcommand("evaluate", [str(word) for word in words])
        assert output.read_text() == "a dog\n"
    words = [MODEL, *map(str, files), "--output", "/proc/report.json"]
    with pytest.raises(OSError, match="/proc/report"):  # not even by root
        run_subcommand("evaluate", words)
