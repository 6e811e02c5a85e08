"""Token-budget batches: bounds, order, and real training runs."""

from functools import partial
from itertools import chain

import numpy as np
import pytest
from accelerate.data_loader import BatchSamplerShard
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_training import assert_resumes_exactly, model, record_batches, trainer

from vanilla_transformer.batches import mixing
from vanilla_transformer.batches.token_budget import TokenBudgetBatchSampler, token_lengths


def lengths(count, seed=0):
    rng = np.random.default_rng(seed)
    source = np.clip(np.exp(rng.normal(2.6, 0.5, count)), 1, 100).astype(int)
    target = np.clip(source * np.exp(rng.normal(0, 0.2, count)), 1, 100).astype(int)
    return source, target


def epoch(sampler, number):
    sampler.set_epoch(number)
    return list(sampler)


def padded(batch, source, target):
    return len(batch) * (source[batch].max() + target[batch].max())


@given(
    pairs=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=6, max_size=60),
    max_tokens=st.integers(80, 400),
    shuffle=st.booleans(),
    processes=st.integers(1, 3),
    seed=st.integers(0, 5),
)
@settings(max_examples=100, deadline=None)
def test_every_epoch_keeps_every_promise(pairs, max_tokens, shuffle, processes, seed):
    source, target = np.array(pairs).T
    sampler = TokenBudgetBatchSampler(
        source, target, max_tokens, shuffle=shuffle, seed=seed, num_processes=processes
    )
    assert len(sampler) % processes == 0
    for number in range(3):
        batches = epoch(sampler, number)
        assert len(batches) == len(sampler)
        assert sorted(chain(*batches)) == list(range(len(pairs)))
        assert all(padded(batch, source, target) <= max_tokens for batch in batches)


@pytest.mark.parametrize("processes", [1, 3])
def test_a_large_corpus_keeps_every_promise(monkeypatch, processes):
    """Blocks are small here, so that there are many."""
    monkeypatch.setattr(mixing, "PAIRS_OF_A_BLOCK", 512)
    monkeypatch.setattr(mixing, "PAIRS_OF_A_RUN", 16)
    source, target = (side.astype(np.uint16) for side in lengths(5003))
    options = {"seed": 2, "num_processes": processes}
    sampler = TokenBudgetBatchSampler(source, target, 300, **options)
    first, second = epoch(sampler, 0), epoch(sampler, 1)
    for batches in (first, second):
        assert len(batches) == len(sampler)
        assert len(batches) % processes == 0
        assert sorted(chain(*batches)) == list(range(5003))
        assert all(padded(batch, source, target) <= 300 for batch in batches)
    assert sorted(map(sorted, first)) != sorted(map(sorted, second))
    again = TokenBudgetBatchSampler(source, target, 300, **options)
    assert epoch(again, 1) == second
    shares = [
        epoch(TokenBudgetBatchSampler(source, target, 300, **options, process_index=index), 1)
        for index in range(processes)
    ]
    assert [batch for step in zip(*shares, strict=True) for batch in step] == second


def test_little_padding():
    source, target = lengths(20_000)
    batches = list(TokenBudgetBatchSampler(source, target, 4000))
    size = sum(padded(batch, source, target) for batch in batches)
    assert (source + target).sum() / size > 0.9
    assert (source + target).sum() / (4000 * len(batches)) > 0.88


def test_the_order_is_a_function_of_seed_and_epoch():
    source, target = lengths(3000)
    first, second = (TokenBudgetBatchSampler(source, target, 2000, seed=3) for _ in range(2))
    later = epoch(first, 5)
    assert epoch(first, 2) != later
    assert epoch(second, 5) == later == epoch(first, 5)
    other = TokenBudgetBatchSampler(source, target, 2000, seed=4)
    assert epoch(other, 5) != later


def test_examples_meet_others_in_every_epoch():
    source, target = lengths(3000)
    sampler = TokenBudgetBatchSampler(source, target, 2000)
    company = []
    for number in (0, 1):
        batch_of = {i: set(batch) for batch in epoch(sampler, number) for i in batch}
        company.append([batch_of[i] - {i} for i in range(len(source))])
    kept = [len(a & b) / len(a) for a, b in zip(*company, strict=True) if a]
    assert np.mean(kept) < 0.5
    widths = [source[batch].max() for batch in epoch(sampler, 0)]
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.5


@pytest.mark.parametrize("processes", [2, 7])
def test_processes_share_an_epoch(processes):
    source, target = lengths(2000)
    options = {"max_tokens": 1500, "num_processes": processes}
    together = TokenBudgetBatchSampler(source, target, **options)
    shares = []
    for index in range(processes):
        alone = TokenBudgetBatchSampler(source, target, **options, process_index=index)
        shares.append(epoch(alone, 2))
        assert len(alone) == len(shares[-1]) == len(together) // processes
        sharded = BatchSamplerShard(together, processes, index)
        together.set_epoch(2)
        assert list(sharded) == shares[-1]
        assert len(sharded) == len(alone)
    assert sorted(i for share in shares for batch in share for i in batch) == list(range(2000))


def test_more_processes_than_full_batches():
    sampler = TokenBudgetBatchSampler([2] * 5, [2] * 5, 100, num_processes=4)
    assert sorted(map(len, sampler)) == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        ([3, 9, 4], [3, 8, 4], {}, r"Example 1 has 9 source and 8 target tokens, 17 together"),
        ([5] * 5, [5] * 5, {"num_processes": 2}, "makes 5 batches of 5 examples, which 2"),
    ],
)
def test_bad_input(source, target, options, message):
    with pytest.raises(ValueError, match=message):
        TokenBudgetBatchSampler(source, target, **{"max_tokens": 12, **options})


def test_token_lengths():
    data = Dataset.from_dict({"input_ids": [[1], [1, 2], [1, 2, 3], []]})
    assert token_lengths(data, "input_ids").tolist() == [1, 2, 3, 0]
    assert token_lengths(data.select([2, 0]), "input_ids").tolist() == [3, 1]
    assert token_lengths(data.with_format("torch"), "input_ids").tolist() == [1, 2, 3, 0]
    assert token_lengths([{"labels": [1, 2]}], "labels").tolist() == [2]


# Training


EXAMPLES = 101


def examples() -> Dataset:
    """Returns examples whose source tokens are 4 + the index of the example."""
    sizes = np.random.default_rng(0).integers(2, 20, size=(EXAMPLES, 2))
    return Dataset.from_dict(
        {
            "input_ids": [[4 + i] * n for i, n in enumerate(sizes[:, 0])],
            "attention_mask": [[1] * n for n in sizes[:, 0]],
            "labels": [[4 + i] * (n - 1) + [2] for i, n in enumerate(sizes[:, 1])],
        }
    )


def make_trainer(folder, **options):
    """Returns a trainer that records its batches."""
    options = {"max_tokens": 160, "num_train_epochs": 3, "logging_steps": 1, **options}
    net = model(vocab_size=4 + EXAMPLES)
    return record_batches(trainer(folder, net=net, data=examples(), **options))


def numbers(run):
    """Returns the indices of the examples of each batch."""
    return [(batch["input_ids"][:, 0] - 4).tolist() for batch in run.seen]


def test_a_resumed_run_sees_the_same_batches(tmp_path):
    accumulation = 2
    make = partial(make_trainer, gradient_accumulation_steps=accumulation)
    per_epoch = len(make(tmp_path).get_train_dataloader())
    stop = (per_epoch + per_epoch // 2) // accumulation  # in the middle of the second epoch
    runs = assert_resumes_exactly(make, tmp_path, stop)
    whole, first, second = map(numbers, runs)
    assert len(whole) == 3 * per_epoch
    assert sorted(chain(*whole[:per_epoch])) == list(range(EXAMPLES))
    assert whole[:per_epoch] != whole[per_epoch : 2 * per_epoch]
    seen = runs[0].seen
    assert max(one["input_ids"].numel() + one["labels"].numel() for one in seen) <= 160
    assert 0 < len(first) % per_epoch < len(first) < len(whole)
    assert first + second == whole
