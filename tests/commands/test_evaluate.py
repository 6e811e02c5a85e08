"""`vanilla-transformer evaluate`: scores of a saved model."""

import json
import math

import pytest
from toy import command

from vanilla_transformer.commands import evaluate
from vanilla_transformer.commands.options import UsageError
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.run import evaluation


def test_it_scores_a_split_and_writes_a_report(trained, corpus, tmp_path):
    data = ("--test_source", corpus / "test.en", "--test_target", corpus / "test.de")
    argv = (trained, *data, "--output", tmp_path / "report.json")
    done = command("evaluate", *argv, "--metrics", "bleu", "ter")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    trained_score = json.loads((trained / "test_results.json").read_text())["test_bleu"]
    assert abs(report["scores"]["bleu"]["bleu"] - trained_score) < 1e-6
    assert json.loads(done.stdout) == report["scores"]
    assert "signature" in report["scores"]["bleu"]
    assert len(report["predictions"]) == len(report["sources"]) == 16
    assert "examples" not in done.stderr  # a bar of datasets

    again = command("evaluate", *argv)
    assert "add --overwrite" in again.stderr.splitlines()[-1]
    missing = command("evaluate", trained, *data, "--split", "validation")
    assert "`split` 'validation' is not in the data" in missing.stderr.splitlines()[-1]


def test_wrong_data_options_are_found_at_once(tmp_path):
    for options, message, status in (
        (["--max-test-samples", "0"], "max_test_samples", 2),
        (["--metrics", "rouge"], "invalid choice: 'rouge'", 2),
        (["--test-source", tmp_path / "nowhere"], "`test_source`", 1),
        (["--output", tmp_path], "is a directory", 1),
    ):
        done = command("evaluate", "someone/model", *options)
        assert (done.returncode, done.stderr.count("\n")) == (status, 1)
        assert message in done.stderr


def test_the_search_is_that_of_the_options(trained, corpus, monkeypatch):
    calls, translate = [], Translator.translate
    monkeypatch.setattr(
        Translator, "translate", lambda *a, **k: calls.append(k) or translate(*a, **k)
    )
    data = ("--test-source", corpus / "test.en", "--test-target", corpus / "test.de")
    words = (trained, *data, "--num-beams", "2", "--length-penalty", "-1.5")
    run_subcommand("evaluate", [str(word) for word in words])
    assert [(call["num_beams"], call["length_penalty"]) for call in calls] == [(2, -1.5)]
    with pytest.raises(UsageError, match=r"--length-penalty 1\.5 .*--num-beams"):
        run_subcommand("evaluate", [*map(str, words[:-3]), "1", "--length-penalty", "1.5"])


def test_the_scores_are_printed_where_the_report_cannot_be_written(
    trained, corpus, tmp_path, monkeypatch, capsys
):
    def fails(path):
        raise OSError("the disk is full")

    monkeypatch.setattr(evaluate, "open_output", fails)
    data = ["--test-source", str(corpus / "test.en"), "--test-target", str(corpus / "test.de")]
    argv = [str(trained), *data, "--max-test-samples", "2", "--output", str(tmp_path / "report")]
    with pytest.raises(OSError, match="the disk is full"):
        run_subcommand("evaluate", argv)
    assert "chrf" in json.loads(capsys.readouterr().out)


def test_a_score_that_is_not_finite_is_null(trained, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        evaluation, "score_texts", lambda *_, **__: {"ter": math.inf, "signature": "s"}
    )
    data = ["--test-source", str(corpus / "test.en"), "--test-target", str(corpus / "test.de")]
    argv = [str(trained), *data, "--metrics", "ter", "--output", str(tmp_path / "report")]
    run_subcommand("evaluate", argv)
    expected = {"ter": {"ter": None, "signature": "s"}}
    assert json.loads(capsys.readouterr().out) == expected
    assert json.loads((tmp_path / "report").read_text())["scores"] == expected


def test_a_report_never_replaces_its_data_and_is_possible(tmp_path):
    for name in ("t.en", "t.de", "t.json"):
        (tmp_path / name).write_text("a dog\n")
    files = ["--test-source", tmp_path / "t.en", "--test-target", tmp_path / "t.de"]
    for data, option, output in (
        (files, "--test-source", tmp_path / "t.en"),
        (files, "--test-target", tmp_path / "t.de"),
        (["--test-file", tmp_path / "t.json"], "--test-file", tmp_path / "t.json"),
    ):
        words = ["someone/model", *data, "--output", output, "--overwrite"]
        with pytest.raises(ValueError, match=f"is also the `{option}`"):
            run_subcommand("evaluate", [str(word) for word in words])
        assert output.read_text() == "a dog\n"
    words = ["someone/model", *map(str, files), "--output", "/proc/report.json"]
    with pytest.raises(OSError, match="no file can be made in '/proc'"):  # not even by root
        run_subcommand("evaluate", words)
