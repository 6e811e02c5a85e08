"""The models of a server: each is loaded once, and computes the batches of all requests."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from vanilla_transformer.files.model_directory import described_on_card
from vanilla_transformer.inference.job import Job
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.model.directions import Direction, recorded_directions
from vanilla_transformer.serving.batching import Batcher
from vanilla_transformer.serving.errors import ComputationError, RequestError, check_limit
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.settings import ANY, Computation, ModelSource, Settings
from vanilla_transformer.text.languages import (
    closest_tag,
    detect,
    is_detectable,
    is_language,
    likeliest_language,
)

_LEAST_SHARE, _LEAST_SHARE_OF_SOURCES, _LEAST_SHARE_OF_TARGET = 0.6, 0.001, 0.01
"""Probabilities by the detector of languages.

From the first on, the likeliest language of a text is believed. Below the second, a text is in no
language that leads to the target. By both, 1% of 6,000 English and German strings of programs of up
to 20 characters are taken for another language, and 0.2% of 4,000 longer ones. From the third on,
such a text is taken to be in the target language; this number is chosen, not measured.
"""

Result = TypeVar("Result")
Languages = tuple[str | None, str | None]
"""Source and target language of a request. None: that for which the model is served."""


class ServedDirection(NamedTuple):
    """A direction as it is served; without a model, texts that are in the target language already.

    Attributes:
        codes: The codes of source and target by which it is served.
        languages: The languages that the model is asked for.
        confidence: The confidence that texts are in the source language, in percent, if it was
            detected.
    """

    model: "ServedModel | None"
    codes: tuple[str, str]
    languages: Languages
    confidence: int = 0


class ServedModel:
    """A model, the threads that compute its batches, and its queue."""

    def __init__(
        self, source: ModelSource, translator: Translator, settings: Settings, metrics: Metrics
    ) -> None:
        computation = settings.computation
        self.source, self.translator, self.limits = source, translator, settings.limits
        self.description = described_on_card(source.path)
        self._options = TranslateOptions(
            keep_patterns=computation.keep_patterns, batch_tokens=computation.batch_tokens
        )
        translator.directions(1, self.options())  # an error of its languages comes at the start
        # The languages of a request in each direction.
        self.directions: dict[tuple[str, str], Languages]
        self.directions = {(source.source, source.target): (None, None)}
        if source.source == ANY and (rows := recorded_directions(translator.tokenizer)):
            self.directions = {(first or ANY, second): (first, second) for first, second, _ in rows}
        self._metrics = metrics
        self.batcher = Batcher(translator.stages.compute, computation, metrics, source.name)
        self._helpers = ThreadPoolExecutor(2, thread_name_prefix="texts")

    def options(self, languages: Languages = (None, None), **asked: Any) -> TranslateOptions:
        """Returns the options of a request, with the options of the server."""
        source, target = (
            language or (code if is_language(code) and self.source.source != ANY else None)
            for language, code in zip(languages, self.source.direction, strict=True)
        )
        return replace(self._options, source_language=source, target_language=target, **asked)

    async def answer(self, job: Job) -> tuple[list[list[Translation]], int]:
        """Computes the outputs of a job, and counts the tokens that the model reads."""
        translator, name = self.translator, self.source.name
        with self.batcher.slot():
            split = await self.prepare(translator.reader.split, job)
            tokens = sum(map(len, split.segments))
            check_limit(tokens, self.limits.max_tokens, "tokens")
            self._metrics.characters.labels(name).inc(sum(len(text) for text, *_ in job.texts))
            self._metrics.tokens.labels(name).inc(tokens)
            with self._metrics.errors.labels(name).count_exceptions(ComputationError):
                rows = await self.batcher.run(split.segments, job.call)
            return await self._run_beside(translator.stages.join, job, split, rows), tokens

    async def prepare(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Plans or splits in a thread; a `ValueError` becomes an error of the request (400)."""
        try:
            return await self._run_beside(work, *arguments)
        except ValueError as error:
            raise RequestError(400, str(error)) from error

    async def _run_beside(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Runs a function in a thread, because it would hold up the connections."""
        return await asyncio.get_running_loop().run_in_executor(self._helpers, work, *arguments)

    def close(self) -> None:
        """Ends the threads."""
        self.batcher.close(timeout=1)
        self._helpers.shutdown(wait=False, cancel_futures=True)


class Models:
    """All models of a server."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self.by_name: Mapping[str, ServedModel] = {model.source.name: model for model in models}
        self.directions: dict[tuple[str, str], ServedModel] = {}
        """The model of each direction, by the codes of source and target; the first that has it."""
        for model in self.by_name.values():
            for direction in model.directions:
                self.directions.setdefault(direction, model)

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
            model = directions[codes]
            return ServedDirection(model, codes, model.directions[codes])
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

    def detected_direction(self, text: str, target: str) -> ServedDirection:
        """Returns the direction of a text whose language is detected, or refuses it (400).

        A text in the target language needs no model. A text in another language that leads to no
        target is refused, unless its language may be a source that the detector does not know.
        """
        target = _closest_code(target, [second for _, second in self.directions])
        possible = [first for first, second in self.directions if second == target]
        sources = ", ".join(possible) or "no language"
        if possible and all(is_language(code) and is_detectable(code) for code in possible):
            label, share = likeliest_language(text)
            shares = dict(detect(text, [*possible, target]))
            of_target = shares.pop(target, 0.0)
            is_other = share >= _LEAST_SHARE and closest_tag(label, possible) is None
            if is_other or sum(shares.values()) < _LEAST_SHARE_OF_SOURCES:
                if of_target >= _LEAST_SHARE_OF_TARGET:
                    confidence = round(100 * of_target)
                    return ServedDirection(None, (target, target), (None, None), confidence)
                raise RequestError(
                    400,
                    f"The text seems to be in another language than {sources}, from which "
                    f"{target[:35]} is offered: give `source` if it is in one of these.",
                )
        if detected := detect_languages(text, possible):
            source, confidence = detected[0]
            return self.for_direction(source, target)._replace(confidence=confidence)
        if len(possible) == 1:
            return self.for_direction(possible[0], target)
        raise RequestError(
            400,
            f"Give `source`: {target[:35]} is offered from {sources}, which cannot be detected.",
        )

    def problems(self) -> list[str]:
        """Lists why no further request should come: full queues."""
        return [
            f"the queue of {name} is full"
            for name, model in self.by_name.items()
            if model.batcher.is_full
        ]

    def close(self) -> None:
        """Ends the threads of all models."""
        for model in self.by_name.values():
            model.close()


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
    """Loads each model once, and computes a short text with it."""
    loaded: dict[str, Translator] = {}
    computation: Computation = settings.computation
    for source in settings.models:
        if source.path not in loaded:
            translator = Translator.from_pretrained(
                source.path,
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
            loaded[source.path] = translator
    return Models(
        ServedModel(source, loaded[source.path], settings, metrics) for source in settings.models
    )
