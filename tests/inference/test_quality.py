"""The quality of outputs: what a calibration learns, keeps and refuses to know."""

import json
import math
import random
import re
from dataclasses import replace
from itertools import product
from unicodedata import normalize

import pytest
from datasets import Dataset
from programs import REPOSITORY

from vanilla_transformer.inference.quality import (
    QUALITY,
    Calibration,
    Outcome,
    describe_output,
    rank_correlation,
)
from vanilla_transformer.inference.results import Features, Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.run.calibration import calibrate

FOLDER = REPOSITORY / "model_cards" / "program-texts"
ZEROS = (0.0,) * (len(Features._fields) - 1)
"""All features but the first."""


def outcomes(count, seed=0, noise=5.0, tags=(None,)):
    """Outputs whose tokens are the more probable, the better they are, and their chrF."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        goodness = chance.random()
        scores = tuple(-3 * (1 - goodness) * chance.random() for _ in range(12))
        output = Translation("so viele Worte", token_scores=scores, repeated=goodness < 0.1)
        value = min(100.0, max(0.0, 100 * goodness + chance.gauss(0, noise)))
        described = describe_output(output, "so many words", 5, 0)
        made.append(Outcome(described, value, tags[number % len(tags)]))
    return made


def test_the_quality_ranks_outputs_and_is_their_chrf():
    calibration = Calibration.fit(outcomes(500))
    described, values, _ = zip(*outcomes(400, seed=1), strict=True)
    expected = [calibration.expected(row, None) for row in described]
    assert rank_correlation(expected, values) > 0.8
    assert all(0 <= value <= 100 for value in expected)
    order = sorted(range(400), key=expected.__getitem__)
    for tenth in (order[n : n + 40] for n in range(0, 400, 40)):
        means = (sum(side[n] for n in tenth) / 40 for side in (expected, values))
        assert math.isclose(*means, abs_tol=10)


@pytest.mark.parametrize(
    ("source", "text", "scores", "whole", "length", "characters"),
    [
        ("Open", "Öffnen", (-0.5, -0.5), -1.0, 6 / 4, 6),
        ("Delete it", "削除", (-0.1,) * 3, -0.3, 9 / 2, 2),
        ("", "", (), 0.0, 1, 0),
    ],
)
def test_what_a_whole_output_and_its_length_tell(source, text, scores, whole, length, characters):
    described = describe_output(Translation(text, token_scores=scores), source, 2, 0)
    for value in (math.exp(whole), math.log(length), math.log1p(characters)):
        assert pytest.approx(value) in described


@pytest.mark.parametrize(
    ("source", "text", "is_copied", "digits", "longest"),
    [
        ("Debug", "Debug", True, 0, 5),
        (" Debug\n", "Debug", True, 0, 5),
        ("Debug", "debug", False, 0, 5),
        ("DEBUG 2", "DEBUG 2", False, 1 / 7, 5),
        ("Page 12", "Seite 12", False, 2 / 7, 4),
        ("…", "…", False, 0, 1),
        ("设置", "设置", True, 0, 2),
        ("Größe ²", "Size ²", False, 0, 5),
        ("", "", False, 0, 0),
        ("  ", "", False, 0, 0),
    ],
)
def test_what_a_source_tells(source, text, is_copied, digits, longest):
    described = describe_output(Translation(text, token_scores=(-4.0, -1.0)), source, 2, 3)
    assert (described.is_copied, described.num_kept) == (is_copied, 3)
    assert described.digits == pytest.approx(digits)
    assert described.longest_word == pytest.approx(math.log1p(longest))


def test_a_better_output_never_has_a_lower_quality():
    calibration = Calibration.fit(outcomes(300, noise=30))
    (line,) = calibration.by_language.values()
    assert line.values == sorted(line.values)
    assert line.sums == sorted(line.sums)


def test_what_repeats_itself_has_the_lowest_quality():
    calibration = Calibration.fit(outcomes(300))
    good = Translation("so viele Worte", token_scores=(-0.01,) * 12)
    lowest, highest = (
        calibration.expected(describe_output(replace(good, repeated=again), "so many", 5, 0), None)
        for again in (True, False)
    )
    (line,) = calibration.by_language.values()
    assert lowest == min(line.values) < highest


def test_languages_have_their_own_quality():
    made = [
        Outcome(described, value / 2 if tag == "fr" else value, tag)
        for described, value, tag in outcomes(400, tags=("de", "fr"))
    ]
    calibration = Calibration.fit(made)
    good = max(
        (described for described, *_ in made), key=lambda row: calibration.expected(row, "de")
    )
    of_tags = [calibration.expected(good, tag) for tag in ("de", None, "fr")]
    assert of_tags == sorted(of_tags, reverse=True)
    assert of_tags[0] > 1.5 * of_tags[2]
    assert calibration.expected(good, "xx") == of_tags[1]


@pytest.mark.parametrize("count", [0, 1, 99])
def test_too_few_outputs_teach_nothing(count):
    assert Calibration.fit(outcomes(count)) is None


def test_outputs_that_are_all_alike_teach_nothing():
    made = outcomes(200, tags=("de", "fr"))
    assert Calibration.fit([Outcome(row, 40.0, tag) for row, _, tag in made]) is None
    alike = made[0][0]
    assert Calibration.fit([Outcome(alike, value, tag) for _, value, tag in made]) is None
    # Those of a language, among others.
    rows = [Outcome(alike if tag == "de" else row, value, tag) for row, value, tag in made]
    assert {*Calibration.fit(rows).by_language} == {"", "fr"}


@pytest.mark.parametrize("scores", [(), (-math.inf, -1.0), (math.nan,), (0.5,)])
def test_scores_that_are_no_probabilities(scores):
    calibration = Calibration.fit(outcomes(200))
    for text in ("", "viele Worte"):
        described = describe_output(Translation(text, token_scores=scores), "", 0, 0)
        assert 0 <= calibration.expected(described, None) <= 100


def saved(folder, tail=b""):
    (folder / "model.safetensors").write_bytes(b"weights" + tail)
    return folder


def test_a_calibration_is_of_the_weights_beside_it(tmp_path):
    calibration = Calibration.fit(outcomes(200, tags=("de", "fr")))
    assert Calibration.load(saved(tmp_path)) is None
    calibration.save(tmp_path)
    assert Calibration.load(tmp_path) == calibration
    assert (tmp_path / QUALITY).stat().st_size < 4096
    assert Calibration.load(saved(tmp_path, b"of another model")) is None


def test_a_damaged_calibration_is_named_and_the_translation_goes_on(tmp_path, heard):
    Calibration.fit(outcomes(200)).save(saved(tmp_path))
    whole = (tmp_path / QUALITY).read_text()
    for content in (whole[:100], "", "[1]"):
        heard.clear()
        (tmp_path / QUALITY).write_text(content)
        assert Calibration.load(tmp_path) is None
        assert str(tmp_path / QUALITY) in heard.text


@pytest.mark.parametrize("count", [-1, 1, 2])
def test_a_calibration_of_other_features_is_named_and_the_translation_goes_on(
    tmp_path, heard, count
):
    Calibration.fit(outcomes(200)).save(saved(tmp_path))
    content = json.loads((tmp_path / QUALITY).read_text())
    weights = content["languages"][""]["weights"]
    content["languages"][""]["weights"] = weights[:count] if count < 0 else weights + [0.1] * count
    (tmp_path / QUALITY).write_text(json.dumps(content))
    assert Calibration.load(tmp_path) is None
    assert str(tmp_path / QUALITY) in heard.text


def made_outputs(count, seed=None):
    """Outputs, of which a feature tells how good they are; with a seed, nothing does."""
    chance = random.Random(seed)
    for n in range(count):
        row = (0.1 * (n % 12), *ZEROS)
        if seed is not None:
            row = (*(chance.random() for _ in Features._fields[:-2]), 0.0, 0.0)
        yield (
            Translation(f"das ist Text {n}", features=Features(*row)),
            "das ist Text"[: 12 - n % 12],
        )


def calibrated(folder, pairs):
    given, references = zip(*pairs, strict=True)
    rows = [[one] if isinstance(one, str) else one for one in references]
    columns = {"target": [texts[0] for texts in rows], "references": rows}
    return calibrate(saved(folder), given, Dataset.from_dict(columns))


def correlation_in(said):
    return float(re.search(r"chrF (?:is|would be) (-?\d\.\d+)", said)[1])


def test_what_is_written_and_said(tmp_path):
    for count in (150, 230):
        assert f"{count}" in calibrated(tmp_path, made_outputs(count))
        assert json.loads((tmp_path / QUALITY).read_text())["languages"]
    alike = [(output, "") for output, _ in made_outputs(150)]
    for pairs in (
        alike,
        [*made_outputs(50)],
        [*made_outputs(99), *[(Translation("😀"), "😀")] * 9],
    ):
        (tmp_path / QUALITY).unlink(missing_ok=True)
        said = calibrated(tmp_path, pairs)
        assert not (tmp_path / QUALITY).exists()
        # An older one of the same weights stays, and then another sentence is true.
        Calibration.fit(outcomes(200)).save(tmp_path)
        assert calibrated(tmp_path, pairs) != said
        assert Calibration.load(tmp_path) == Calibration.fit(outcomes(200))


@pytest.mark.parametrize("text", ["😀", "", "— …"])
def test_texts_of_which_a_model_reads_nothing_are_left_out_and_counted(tmp_path, text):
    pairs = [*made_outputs(150)]
    calibrated(tmp_path, pairs)
    without = (tmp_path / QUALITY).read_text()
    said = calibrated(tmp_path, [*pairs[:70], *[(Translation(text), text)] * 23, *pairs[70:]])
    assert (tmp_path / QUALITY).read_text() == without
    assert "150" in said
    assert "23" in said


@pytest.mark.parametrize("count", [100, 150, 199, 400])
def test_what_is_said_of_noise_is_that_it_tells_nothing(tmp_path, count):
    told = [calibrated(tmp_path, made_outputs(count, seed)) for seed in range(20)]
    assert abs(sum(map(correlation_in, told)) / 20) < 0.15
    assert sum("not calibrated" in said for said in told) >= 18
    # Nor if each text occurs twice: the other half does not know it.
    found = [
        correlation_in(calibrated(tmp_path, [*pairs, *pairs]))
        for seed in range(20)
        for pairs in [[*made_outputs(count // 2, seed)]]
    ]
    assert abs(sum(found) / 20) < 0.15


def test_texts_are_compared_in_composed_form(tmp_path):
    texts = [f"Ärger über Öl {'ü' * (n % 7)}{n}" for n in range(120)]
    rows = ((0.1 * (n % 5), *ZEROS) for n in range(120))
    given = [Translation("", features=Features(*row)) for row in rows]
    said = set()
    for output_form, reference_form in product(("NFC", "NFD"), repeat=2):
        outputs = [
            replace(output, text=normalize(output_form, text[: -(n % 5) or None]))
            for n, (output, text) in enumerate(zip(given, texts, strict=True))
        ]
        references = [[normalize(reference_form, text), "x"] for text in texts]
        said.add(calibrated(tmp_path, zip(outputs, references, strict=True)))
        said.add((tmp_path / QUALITY).read_text())
    assert len(said) == 2


def test_rank_correlation():
    assert rank_correlation([1, 2, 3, 4], [10, 20, 20, 90]) == pytest.approx(0.9487, abs=1e-4)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 1], [3, 2, 1]) == 0


def test_the_model_of_the_repository_knows_its_quality():
    translator = Translator.from_pretrained(FOLDER, "transformers", "cpu")
    texts = ["Save the file.", "The goblins ate the wizard's enchanted grog.", ""]
    good, bad, blank = translator.translate(texts, tgt_lang="de", return_scores=True)
    assert 0 <= bad.quality < good.quality <= 100
    assert blank.quality is None
    assert good.features.num_kept == 0
    with_parts = translator.translate("Open %s of %d", tgt_lang="de", return_scores=True)
    assert with_parts.features.num_kept == 2
    assert translator.translate(texts[:1], tgt_lang="de", return_tokens=True)[0].quality is None
    ensemble = Translator.from_pretrained([FOLDER, FOLDER], device="cpu")
    assert ensemble.translate(texts[0], tgt_lang="de", return_scores=True).quality is None


@pytest.mark.parametrize(
    ("text", "language"), [("DEBUG", "de"), ("DEBUG", "fr"), ("RAW", "de"), ("AVI", "ja")]
)
def test_abbreviations_that_stay_are_not_what_to_check_first(text, language):
    translator = Translator.from_pretrained(FOLDER, "transformers", "cpu")
    output = translator.translate(text, tgt_lang=language, return_scores=True)
    assert output.text == text
    assert output.quality > 40
