"""The program that scores a saved model."""

import json

from toy import command


def test_it_scores_a_split_and_writes_a_report(trained, corpus, tmp_path):
    data = ("--test_source", corpus / "test.en", "--test_target", corpus / "test.de")
    argv = ("--model", trained, *data, "--output", tmp_path / "report.json")
    done = command("evaluate", *argv, "--metrics", "bleu", "ter")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    trained_score = json.loads((trained / "test_results.json").read_text())["test_bleu"]
    assert abs(report["scores"]["bleu"]["bleu"] - trained_score) < 1e-6
    assert "signature" in report["scores"]["bleu"]
    assert len(report["predictions"]) == len(report["sources"]) == 16

    again = command("evaluate", *argv)
    assert "--overwrite True" in again.stderr.splitlines()[-1]
    missing = command("evaluate", "--model", trained, *data, "--split", "validation")
    assert "no split 'validation'" in missing.stderr.splitlines()[-1]
