"""The quality of outputs: what a calibration learns, keeps and refuses to know."""

import json
import math
import random
from dataclasses import replace

import pytest
from toy import REPOSITORY

from vanilla_transformer.inference.quality import (
    QUALITY,
    Calibration,
    describe_output,
    rank_correlation,
)
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.run.calibration import calibrate

FOLDER = REPOSITORY / "model_cards" / "program-texts"


def outputs(count, seed=0, noise=5.0):
    """Outputs whose tokens are the more probable, the better they are, and their chrF."""
    chance = random.Random(seed)
    made, values = [], []
    for _ in range(count):
        goodness = chance.random()
        scores = tuple(-3 * (1 - goodness) * chance.random() for _ in range(12))
        output = Translation("so viele Worte", token_scores=scores, repeated=goodness < 0.1)
        made.append(describe_output(output, "so many words", 5))
        values.append(min(100.0, max(0.0, 100 * goodness + chance.gauss(0, noise))))
    return made, values


def test_the_quality_ranks_outputs_and_is_their_chrf():
    calibration = Calibration.fit(*outputs(500), [None] * 500)
    described, values = outputs(400, seed=1)
    expected = [calibration.expected(row, None) for row in described]
    assert rank_correlation(expected, values) > 0.8
    assert all(0 <= value <= 100 for value in expected)
    order = sorted(range(400), key=expected.__getitem__)
    for tenth in (order[n : n + 40] for n in range(0, 400, 40)):
        means = (sum(side[n] for n in tenth) / 40 for side in (expected, values))
        assert math.isclose(*means, abs_tol=10)


def test_a_better_output_never_has_a_lower_quality():
    calibration = Calibration.fit(*outputs(300, noise=30), [None] * 300)
    (line,) = calibration.lines.values()
    assert line.values == sorted(line.values)
    assert line.sums == sorted(line.sums)


def test_what_repeats_itself_has_the_lowest_quality():
    calibration = Calibration.fit(*outputs(300), [None] * 300)
    good = Translation("so viele Worte", token_scores=(-0.01,) * 12)
    lowest, highest = (
        calibration.expected(describe_output(replace(good, repeated=again), "so many", 5), None)
        for again in (True, False)
    )
    (line,) = calibration.lines.values()
    assert lowest == min(line.values) < highest


def test_languages_have_their_own_quality():
    described, values = outputs(400)
    languages = ["de", "fr"] * 200
    values = [v / 2 if tag == "fr" else v for v, tag in zip(values, languages, strict=True)]
    calibration = Calibration.fit(described, values, languages)
    good = max(described, key=lambda row: calibration.expected(row, "de"))
    of_tags = [calibration.expected(good, tag) for tag in ("de", None, "fr")]
    assert of_tags == sorted(of_tags, reverse=True)
    assert of_tags[0] > 1.5 * of_tags[2]
    assert calibration.expected(good, "xx") == of_tags[1]


@pytest.mark.parametrize("count", [0, 1, 99])
def test_too_few_outputs_teach_nothing(count):
    assert Calibration.fit(*outputs(count), [None] * count) is None


def test_outputs_that_are_all_alike_teach_nothing():
    described, _ = outputs(200)
    assert Calibration.fit(described, [40.0] * 200, [None] * 200) is None
    values = [float(n) for n in range(200)]
    assert Calibration.fit([described[0]] * 200, values, [None] * 200) is None
    # Those of a language, among others.
    tags = ["de", "fr"] * 100
    rows = [described[0] if tag == "de" else row for row, tag in zip(described, tags, strict=True)]
    assert {*Calibration.fit(rows, values, tags).lines} == {"", "fr"}


@pytest.mark.parametrize("scores", [(), (-math.inf, -1.0), (math.nan,), (0.5,)])
def test_scores_that_are_no_probabilities(scores):
    calibration = Calibration.fit(*outputs(200), [None] * 200)
    for text in ("", "viele Worte"):
        described = describe_output(Translation(text, token_scores=scores), "", 0)
        assert 0 <= calibration.expected(described, None) <= 100


def saved(folder, tail=b""):
    (folder / "model.safetensors").write_bytes(b"weights" + tail)
    return folder


def test_a_calibration_is_of_the_weights_beside_it(tmp_path):
    calibration = Calibration.fit(*outputs(200), ["de", "fr"] * 100)
    assert Calibration.load(saved(tmp_path)) is None
    calibration.save(tmp_path)
    assert Calibration.load(tmp_path) == calibration
    assert (tmp_path / QUALITY).stat().st_size < 4096
    assert Calibration.load(saved(tmp_path, b"of another model")) is None


def test_what_is_written_and_said(tmp_path):
    texts = [f"das ist Text {n}" for n in range(150)]
    given = [
        Translation(text, token_scores=(-0.01 * n,), described=(0.1 * n,) + (0.0,) * 11)
        for n, text in enumerate(texts)
    ]
    references = [text[: 15 - n // 12] for n, text in enumerate(texts)]
    said = calibrate(saved(tmp_path), given, references, [None] * 150)
    assert "150" in said
    assert json.loads((tmp_path / QUALITY).read_text())["lines"]
    for count, others in ((50, references), (150, [""] * 150)):
        (tmp_path / QUALITY).unlink(missing_ok=True)
        assert "not calibrated" in calibrate(
            tmp_path, given[:count], others[:count], [None] * count
        )
        assert not (tmp_path / QUALITY).exists()


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
    assert translator.translate(texts[:1], tgt_lang="de", return_tokens=True)[0].quality is None
    ensemble = Translator.from_pretrained([FOLDER, FOLDER], device="cpu")
    assert ensemble.translate(texts[0], tgt_lang="de", return_scores=True).quality is None
