"""`vanilla-transformer align`, and links in the outputs of `translate`."""

import json
from functools import partial

import pytest
from programs import command

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.text.word_alignment import parse_links

align, translate = partial(run_subcommand, "align"), partial(run_subcommand, "translate")
score = partial(run_subcommand, "score")
SOURCES = ["a dog sees a cat .", "", "a bird finds a child ."]
TARGETS = ["Hund sieht Katze .", "", "Vogel findet Kind ."]


@pytest.fixture
def files(tmp_path):
    for name, lines in (("s", SOURCES), ("t", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return ["--source", str(tmp_path / "s"), "--target", str(tmp_path / "t")]


@pytest.fixture(scope="module")
def expected(trained):
    translator = Translator.from_pretrained(str(trained), "transformers", "cpu")
    return translator.align(SOURCES, TARGETS)


def test_pairs_are_aligned_line_by_line(trained, files, expected):
    done = command("align", trained, *files, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [*(alignment.pharaoh for alignment in expected), ""]
    assert expected[1].pharaoh == ""
    assert {target for _, target in parse_links(done.stdout.split("\n")[0])} == set(range(4))


def test_json_lines_hold_tokens_and_their_links(trained, files, expected, capsys):
    align([str(trained), *files, "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["words"] == [list(link) for link in expected[0].words]
    assert rows[0]["tokens"] == [list(link) for link in expected[0].tokens]
    assert rows[2]["target_tokens"] == [*TARGETS[2].split(), "</s>"]


def test_a_line_that_is_too_long_is_named(trained, files, tmp_path, monkeypatch):
    monkeypatch.setattr("vanilla_transformer.commands.pairs.LINES_PER_CHUNK", 1)
    (tmp_path / "s").write_text(f"a dog\n{'dog ' * 2000}\n")
    (tmp_path / "t").write_text("Hund\nHund\n")
    for run in (align, score):
        with pytest.raises(ValueError, match="s, line 2: it has 2,001 tokens, and"):
            run([str(trained), *files])
    monkeypatch.setattr("vanilla_transformer.commands.pairs.LINES_PER_CHUNK", 2)
    with pytest.raises(ValueError, match="s, line 2: it has 2,001 tokens, and"):
        score([str(trained), *files])


@pytest.mark.parametrize("engine", ["transformers", "ctranslate2"])
def test_outputs_carry_their_links(trained, capsys, engine, expected):
    argv = [str(trained), "--engine", engine, *SOURCES[::2]]
    translate([*argv, "--alignment", "words"])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{target} ||| {one.pharaoh}"
        for target, one in zip(TARGETS[::2], expected[::2], strict=True)
    ]
    translate([*argv, "--alignment", "tokens", "--json"])
    row = json.loads(capsys.readouterr().out.splitlines()[0])
    assert row["outputs"][0]["alignment"] == [list(link) for link in expected[0].tokens]
    assert "word_alignment" not in row["outputs"][0]
    translate([*argv[:3], "--alignment", "words", "", "\U0001f60a", " \u00a0"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ||| ") for line in lines[:2]] == [["", ""], ["\U0001f60a", "0-0"]]
    assert lines[2].endswith(" ||| ")
    translate([str(trained), "--alignment", "words", "--num-beams", "2", "--n-best", "2", ""])
    assert capsys.readouterr().out == " ||| \n" * 2
