"""Generated numerals: correct, the same on every machine, and no number in two splits."""

import sys

import pytest
from numerals import load_numerals


@pytest.fixture(scope="module")
def splits():
    return load_numerals(limit=1000, count=1000)


def test_a_number_stands_beside_itself(splits):
    pairs = {pair["source"]: pair["target"] for rows in splits.values() for pair in rows}
    assert len(pairs) == 1000
    assert pairs["three hundred and five"] == "삼백오"
    assert pairs["zero"] == "영"
    assert pairs["nine hundred and ninety-nine"] == "구백구십구"


def test_no_number_is_in_two_splits(splits):
    sources = [set(rows["source"]) for rows in splits.values()]
    assert len(set.union(*sources)) == sum(map(len, sources)) == 1000
    assert len(set(splits["train"]["target"]) & set(splits["test"]["target"])) == 0
    shares = [len(splits[name]) / 1000 for name in ("train", "validation", "test")]
    assert shares == pytest.approx([0.9, 0.05, 0.05], abs=0.03)


def test_the_drawn_numbers_never_change_and_are_not_consecutive():
    drawn = load_numerals(count=200)
    assert drawn["test"][0] == {
        "source": "fifty-six thousand, seven hundred and fourteen",
        "target": "오만 육천칠백십사",
    }
    lengths = {len(target) for target in load_numerals(count=200)["train"]["target"]}
    assert max(lengths) - min(lengths) > 4
    larger = load_numerals(count=400)
    for name, rows in drawn.items():
        assert larger[name][: len(rows)] == rows[:]


@pytest.mark.parametrize(("limit", "count"), [(10, 11), (10, 0), (10, 2)])
def test_impossible_draws_are_refused(limit, count):
    with pytest.raises(ValueError, match=f"`count` is {count}"):
        load_numerals(limit, count)


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "num2words", None)
    with pytest.raises(ImportError, match=r'pip install "vanilla-transformer\[demo\]"'):
        load_numerals()
