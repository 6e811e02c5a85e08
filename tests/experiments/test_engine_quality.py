"""Scores of the engines on one model."""

import os
import re

import engine_quality
import pytest
import torch


def test_each_engine_is_compared_with_the_first(trained, corpus, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    files = ["--source", str(corpus / "test.en"), "--target", str(corpus / "test.de")]
    engine_quality.main([str(trained), *files, "--limit", "12", "--num-beams", "2"])
    rows = re.findall(
        r"^\| ([a-z0-9-]+) \| ([\d.]+) \| ([+-][\d.]+) \| ([\d.]+)%", *printed(capsys)
    )
    assert [name for name, *_ in rows] == list(engine_quality.ENGINES)
    by_name = {name: (float(score), float(gap), float(equal)) for name, score, gap, equal in rows}
    assert by_name["transformers"][1:] == (0, 100)
    assert by_name["ctranslate2"] == by_name["transformers"]
    assert by_name["int8"][2] > 50


def test_all_engines_compute_on_the_cpu_with_the_threads_that_are_asked_for(
    trained, corpus, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # and restores it
    before, load, seen = torch.get_num_threads(), engine_quality.Translator.from_pretrained, []

    def loaded(models, engine, device, compute_type):
        seen.append((engine, device, torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]))
        return load(models, engine, device, compute_type)

    monkeypatch.setattr(engine_quality.Translator, "from_pretrained", loaded)
    files = ["--source", str(corpus / "test.en"), "--target", str(corpus / "test.de")]
    options = [str(trained), *files, "--limit", "2", "--engines", "transformers", "ctranslate2"]
    try:
        for threads in (1, 2):
            engine_quality.main([*options, *(["--threads", "2"] if threads == 2 else [])])
            assert [row[1:] for row in seen[-2:]] == [("cpu", threads, str(threads))] * 2
    finally:
        torch.set_num_threads(before)
    assert "| texts per processor second |" in capsys.readouterr().out


def test_an_ensemble_is_scored(trained, corpus, capsys):
    files = ["--source", str(corpus / "test.en"), "--target", str(corpus / "test.de")]
    options = [str(trained), *files, "--limit", "12", "--engines", "transformers"]
    engine_quality.main(options)
    alone = printed(capsys)[0]
    engine_quality.main([*options, "--ensemble-with", str(trained)])
    scores = [re.findall(r"transformers \| ([\d.]+)", text) for text in (alone, printed(capsys)[0])]
    assert scores[0] == scores[1] != []  # a model and itself


def printed(capsys):
    return capsys.readouterr().out, re.MULTILINE


def test_files_that_do_not_fit_are_an_error(trained, corpus, tmp_path):
    (tmp_path / "short").write_text("ein Hund\n")
    files = ["--source", str(corpus / "test.en"), "--target", str(tmp_path / "short")]
    with pytest.raises(ValueError, match="ends before line 2"):
        engine_quality.main([str(trained), *files])
    with pytest.raises(SystemExit):
        engine_quality.main([str(trained), *files[:2]])
