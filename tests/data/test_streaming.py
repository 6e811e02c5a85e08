"""Token-budget batches from a stream: bounds, order, and exact resumption of real runs."""

from itertools import chain, islice

import numpy as np
import pytest
from datasets import Dataset, IterableDataset
from small import assert_resumes_exactly, losses, model, trainer
from torch.utils.data import DataLoader

from vanilla_transformer.data.streaming import POSITION, PositionCollator, TokenBudgetStream

COUNT, BUDGET = 150, 120


def examples(count=COUNT):
    """Yields rows whose first two token ids encode the number of the row."""
    rng = np.random.default_rng(0)
    for i in range(count):
        source, target = rng.integers(2, 12, size=2).tolist()
        head = [4 + i // 26, 4 + i % 26]
        yield {
            "input_ids": head + [2] * (source - 1),
            "attention_mask": [1] * (source + 1),
            "labels": [5] * target,
            "text": "not for the model",
        }


def number_of(row):
    return (row["input_ids"][0] - 4) * 26 + row["input_ids"][1] - 4


def dataset(count=COUNT):
    return IterableDataset.from_generator(examples, gen_kwargs={"count": count})


def stream(**options):
    return TokenBudgetStream(dataset(), BUDGET, **{"buffer_size": 40, **options})


def taken(batches, total=COUNT):
    """Returns batches, as numbers of rows, until they hold `total` rows."""
    found = []
    while sum(map(len, found)) < total:
        found.append([number_of(row) for row in next(batches)])
    return found


def test_every_epoch_holds_every_example_within_the_budget():
    batches = iter(stream())
    epochs = [taken(batches), taken(batches)]
    for epoch in epochs:
        assert sorted(chain(*epoch)) == list(range(COUNT))
    assert epochs[0] != epochs[1]
    for batch in islice(iter(stream()), 30):
        longest = [max(len(row[name]) for row in batch) for name in ("input_ids", "labels")]
        assert len(batch) * sum(longest) <= BUDGET
        assert batch[0].keys() == {"input_ids", "attention_mask", "labels"}


def test_the_buffer_is_bounded():
    read = []

    class Counting:
        def __iter__(self):
            for row in examples():
                read.append(row)
                yield row

    batches = iter(TokenBudgetStream(Counting(), BUDGET, buffer_size=30))
    first = taken(batches, total=30)
    assert len(read) <= 31
    assert sorted(chain(*first)) == list(range(30))


def test_the_order_is_a_function_of_the_seed():
    orders = [taken(iter(stream(seed=seed))) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_the_batches_equally(processes):
    rows = list(examples(36))
    options = {"buffer_size": 36, "num_processes": processes}
    streams = [
        iter(TokenBudgetStream(rows, BUDGET, **options, process_index=i)) for i in range(processes)
    ]
    first_epoch = []
    while len(first_epoch) < 36:
        first_epoch += [number_of(row) for batches in streams for row in next(batches)]
    assert sorted(first_epoch) == list(range(36))


def test_a_worker_gives_the_same_order_and_two_are_refused():
    def numbers(rows):
        return [number_of(row) for row in rows]

    def load(workers):
        loader = DataLoader(stream(), batch_size=None, collate_fn=numbers, num_workers=workers)
        return list(islice(loader, 25))

    assert load(0) == load(1)
    with pytest.raises(ValueError, match="set dataloader_num_workers to 0 or 1"):
        load(2)


def sharded(folder, read):
    """Three shards of the rows, each of which notes that it is read."""

    def shards(numbers):
        for number in numbers:
            read.append(number)
            yield from islice(examples(), number * 50, number * 50 + 50)

    return IterableDataset.from_generator(shards, gen_kwargs={"numbers": [0, 1, 2]})


def parquet(folder, read):
    path = str(folder / "rows.parquet")
    Dataset.from_generator(examples, cache_dir=str(folder)).to_parquet(path, batch_size=20)
    return IterableDataset.from_parquet(path)


@pytest.mark.parametrize("make", [sharded, parquet])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_goes_on_after_any_batch(tmp_path, make, workers):
    def load(position, count, skipped=0):
        batches = TokenBudgetStream(make(tmp_path, read := []), BUDGET, buffer_size=20)
        if position is not None:
            batches.resume(position, skipped)
        collate = PositionCollator(lambda rows: {"rows": list(map(number_of, rows))})
        loader = DataLoader(batches, batch_size=None, collate_fn=collate, num_workers=workers)
        return list(islice(loader, count)), read

    whole, _ = load(None, 90)
    assert sum(len(batch["rows"]) for batch in whole) > 2 * COUNT
    position, done = None, 0
    for stop in (1, 17, 35, 60):  # each time from where the last one has gone on
        some, _ = load(position, stop - done + 1, skipped=1 if position else 0)
        position, done = some[-2 if position is None else -1][POSITION], stop
        rest, read = load(position, 91 - stop, skipped=1)
        assert [one.get("rows") for one in rest] == [None, *(one["rows"] for one in whole[stop:])]
    assert not read or workers or read[0] > 0  # what lies before it is not read again


def test_processes_divide_the_shards_or_the_rows(tmp_path):
    for processes, count in ((3, 1), (2, 3)):  # of three shards
        found = []
        for index in range(processes):
            rows = sharded(tmp_path, read := [])
            options = {"num_processes": processes, "process_index": index}
            batches = iter(TokenBudgetStream(rows, BUDGET, 20, **options))
            found += chain(*taken(batches, total=COUNT // processes))
            assert len(read) == count
        assert sorted(found) == list(range(COUNT))


def test_the_position_of_other_processes_is_ignored():
    first = next(iter(stream()))
    other = stream(num_processes=2)
    other.resume(first.position, 5)
    assert next(iter(other))


def run(folder, **options):
    return trainer(
        folder,
        data=dataset(),
        net=model(dropout=0.3),
        max_tokens=BUDGET,
        stream_buffer=40,
        max_steps=24,
        logging_steps=1,
        gradient_accumulation_steps=2,
        learning_rate=0.01,
        **options,
    )


def test_a_run_resumes_exactly_in_a_later_epoch(tmp_path):
    per_epoch = len(taken(iter(stream())))
    stop = per_epoch * 5 // 8  # with two batches a step: in the second epoch
    assert per_epoch < 2 * stop < 2 * per_epoch
    whole, *_ = assert_resumes_exactly(run, tmp_path, stop)
    assert len(losses(whole)) == 24


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TokenBudgetStream(examples(), 100), "can be read only once"),
        (lambda: TokenBudgetStream([], 100, buffer_size=1, num_processes=2), "`buffer_size` is 1"),
        (lambda: next(iter(TokenBudgetStream([], 100))), "fewer examples than processes"),
        (lambda: next(iter(TokenBudgetStream(list(examples()), 9))), "more than `max_tokens` of 9"),
    ],
)
def test_what_cannot_be_streamed_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_buffer_holds_something(tmp_path):
    with pytest.raises(ValueError, match="`stream_buffer` is 0"):
        trainer(tmp_path, max_tokens=9, stream_buffer=0)


def test_a_remainder_that_cannot_be_shared_comes_with_the_next_buffer():
    rows = [{"input_ids": [5] * 5, "labels": [i] * 5} for i in range(7)]  # each a batch of its own
    shares = []
    for index in range(2):
        batches = TokenBudgetStream(rows, 12, 4, num_processes=2, process_index=index)
        shares.append(list(islice(batches, 9)))
    assert [len(share) for share in shares] == [9, 9]
    epoch = [row["labels"][0] for share in shares for batch in share[:3] for row in batch]
    assert sorted(epoch) == list(range(6))  # the seventh is fewer than there are processes


@pytest.mark.parametrize("row", [{"source": "a", "target": "b"}, {"input_ids": [4, 2]}])
def test_a_stream_that_is_not_encoded_says_so(row):
    rows = IterableDataset.from_generator(lambda: iter([row]))
    with pytest.raises(ValueError, match=r"have no .*'labels'\], only .*: encode them first"):
        next(iter(TokenBudgetStream(rows, 100)))
