"""The models of a server: the directions that they have, and which of them a text takes."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from vanilla_transformer.inference.job import Job
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.pivot import (
    combine_translations,
    plan_from_pivot,
    without_read_memories,
)
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.language_tags import Languages, closest_tag, is_language
from vanilla_transformer.serving.detection import Detected, detect_sources
from vanilla_transformer.serving.errors import RequestError
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.served_model import Answer, Plan, Planned, ServedModel
from vanilla_transformer.serving.settings import ANY, Settings
from vanilla_transformer.serving.translators import Translators, load_translator
from vanilla_transformer.text.memory import Memory


@dataclass(frozen=True)
class ServedDirection:
    """A direction as it is served."""

    model: ServedModel
    codes: tuple[str, str]  # of source and target, by which clients name it
    languages: Languages = (None, None)  # as the model names them
    second: "ServedDirection | None" = None  # from the target of the model to that of the codes

    @property
    def pivot(self) -> str | None:
        """The code of the language between source and target, if there is one."""
        return self.second.codes[0] if self.second else None

    async def compute(
        self, plan: Plan[Planned], options: TranslateOptions, memories: list[Memory]
    ) -> Answer[Planned]:
        """Computes the outputs of a request with one model, or with two models in turn."""
        source, target = self.languages
        options = replace(options, source_language=source, target_language=target)
        if self.second is None:
            return await self.model.compute(plan, options, memories)
        needed = TranslateOptions(
            source_language=source, target_language=target, marks=True, scores=options.scores
        )
        to_pivot = await self.model.compute(plan, needed, memories, without_read_memories)
        outputs = [row[0] for row in to_pivot.rows]

        def plan_second(translator: Translator, options: TranslateOptions, _: list[Memory]) -> Job:
            return plan_from_pivot(translator, options, to_pivot.job, outputs)

        from_pivot = await self.second.compute(plan_second, options, [])
        rows = [
            [combine_translations(text.text, first, second) for second in row]
            for text, first, row in zip(to_pivot.job.texts, outputs, from_pivot.rows, strict=True)
        ]
        num_tokens = to_pivot.num_tokens + from_pivot.num_tokens
        seconds = to_pivot.loading_seconds + from_pivot.loading_seconds
        return Answer(to_pivot.planned, to_pivot.job, rows, num_tokens, seconds)


class Models:
    """All models of a server."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        translators: Translators | None = None,
        pivot: bool = False,
    ) -> None:
        self._translators = translators
        self.by_name: Mapping[str, ServedModel] = {model.entry.name: model for model in models}
        # By the codes of source and target; the first model that has one counts.
        self.directions: dict[tuple[str, str], ServedDirection] = {}
        for model in self.by_name.values():
            for codes, languages in model.directions.items():
                self.directions.setdefault(codes, ServedDirection(model, codes, languages))
        if pivot:
            self._add_pivots()

    def _add_pivots(self) -> None:
        """Adds the directions that two models have one after the other."""
        direct = [*self.directions.values()]
        by_source = defaultdict[str, list[ServedDirection]](list)
        for direction in direct:
            by_source[direction.codes[0]].append(direction)
        by_source.pop(ANY, None)  # a text in any language follows no other model
        for first in direct:
            for second in by_source[first.codes[1]]:
                codes = source, target = first.codes[0], second.codes[1]
                # Two codes of one language, such as en and en-US, are no direction.
                if codes not in self.directions and _closest_code(source, [target]) != target:
                    self.directions[codes] = replace(first, codes=codes, second=second)

    @property
    def codes(self) -> list[str]:
        """The codes of all languages, each once."""
        return list(dict.fromkeys(code for direction in self.directions for code in direction))

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

    def direction_of_model(
        self, name: str | None, source: str | None, target: str | None
    ) -> ServedDirection:
        """Returns a direction of a model by its name; the model may refuse the languages later."""
        model = self.named(name)
        codes = _served_codes([*model.directions], source, target)
        return ServedDirection(model, codes, model.directions.get(codes, (source, target)))

    def direction(self, source: str, target: str) -> ServedDirection:
        """Returns a direction, or refuses it (400). Codes may have any spelling."""
        directions = self.directions
        codes = _served_codes([*directions], source, target)
        if codes in directions:
            return directions[codes]
        source, target = codes
        offered = "; ".join(f"source={first} target={second}" for first, second in directions)
        sources, targets = map(set, zip(*directions, strict=True))
        if source in targets - sources:
            message = f"{source} is offered as a target only"
        elif source in sources and target in targets:
            message = f"{target} is not available as a target language from {source}"
        else:  # clients compare the message
            unknown = target if source in sources else source
            raise RequestError(400, f"{unknown[:35]} is not supported")
        raise RequestError(400, f"{message}: this server offers {offered}.")

    def detected_directions(
        self, texts: list[str], target: str
    ) -> list[tuple[ServedDirection | None, Detected]]:
        """Returns the direction and the language of each text of a list, or refuses the list (400).

        A text in the target language, or in a language that leads to no target, has no direction.
        """
        target = _closest_code(target, [second for _, second in self.directions])
        sources = [first for first, second in self.directions if second == target]
        if not sources:
            raise RequestError(400, f"{target[:35]} is not supported")  # as for any source
        detected = detect_sources(texts, sources, target)
        return [(self.directions.get((found.code, target)), found) for found in detected]

    def close(self) -> None:
        """Ends the threads of all models."""
        for model in self.by_name.values():
            model.close()
        if self._translators:
            self._translators.close()


def _served_codes(
    served: list[tuple[str, str]], source: str | None, target: str | None
) -> tuple[str, str]:
    """Returns the codes of a direction as they are served. The given ones may have any spelling.

    A language that is not given is the only one that is served with the other, or `ANY`.
    """
    sources, targets = map(list, zip(*served, strict=True))
    if source is None:
        wanted = _closest_code(target, targets)
        sources = [first for first, second in served if second == wanted] or sources
    source = _closest_code(source, sources)
    targets = [second for first, second in served if first == source] or targets
    return source, _closest_code(target, targets)


def _closest_code(code: str | None, served: list[str]) -> str:
    """Returns the served code of the same language: "en" for `en-US`, "zh-Hant" for `zt`.

    A code stays as it is if it is served itself, or if its language is not served. None becomes the
    only served code, or `ANY`.
    """
    if code is None:
        return served[0] if len({*served}) == 1 else ANY
    if code in served or not is_language(code):
        return code
    return closest_tag(code, filter(is_language, served)) or code


def load_models(settings: Settings, metrics: Metrics) -> Models:
    """Reads which directions the models have, and loads all of them that may be in memory at once.

    With `max_loaded`, each is loaded when it is asked for.
    """
    paths = dict.fromkeys(entry.path for entry in settings.models)
    load = partial(load_translator, computation=settings.computation)
    translators = Translators(load, settings.max_loaded or len(paths), metrics)
    models = [ServedModel(entry, translators, settings, metrics) for entry in settings.models]
    if settings.max_loaded is None:
        asyncio.run(translators.load(paths))
    return Models(models, translators, settings.pivot)
