"""What a run of some minutes is told to expect."""

import pytest

from vanilla_transformer.language_tags import language_name
from vanilla_transformer.run.expectations import REACHED, describe_expectation


@pytest.mark.parametrize("row", REACHED)
def test_a_training_like_another_one_is_told_what_that_reached(row):
    pairs, epochs = int(1.1 * row.pairs), 0.9 * row.epochs
    told = describe_expectation(pairs, epochs, row.d_model, row.target_language)
    assert f"{row.pairs:,} pairs" in told
    assert f"{language_name(row.target_language)} reached chrF {row.chrf} " in told
    assert f"{row.epochs} epochs" in told


@pytest.mark.parametrize(
    ("pairs", "epochs", "width"),
    [(10_000, 0.86, 128), (10_000, 60, 128), (500, 10, 128), (10_000, 0, 128), (10_000, 12, 64)],
)
def test_nothing_is_promised_that_no_similar_training_has_reached(pairs, epochs, width):
    assert describe_expectation(pairs, epochs, width, "tr") == ""


@pytest.mark.parametrize("language", ["deu_Latn", "de-AT", "ger"])
def test_a_language_has_many_spellings(language):
    told = describe_expectation(10_000, 9.4, 128, language)
    assert told == describe_expectation(10_000, 9.4, 128, "de")


@pytest.mark.parametrize("language", [None, "fi"])
def test_a_language_that_was_not_measured_is_told_of_as_many_pairs(language):
    smallest = min(row.pairs for row in REACHED)
    assert f"{smallest:,} pairs" in describe_expectation(2 * smallest // 3, 25, 128, language)
