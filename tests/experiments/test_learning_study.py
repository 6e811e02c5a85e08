"""The study of learning trains its runs once, goes on, and reports."""

import json

from toy import experiment

TINY = {"layers": "1", "d_models": "32", "steps": "4", "max_tokens": "200", "validations": "2"}
SHARED = {"vocab_size": "80", "validation_examples": "10", "warmup_steps": "1"}


def test_a_study_goes_on_where_it_was_and_reports(corpus, tmp_path):
    options = {**TINY, **SHARED, "data": corpus, "output_dir": tmp_path}
    words = [str(part) for name, value in options.items() for part in (f"--{name}", value)]

    def study(*more):
        done = experiment("learning_study.py", *words, *more)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    lines = tmp_path / "runs.jsonl"
    optimizers = ("--optimizers", "adamw:0.003", "muon:0.003:0.01")
    printed = study(*optimizers, "--seeds", "1", "2", "--norm_placements", "post")
    assert printed.startswith("4 runs, 0 of them finished before")
    assert len(lines.read_text().splitlines()) == 4
    printed = study(*optimizers, "--seeds", "1", "2", "--norm_placements", "post", "pre")
    assert printed.startswith("8 runs, 4 of them finished before")
    results = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len(results) == 8
    for result in results:
        assert [step for step, _ in result["losses"]] == [1, 2, 3, 4]
        assert [row[0] for row in result["validations"]] == [2, 4]
        assert result["diverged"] is None
    study("--optimizers", "adamw:1e38", "--norm_placements", "post")  # one that diverges
    table = study("--report_only", "True")
    assert table == (tmp_path / "table.md").read_text()
    assert len(table.splitlines()) == 2 + 5
    assert "| 1 | 1 | - |" in table
    assert len(list(tmp_path.glob("curves-*.png"))) == 2
