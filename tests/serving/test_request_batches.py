"""Batches: what is taken in which order, in how many tokens, and from whom."""

import asyncio
import threading
from typing import NamedTuple

import pytest

from vanilla_transformer.serving.batching import Batcher
from vanilla_transformer.serving.monitoring import Metrics


class Model:
    """Computes when it is allowed to, and remembers what it was given."""

    def __init__(self):
        self.begun, self.allowed = threading.Event(), threading.Event()
        self.batches = []

    def __call__(self, segments, call):
        self.batches.append([tuple(one) for one in segments])
        self.begun.set()
        assert self.allowed.wait(60)
        return [(call.name, *one) for one in segments]


@pytest.fixture
def model():
    return Model()


class Call(NamedTuple):
    name: str
    batch_tokens: int


async def run_all(model, jobs, metrics=None, batch_tokens=8, workers=1):
    """Runs a first job alone, and the others when it is being computed."""
    batcher = Batcher(model, workers, metrics or Metrics(), "toy")
    first = asyncio.ensure_future(batcher.run([(0,)], Call("first", batch_tokens)))
    await asyncio.to_thread(model.begun.wait)
    tasks = [
        asyncio.ensure_future(batcher.run(segments, Call(name, batch_tokens)))
        for segments, name in jobs
    ]
    await asyncio.sleep(0)
    model.allowed.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert await first == [("first", 0)]
    await asyncio.to_thread(batcher.close)
    return found


def test_a_long_request_does_not_hold_up_short_ones(model):
    long = [(number,) for number in range(100, 130)]
    jobs = [(long, "a"), ([(1,), (2,)], "a"), ([(3,)], "a")]
    found = asyncio.run(run_all(model, jobs, batch_tokens=4))
    assert found[0] == [("a", *one) for one in long]
    assert found[1:] == [[("a", 1), ("a", 2)], [("a", 3)]]
    assert model.batches[1] == [(100,), (1,), (3,), (101,)]
    assert (2,) in model.batches[2]
    assert [one for batch in model.batches[1:] for one in batch if one[0] >= 100] == long


def test_a_batch_has_at_most_its_tokens_with_padding(model):
    segments = [(1,), (2, 2, 2), (3,), (4, 4, 4, 4, 4, 4, 4, 4, 4), (5,)]
    metrics = Metrics()
    found = asyncio.run(run_all(model, [(segments, "a")], metrics, batch_tokens=6))
    assert found == [[("a", *one) for one in segments]]
    assert model.batches[1:] == [[segments[0], segments[1]], [segments[2]], [segments[3]], [(5,)]]
    values = [
        metrics.registry.get_sample_value(f"vanilla_transformer_{name}", {"model": "toy"})
        for name in ("batch_segments_count", "batch_segments_sum", "batch_tokens_sum")
    ]
    assert values == [5, 6, 16]


def test_searches_take_turns(model):
    jobs = [([(1,)] * 4, "a"), ([(2,)] * 4, "b"), ([(3,)] * 4, "a")]
    found = asyncio.run(run_all(model, jobs, batch_tokens=2))
    assert found == [[("a", 1)] * 4, [("b", 2)] * 4, [("a", 3)] * 4]
    kinds = ["b" if batch[0] == (2,) else "a" for batch in model.batches[1:]]
    assert kinds == ["a", "b", "a", "b", "a", "a"]


def test_several_workers_lose_nothing(model):
    jobs = [([(row, number) for number in range(row)], "a") for row in range(30)]
    found = asyncio.run(run_all(model, jobs, workers=3))
    assert found == [[("a", *one) for one in segments] for segments, _ in jobs]
