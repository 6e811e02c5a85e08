"""Shares of corpora: as asked, the same after a kill, and for any number of processes."""

from collections import Counter

import numpy as np
import pytest

from vanilla_transformer.batches import mixing
from vanilla_transformer.batches.mixing import Mixture
from vanilla_transformer.batches.token_budget import TokenBudgetBatchSampler
from vanilla_transformer.data.corpus_entries import Corpus, shares_of

SIZES = {"big": 900, "small": 90, "tiny": 10}
NAMES = ["big"] * 900 + ["small"] * 90 + ["tiny"] * 10
SHARES = {"big": 0.5, "small": 0.2, "tiny": 0.3}


def sampler(mixture, **options):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 30, len(NAMES)), rng.integers(1, 30, len(NAMES))
    return TokenBudgetBatchSampler(*lengths, 300, mixture=mixture, **options)


def rows_of(mixture, epoch):
    return np.concatenate([*mixture.blocks(epoch)])


@pytest.fixture(params=[2**20, 128], ids=["sorted", "blocks"])
def block(request, monkeypatch):
    """Pairs are sorted, or looked at block by block, where one corpus is drawn in runs."""
    monkeypatch.setattr(mixing, "PAIRS_OF_A_BLOCK", request.param)
    monkeypatch.setattr(mixing, "PAIRS_OF_A_RUN", 16)
    return request.param


@pytest.mark.parametrize("processes", [1, 2])
def test_epochs_have_the_shares_and_use_all_pairs_equally_often(block, processes):
    mixture = Mixture(SIZES, SHARES, 7)
    samplers = [
        sampler(mixture, num_processes=processes, process_index=index) for index in range(processes)
    ]
    counts = Counter()
    for epoch in range(10):
        rows = []
        for one in samplers:
            one.set_epoch(epoch)
            batches = list(one)
            assert len(batches) == len(one)
            rows += [row for batch in batches for row in batch]
        assert Counter(NAMES[row] for row in rows) == {"big": 500, "small": 200, "tiny": 300}
        assert sorted(rows) == sorted(
            rows_of(mixture, epoch)
        )  # whatever the number of processes is
        counts.update(rows)
    for name in SHARES:
        found = [counts[row] for row in range(len(NAMES)) if NAMES[row] == name]
        assert max(found) - min(found) <= 1


@pytest.mark.parametrize("small", [0.0001, 0.0004, 0.0006, 0.0014])
def test_no_corpus_is_too_small_to_be_used(small):
    shares = {"small": small, "tiny": small, "big": 1 - 2 * small}
    mixture = Mixture(SIZES, shares, 7)
    assert len(mixture) == len(NAMES)
    assert min(mixture.counts.values()) == 1
    used = {row for epoch in range(90) for row in rows_of(mixture, epoch)}
    assert used == {*range(len(NAMES))}


def test_as_few_pairs_as_corpora_are_all_used():
    mixture = Mixture({"a": 1, "b": 1, "c": 1}, {"a": 0.98, "b": 0.01, "c": 0.01}, 7)
    assert sorted(rows_of(mixture, 3)) == [0, 1, 2]


def test_a_block_has_the_shares_and_an_epoch_as_many_batches_as_the_others(block):
    mixture = Mixture(SIZES, SHARES, 7)
    for rows in mixture.blocks(3):
        assert len(rows) <= block + len(SIZES)
        shares = Counter(NAMES[row] for row in rows)
        assert all(abs(shares[name] - SHARES[name] * len(rows)) < 2 for name in SHARES)
    order = sampler(mixture)
    sides = order.source_lengths, order.target_lengths
    for epoch in range(5):
        order.set_epoch(epoch)
        batches = list(order)
        assert max(len(rows) * sum(side[rows].max() for side in sides) for rows in batches) <= 300


def test_an_epoch_depends_on_the_seed_alone(block):
    first, again, other = (Mixture(SIZES, SHARES, seed) for seed in (7, 7, 8))
    rows_of(first, 0)
    assert np.array_equal(rows_of(first, 5), rows_of(again, 5))
    assert not np.array_equal(rows_of(first, 5), rows_of(other, 5))
    batches = []
    for done in (0, 3):  # a run that skips the epochs that it has seen
        one = sampler(again)
        for epoch in range(done, 5):
            one.set_epoch(epoch)
            found = list(one)
        batches.append(found)
    assert batches[0] == batches[1]


@pytest.mark.parametrize(
    ("weights", "temperature", "shares"),
    [
        ((None, None), None, None),
        ((3, 1), None, (0.75, 0.25)),
        ((3, None), None, (0.75, 0.25)),
        ((None, None), 1, (0.9, 0.1)),
        ((None, None), 2, (0.75, 0.25)),
    ],
)
def test_shares_are_those_of_weights_or_of_a_temperature(weights, temperature, shares):
    corpora = [Corpus(name, weight=weight) for name, weight in zip("ab", weights, strict=True)]
    found = shares_of(corpora, {"a": 900, "b": 100}, temperature)
    assert found == (shares and pytest.approx(dict(zip("ab", shares, strict=True))))
