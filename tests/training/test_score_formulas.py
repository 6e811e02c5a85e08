"""The reported scores against scores that are written here from their published formulas."""

import math
import re
from collections import Counter

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


def ngrams(units, n):
    return Counter(tuple(units[i : i + n]) for i in range(len(units) - n + 1))


def tokens(text):
    """Splits as mteval-v13a does: symbols alone, full stops and commas unless between digits."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for name, sign in (("quot", '"'), ("amp", "&"), ("lt", "<"), ("gt", ">")):
        text = text.replace(f"&{name};", sign)
    text = re.sub(r"([^\w\s'.,\-\x80-\U0010ffff]|_)", r" \1 ", f" {text} ", flags=re.ASCII)
    text = re.sub(r"([^0-9])([.,])", r"\1 \2 ", text)
    text = re.sub(r"([.,])([^0-9])", r" \1 \2", text)
    return re.sub(r"([0-9])(-)", r"\1 \2 ", text).split()


def bleu(pairs):
    """Papineni et al. 2002, with counts of 0 halved on and on (method 3 of Chen & Cherry 2014)."""
    length = reference_length = 0
    right, total = [0] * 4, [0] * 4
    for text, texts in pairs:
        units, lists = tokens(text), [tokens(one) for one in texts]
        length += len(units)
        reference_length += min((abs(len(one) - len(units)), len(one)) for one in lists)[1]
        for n in range(4):
            found, allowed = ngrams(units, n + 1), Counter()
            for one in lists:
                allowed |= ngrams(one, n + 1)
            right[n] += (found & allowed).total()
            total[n] += found.total()
    if not any(right) or not all(total):
        return 0.0
    logs, halvings = 0.0, 0
    for hits, count in zip(right, total, strict=True):
        halvings += hits == 0
        logs += math.log(hits / count if hits else 1 / (2**halvings * count))
    shortness = min(1.0, math.exp(1 - reference_length / length))
    return 100 * shortness * math.exp(logs / 4)


def chrf_of(counts):
    """Popović 2015: F2 of the mean precision and the mean recall of 1 to 6 characters."""
    shares = [(hits / found, hits / wanted) for hits, found, wanted in counts if found and wanted]
    if not shares:
        return 0.0
    precision, recall = (sum(column) / len(shares) for column in zip(*shares, strict=True))
    return 500 * precision * recall / (4 * precision + recall) if precision + recall else 0.0


def chrf(pairs):
    """Takes the reference that fits best for each text. White space does not count."""
    sums = [[0, 0, 0] for _ in range(6)]
    for text, texts in pairs:
        candidates = []
        for one in texts:
            each = [
                (ngrams("".join(text.split()), n), ngrams("".join(one.split()), n))
                for n in range(1, 7)
            ]
            candidates.append(
                # An order that the reference is too short for does not count.
                [
                    ((found & wanted).total(), found.total() if wanted else 0, wanted.total())
                    for found, wanted in each
                ]
            )
        best = max(candidates, key=chrf_of)
        sums = [
            [x + y for x, y in zip(*rows, strict=True)] for rows in zip(sums, best, strict=True)
        ]
    return chrf_of(sums)


def distance(first, second):
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, 1):
        corner, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (one != other))
    return row[-1]


@with_hard_examples
def test_bleu(pairs):
    assert scores_of("bleu", pairs)["bleu"] == pytest.approx(bleu(pairs), abs=1e-9)


@with_hard_examples
def test_chrf(pairs):
    assert scores_of("chrf", pairs)["chrf"] == pytest.approx(chrf(pairs), abs=1e-9)


@with_hard_examples
def test_word_errors(pairs):
    wrong = sum(all(text.split() != one.split() for one in texts) for text, texts in pairs)
    assert scores_of("wer", pairs)["wer"] == pytest.approx(100 * wrong / len(pairs))


@with_hard_examples
def test_phoneme_errors(pairs):
    edits = phonemes = 0
    for text, texts in pairs:
        lists = [one.split() for one in texts]
        fewest, _, closest = min(
            (distance(text.split(), one), i, one) for i, one in enumerate(lists)
        )
        edits, phonemes = edits + fewest, phonemes + len(closest)
    if not phonemes:
        with pytest.raises(ValueError, match="0 phonemes"):
            scores_of("per", pairs)
        return
    assert scores_of("per", pairs)["per"] == pytest.approx(100 * edits / phonemes)
