"""The error rates against their published formulas; sacrebleu computes the other scores."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vanilla_transformer.training.metrics import score_texts

WORDS = st.sampled_from(
    ["a", "the", "dog", "dog.", "3.5", "1,000", "'s", "don't", "“", "&amp;", "<", "-", "9-5", "é"]
)
PLAIN = st.lists(WORDS, max_size=7).map(" ".join)
ODD = st.text(alphabet="ab .,!-\t\n\u00a0\u200b字🙂\u0301é…“'&;<3", max_size=12)
TEXTS = st.one_of(PLAIN, PLAIN, ODD)
EXAMPLES = st.lists(
    st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=3)), min_size=1, max_size=4
)
HARD = [
    [("", [""])],
    [("", ["a dog"]), ("a dog", [""])],
    [("a dog a dog a dog", ["a dog a dog a dog"] * 3)],
    [("...", ["!?!", "..."])],
    [("a\tb\n c", ["a b c"]), ("字", ["字字"])],
    [("a", ["a"]), ("the dog", ["dog the"])],
]


def with_hard_examples(test):
    for pairs in HARD:
        test = example(pairs)(test)
    return given(EXAMPLES)(test)


def scores_of(name, pairs):
    return score_texts(name, [text for text, _ in pairs], [texts for _, texts in pairs])


def distance(first, second):
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, 1):
        corner, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (one != other))
    return row[-1]


@with_hard_examples
def test_outputs_without_a_match(pairs):
    wrong = sum(all(text.split() != one.split() for one in texts) for text, texts in pairs)
    found = scores_of("mismatch", pairs)
    assert found["mismatch"] == pytest.approx(100 * wrong / len(pairs))
    assert (found["wrong"], found["total"]) == (wrong, len(pairs))
    assert found["signature"].startswith("nrefs:")


@pytest.mark.parametrize(("name", "unit"), [("wer", "words"), ("per", "phonemes")])
@with_hard_examples
def test_errors_of_units_between_spaces(name, unit, pairs):
    edits = total = 0
    for text, texts in pairs:
        lists = [one.split() for one in texts]
        fewest, _, closest = min(
            (distance(text.split(), one), i, one) for i, one in enumerate(lists)
        )
        edits, total = edits + fewest, total + len(closest)
    if not total:
        with pytest.raises(ValueError, match=f"0 {unit}"):
            scores_of(name, pairs)
        return
    found = scores_of(name, pairs)
    assert found[name] == pytest.approx(100 * edits / total)
    assert (found["edits"], found[unit]) == (edits, total)
