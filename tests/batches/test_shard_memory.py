"""How much memory a training needs for each of its prepared pairs, besides pages of their files."""

import json
import os
import tracemalloc
from itertools import islice

import numpy as np
import pyarrow as pa
from datasets import Features, List, Value

from vanilla_transformer.batches import mixing
from vanilla_transformer.batches.shards import ROWS_OF_A_SHARD, Shards, make_shards
from vanilla_transformer.batches.token_budget import (
    TokenBudgetBatchSampler,
    check_longest,
    token_lengths,
)


def make(rows):
    """Makes a shard of random pairs; only their lengths matter."""
    features = Features({"input_ids": List(Value("uint16")), "labels": List(Value("uint16"))})
    sides = []
    for seed in range(2):
        lengths = np.random.default_rng(seed).lognormal(2, 0.5, len(rows)).astype(int) + 1
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        ids = pa.array(np.full(lengths.sum(), 5, np.uint16))
        sides.append(pa.ListArray.from_arrays(offsets, ids))
    return pa.table(sides, schema=features.arrow_schema), {}


def linked(folder, count):
    """A corpus of `count` shards, all of which are one file."""
    one = make_shards(folder, "made", ROWS_OF_A_SHARD, make).shards[0]
    for number in range(1, count):
        os.link(folder / "00000.arrow", folder / f"{number:05}.arrow")
    (folder / "index.json").write_text(json.dumps({"key": "made", "shards": [one] * count}))
    np.save(folder / "lengths.npy", np.tile(np.load(folder / "lengths.npy"), (count, 1)))
    return Shards.read(folder)


def peak(shards):
    """Returns the most bytes that opening the shards and reading 20 batches takes at a time."""
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        rows = shards.open()
        sides = token_lengths(rows, "input_ids"), token_lengths(rows, "labels")
        check_longest(*sides, 2048, str)
        for batch in islice(TokenBudgetBatchSampler(*sides, 2048), 20):
            assert len(rows[batch]["labels"]) == len(batch)
        assert pa.total_allocated_bytes() - before < 2**20  # the shards are mapped
        return len(rows), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_memory_does_not_grow_with_the_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(mixing, "PAIRS_OF_A_BLOCK", 2 * ROWS_OF_A_SHARD)
    (pairs, memory), (more, much) = (
        peak(linked(tmp_path / str(count), count))
        for count in (4, 12)  # whole blocks
    )
    assert memory / pairs < 100  # the arrays of a block
    assert (much - memory) / (more - pairs) < 1
