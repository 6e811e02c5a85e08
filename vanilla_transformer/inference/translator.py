"""`Translator`: texts in, texts out, with the fastest engine that computes the model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import cache
from itertools import cycle, repeat, tee
from pathlib import Path
from typing import Any, Self

from transformers import AutoConfig, GenerationConfig
from transformers.utils import logging

from vanilla_transformer.files.loading import (
    default_device,
    load_generation_settings,
    load_tokenizer,
)
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.grouping import map_grouped
from vanilla_transformer.inference.defects import Defects
from vanilla_transformer.inference.engine import Engine
from vanilla_transformer.inference.engine_choice import Engines, engines_of_model, load_engines
from vanilla_transformer.inference.glossaries import as_glossary
from vanilla_transformer.inference.job import Call, Demands, Job, JobText
from vanilla_transformer.inference.joining import Joiner, token_links
from vanilla_transformer.inference.memory_use import MemoryUse, decide_memory_uses
from vanilla_transformer.inference.options import TranslateOptions, compile_patterns
from vanilla_transformer.inference.quality import Calibration
from vanilla_transformer.inference.reader import Reader
from vanilla_transformer.inference.results import Alignment, Score, Translation, metric_by_name
from vanilla_transformer.inference.segment_translator import SegmentTranslator
from vanilla_transformer.inference.segments import Output
from vanilla_transformer.inference.steps import Steps
from vanilla_transformer.language_tags import closest_tag, known_tag
from vanilla_transformer.model.directions import (
    Direction,
    FirstTokens,
    language_tokens,
    languages_of_model,
    with_first_token,
)
from vanilla_transformer.model.inputs import end_tokens_of
from vanilla_transformer.model.pipeline_vanilla_transformer import NO_LIMIT
from vanilla_transformer.model.tokenization_vanilla_transformer import WHITE_SPACE
from vanilla_transformer.progress import Progress
from vanilla_transformer.search import Search, SearchError, learned_positions
from vanilla_transformer.text.memory import Memory

logger = logging.get_logger(__name__)

LanguagesOfTexts = str | Sequence[str | None] | None
"""The language of all texts, in any spelling, or a list of one for each; None: the model's."""
TEXTS_PER_CHUNK = 2048
"""Texts that are sorted by length and computed together."""


class LongSourceError(ValueError):
    """A source is longer than the model takes; `index` is its index among those of the call."""

    def __init__(self, index: int, num_tokens: int, limit: int) -> None:
        self.index = index
        self.problem = f"has {num_tokens:,} tokens, and {limit:,} are possible: split it."
        super().__init__(f"Source {index} {self.problem}")


class Translator:
    """Generates texts from texts with a trained model: translation, pronunciation, summaries.

    `translate` plans a job for its texts, and `run` computes it: a `Reader` splits the texts, a
    `SegmentTranslator` computes the outputs of their segments, and a `Joiner` joins these.

    Args:
        source_limit: Longest source in tokens; longer lines are split.
        config: The config of the model, which limits lengths. None: there is no limit.
        calibration: The calibration of the quality of outputs. None: it is unknown.

    Attributes:
        engine: The engine; transformers computes the searches that it cannot.
        source_languages: The languages of sources, as the model spells them. Empty: it names none.
        target_languages: The same for targets.
    """

    def __init__(
        self,
        engines: Engines,
        tokenizer: Any,
        settings: GenerationConfig,
        source_limit: int,
        config: Any = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.engine: Engine = engines.engine
        self.tokenizer, self.settings, self.config = tokenizer, settings, config
        self.source_limit = source_limit
        self.source_languages, self.target_languages = languages_of_model(tokenizer)
        self.reader = Reader(tokenizer, source_limit)
        end = next(iter(end_tokens_of(settings)), None)
        self.engines, self.steps = engines, Steps(self.reader, engines, end)
        self.segment_translator = SegmentTranslator(self.steps)
        self.joiner = Joiner(self.reader, calibration)

    def __repr__(self) -> str:
        names = ("source_languages", "target_languages")
        languages = "".join(f", {name}={getattr(self, name)}" for name in names)
        return f"Translator(engine={self.engine.name!r}{languages})"

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path | Sequence[str | Path],
        engine: str = "auto",
        device: str | None = None,
        compute_type: str = "float32",
        max_source_tokens: int | None = None,
        workers: int = 1,
        num_beams: int | None = None,
    ) -> Self:
        """Loads a saved model.

        Args:
            path: Directory, or name on the Hub. Several of these make an ensemble: the mean of
                the probabilities of models with one vocabulary, computed by transformers.
            engine: "transformers" computes with `model.generate()`; "ctranslate2" exports the model
                to CTranslate2 on first use, into a cache. "auto" takes CTranslate2 where it is
                installed and can compute the model, otherwise transformers, and `engine.name`
                tells which.
            device: "cpu", "cuda", "cuda:1", ... None: a GPU if there is one, otherwise the CPU.
            compute_type: Type of CTranslate2's computation: "float32" gives what transformers
                gives; "int8" is faster, and may differ in a few outputs.
            max_source_tokens: Longest source in tokens. None: the limit of the tokenizer if it has
                one, otherwise `config.max_position_embeddings`.
            workers: Batches that CTranslate2 computes at the same time when several threads call;
                the other engines compute in the threads that call.
            num_beams: Beam width of requests that name none. None: as saved with the model.
        """
        paths = [str(name) for name in ([path] if isinstance(path, str | Path) else path)]
        for folder in paths:
            check_model_directory(folder)
        first, device = paths[0], device or default_device()
        tokenizer = load_tokenizer(first)  # its error explains a name that the Hub lacks
        config = AutoConfig.from_pretrained(first)
        settings = load_generation_settings(first, config)
        if num_beams is not None:
            search = Search.resolve(settings, {"num_beams": num_beams}, config=config)
            settings = search.to_save()
        engines = load_engines(engine, paths, config, tokenizer, device, compute_type, workers)
        limit = _source_limit(max_source_tokens, tokenizer, config)
        calibration = Calibration.load(Path(first)) if len(paths) == 1 else None
        return cls(engines, tokenizer, settings, limit, config, calibration)

    @classmethod
    def from_model(cls, model: Any, tokenizer: Any, copies_weights: bool = False) -> Self:
        """Makes a translator of a model in memory, such as one that is being trained.

        Args:
            model: A sequence-to-sequence model of transformers. It generates without dropout; its
                mode is restored afterwards.
            copies_weights: Whether the fastest engine computes, with a copy of the present weights.
        """
        engines = engines_of_model(model, tokenizer, copies_weights)
        limit = _source_limit(None, tokenizer, model.config)
        return cls(engines, tokenizer, model.generation_config, limit, model.config)

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        memory: Memory | None = None,
        progress: bool = False,
        name_text: Callable[[int], str] | None = None,
        **options: Any,
    ) -> Any:
        """Generates an output for each text.

        Args:
            texts: A text, a list of texts, or another iterable, which is taken as a stream. A text
                may have several lines; its lines and blank lines stay where they are.
            memory: Former translations: an equal text has its stored translation, and a model that
                has learnt it reads that of a similar one. `from_memory` of a result tells both. See
                `text.memory`.
            progress: Whether to show on standard error how many texts are done.
            name_text: Returns the name of a text in warnings, by its index. None: warnings have
                its number, from 1.
            **options: The fields of `TranslateOptions`: `src_lang` and `tgt_lang` (languages in any
                spelling, such as "en" or "eng_Latn"; a list has one for each text), `n_best`,
                `minimum_risk` ("chrf" or a function), `candidates`, `keep`, `keep_patterns`,
                `glossary` (a `Glossary`, a .tsv file, or targets by their sources),
                `in_sentences`, `batch_tokens`, and `return_scores`, `return_tokens`,
                `return_alignment`, `return_word_alignment`, `return_links`, `return_marks`, which
                return fields of `Translation`. All other names are settings of the search by
                their names in `GenerationConfig`, such as `num_beams`, `max_new_tokens`,
                `do_sample`.

        Returns:
            For a text its output, for a list a list of outputs, for another iterable an iterator.
            An output is a text; a `Translation` if something is to be returned with it, and a list
            of outputs with `n_best`.
        """
        if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
            raise ValueError(
                f"`texts` is {texts!r}: give a text, a list of texts, or an iterable of texts."
            )
        request = TranslateOptions.of(**options)
        memories = [] if memory is None else [memory]
        given = [texts] if isinstance(texts, str) else texts
        rows = self.stream(given, request, memories, progress, name_text)

        def result_of(translations: list[Translation]) -> Any:
            outputs = [each if request.has_details else each.text for each in translations]
            return outputs[0] if request.n_best is None else outputs

        results = map(result_of, rows)
        if isinstance(texts, str):
            (output,) = results
            return output
        return list(results) if isinstance(texts, list | tuple) else results

    def stream(
        self,
        texts: Iterable[str],
        options: TranslateOptions,
        memories: Sequence[Memory] = (),
        progress: bool = False,
        name_text: Callable[[int], str] | None = None,
    ) -> Iterator[list[Translation]]:
        """Yields the outputs of each text, best first.

        Args:
            options: The options that `translate` takes as keywords.
            memories: Former translations; the first memory that has a text counts.
            progress, name_text: As for `translate`.
        """
        job = self._plan_options(options)
        # A stream has one direction for all of its texts.
        count = len(texts) if isinstance(texts, Sequence) else 1
        directions = self.directions(count, options, job.call.search)
        # The uses read one text ahead: a stream is not read as a whole.
        given, asked = tee(_checked(texts))
        uses = self._memory_uses(asked, directions, memories)
        jobs = job.for_chunks(map(JobText, given, cycle(directions), uses), TEXTS_PER_CHUNK)
        total = len(texts) if isinstance(texts, Sized) else None
        return self.run_jobs(jobs, total, progress, name_text)

    def plan(
        self,
        texts: Sequence[str],
        options: TranslateOptions,
        memories: Sequence[Memory] = (),
        directions: Sequence[Direction] | None = None,
        former: Iterable[MemoryUse | None] | None = None,
    ) -> Job:
        """Makes all decisions on a request; `run` computes it.

        Args:
            memories: Former translations of the texts; the first memory that has a text counts.
            directions: The direction of each text. None: that of the options.
            former: The use of a former translation for each text, if the caller has decided it.
        """
        job = self._plan_options(options)
        texts = list(_checked(texts))
        if directions is None:
            directions = self.directions(len(texts), options, job.call.search)
        if former is None:
            former = self._memory_uses(texts, directions, memories)
        return replace(job, texts=list(map(JobText, texts, directions, former)))

    def _plan_options(self, options: TranslateOptions) -> Job:
        """Returns the job of a request, still without its texts."""
        metric = options.minimum_risk
        glossary = as_glossary(options.glossary or ())
        patterns = compile_patterns(options.keep_patterns)
        return Job(
            texts=(),
            call=self.call_of(options),
            demands=Demands(glossary, keeps=options.keep, patterns=patterns),
            metric=None if metric is None else metric_by_name(metric),
            in_sentences=options.in_sentences,
        )

    def _memory_uses(
        self, texts: Iterable[str], directions: Sequence[Direction], memories: Sequence[Memory]
    ) -> Iterable[MemoryUse | None]:
        """Returns the use of a former translation for each text."""
        if not memories:
            return repeat(None)
        if len({direction.target for direction in directions}) > 1:
            raise ValueError("`memory` has one target language, and `tgt_lang` names several.")
        reads = repeat(self.reader.reads_memory)
        return decide_memory_uses(texts, memories, reads, shows_similar=True)

    def run(
        self, job: Job, on_done: Callable[[int], object] = lambda _: None
    ) -> list[list[Translation]]:
        """Computes the outputs of each text of a job, best first.

        Args:
            on_done: Is called after each batch with the number of texts that are computed so far,
                estimated by their segments.
        """
        split = self.reader.split(job)
        num_computed = 0

        def on_batch(count: int) -> None:
            nonlocal num_computed
            num_computed += count
            on_done(len(job.texts) * num_computed // len(split.segments))

        rows = self.segment_translator.translate(split.segments, job.call, on_batch)
        return self.joiner.join(job, split, rows)

    def run_jobs(
        self,
        jobs: Iterable[Job],
        total: int | None,
        progress: bool = False,
        name_text: Callable[[int], str] | None = None,
    ) -> Iterator[list[Translation]]:
        """Yields the outputs of each text of jobs, and warns of their defects.

        Args:
            total: Number of all texts. None: it is not known.
            progress, name_text: As for `translate`.
        """
        defects = Defects()
        with Progress(total, "texts", shown=progress) as shown:
            for job in jobs:
                rows = self.run(job, lambda done: shown.update(defects.num_texts + done))
                for asked, row in zip(job.texts, rows, strict=True):
                    defects.add(asked.text, row, job.call.search.max_new_tokens)
                    yield row
                shown.update(defects.num_texts)
        defects.warn(name_text)

    def search_of(self, options: TranslateOptions) -> Search:
        """Decides the search of a request."""
        given = options.given()
        if "num_return_sequences" in given:
            raise SearchError("`num_return_sequences` is called `n_best` here.")
        given["num_return_sequences"] = options.n_best
        if isinstance(name := given.get("forced_bos_token_id"), str):
            tokens = language_tokens(self.tokenizer)
            code = closest_tag(name, tokens) if known_tag(name) else None
            if code is None:
                raise SearchError(f"`forced_bos_token_id` {name!r} is no language of the model.")
            given["forced_bos_token_id"] = tokens[code]
        return Search.resolve(
            self.settings, given, candidates=options.num_candidates, config=self.config
        )

    def call_of(self, options: TranslateOptions) -> Call:
        """Decides the search and the engine of a request."""
        search = self.search_of(options)
        engine = self.engines.for_search(search)
        batch_tokens = options.batch_tokens or engine.batch_tokens
        given = options.given() | {"n_best": options.n_best, "candidates": options.num_candidates}
        return Call(search, engine, options.details, batch_tokens, given=given)

    def directions(
        self, count: int, options: TranslateOptions, search: Search | None = None
    ) -> list[Direction]:
        """Decides the direction of each of `count` texts.

        Args:
            search: The search of the options, if the caller has decided it.
        """
        forced = options.given().get("forced_bos_token_id")
        if options.target_language is not None and forced is not None:
            raise SearchError("Give `tgt_lang` or `forced_bos_token_id`: both name the target.")
        sources = _language_of_each(count, "src_lang", options.source_language)
        targets = _language_of_each(count, "tgt_lang", options.target_language)
        settings = (search or self.search_of(options)).settings

        @cache  # most texts have the same languages
        def resolve(source: str | None, target: str | None) -> Direction:
            return Direction.resolve(self.tokenizer, settings, source, target, closest_tag)

        return list(map(resolve, sources, targets))

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        src_lang: LanguagesOfTexts = None,
        tgt_lang: LanguagesOfTexts = None,
        batch_tokens: int | None = None,
    ) -> list[Score]:
        """Computes the probability of given targets: a score for each pair.

        The options are those of `translate`.
        """
        options = TranslateOptions.of(
            src_lang=src_lang, tgt_lang=tgt_lang, batch_tokens=batch_tokens, return_scores=True
        )
        return [
            Score(self.reader.target_tokens(pair.hypothesis.tokens), pair.token_scores)
            for pair in self._compute_pairs(sources, targets, options, self.steps.score)
        ]

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        src_lang: LanguagesOfTexts = None,
        tgt_lang: LanguagesOfTexts = None,
        batch_tokens: int | None = None,
    ) -> list[Alignment]:
        """Aligns given targets with their sources, by cross-attention.

        `config.alignment_heads` names the heads; see `TransformersEngine`. The options are those
        of `translate`.

        Returns:
            The links of each pair. A pair with a blank side has none.
        """
        options = TranslateOptions.of(
            src_lang=src_lang, tgt_lang=tgt_lang, batch_tokens=batch_tokens, return_links=True
        )
        return [
            Alignment(
                words=pair.links.words(pair.segment.text, pair.text),
                tokens=token_links([pair]) if pair.segment.text and pair.text else (),
                source_tokens=self.reader.source_tokens(pair.segment),
                target_tokens=self.reader.target_tokens(pair.hypothesis.tokens),
            )
            for pair in self._compute_pairs(sources, targets, options, self.steps.link)
        ]

    def _compute_pairs(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        options: TranslateOptions,
        step: Callable[[Sequence[Output], Call], list[Output]],
    ) -> list[Output]:
        """Computes a step for given pairs, without the white space around their texts."""
        for name, texts in (("sources", sources), ("targets", targets)):
            if isinstance(texts, str):  # a list of letters
                raise ValueError(f"`{name}` is {texts!r}: give a list of texts.")
        if len(sources) != len(targets):
            raise ValueError(f"There are {len(sources)} sources and {len(targets)} targets.")
        sources = [text.strip(WHITE_SPACE) for text in sources]
        targets = [text.strip(WHITE_SPACE) for text in targets]
        search = self.search_of(options)
        directions = self.directions(len(sources), options, search)
        pairs = self.reader.read_pairs(sources, targets, directions)
        for index, pair in enumerate(pairs):
            if (num_tokens := len(pair.segment)) > self.source_limit:
                raise LongSourceError(index, num_tokens, self.source_limit)
        # Only transformers aligns given targets.
        engine = self.engines.for_scores(search) if options.scores else self.engines.transformers
        batch_tokens = options.batch_tokens or engine.batch_tokens

        def compute(begin: FirstTokens, pairs: list[Output]) -> list[Output]:
            begun = replace(search, settings=with_first_token(search.settings, begin))
            return step(pairs, Call(begun, engine, options.details, batch_tokens))

        begins = [pair.segment.source.direction.begin for pair in pairs]
        return map_grouped(pairs, begins, compute)


def _language_of_each(count: int, name: str, given: LanguagesOfTexts) -> list[str | None]:
    """Returns the language of each of `count` texts, given for all of them or as a list."""
    languages = [given] * count if isinstance(given, str | None) else list(given)
    if len(languages) != count:
        raise ValueError(f"`{name}` has {len(languages)} languages for {count} texts.")
    return languages


def _checked(texts: Iterable[Any]) -> Iterator[str]:
    """Yields texts; refuses what is no text."""
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts[{index}] is {text!r}, which is not a text.")
        yield text


def _source_limit(limit: int | None, tokenizer: Any, config: Any) -> int:
    """Returns the longest source in tokens: this limit, the tokenizer's, or the model's."""
    limit = limit or int(tokenizer.model_max_length)
    if limit >= NO_LIMIT or learned_positions(config):
        limit = min(limit, getattr(config, "max_position_embeddings", limit))
    return limit
