"""Translators in memory: loaded when they are asked for, and only so many at the same time."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.model.directions import Direction
from vanilla_transformer.serving.batching import Batcher
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.settings import Computation

Result = TypeVar("Result")


async def run_beside(
    threads: ThreadPoolExecutor, work: Callable[..., Result], *arguments: Any
) -> Result:
    """Runs a function in one of the threads, because it would hold up the connections."""
    return await asyncio.get_running_loop().run_in_executor(threads, work, *arguments)


def load_translator(path: str, computation: Computation) -> Translator:
    """Loads a model, and computes a short text with it."""
    translator = Translator.from_pretrained(
        path,
        computation.engine,
        computation.device,
        computation.compute_type,
        workers=computation.workers,
        num_beams=computation.num_beams,
    )
    # Without a language, and without the warning that the output is cut off.
    job = translator.plan(["a"], TranslateOptions(max_new_tokens=2), directions=[Direction()])
    translator.run(job)
    return translator


class LoadedModel:
    """A translator, and a batcher for each model that has its path."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self._batchers: dict[str, Batcher] = {}

    def batcher(self, model: str, workers: int, metrics: Metrics) -> Batcher:
        """Returns the batcher of a model, by its name."""
        if model not in self._batchers:
            compute = self.translator.segment_translator.translate
            self._batchers[model] = Batcher(compute, workers, metrics, model)
        return self._batchers[model]

    def close(self, timeout: float | None = None) -> None:
        """Ends the threads that compute the batches; see `Batcher.close`."""
        for batcher in self._batchers.values():
            batcher.close(timeout)


class _CachedModel:
    """The task that loads a model, and the number of requests that use it."""

    def __init__(self, loading: asyncio.Task[LoadedModel]) -> None:
        self.loading, self.num_users, self.user_left = loading, 0, asyncio.Event()


class Translators:
    """Translators by their paths.

    If memory is full, the least recently used translator leaves, an idle one first. If it is in
    use, loading waits until its requests end; a new request for it loads it again later. A request
    must not use two translators at a time: the second one could wait for the end of this request.

    Args:
        load: Loads a translator, in a thread.
        most: The most translators in memory.
        metrics: Counts the requests that wait for a translator, and times its loading.
    """

    def __init__(self, load: Callable[[str], Translator], most: int, metrics: Metrics) -> None:
        self._load, self._most, self._metrics = load, most, metrics
        self._cached: dict[str, _CachedModel] = {}  # the least recently used one comes first
        self._turn = asyncio.Lock()
        # One thread loads all: memory that a thread frees is reused only by that thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loading")

    def loaded(self, path: str) -> LoadedModel | None:
        """Returns a translator, if it is in memory."""
        cached = self._cached.get(path)
        return cached.loading.result() if cached and cached.loading.done() else None

    def close(self) -> None:
        """Ends the threads."""
        for loaded in filter(None, map(self.loaded, self._cached)):
            loaded.close(timeout=1)
        self._thread.shutdown(wait=False)

    async def load(self, paths: Iterable[str]) -> None:
        """Loads translators one after the other."""
        for path in paths:
            async with self.use(path):
                pass

    @asynccontextmanager
    async def use(self, path: str) -> AsyncIterator[tuple[LoadedModel, float]]:
        """Yields a translator, which stays until the block ends, and the seconds of the wait."""
        started, cached = time.perf_counter(), self._cached.pop(path, None)
        cached = cached or _CachedModel(asyncio.create_task(self._load_in_turn(path)))
        self._cached[path] = cached
        cached.num_users += 1
        try:
            if cached.loading.done():
                yield cached.loading.result(), 0.0
                return
            with self._metrics.waiting.track_inprogress():
                loaded = await asyncio.shield(cached.loading)  # other requests wait for it, too
            yield loaded, time.perf_counter() - started
        finally:
            cached.num_users -= 1
            cached.user_left.set()

    async def _load_in_turn(self, path: str) -> LoadedModel:
        """Loads a translator after those that are being loaded, and makes room for it."""
        try:
            async with self._turn:
                await self._make_room()
                with self._metrics.loading.time():
                    return LoadedModel(await run_beside(self._thread, self._load, path))
        except Exception:
            del self._cached[path]
            raise

    async def _make_room(self) -> None:
        """Drops a translator if memory is full, after the requests that use it."""
        ready = [path for path, cached in self._cached.items() if cached.loading.done()]
        if len(ready) < self._most:
            return
        # `min` returns the first idle one, or else the first: the least recently used.
        cached = self._cached.pop(min(ready, key=lambda path: self._cached[path].num_users > 0))
        while cached.num_users:
            cached.user_left.clear()
            await cached.user_left.wait()
        await run_beside(self._thread, cached.loading.result().close)
        del cached  # or this frame would keep the translator alive
        # The parts of a translator refer to each other.
        await run_beside(self._thread, gc.collect)
