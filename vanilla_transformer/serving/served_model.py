"""A served model: requests are planned for it, and computed in batches with others."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from transformers import AutoConfig

from vanilla_transformer.documents.translation import MarkedJob
from vanilla_transformer.files.loading import load_generation_settings, load_tokenizer
from vanilla_transformer.files.model_directory import described_on_card
from vanilla_transformer.inference.job import Job
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.language_tags import Languages, closest_tag, is_language
from vanilla_transformer.model.directions import Direction, recorded_directions
from vanilla_transformer.serving.errors import ComputationError, RequestError, check_limit
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.settings import ANY, ModelEntry, Settings
from vanilla_transformer.serving.translators import Result, Translators, run_beside
from vanilla_transformer.text.memory import Memory

Planned = TypeVar("Planned", Job, MarkedJob)
"""A planned request: the job of its texts, or that of texts with inline tags."""
Plan = Callable[[Translator, TranslateOptions, list[Memory]], Planned]
"""Plans a request for a translator, by the options and the memories of former translations."""


class Answer(NamedTuple, Generic[Planned]):
    """The outputs of a request."""

    planned: Planned
    job: Job  # as it was computed
    rows: list[list[Translation]]  # of each text, best first
    num_tokens: int  # of the sources
    loading_seconds: float  # in which the request waited for models to be loaded


class ServedModel:
    """A model, its queue, and the threads that compute its batches."""

    def __init__(
        self, entry: ModelEntry, translators: Translators, settings: Settings, metrics: Metrics
    ) -> None:
        self.entry, self.description = entry, described_on_card(entry.path)
        self.limits, self._computation = settings.limits, settings.computation
        self._translators, self._metrics = translators, metrics
        self._accepted = 0  # number of requests without an answer
        self.directions = self._directions()
        metrics.queued.labels(entry.name).set_function(lambda: self._accepted)
        # With two threads, a long document does not hold up the next request.
        self._helpers = ThreadPoolExecutor(2, thread_name_prefix="texts")

    def _directions(self) -> dict[tuple[str, str], Languages]:
        """Returns the languages of a request in each direction; reads no weights."""
        path = self.entry.path
        tokenizer = load_tokenizer(path)
        settings = load_generation_settings(path, AutoConfig.from_pretrained(path))
        Direction.resolve(tokenizer, settings, *self._languages, closest_tag)  # it may refuse them
        if self.entry.source == ANY and (rows := recorded_directions(tokenizer)):
            return {(first or ANY, second): (first, second) for first, second, _ in rows}
        return {self.entry.direction: (None, None)}

    @property
    def translator(self) -> Translator | None:
        """The translator, if it is in memory."""
        loaded = self._translators.loaded(self.entry.path)
        return loaded.translator if loaded else None

    @property
    def _languages(self) -> Languages:
        """The languages for which the model is served, as far as its codes are of languages."""
        codes = (None, None) if self.entry.source == ANY else self.entry.direction
        source, target = (code if code and is_language(code) else None for code in codes)
        return source, target

    def complete(self, options: TranslateOptions) -> TranslateOptions:
        """Returns the options of a request with those of the server.

        The languages for which the model is served stand in for those that are not given.
        """
        source, target = self._languages
        return replace(
            options,
            source_language=options.source_language or source,
            target_language=options.target_language or target,
            keep_patterns=self._computation.keep_patterns,
            batch_tokens=self._computation.batch_tokens,
        )

    async def compute(
        self,
        plan: Plan[Planned],
        options: TranslateOptions,
        memories: list[Memory],
        job_to_compute: Callable[[Job], Job] | None = None,
    ) -> Answer[Planned]:
        """Computes the outputs of a request.

        Args:
            plan: Plans the request for a translator, with the completed options.
            job_to_compute: Returns the job to compute in place of the planned one. None: that one.
        """
        options, name = self.complete(options), self.entry.name
        with self._accepted_request():
            async with self._translators.use(self.entry.path) as (loaded, seconds):
                translator = loaded.translator
                planned = await self._prepare(plan, translator, options, memories)
                job = planned if isinstance(planned, Job) else planned.job
                if job_to_compute is not None:
                    job = job_to_compute(job)
                split = await self._prepare(translator.reader.split, job)
                num_tokens = sum(map(len, split.segments))
                check_limit(num_tokens, self.limits.max_tokens, "tokens")
                self._metrics.characters.labels(name).inc(sum(len(each.text) for each in job.texts))
                self._metrics.tokens.labels(name).inc(num_tokens)
                with self._metrics.errors.labels(name).count_exceptions(ComputationError):
                    batcher = loaded.batcher(name, self._computation.workers, self._metrics)
                    computed = await batcher.run(split.segments, job.call)
                rows = await run_beside(self._helpers, translator.joiner.join, job, split, computed)
        return Answer(planned, job, rows, num_tokens, seconds)

    @property
    def is_full(self) -> bool:
        """Whether the next request would be refused."""
        return self._accepted >= self._computation.queue_size

    @contextmanager
    def _accepted_request(self) -> Iterator[None]:
        """Counts a request as accepted until the block ends; status 503 if the queue is full."""
        if self.is_full:
            raise RequestError(
                503,
                f"The queue is full ({self._accepted} requests): ask again later.",
                {"Retry-After": "1"},
            )
        self._accepted += 1
        try:
            yield
        finally:
            self._accepted -= 1

    async def _prepare(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Plans or splits in a thread; a `ValueError` becomes an error of the request (400)."""
        try:
            return await run_beside(self._helpers, work, *arguments)
        except ValueError as error:
            raise RequestError(400, str(error)) from error

    def close(self) -> None:
        """Ends the threads."""
        self._helpers.shutdown(wait=False, cancel_futures=True)
