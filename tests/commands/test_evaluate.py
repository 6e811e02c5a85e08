"""`vanilla-transformer evaluate`: scores of a saved model."""

import json

from toy import command


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
