"""The models of a server: each is loaded once, and computes the batches of all requests."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from vanilla_transformer.files.model_directory import described_on_card
from vanilla_transformer.inference.results import OutputOptions, Translation
from vanilla_transformer.inference.segments import Segment, SplitTexts
from vanilla_transformer.inference.stages import TranslatorCall
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.model.directions import Direction, recorded_directions
from vanilla_transformer.serving.batching import Batcher
from vanilla_transformer.serving.errors import ComputationError, RequestError, check_limit
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.settings import ANY, Computation, ModelSource, Settings
from vanilla_transformer.text.languages import closest_tag, detect, is_language
from vanilla_transformer.text.memory import Suggestion
from vanilla_transformer.text.terms import Glossary

Result = TypeVar("Result")
Languages = tuple[str | None, str | None]
"""Source and target language of a request. None: that for which the model is served."""


@dataclass(frozen=True)
class Query:
    """What is computed for the texts of a request; equal queries may share a batch.

    Attributes:
        glossary: Decides what is read of each text, whose batch others may share.
        suggestions: What a memory has for each text, likewise. Empty: nothing.
        in_sentences: Whether each sentence is translated alone.
        cuts_again: Whether those of a line are, where its output is cut off.
    """

    n_best: int
    details: OutputOptions
    options: tuple[tuple[str, Any], ...]
    glossary: Glossary | None = field(default=None, compare=False)
    suggestions: Sequence[Suggestion | None] = field(default=(), compare=False)
    in_sentences: bool = field(default=False, compare=False)
    cuts_again: bool = False


@dataclass(frozen=True)
class Answers:
    """What a model computed for the texts of a request.

    Attributes:
        outputs: For each text its outputs, best first.
        source_tokens: The tokens of each text; empty if no alignment was asked for.
    """

    outputs: list[list[Translation]]
    source_tokens: list[list[str]]
    tokens: int


class ServedModel:
    """A model, the threads that compute its batches, and its queue."""

    def __init__(
        self, source: ModelSource, translator: Translator, settings: Settings, metrics: Metrics
    ) -> None:
        computation = settings.computation
        self.source, self.translator, self.limits = source, translator, settings.limits
        self.direction = _direction_of(source, translator)
        self.description = described_on_card(source.path)
        # What a request asks for in each direction.
        self.directions: dict[tuple[str, str], Languages]
        self.directions = {(source.source, source.target): (None, None)}
        if source.source == ANY and (rows := recorded_directions(translator.tokenizer)):
            self.directions = {(first or ANY, second): (first, second) for first, second, _ in rows}
        self.default_beams = translator.resolve_search(num_beams=computation.num_beams).num_beams
        self._batch_tokens = computation.batch_tokens
        self._patterns = computation.keep_patterns
        self._metrics = metrics
        self.batcher = Batcher(translator.stages.compute, computation, metrics, source.name)
        self._helpers = ThreadPoolExecutor(2, thread_name_prefix="texts")

    async def answer(
        self, texts: list[str], query: Query, languages: Languages = (None, None)
    ) -> Answers:
        """Computes the outputs of the texts of a request."""
        with self.batcher.slot():
            call, split = await self.run_beside(self._prepare_texts, texts, query, languages)
            tokens = sum(map(len, split.segments))
            check_limit(tokens, self.limits.max_tokens, "tokens")
            self._metrics.characters.labels(self.source.name).inc(sum(map(len, texts)))
            self._metrics.tokens.labels(self.source.name).inc(tokens)
            with self._metrics.errors.labels(self.source.name).count_exceptions(ComputationError):
                outputs = await self.batcher.run(split.segments, call, query)
            return await self.run_beside(self._join_texts, split, outputs, call, tokens)

    async def run_beside(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Runs a function in a thread, because it would hold up the connections."""
        return await asyncio.get_running_loop().run_in_executor(self._helpers, work, *arguments)

    def close(self) -> None:
        """Ends the threads."""
        self.batcher.close(timeout=1)
        self._helpers.shutdown(wait=False, cancel_futures=True)

    def _prepare_texts(
        self, texts: list[str], query: Query, languages: Languages
    ) -> tuple[TranslatorCall, SplitTexts]:
        try:
            direction = self.direction
            if any(languages):
                direction = _direction_of(self.source, self.translator, languages)
            directions = [direction] * len(texts)
            split = self.translator.split_texts(
                texts,
                directions,
                keep_patterns=self._patterns,
                glossary=query.glossary,
                suggest=(lambda _: query.suggestions) if query.suggestions else None,
                in_sentences=query.in_sentences,
            )
            call = self.translator.plan_call(
                query.n_best,
                query.details,
                self._batch_tokens,
                cuts_again=query.cuts_again,
                **dict(query.options),
            )
            return call, split
        except ValueError as error:
            raise RequestError(400, str(error)) from error

    def _join_texts(
        self, split: SplitTexts, outputs: list[Any], call: TranslatorCall, tokens: int
    ) -> Answers:
        join = self.translator.stages.join
        source_tokens = []
        if call.details.alignment:
            source_tokens = [
                [
                    token
                    for number in layout.segments
                    for part in outputs[number][0].pieces or outputs[number][:1]
                    if isinstance(part, Segment)
                    for token in self.translator.source_tokens(part.ids)
                ]
                for layout in split.layouts
            ]
        return Answers(
            [join(layout, outputs, call) for layout in split.layouts], source_tokens, tokens
        )


class Models:
    """All models of a server."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self.by_name: Mapping[str, ServedModel] = {model.source.name: model for model in models}

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

    @property
    def directions(self) -> dict[tuple[str, str], ServedModel]:
        """The model of each direction, by the codes of source and target; the first that has it."""
        found: dict[tuple[str, str], ServedModel] = {}
        for model in self.by_name.values():
            for direction in model.directions:
                found.setdefault(direction, model)
        return found

    def served_codes(self, source: str, target: str) -> tuple[str, str]:
        """Returns the codes of a direction as they are served, in whatever spelling they come."""
        source = _closest_code(source, [first for first, _ in self.directions])
        targets = [second for first, second in self.directions if first == source]
        return source, _closest_code(target, targets)

    def for_direction(self, source: str, target: str) -> tuple[ServedModel, Languages]:
        """Returns the model of a direction, and what to ask it for, or refuses it (400).

        Codes may have any spelling; see `closest_tag`.
        """
        directions, (source, target) = self.directions, self.served_codes(source, target)
        if (source, target) in directions:
            model = directions[source, target]
            return model, model.directions[source, target]
        offered = "; ".join(f"source={first} target={second}" for first, second in directions)
        if source in {second for _, second in directions} - {first for first, _ in directions}:
            message = f"{source} is offered as a target only"
        elif source not in {first for first, _ in directions}:
            message = f"{source[:35]} is not supported"
        elif target not in {second for _, second in directions}:
            message = f"{target[:35]} is not supported"
        else:
            message = f"{target} is not available as a target language from {source}"
        raise RequestError(400, f"{message}: this server offers {offered}.")

    def detect_source(self, text: str, target: str) -> tuple[str, int]:
        """Detects the language of a text among those that lead to a target, or refuses it (400).

        Returns:
            Its code, and the confidence in percent: 0 where it is the one source that there is.
        """
        target = _closest_code(target, [second for _, second in self.directions])
        possible = [first for first, second in self.directions if second == target]
        if detected := detect_languages(text, possible):
            return detected[0]
        if len(possible) == 1:
            return possible[0], 0
        sources = ", ".join(possible) or "no language"
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


def _direction_of(
    source: ModelSource, translator: Translator, languages: Languages = (None, None)
) -> Direction:
    """Returns how the model is asked for languages, or else for those that it is served for."""
    codes = (source.source, source.target) if source.source != ANY else ("", "")
    first, second = (code if is_language(code) else None for code in codes)
    return translator.directions(1, languages[0] or first, languages[1] or second)[0]


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
            # Not `translate`: it would warn that the output is cut off.
            call = translator.plan_call(num_beams=computation.num_beams, max_new_tokens=2)
            direction = replace(_direction_of(source, translator), choices=())
            split = translator.split_texts(["a"], [direction])
            translator.stages.compute(split.segments, call)
            loaded[source.path] = translator
    return Models(
        ServedModel(source, loaded[source.path], settings, metrics) for source in settings.models
    )
