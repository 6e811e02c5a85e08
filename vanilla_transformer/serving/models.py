"""The models of a server: each is loaded once, and computes the batches of all requests."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Generic, NamedTuple, TypeVar

from transformers import AutoConfig

from vanilla_transformer.documents.translation import MarkedJob
from vanilla_transformer.files.loading import load_generation_settings, load_tokenizer
from vanilla_transformer.files.model_directory import described_on_card
from vanilla_transformer.inference.job import Job
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.pivot import combine_steps, first_step, plan_second_step
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.language_tags import Languages, closest_tag, is_language
from vanilla_transformer.model.directions import Direction, recorded_directions
from vanilla_transformer.serving.errors import ComputationError, RequestError, check_limit
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.settings import ANY, ModelSource, Settings
from vanilla_transformer.serving.translators import Result, Translators, load_translator, run_beside
from vanilla_transformer.text.detection import detect, is_detectable, likeliest_language

_LEAST_SHARE = 0.6
"""The likeliest language of a text is believed if the detector gives it at least this share."""
_LEAST_SHARE_OF_SOURCES = 0.001
"""A text is in no source language if these have less than this share together.

By `_LEAST_SHARE` and this, 1% of 6,000 English and German strings of programs of up to 20
characters are taken for another language, and 0.2% of 4,000 longer ones.
"""
_LEAST_SHARE_OF_TARGET = 0.01
"""A text in no source language is in the target language if this has at least this share.

It is chosen, not measured.
"""

Planned = TypeVar("Planned", Job, MarkedJob)
Plan = Callable[[Translator, TranslateOptions], Planned]


class Answer(NamedTuple, Generic[Planned]):
    """What a request is answered with.

    Attributes:
        rows: The outputs of each text, best first.
        tokens: Number of the tokens that models have read.
        seconds: Time in which the request waited for models to be loaded.
    """

    planned: Planned
    rows: list[list[Translation]]
    tokens: int
    seconds: float


def job_of(planned: Job | MarkedJob) -> Job:
    """Returns the job of texts, which may have tags."""
    return planned if isinstance(planned, Job) else planned.job


@dataclass(frozen=True)
class AlreadyInTarget:
    """Texts that are in the target language already: no model computes them.

    Attributes:
        codes, confidence: As for `ServedDirection`; both codes are that of the target.
    """

    codes: tuple[str, str]
    confidence: int
    pivot = None


@dataclass(frozen=True)
class ServedDirection:
    """A direction as it is served.

    Attributes:
        codes: The codes of source and target by which it is served.
        languages: The languages that the model is asked for.
        confidence: The confidence that texts are in the source language, in percent, if it was
            detected.
        further: The direction from the target of the model to that of the codes. None: they are
            the same.
    """

    model: "ServedModel"
    codes: tuple[str, str]
    languages: Languages = (None, None)
    confidence: int = 0
    further: "ServedDirection | None" = None

    @property
    def pivot(self) -> str | None:
        """The code of the language between source and target, if there is one."""
        return self.further.codes[0] if self.further else None

    async def answer(self, plan: Plan[Planned], **asked: Any) -> Answer[Planned]:
        """Computes the outputs of a request, with one model after the other.

        Args:
            plan: Plans the request for a model, with its options.
            **asked: Options of the request.
        """
        if self.further is None:
            return await self.model.answer(plan, self.languages, **asked)
        return await self._answer_by_pivot(plan, self.further, **asked)

    async def _answer_by_pivot(
        self, plan: Plan[Planned], further: "ServedDirection", **asked: Any
    ) -> Answer[Planned]:
        needed = {"marks": True, "scores": asked.get("scores", False)}
        half = await self.model.answer(plan, self.languages, first_step, **needed)
        job, outputs = job_of(half.planned), [row[0] for row in half.rows]

        def plan_further(translator: Translator, options: TranslateOptions) -> Job:
            return plan_second_step(translator, options, first_step(job), outputs)

        whole = await further.answer(plan_further, **asked)
        rows = [
            [combine_steps(text.text, first, second) for second in row]
            for text, first, row in zip(job.texts, outputs, whole.rows, strict=True)
        ]
        seconds = half.seconds + whole.seconds
        return Answer(half.planned, rows, half.tokens + whole.tokens, seconds)


class ServedModel:
    """A model, its queue, and the threads that compute its batches."""

    def __init__(
        self, served: ModelSource, translators: Translators, settings: Settings, metrics: Metrics
    ) -> None:
        computation = settings.computation
        self.served, self.limits, self._translators = served, settings.limits, translators
        self.description = described_on_card(served.path)
        self._options = TranslateOptions(
            keep_patterns=computation.keep_patterns, batch_tokens=computation.batch_tokens
        )
        self.directions = self._directions()
        self._metrics, self._computation, self._accepted = metrics, computation, 0
        metrics.queued.labels(served.name).set_function(lambda: self._accepted)
        self._helpers = ThreadPoolExecutor(2, thread_name_prefix="texts")

    def _directions(self) -> dict[tuple[str, str], Languages]:
        """Returns the languages of a request in each direction, which need no weights."""
        path, options = self.served.path, self.options()
        tokenizer = load_tokenizer(path)
        settings = load_generation_settings(path, AutoConfig.from_pretrained(path))
        source, target = options.source_language, options.target_language
        assert isinstance(source, str | None)
        assert isinstance(target, str | None)
        Direction.resolve(tokenizer, settings, source, target, closest_tag)  # it may refuse them
        if self.served.source == ANY and (rows := recorded_directions(tokenizer)):
            return {(first or ANY, second): (first, second) for first, second, _ in rows}
        return {self.served.direction: (None, None)}

    @property
    def translator(self) -> Translator | None:
        """The translator, if it is in memory."""
        loaded = self._translators.loaded(self.served.path)
        return loaded.translator if loaded else None

    def options(self, languages: Languages = (None, None), **asked: Any) -> TranslateOptions:
        """Returns the options of a request, with the options of the server."""
        source, target = (
            language or (code if is_language(code) and self.served.source != ANY else None)
            for language, code in zip(languages, self.served.direction, strict=True)
        )
        return replace(self._options, source_language=source, target_language=target, **asked)

    async def answer(
        self,
        plan: Plan[Planned],
        languages: Languages = (None, None),
        change: Callable[[Job], Job] = lambda job: job,
        **asked: Any,
    ) -> Answer[Planned]:
        """Computes the outputs of a request.

        Args:
            plan: Plans the request, with options that are made of the others.
            languages: The languages of the request. None: those for which the model is served.
            change: Returns the job that is computed in the place of the planned one.
        """
        options, name = self.options(languages, **asked), self.served.name
        with self._slot():
            async with self._translators.use(self.served.path) as (loaded, seconds):
                translator = loaded.translator
                planned = await self._prepare(plan, translator, options)
                job = change(job_of(planned))
                split = await self._prepare(translator.reader.split, job)
                tokens = sum(map(len, split.segments))
                check_limit(tokens, self.limits.max_tokens, "tokens")
                characters = sum(len(text) for text, *_ in job.texts)
                self._metrics.characters.labels(name).inc(characters)
                self._metrics.tokens.labels(name).inc(tokens)
                with self._metrics.errors.labels(name).count_exceptions(ComputationError):
                    batcher = loaded.batcher(name, self._computation, self._metrics)
                    computed = await batcher.run(split.segments, job.call)
                rows = await run_beside(self._helpers, translator.joiner.join, job, split, computed)
        return Answer(planned, rows, tokens, seconds)

    @property
    def is_full(self) -> bool:
        """Whether the next request would be refused."""
        return self._accepted >= self._computation.queue_size

    @contextmanager
    def _slot(self) -> Iterator[None]:
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


class Models:
    """All models of a server."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        translators: Translators | None = None,
        pivot: bool = False,
    ) -> None:
        self._translators = translators
        self.by_name: Mapping[str, ServedModel] = {model.served.name: model for model in models}
        self.directions: dict[tuple[str, str], ServedDirection] = {}
        """By the codes of source and target; the first model that has one counts."""
        for model in self.by_name.values():
            for codes, languages in model.directions.items():
                self.directions.setdefault(codes, ServedDirection(model, codes, languages))
        if pivot:
            self._add_pivots()

    def _add_pivots(self) -> None:
        """Adds the directions that two models have one after the other."""
        direct = list(self.directions.values())
        for first, further in product(direct, repeat=2):
            codes = first.codes[0], further.codes[1]
            meets = first.codes[1] == further.codes[0] != ANY
            if meets and _closest_code(codes[0], [codes[1]]) != codes[1]:
                by_pivot = replace(first, codes=codes, further=further)
                self.directions.setdefault(codes, by_pivot)

    def named(self, name: str | None) -> ServedModel:
        """Returns a model by its name; None is enough where there is one model."""
        names = ", ".join(self.by_name)
        if name is None:
            if len(self.by_name) > 1:
                raise RequestError(400, f"Several models are served: give `model`, one of {names}.")
            return next(iter(self.by_name.values()))
        if name not in self.by_name:
            raise RequestError(404, f"There is no model {name[:100]!r}: use one of {names}.")
        return self.by_name[name]

    def served_codes(self, source: str, target: str) -> tuple[str, str]:
        """Returns the codes of a direction as they are served, in whatever spelling they come."""
        source = _closest_code(source, [first for first, _ in self.directions])
        targets = [second for first, second in self.directions if first == source]
        return source, _closest_code(target, targets)

    def for_direction(self, source: str, target: str) -> ServedDirection:
        """Returns a direction, or refuses it (400). Codes may have any spelling."""
        directions, codes = self.directions, self.served_codes(source, target)
        if codes in directions:
            return directions[codes]
        source, target = codes
        offered = "; ".join(f"source={first} target={second}" for first, second in directions)
        if source in {second for _, second in directions} - {first for first, _ in directions}:
            message = f"{source} is offered as a target only"
        elif source not in {first for first, _ in directions}:
            raise RequestError(400, f"{source[:35]} is not supported")  # clients compare it
        elif target not in {second for _, second in directions}:
            raise RequestError(400, f"{target[:35]} is not supported")
        else:
            message = f"{target} is not available as a target language from {source}"
        raise RequestError(400, f"{message}: this server offers {offered}.")

    def detected_direction(self, text: str, target: str) -> ServedDirection | AlreadyInTarget:
        """Returns the direction of a text whose language is detected, or refuses it (400).

        A text in the target language needs no model. A text in another language that leads to no
        target is refused, unless its language may be a source that the detector does not know.
        """
        target = _closest_code(target, [second for _, second in self.directions])
        possible = [first for first, second in self.directions if second == target]
        if not possible:
            raise RequestError(400, f"{target[:35]} is not supported")  # as for any source
        sources = ", ".join(possible)
        if all(is_language(code) and is_detectable(code) for code in possible):
            label, share = likeliest_language(text)
            shares = dict(detect(text, [*possible, target]))
            of_target = shares.pop(target, 0.0)
            is_other = share >= _LEAST_SHARE and closest_tag(label, possible) is None
            if is_other or sum(shares.values()) < _LEAST_SHARE_OF_SOURCES:
                if of_target >= _LEAST_SHARE_OF_TARGET:
                    return AlreadyInTarget((target, target), round(100 * of_target))
                raise RequestError(
                    400,
                    f"The text seems to be in another language than {sources}, from which "
                    f"{target[:35]} is offered: give `source` if it is in one of these.",
                )
        if detected := detect_languages(text, possible):
            source, confidence = detected[0]
            return replace(self.for_direction(source, target), confidence=confidence)
        if len(possible) == 1:
            return self.for_direction(possible[0], target)
        raise RequestError(
            400,
            f"Give `source`: {target[:35]} is offered from {sources}, which cannot be detected.",
        )

    def problems(self) -> list[str]:
        """Lists why no further request should come: full queues."""
        return [
            f"the queue of {name} is full" for name, model in self.by_name.items() if model.is_full
        ]

    def close(self) -> None:
        """Ends the threads of all models."""
        for model in self.by_name.values():
            model.close()
        if self._translators:
            self._translators.close()


def _closest_code(code: str, served: list[str]) -> str:
    """Returns the served code of the same language: "en" for `en-US`, "zh-Hant" for `zt`.

    A code that is served itself, or of a language that is not, stays as it is.
    """
    if code in served or not is_language(code):
        return code
    return closest_tag(code, filter(is_language, served)) or code


def detect_languages(text: str, codes: Iterable[str]) -> list[tuple[str, int]]:
    """Returns the codes of languages that a text may be in, with percents, the likeliest first."""
    found = detect(text, list(filter(is_language, dict.fromkeys(codes))))
    return [(code, round(100 * share)) for code, share in found]


def load_models(settings: Settings, metrics: Metrics) -> Models:
    """Reads which directions the models have, and loads all of them that may be in memory at once.

    With `max_loaded`, each is loaded when it is asked for.
    """
    paths = dict.fromkeys(source.path for source in settings.models)
    load = partial(load_translator, computation=settings.computation)
    translators = Translators(load, settings.max_loaded or len(paths), metrics)
    models = [ServedModel(source, translators, settings, metrics) for source in settings.models]
    if settings.max_loaded is None:
        asyncio.run(translators.load(paths))
    return Models(models, translators, settings.pivot)
