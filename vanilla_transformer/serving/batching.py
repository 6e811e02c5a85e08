"""Batches across requests: segments of all waiting requests are computed together.

A worker takes segments in turns from all requests that have the same call, until a batch is full,
so that a long request does not hold up short ones. Segments of a request that is cancelled are
never computed.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence, Sized
from typing import Any, NamedTuple

from vanilla_transformer.inference.job import Call
from vanilla_transformer.serving.errors import ComputationError
from vanilla_transformer.serving.monitoring import Metrics


class QueuedRequest:
    """The segments of one request, and the call that computes them."""

    def __init__(self, segments: Sequence[Sized], call: Call) -> None:
        self.segments, self.call = segments, call
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Any]] = self.loop.create_future()
        self.outputs: list[Any] = [None] * len(segments)
        self.waiting = deque(range(len(segments)))
        self.unfinished = len(segments)

    def finish(self, error: Exception | None = None) -> None:
        """Gives the request its outputs, or an error; runs in the thread of its loop."""
        if self.done.done():  # the request was cancelled
            return
        if error is None:
            self.done.set_result(self.outputs)
        else:
            self.done.set_exception(ComputationError(error))


class _QueuedSegment(NamedTuple):
    """A segment that is not computed yet: its request, and its position there."""

    request: QueuedRequest
    position: int


class Batcher:
    """Collects the segments of requests, and computes them in threads.

    Args:
        compute: Computes the outputs of segments by one call; called from several threads if
            there are several workers.
        workers: The number of threads.
        metrics: Counts the batches of `model`, by its name.
    """

    def __init__(
        self,
        compute: Callable[[list[Any], Any], list[Any]],
        workers: int,
        metrics: Metrics,
        model: str,
    ) -> None:
        self._compute = compute
        self._metrics, self._model = metrics, model
        self._requests: deque[QueuedRequest] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work_until_closed, name=f"batches-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, segments: Sequence[Sized], call: Call) -> list[Any]:
        """Computes the segments of a request by a call; requests of equal calls may share a batch.

        If the task that waits is cancelled, the segments without outputs are dropped.
        """
        if not segments:
            return []
        request = QueuedRequest(segments, call)
        with self._changed:
            self._requests.append(request)
            self._changed.notify()
        try:
            return await request.done
        finally:
            if dropped := self._remove(request):
                self._metrics.dropped.labels(self._model).inc(dropped)

    def close(self, timeout: float | None = None) -> None:
        """Stops each thread after its current batch, and waits up to `timeout` seconds for it."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout)

    def _remove(self, request: QueuedRequest) -> int:
        """Takes a request out of the queue; returns how many of its segments are not computed."""
        with self._changed:
            waiting = len(request.waiting)
            request.waiting.clear()
            if request in self._requests:
                self._requests.remove(request)
        return waiting

    def _work_until_closed(self) -> None:
        while (batch := self._take_batch()) is not None:
            self._compute_batch(batch)

    def _take_batch(self) -> list[_QueuedSegment] | None:
        """Waits for segments and takes a batch of them; None when the batcher is closed."""
        with self._changed:
            while not self._requests and not self._is_closed:
                self._changed.wait()
            return None if self._is_closed else self._fill_batch()

    def _fill_batch(self) -> list[_QueuedSegment]:
        """Takes segments in turns from the requests that share the call of the first one."""
        call = self._requests[0].call
        turns = deque(request for request in self._requests if request.call == call)
        batch, longest = list[_QueuedSegment](), 0
        while turns:
            request = turns.popleft()
            longest = max(longest, len(request.segments[request.waiting[0]]))
            if batch and longest * (len(batch) + 1) > call.batch_tokens:
                break
            batch.append(_QueuedSegment(request, request.waiting.popleft()))
            if request.waiting:
                turns.append(request)
        in_batch = {id(request) for request, _ in batch}
        left = (request for request in self._requests if request.waiting)
        # Requests of the batch come after the others.
        self._requests = deque(sorted(left, key=lambda request: id(request) in in_batch))
        if self._requests:
            self._changed.notify()  # another thread can begin with the rest
        return batch

    def _compute_batch(self, batch: list[_QueuedSegment]) -> None:
        """Computes a batch; after an error, the segments of each request by themselves."""
        try:
            self._compute_segments(batch)
        except Exception as error:
            requests = list({id(request): request for request, _ in batch}.values())
            if len(requests) == 1:
                self._remove(requests[0])
                requests[0].loop.call_soon_threadsafe(requests[0].finish, error)
                return
            for request in requests:  # one of them has the error; the others have outputs
                self._compute_batch([each for each in batch if each.request is request])

    def _compute_segments(self, batch: list[_QueuedSegment]) -> None:
        segments = [request.segments[position] for request, position in batch]
        started = time.monotonic()
        try:
            outputs = self._compute(segments, batch[0].request.call)
        finally:
            seconds = time.monotonic() - started
            self._metrics.segments.labels(self._model).observe(len(segments))
            self._metrics.batch_tokens.labels(self._model).observe(sum(map(len, segments)))
            self._metrics.batch_seconds.labels(self._model).observe(seconds)
        finished = []
        with self._changed:  # several threads may compute segments of a request
            for (request, position), output in zip(batch, outputs, strict=True):
                request.outputs[position] = output
                request.unfinished -= 1
                if not request.unfinished:
                    finished.append(request)
        if finished:  # one wake-up for all: waking a loop costs more than a small batch

            def finish_all() -> None:
                for request in finished:
                    request.finish()

            finished[0].loop.call_soon_threadsafe(finish_all)
