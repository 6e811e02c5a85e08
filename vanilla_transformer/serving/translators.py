"""Translators in memory: loaded when they are asked for, and only so many at the same time."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.model.directions import Direction
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.settings import Computation


def load_translator(path: str, computation: Computation) -> Translator:
    """Loads a model, and computes a short text with it."""
    translator = Translator.from_pretrained(
        path,
        computation.engine,
        computation.device,
        computation.compute_type,
        workers=computation.workers,
    )
    if computation.num_beams is not None:  # for all requests that name none
        asked = TranslateOptions(num_beams=computation.num_beams)
        translator.settings = translator.search_of(asked).to_save()
    # Without a language, and without the warning that the output is cut off.
    translator.run(
        translator.plan(["a"], TranslateOptions(max_new_tokens=2), directions=[Direction()])
    )
    return translator


class _Place:
    """A place in memory: what loads its translator, and the number of requests that use it."""

    def __init__(self, loading: asyncio.Task[Translator]) -> None:
        self.loading, self.users, self.left = loading, 0, asyncio.Event()


class Translators:
    """Translators by their paths.

    Where one more would be too many, the one leaves that was asked for least recently, best one
    that no request uses. It is waited for: a request that asks for it in the meantime has it loaded
    again. So each request gets its turn, if none of them uses two translators at a time.

    Args:
        load: Loads a translator, in a thread.
        most: Most translators that are in memory.
        metrics: Counts the requests that wait, and times what they wait for.
    """

    def __init__(self, load: Callable[[str], Translator], most: int, metrics: Metrics) -> None:
        self._load, self._most, self._metrics = load, most, metrics
        self._places: dict[str, _Place] = {}  # that which was asked for least recently comes first
        self._turn = asyncio.Lock()

    def loaded(self, path: str) -> Translator | None:
        """Returns a translator, if it is in memory."""
        place = self._places.get(path)
        return place.loading.result() if place and place.loading.done() else None

    async def load(self, paths: Iterable[str]) -> None:
        """Loads translators one after the other."""
        for path in paths:
            async with self.use(path):
                pass

    @asynccontextmanager
    async def use(self, path: str) -> AsyncIterator[tuple[Translator, float]]:
        """Yields a translator, which stays until the block ends, and the seconds of waiting."""
        started, place = time.perf_counter(), self._places.pop(path, None)
        place = place or _Place(asyncio.create_task(self._load_in_turn(path)))
        self._places[path] = place
        place.users += 1
        try:
            if place.loading.done():
                yield place.loading.result(), 0.0
                return
            with self._metrics.waiting.track_inprogress():
                translator = await asyncio.shield(place.loading)  # others wait for it, too
            yield translator, time.perf_counter() - started
        finally:
            place.users -= 1
            place.left.set()

    async def _load_in_turn(self, path: str) -> Translator:
        try:
            async with self._turn:
                await self._make_room()
                with self._metrics.loading.time():
                    return await asyncio.to_thread(self._load, path)
        except Exception:
            del self._places[path]
            raise

    async def _make_room(self) -> None:
        ready = [path for path, place in self._places.items() if place.loading.done()]
        if len(ready) < self._most:
            return
        place = self._places.pop(min(ready, key=lambda path: self._places[path].users > 0))
        while place.users:
            place.left.clear()
            await place.left.wait()
        del place
        await asyncio.to_thread(gc.collect)  # a translator and its caches refer to each other
