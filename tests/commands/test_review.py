"""`evaluate --calibrate`, and `translate --review`: which outputs to read first."""

import json
import shutil
from functools import partial

import pytest

from vanilla_transformer.commands.options import UsageError
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.inference.quality import QUALITY

translate = partial(run_subcommand, "translate")
NOUNS, VERBS = ("dog", "cat", "bird", "man", "child"), ("sees", "finds")
GARBLED = "a man sees a ☃☃☃ ."


@pytest.fixture(scope="module")
def calibrated(trained, tmp_path_factory):
    """A model, and the quality of its outputs, learnt from right pairs and from wrong ones."""
    folder = tmp_path_factory.mktemp("calibrated")
    model = shutil.copytree(trained, folder / "model")
    (model / QUALITY).unlink(missing_ok=True)
    german = {"dog": "Hund", "cat": "Katze", "bird": "Vogel", "man": "Mann", "child": "Kind"}
    verbs = {"sees": "sieht", "finds": "findet"}
    right = [
        (f"a {n} {v} a {o} .", f"{german[n]} {verbs[v]} {german[o]} .")
        for n in NOUNS
        for v in VERBS
        for o in NOUNS
        if n != o
    ]
    wrong = [(f"a {n} {v} a ☃☃☃ .", "etwas ganz anderes") for n in NOUNS for v in VERBS] * 4
    for number, name in enumerate(("source", "target")):
        lines = [pair[number] for pair in right * 2 + wrong]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = ("--test-source", folder / "source", "--test-target", folder / "target")
    run_subcommand("evaluate", [str(word) for word in (model, *pairs, "--calibrate")])
    return str(model)


def test_a_calibration_says_what_it_finds(calibrated, trained, tmp_path, capsys):
    few = tmp_path / "few"
    few.write_text("a dog sees a cat .\n", encoding="utf-8")
    model = shutil.copytree(trained, tmp_path / "model")
    (model / QUALITY).unlink(missing_ok=True)
    pairs = ("--test-source", few, "--test-target", few)
    run_subcommand("evaluate", [str(word) for word in (model, *pairs, "--calibrate")])
    assert "not calibrated" in capsys.readouterr().err
    assert not (model / QUALITY).exists()
    with pytest.raises(UsageError):
        run_subcommand(
            "evaluate", [calibrated, calibrated, *map(str, pairs), "--compare", "--calibrate"]
        )


def test_the_worst_outputs_are_listed_first(calibrated, tmp_path, capsys):
    lines = ["a dog sees a cat ."] * 8 + [GARBLED, "a man finds a bird ."]
    source = tmp_path / "texts.en"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    output = tmp_path / "texts.de"
    translate([calibrated, "--input", str(source), "--output", str(output), "--review", "10"])
    shown = capsys.readouterr().err.splitlines()
    place = next(line for line in shown if "quality" in line)
    assert place.startswith(f"{source}, line 9: quality ")
    assert shown[shown.index(place) + 1].strip() == GARBLED
    assert len([line for line in shown if "quality" in line]) == 1
    assert len(output.read_text(encoding="utf-8").splitlines()) == 10


def test_a_document_names_the_places_to_read(calibrated, tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text(f"<p>a dog sees a cat .</p><p>{GARBLED}</p>", encoding="utf-8")
    translate([calibrated, "--document", str(page), "--review", "50"])
    shown = capsys.readouterr().err.splitlines()
    (place,) = (line for line in shown if "quality" in line)
    assert place.startswith(f"{page}, ")
    assert shown[shown.index(place) + 1].strip() == GARBLED


def test_json_has_the_quality(calibrated, trained, tmp_path, capsys):
    translate([calibrated, "--json", "a dog sees a cat .", GARBLED])
    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert bad["outputs"][0]["quality"] < good["outputs"][0]["quality"]


def test_without_a_calibration_there_is_nothing_to_review(trained, tmp_path):
    model = shutil.copytree(trained, tmp_path / "model")
    (model / QUALITY).unlink(missing_ok=True)
    with pytest.raises(ValueError, match="--calibrate"):
        translate([str(model), "--review", "10", "a dog sees a cat ."])
    for words in (["--n-best", "2"], ["--input", "x", "--output", "y", "--resume"]):
        with pytest.raises(UsageError):
            translate([str(model), "--review", "10", *words])
