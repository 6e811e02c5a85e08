"""Loaders of token-budget batches, in place of the stock loaders of Trainer."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader

from vanilla_transformer.batches.token_budget import TokenBudgetBatchSampler, token_lengths

_OPTIONS = (
    *("num_workers", "pin_memory", "worker_init_fn", "multiprocessing_context"),
    *("prefetch_factor", "persistent_workers", "in_order"),
)


def with_batches(
    stock: DataLoader[Any],
    sampler: TokenBudgetBatchSampler,
    collate: Callable[..., Any],
    device: torch.device,
) -> DataLoader[Any]:
    """Makes a loader with other batches than a stock one; each process reads only its own.

    Accelerate must not share or dispatch them. A sharding wrapper would also miss the epoch that
    Trainer sets on resuming, which reaches only one wrapper deep.
    """
    options = {name: getattr(stock, name) for name in _OPTIONS}
    loader = prepare_data_loader(
        DataLoader(stock.dataset, batch_sampler=sampler, collate_fn=collate, **options),
        device,
        num_processes=1,
        process_index=0,
        put_on_device=True,
        dispatch_batches=False,
        non_blocking=stock.pin_memory,
    )
    return cast("DataLoader[Any]", loader)


def evaluation_sampler(
    dataset: Any, budget: int, num_processes: int, process_index: int
) -> TokenBudgetBatchSampler | None:
    """Returns the batches of an evaluation, which may hold one example beyond the budget.

    None: the data have no token ids, or the processes have too few examples to share.
    """
    columns = getattr(dataset, "column_names", None) or []
    if not {"input_ids", "labels"} <= {*columns}:
        return None
    source, target = (token_lengths(dataset, column) for column in ("input_ids", "labels"))
    longest = int(np.add(source, target, dtype=np.int64).max())
    try:
        return TokenBudgetBatchSampler(
            source,
            target,
            max(budget, longest),
            shuffle=False,
            num_processes=num_processes,
            process_index=process_index,
        )
    except ValueError:  # there are too few examples
        return None
