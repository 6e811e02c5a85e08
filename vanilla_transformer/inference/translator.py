"""`Translator`: texts in, texts out, with the fastest engine that computes the model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
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
from vanilla_transformer.inference.engine_choice import Engine, Engines, load_engines
from vanilla_transformer.inference.engines import Ids, TransformersEngine
from vanilla_transformer.inference.quality import Calibration
from vanilla_transformer.inference.results import (
    Alignment,
    Metric,
    OutputOptions,
    Score,
    Translation,
    least_risk,
    linked_words,
    metric_by_name,
)
from vanilla_transformer.inference.segments import (
    Demands,
    Reader,
    Segment,
    SplitTexts,
    without_unknown,
)
from vanilla_transformer.inference.stages import Stages, TranslatorCall
from vanilla_transformer.model.directions import Direction, FirstTokens, language_tokens
from vanilla_transformer.model.inputs import end_tokens_of
from vanilla_transformer.model.pipeline_vanilla_transformer import NO_LIMIT
from vanilla_transformer.model.tokenization_vanilla_transformer import WHITE_SPACE
from vanilla_transformer.progress import Progress
from vanilla_transformer.search import Search, SearchError, learned_positions
from vanilla_transformer.text.grouping import map_grouped
from vanilla_transformer.text.kept import make_kept_finder
from vanilla_transformer.text.languages import closest_tag, known_tag
from vanilla_transformer.text.lines import count_characters
from vanilla_transformer.text.memory import (
    LEAST_SHOWN,
    LEAST_SIMILARITY,
    Memory,
    Suggestion,
    suggestions_for,
)
from vanilla_transformer.text.terms import Glossary, GlossaryLike
from vanilla_transformer.text.tokenizer_sides import tokens_of_ids

logger = logging.get_logger(__name__)

TEXTS_PER_CHUNK = 2048
"""Texts that are read, sorted by length and computed together."""
MOST_NAMED = 10
"""Texts that a warning names."""

Languages = str | Sequence[str | None] | None
"""The language of all texts, or one for each of them. None: that of the model."""
Suggest = Callable[[list[str]], Sequence[Suggestion | None]]
"""Returns what a memory has for each text."""


class LongSourceError(ValueError):
    """A source is longer than the model takes; its number among those of the call is from 0 on."""

    def __init__(self, number: int, size: int, limit: int) -> None:
        self.number = number
        self.problem = f"has {size:,} tokens, and {limit:,} are possible: split it."
        super().__init__(f"Source {number} {self.problem}")


class Translator:
    """Generates texts from texts with a trained model: translation, pronunciation, summaries.

    `split_texts`, `stages.compute` and `stages.join` are the steps of `translate`, for callers that
    put the segments of several texts into batches of their own.

    Args:
        source_limit: Longest source in tokens; longer lines are split.
        config: The config of the model, which limits lengths. None: nothing does.
        calibration: Tells the quality of outputs. None: it is not known.
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
        self.reader = Reader(tokenizer, source_limit)
        end = next(iter(end_tokens_of(settings)), None)
        self.stages = Stages(self.reader, engines, end, calibration)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path | Sequence[str | Path],
        engine: str = "auto",
        device: str | None = None,
        compute_type: str = "float32",
        max_source_tokens: int | None = None,
        workers: int = 1,
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
        """
        paths = [str(name) for name in ([path] if isinstance(path, str | Path) else path)]
        for folder in paths:
            check_model_directory(folder)
        first, device = paths[0], device or default_device()
        tokenizer = load_tokenizer(first)  # it says what a name that the Hub lacks is
        config = AutoConfig.from_pretrained(first)
        return cls(
            load_engines(engine, paths, config, tokenizer, device, compute_type, workers),
            tokenizer,
            load_generation_settings(first, config),
            _source_limit(max_source_tokens, tokenizer, config),
            config,
            Calibration.load(Path(first)) if len(paths) == 1 else None,
        )

    @classmethod
    def from_model(cls, model: Any, tokenizer: Any) -> Self:
        """Makes a translator of a model in memory, such as one that is being trained.

        Args:
            model: A sequence-to-sequence model of transformers. It generates without dropout; its
                mode is restored afterwards.
        """
        return cls(
            Engines(TransformersEngine(model, tokenizer=tokenizer)),
            tokenizer,
            model.generation_config,
            _source_limit(None, tokenizer, model.config),
            model.config,
        )

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        src_lang: Languages = None,
        tgt_lang: Languages = None,
        n_best: int | None = None,
        return_scores: bool = False,
        return_tokens: bool = False,
        return_alignment: bool = False,
        return_word_alignment: bool = False,
        return_links: bool = False,
        minimum_risk: str | Metric | None = None,
        candidates: int = 16,
        keep: bool = True,
        keep_patterns: Sequence[str] = (),
        glossary: GlossaryLike | None = None,
        memory: Memory | None = None,
        suggest: Suggest | None = None,
        batch_tokens: int = 4096,
        progress: bool = False,
        in_sentences: bool = False,
        cuts_again: bool = False,
        name_text: Callable[[int], str] | None = None,
        **options: Any,
    ) -> Any:
        """Generates an output for each text.

        Args:
            texts: A text, a list of texts, or another iterable, which is read as a stream. A text
                may have several lines; its lines and blank lines stay where they are.
            src_lang: Language of the texts, in any spelling: "en", "eng_Latn", "en_XX". A list has
                one for each text.
            tgt_lang: Language of the outputs, in the same form. A model of several target languages
                needs it.
            n_best: Outputs per text. None: one, without a list around it.
            return_scores: Whether to return `score`, `token_scores` and `quality` of `Translation`.
            return_tokens: Whether to return its `tokens`.
            return_alignment: Whether to return its `alignment`, from cross-attention.
            return_word_alignment: Whether to return its `word_alignment`.
            return_links: Whether to return its `links`.
            minimum_risk: Chooses among `candidates` outputs the one that is most similar to the
                others: see `metric_by_name`.
            candidates: Number of outputs for `minimum_risk`: samples with `do_sample=True`,
                otherwise the best of a beam of this width.
            keep: Whether an output gets the placeholders, addresses and the like that it lacks,
                and loses placeholders that its source lacks. See `text.kept`.
            keep_patterns: Regular expressions, of the library `regex`, of what is kept besides.
            glossary: Terms whose translation is decided: a `Glossary`, a .tsv file, or targets by
                their sources. Where an output lacks some, a model that is trained with terms reads
                them; what is lacking then, a search by transformers puts into it.
            memory: Former translations: an equal text has its stored translation, and a model that
                has learnt it reads that of a similar one. `from_memory` of a result tells both. See
                `text.memory`.
            suggest: Returns what is known of texts, in the place of a memory.
            batch_tokens: Largest size of a batch, in tokens with padding.
            progress: Whether to show on standard error how many texts are done.
            in_sentences: Whether each sentence is translated alone.
            cuts_again: Whether a line whose output is cut off at the longest length is translated
                once more, each sentence alone.
            name_text: Names a text by its number, from 0, where a warning tells of it. None: by its
                number, from 1.
            **options: Settings of the search by their names in `GenerationConfig`, such as
                `num_beams`, `max_new_tokens`, `length_penalty`, `do_sample`, `temperature`.

        Returns:
            For a text its output, for a list a list of outputs, for another iterable an iterator.
            An output is a text; a `Translation` if something is to be returned with it, and a list
            of outputs with `n_best`.
        """
        if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
            raise ValueError(
                f"`texts` is {texts!r}: give a text, a list of texts, or an iterable of texts."
            )
        metric = None if minimum_risk is None else metric_by_name(minimum_risk)
        details = OutputOptions(
            return_scores, return_tokens, return_alignment, return_word_alignment, return_links
        )
        num_candidates = None if metric is None else candidates
        call = self.plan_call(n_best, details, batch_tokens, num_candidates, cuts_again, **options)
        if tgt_lang is not None and options.get("forced_bos_token_id") is not None:
            raise SearchError("Give `tgt_lang` or `forced_bos_token_id`: both name the target.")
        count = len(texts) if isinstance(texts, Sequence) and not isinstance(texts, str) else 1
        directions = self.directions(count, src_lang, tgt_lang, call.search)
        terms = None if glossary is None else Glossary.of(glossary)
        has_details = any(call.details)
        if memory is not None:
            if len({direction.target for direction in directions}) > 1:
                raise ValueError("`memory` has one target language, and `tgt_lang` names several.")
            reported = LEAST_SIMILARITY if has_details else None
            least = LEAST_SHOWN if self.reader.reads_memory else reported
            suggest = partial(suggestions_for, memories=[memory], least=least)
        split = partial(
            self.split_texts,
            keep=keep,
            keep_patterns=keep_patterns,
            glossary=terms,
            suggest=suggest,
            in_sentences=in_sentences,
        )
        given = [texts] if isinstance(texts, str) else texts
        rows = self._translate_stream(given, directions, call, split, metric, progress, name_text)

        def result_of(row: list[Translation]) -> Any:
            outputs = [output if has_details else output.text for output in row]
            return outputs[0] if n_best is None else outputs

        results = map(result_of, rows)
        if isinstance(texts, str):
            (output,) = results
            return output
        return list(results) if isinstance(texts, list | tuple) else results

    def resolve_search(
        self, n_best: int | None = None, candidates: int | None = None, **options: Any
    ) -> Search:
        """Combines the saved settings with those of a call; see `Search.resolve`.

        Args:
            candidates: Number of outputs among which one is chosen. None: all are wanted.
        """
        if options.get("num_return_sequences") is not None:
            raise SearchError("`num_return_sequences` is called `n_best` here.")
        options["num_return_sequences"] = n_best
        if isinstance(name := options.get("forced_bos_token_id"), str):
            tokens = language_tokens(self.tokenizer)
            code = closest_tag(name, tokens) if known_tag(name) else None
            if code is None:
                raise SearchError(f"`forced_bos_token_id` {name!r} is no language of the model.")
            options["forced_bos_token_id"] = tokens[code]
        return Search.resolve(self.settings, options, candidates=candidates, config=self.config)

    def plan_call(
        self,
        n_best: int | None = None,
        details: OutputOptions | None = None,
        batch_tokens: int = 4096,
        candidates: int | None = None,
        cuts_again: bool = False,
        **options: Any,
    ) -> TranslatorCall:
        """Decides what is computed, and with which engine; the search is as in `resolve_search`."""
        search = self.resolve_search(n_best, candidates, **options)
        engine = self.stages.engines.for_search(search)
        details = details or OutputOptions()
        return TranslatorCall(search, engine, details, batch_tokens, cuts_again=cuts_again)

    def directions(
        self,
        count: int,
        src_lang: Languages = None,
        tgt_lang: Languages = None,
        search: Search | None = None,
    ) -> list[Direction]:
        """Decides for each text, in the search of a call, how the model is asked for a language."""
        settings = self.settings if search is None else search.settings
        columns = []
        for name, languages in (("src_lang", src_lang), ("tgt_lang", tgt_lang)):
            column = [languages] * count if isinstance(languages, str | None) else list(languages)
            if len(column) != count:
                raise ValueError(f"`{name}` has {len(column)} languages for {count} texts.")
            columns.append(column)
        pairs = list(zip(*columns, strict=True))
        known = {
            (source, target): Direction.resolve(
                self.tokenizer, settings, source, target, closest_tag
            )
            for source, target in dict.fromkeys(pairs)
        }
        return [known[pair] for pair in pairs]

    def split_texts(
        self,
        texts: list[str],
        directions: Sequence[Direction] | None = None,
        keep: bool = True,
        keep_patterns: Sequence[str] = (),
        glossary: Glossary | None = None,
        suggest: Suggest | None = None,
        in_sentences: bool = False,
    ) -> SplitTexts:
        """Splits texts into lines, or sentences, and cuts what is too long; encodes all of them.

        Args:
            directions: That of each text. None: that of the model, which has one.
            keep: As for `translate`, as the others are.
        """
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"texts[{number}] is {text!r}, which is not a text.")
        demands = Demands(make_kept_finder(keep, keep_patterns), glossary or Glossary(()), keep)
        known = suggest(texts) if suggest else [None] * len(texts)
        split = self.reader.split(texts, directions or self.directions(len(texts)), demands, known)
        if in_sentences:
            split = split.with_parts(  # a similar text is one of all sentences
                [line] if line.known else self.reader.sentences(line) for line in split.segments
            )
        split = replace(split, segments=self.reader.read(split.segments))
        return without_unknown(self.reader.cut(split))

    def source_tokens(self, ids: Ids) -> tuple[str, ...]:
        """Returns the tokens of a segment, whose ids `split_texts` returned."""
        return tuple(tokens_of_ids(self.tokenizer, ids, "source"))

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        src_lang: Languages = None,
        tgt_lang: Languages = None,
        batch_tokens: int = 4096,
    ) -> list[Score]:
        """Computes how probable given targets are: a score for each pair.

        Args:
            src_lang: As in `translate`, as `tgt_lang` is.
        """
        details = OutputOptions(scores=True)
        pairs = self._compute_pairs(sources, targets, src_lang, tgt_lang, details, batch_tokens)
        return [
            Score(self.reader.target_tokens(pair.hypothesis.tokens), pair.token_scores)
            for pair in pairs
        ]

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        src_lang: Languages = None,
        tgt_lang: Languages = None,
        batch_tokens: int = 4096,
    ) -> list[Alignment]:
        """Aligns given targets with their sources, by cross-attention.

        The heads are those that `config.alignment_heads` names; see `TransformersEngine`.

        Args:
            src_lang: As in `translate`, as `tgt_lang` is.

        Returns:
            The links of each pair. A pair with a blank side has none.
        """
        details = OutputOptions(words=True)
        pairs = self._compute_pairs(sources, targets, src_lang, tgt_lang, details, batch_tokens)
        return [
            Alignment(
                words=linked_words(pair.text, pair.output, pair.links),
                tokens=tuple((s, t) for t, s in enumerate(pair.hypothesis.aligned or ())),
                source_tokens=self.source_tokens(pair.ids),
                target_tokens=self.reader.target_tokens(pair.hypothesis.tokens),
            )
            for pair in pairs
        ]

    def _compute_pairs(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        src_lang: Languages,
        tgt_lang: Languages,
        details: OutputOptions,
        batch_tokens: int,
    ) -> list[Segment]:
        """Scores or links given pairs, without the white space around their texts."""
        for name, texts in (("sources", sources), ("targets", targets)):
            if isinstance(texts, str):  # a list of letters
                raise ValueError(f"`{name}` is {texts!r}: give a list of texts.")
        if len(sources) != len(targets):
            raise ValueError(f"There are {len(sources)} sources and {len(targets)} targets.")
        sources, targets = (
            [text.strip(WHITE_SPACE) for text in side] for side in (sources, targets)
        )
        directions = self.directions(len(sources), src_lang, tgt_lang)
        pairs = self.reader.read_pairs(sources, targets, directions)
        for number, pair in enumerate(pairs):
            if len(pair) > self.source_limit:
                raise LongSourceError(number, len(pair), self.source_limit)
        call = TranslatorCall(self.resolve_search(), self.engine, details, batch_tokens)

        def compute(begin: FirstTokens, pairs: list[Segment]) -> list[Segment]:
            search = self.stages.call_with_begin(call, begin).search
            if details.linked:
                return self.stages.link(pairs, replace(call, search=search))
            engine = self.stages.engines.for_scores(search)
            return self.stages.score(pairs, replace(call, search=search, engine=engine))

        return map_grouped(pairs, [pair.direction.begin for pair in pairs], compute)

    def _translate_stream(
        self,
        texts: Iterable[str],
        directions: Sequence[Direction],
        call: TranslatorCall,
        split_texts: Callable[[list[str], Sequence[Direction]], SplitTexts],
        metric: Metric | None,
        progress: bool,
        name_text: Callable[[int], str] | None,
    ) -> Iterator[list[Translation]]:
        """Yields the outputs of each text; warns at the end of what is cut off or unknown."""
        remaining, num_done = iter(texts), 0
        cut_off: list[int] = []  # for each output that is, the number of its text
        num_repeated = 0  # of these outputs
        next_directions = cycle(directions)  # a stream has one direction for all of its texts
        num_computed = 0  # segments of a chunk

        def on_batch(count: int) -> None:
            nonlocal num_computed
            num_computed += count
            shown.update(num_done + len(chunk) * num_computed // len(split.segments))

        num_unknown, num_characters = 0, 0
        total = len(texts) if isinstance(texts, Sized) else None
        with Progress(total, "texts", shown=progress) as shown:
            while chunk := list(islice(remaining, TEXTS_PER_CHUNK)):
                split = split_texts(chunk, list(islice(next_directions, len(chunk))))
                num_computed = 0
                computed = self.stages.compute(split.segments, call, on_batch)
                for number, layout in enumerate(split.layouts, start=num_done):
                    outputs = self.stages.join(layout, computed, call)
                    if metric is not None:
                        outputs = [outputs[least_risk([output.text for output in outputs], metric)]]
                    cut = [output for output in outputs if not output.is_complete]
                    cut_off += [number] * len(cut)
                    num_repeated += sum(output.repeated for output in cut)
                    yield outputs
                num_unknown += sum(segment.unknown for segment in split.segments)
                num_characters += sum(count_characters(segment.text) for segment in split.segments)
                num_done += len(chunk)
                shown.update(num_done)
        if cut_off:
            names = [
                name_text(number) if name_text else f"text {number + 1}"
                for number in dict.fromkeys(cut_off)
            ]
            _warn_of_cut_off(len(cut_off), names, num_repeated, call.search.max_new_tokens)
        if num_unknown:
            logger.warning(
                f"The vocabulary lacks {num_unknown:,} of {num_characters:,} characters of the "
                f"texts ({num_unknown / num_characters:.1%}), so the model does not see them. "
                "`unknown_share` of a result (--json) tells the share of its text."
            )


def _warn_of_cut_off(count: int, names: Sequence[str], num_repeated: int, longest: int) -> None:
    """Warns of outputs that are cut off; `names` are those of their texts."""
    others = f", and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    logger.warning(
        f"Outputs that are cut off at the longest length of {longest} tokens: {count:,}, in "
        f"{', '.join(names[:MOST_NAMED])}{others}. "
        + (
            f"{num_repeated:,} of them repeat themselves: train the model longer."
            if num_repeated
            else "Give a larger `max_new_tokens` (--max-new-tokens)."
        )
    )


def _source_limit(limit: int | None, tokenizer: Any, config: Any) -> int:
    """Returns the longest source in tokens: this limit, the tokenizer's, or the model's."""
    limit = limit or int(tokenizer.model_max_length)
    if limit >= NO_LIMIT or learned_positions(config):
        limit = min(limit, getattr(config, "max_position_embeddings", limit))
    return limit
