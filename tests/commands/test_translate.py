"""`vanilla-transformer translate` and `score`: pipes, files, JSON lines."""

import gzip
import json
import os
import sys
from functools import partial
from math import inf
from threading import Thread

import pytest
from programs import REPOSITORY, command

from vanilla_transformer.command_line import UsageError
from vanilla_transformer.commands.program import main, run_subcommand
from vanilla_transformer.inference.results import Score, Translation
from vanilla_transformer.inference.translator import Translator

translate, score = partial(run_subcommand, "translate"), partial(run_subcommand, "score")
LINES = ["a dog sees a cat .", "", "a bird finds a child ."]
OUTPUTS = "Hund sieht Katze .\n\nVogel findet Kind .\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in.en").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return ["--input", str(tmp_path / "in.en"), "--output", str(tmp_path / "out.de")]


def test_a_pipe_keeps_lines_and_order(trained):
    done = command("translate", trained, "--num-beams", "2", input="\n".join(LINES))
    assert (done.stdout, done.stderr, done.returncode) == (OUTPUTS, "", 0)


def test_a_glossary_may_come_from_a_pipe(tmp_path, capsys):
    os.mkfifo(pipe := tmp_path / "terms")
    writing = Thread(target=pipe.write_text, args=("file\tAkte\n",))
    writing.start()
    model = str(REPOSITORY / "model_cards" / "program-texts")
    translate([model, "--target-language", "de", "--glossary", str(pipe), "Open the file"])
    writing.join()
    assert "Akte" in capsys.readouterr().out


def test_what_nobody_can_change_is_told_with_verbose_alone(trained):
    argv = ("translate", trained, "--num-beams", "1", "--do-sample", LINES[0])
    plain, verbose = command(*argv), command(*argv, "--verbose")
    assert (plain.stderr, plain.stdout) == ("", verbose.stdout)
    assert "Transformers computes" in verbose.stderr


def test_json_lines_hold_scores(trained, capsys):
    translate([str(trained), "--json", "--n-best", "2", "--num_beams", "2", LINES[0]])
    found = json.loads(capsys.readouterr().out)
    assert found["source"] == LINES[0]
    assert found["outputs"][0]["text"] == "Hund sieht Katze ."
    assert found["outputs"][0]["score"] > found["outputs"][1]["score"]
    assert found["outputs"][0]["is_complete"] is True
    assert len(found["outputs"][0]["tokens"]) == len(found["outputs"][0]["token_scores"]) == 5


def test_what_is_put_in_is_told_and_can_be_switched_off(trained, capsys):
    found = []
    for option in ("--keep", "--no-keep"):
        translate([str(trained), "--json", option, f"{LINES[0]} %s"])
        (output,) = json.loads(capsys.readouterr().out)["outputs"]
        found.append((output["text"].count("%s"), output["restored"]))
    assert found == [(1, ["%s"]), (0, [])]
    translate([str(trained), "--keep-pattern", "Acme|Zeus", f"{LINES[0]} Acme Zeus"])
    output = capsys.readouterr().out
    assert [output.count(name) for name in ("Acme", "Zeus")] == [1, 1]


def test_scores_that_json_cannot_hold_are_null(trained, tmp_path, capsys, monkeypatch):
    infinite = {"score": -inf, "tokens": ("a", "b"), "token_scores": (-inf, -0.25)}
    output = Translation("a", **infinite)
    monkeypatch.setattr(Translator, "stream", lambda *args, **options: iter([[output]]))
    translate([str(trained), "--json", LINES[0]])
    (written,) = json.loads(capsys.readouterr().out)["outputs"]
    assert (written["score"], written["token_scores"]) == (None, [None, -0.25])
    (tmp_path / "text").write_text("a\n")
    monkeypatch.setattr(
        Translator, "score", lambda *args, **options: [Score(("a", "b"), (-inf, -0.25))]
    )
    pair = ["--source", str(tmp_path / "text"), "--target", str(tmp_path / "text")]
    score([str(trained), *pair, "--json"])
    written = json.loads(capsys.readouterr().out)
    assert (written["log_probability"], written["token_scores"]) == (None, [None, -0.25])


def test_targets_are_scored(trained, tmp_path, capsys):
    (tmp_path / "s").write_text(f"{LINES[0]}\n{LINES[2]}\n", encoding="utf-8")
    (tmp_path / "t").write_text("Hund sieht Katze .\nVogel Vogel Kind .\n", encoding="utf-8")
    argv = [str(trained), "--source", str(tmp_path / "s"), "--target", str(tmp_path / "t")]
    score(argv)
    said = capsys.readouterr()
    first, second = map(float, said.out.split())
    assert 0 > first > second
    assert "2 pairs, 10 tokens, perplexity" in said.err
    score([*argv, "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[0])
    assert found["log_probability"] == pytest.approx(first, abs=1e-3)
    (tmp_path / "t").write_text("Hund sieht Katze .\n", encoding="utf-8")
    with pytest.raises(ValueError, match="ends before line 2"):
        score(argv)


def test_the_least_risk_is_that_of_one_output_in_a_beam_that_is_wide_enough(trained, capsys):
    argv = [str(trained), "--minimum-risk", "chrf", LINES[0]]
    with pytest.raises(UsageError, match="`n_best` or `minimum_risk`"):
        translate([*argv, "--n-best", "2"])
    with pytest.raises(UsageError, match="the search keeps 4"):
        translate([*argv, "--num-beams", "4"])
    translate([*argv, "--num-beams", "4", "--candidates", "4"])
    translate([*argv, "--do-sample", "--num-beams", "1"])
    assert capsys.readouterr().out.startswith("Hund sieht Katze .\n")


def test_every_setting_of_generate_can_be_given(trained, capsys):
    argv = [str(trained), "--engine", "transformers", LINES[0]]
    translate([*argv, "--generation", "max_new_tokens=2", "--generation", "num-beams=1"])
    translate([*argv, "--generation", "suppress_tokens=[4]", "--generation", "max_length=3"])
    assert capsys.readouterr().out.splitlines()[0] == "Hund sieht"
    for setting, message in (
        ("no_repeat_ngram=2", "did you mean 'no_repeat_ngram_size'"),
        ("num_return_sequences=2", "n_best"),
    ):
        with pytest.raises(UsageError, match=message):
            translate([*argv, "--generation", setting])


def test_input_with_marks_and_odd_line_ends_keeps_its_lines(trained, tmp_path, capsys):
    text = f"\ufeff{LINES[0]}\r\n\n \u2028\u0085\n{LINES[2]}\x00\n{LINES[2]}"
    (tmp_path / "in.gz").write_bytes(gzip.compress(text.encode()))
    translate([str(trained), "--input", str(tmp_path / "in.gz"), "--device", "cpu"])
    lines = capsys.readouterr().out.split("\n")
    assert (len(lines), lines[0], lines[1]) == (6, "Hund sieht Katze .", "")
    assert lines[4] == "Vogel findet Kind ."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--input", "in.txt", "--output", "in.txt", "--overwrite"], "is also the `--input`"),
        (["--input", "nowhere.txt", "--output", "out.txt", "--overwrite"], "nowhere"),
        (["--input", "bad.txt", "--output", "out.txt", "--overwrite"], r"bad\.txt, line 2"),
        (["--output", "nowhere/out.txt", "a dog"], "directory 'nowhere'"),
        (["--output", "folder", "--overwrite", "a dog"], "'folder' is a directory"),
    ],
)
def test_what_is_refused_loses_nothing(trained, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    kept = {"in.txt": b"a dog\n", "out.txt": b"earlier\n", "bad.txt": b"a dog\n\xff\n"}
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    with pytest.raises((ValueError, OSError), match=message):
        translate([str(trained), "--device", "cpu", *options])
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "folder"}
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept


def test_a_reader_that_leaves_ends_the_program_quietly(trained, tmp_path, monkeypatch, capfd):
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", open(writer, "w"))  # noqa: SIM115 - the program writes to it
    assert main(["translate", str(trained), "--device", "cpu", "a dog"]) == 1
    sys.stdout.close()
    assert "Error" not in capfd.readouterr().err


def test_input_that_is_not_utf8_leaves_no_file(trained, tmp_path):
    argv = (trained, "--device", "cpu", "--output", tmp_path / "out.txt")
    done = command("translate", *argv, input="a dog\n\udcff\n")
    assert done.returncode == 1
    assert "standard input, line 2" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_text_after_two_hyphens_is_text(trained, capsys):
    translate([str(trained), "--device", "cpu", "--", "--verbose", "a dog sees a cat ."])
    assert capsys.readouterr().out.splitlines()[1:] == ["Hund sieht Katze ."]
