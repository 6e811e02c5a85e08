"""`Translator`: texts in, texts out, with the fastest engine that computes the model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Self

from transformers import AutoConfig, GenerationConfig
from transformers.utils import logging

from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.data.token_words import count_characters, map_grouped, tokens_of_ids
from vanilla_transformer.documents.kept import make_kept_finder
from vanilla_transformer.documents.lines import TextLayout
from vanilla_transformer.documents.sentences import Cut
from vanilla_transformer.documents.terms import Glossary, GlossaryLike
from vanilla_transformer.inference.engine_choice import Engine, Engines, load_engine
from vanilla_transformer.inference.engines import Ids, TransformersEngine
from vanilla_transformer.inference.loading import (
    default_device,
    load_generation_settings,
    load_tokenizer,
    load_weights,
)
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
from vanilla_transformer.languages import closest_tag, known_tag
from vanilla_transformer.model.directions import Direction, FirstTokens, language_tokens
from vanilla_transformer.model.pipeline_vanilla_transformer import NO_LIMIT
from vanilla_transformer.model.tokenization_vanilla_transformer import WHITE_SPACE
from vanilla_transformer.progress import Progress
from vanilla_transformer.search import Search, SearchError, learned_positions

logger = logging.get_logger(__name__)

TEXTS_PER_CHUNK = 2048
"""Texts that are read, sorted by length and computed together."""
MOST_NAMED = 100
"""Texts that a warning names."""

Languages = str | Sequence[str | None] | None
"""The language of all texts, or one for each of them. None: that of the model."""


class LongSourceError(ValueError):
    """A source is longer than the model takes.

    Args:
        number: Number of the source among those of the call, from 0.
    """

    def __init__(self, number: int, size: int, limit: int) -> None:
        self.number = number
        self.problem = f"has {size:,} tokens, and {limit:,} are possible: split it."
        super().__init__(f"Source {number} {self.problem}")


class Translator:
    """Generates texts from texts with a trained model: translation, pronunciation, summaries.

    Args:
        source_limit: Longest source in tokens; longer lines are split.
        load_model: Loads the model for what only transformers computes. None: `engine` is that of
            transformers.
        exact: Whether only this engine may compute. If not, a search that it cannot do goes to
            transformers.
        config: The config of the model, which limits lengths. None: nothing does.
        calibration: Tells the quality of outputs. None: it is not known.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Any,
        settings: GenerationConfig,
        source_limit: int,
        load_model: Callable[[], Any] | None = None,
        exact: bool = True,
        config: Any = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.settings = settings
        self.source_limit = source_limit
        self.config = config
        ends = settings.eos_token_id
        self.end_token_id: int | None = ends[0] if isinstance(ends, list) else ends
        self.reader = Reader(tokenizer, source_limit)
        self._engines = Engines(engine, tokenizer, load_model, exact)
        self.calibration = calibration
        self._stages = Stages(self.reader, self._engines, self.end_token_id, calibration)

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

        Raises:
            ValueError: If the engine is unknown or cannot compute the model, or if the models of
                an ensemble have different vocabularies.
            FileNotFoundError: If the directory does not exist, or holds no weights or no tokenizer.
            OSError: If the export to CTranslate2 cannot be written to the cache.
        """
        paths = [str(name) for name in ([path] if isinstance(path, str | Path) else path)]
        for folder in paths:
            check_model_directory(folder)
        first, device = paths[0], device or default_device()
        tokenizer = load_tokenizer(first)  # it says what a name that the Hub lacks is
        config = AutoConfig.from_pretrained(first)

        def load_model() -> Any:
            return load_weights(first).to(device).eval()

        return cls(
            load_engine(engine, paths, config, tokenizer, device, compute_type, workers),
            tokenizer,
            load_generation_settings(first, config),
            _source_limit(max_source_tokens, tokenizer, config),
            load_model,
            engine != "auto" or len(paths) > 1,
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
            TransformersEngine(model, tokenizer=tokenizer),
            tokenizer,
            model.generation_config,
            _source_limit(None, tokenizer, model.config),
            config=model.config,
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
            return_scores: Whether to return scores and token scores too.
            return_tokens: Whether to return tokens too.
            return_alignment: Whether to return links of tokens from cross-attention too.
            return_word_alignment: Whether to return links of words too, made from those of tokens.
            return_links: Whether to return the links of tokens too with the places of the tokens
                in the text and the output.
            minimum_risk: Chooses among `candidates` outputs the one that is most similar to the
                others (Kumar and Byrne 2004): "chrf", "bleu", or a function that returns the
                similarity of an output and a reference, higher for better.
            candidates: Number of outputs for `minimum_risk`: samples with `do_sample=True`,
                otherwise the best of a beam of this width.
            keep: Whether placeholders, addresses, paths, options, emoji and characters that the
                vocabulary lacks are put into an output that lacks them, where the alignment puts
                them, and placeholders that its source lacks are taken out. See `documents.kept`.
            keep_patterns: Regular expressions, of the library `regex`, of what is kept besides.
            glossary: Terms whose translation is decided: a `Glossary`, a .tsv file, or targets by
                their sources. Where an output lacks some, a model that is trained with terms reads
                them; what is lacking then, a search by transformers puts into it.
            batch_tokens: Largest size of a batch, in tokens with padding.
            progress: Whether to show on standard error how many texts are done: a bar on a
                terminal, otherwise a line at most once a minute.
            in_sentences: Whether each sentence is translated alone.
            cuts_again: Whether a line whose output is cut off at the longest length is translated
                once more, each sentence alone.
            name_text: Names a text by its number, from 0, where a warning tells of it. None: by its
                number, from 1.
            **options: Settings of the search by their names in `GenerationConfig`, such as
                `num_beams`, `max_new_tokens`, `length_penalty`, `do_sample`, `temperature`.

        Returns:
            For a text its output, for a list a list of outputs, for another iterable an iterator.
            An output is a text. It is a `Translation` if scores, tokens or alignments are asked
            for, and a list of these with `n_best`. A warning tells which outputs are cut off at the
            longest length.
        """
        if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
            raise ValueError(
                f"`texts` is {texts!r}: give a text, a list of texts, or an iterable of texts."
            )
        metric = None if minimum_risk is None else metric_by_name(minimum_risk)
        details = OutputOptions(
            return_scores, return_tokens, return_alignment, return_word_alignment, return_links
        )
        among = None if metric is None else candidates
        call = self.plan_call(n_best, details, batch_tokens, among, **options)
        call = replace(call, cuts_again=cuts_again)
        if tgt_lang is not None and options.get("forced_bos_token_id") is not None:
            raise SearchError("Give `tgt_lang` or `forced_bos_token_id`: both name the target.")
        count = len(texts) if isinstance(texts, Sequence) and not isinstance(texts, str) else 1
        directions = self.directions(count, src_lang, tgt_lang, call.search)
        terms = None if glossary is None else Glossary.of(glossary)
        split = partial(
            self.split_texts,
            keep=keep,
            keep_patterns=keep_patterns,
            glossary=terms,
            in_sentences=in_sentences,
        )
        given = [texts] if isinstance(texts, str) else texts
        rows = self._translate_stream(given, directions, call, split, metric, progress, name_text)
        has_details = any(call.details)
        outputs = ([output if has_details else output.text for output in row] for row in rows)
        results = (row[0] if n_best is None else row for row in outputs)
        if isinstance(texts, str):
            (output,) = results
            return output
        return list(results) if isinstance(texts, list | tuple) else results

    def resolve_search(
        self, n_best: int | None = None, candidates: int | None = None, **options: Any
    ) -> Search:
        """Combines the saved settings with those of a call; see `Search.resolve`.

        Args:
            n_best: Outputs per text. None: one.
            candidates: Number of outputs among which one is chosen. None: all are wanted.
            **options: Settings of the search by their names in `GenerationConfig`.
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
        **options: Any,
    ) -> TranslatorCall:
        """Decides what `compute_segments` computes, and with which engine.

        `plan_call`, `split_texts`, `compute_segments` and `join_outputs` are the steps of
        `translate`, for callers that put the segments of several texts into batches of their own.

        Args:
            n_best: As for `resolve_search`, as `candidates` and `options` are.
            details: What to return besides the texts. None: nothing.
        """
        search = self.resolve_search(n_best, candidates, **options)
        engine = self._engines.without(self.engine.problems(search))
        return TranslatorCall(search, engine, details or OutputOptions(), batch_tokens)

    def directions(
        self,
        count: int,
        src_lang: Languages = None,
        tgt_lang: Languages = None,
        search: Search | None = None,
    ) -> list[Direction]:
        """Decides for each of some texts how the model is asked for its language.

        Args:
            search: The search of the call. None: it has the saved settings.
        """
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
        in_sentences: bool = False,
    ) -> SplitTexts:
        """Splits texts into lines, or sentences, and cuts what is too long; encodes all of them.

        Args:
            directions: That of each text. None: that of the model, which has one.
            keep: As for `translate`, as `keep_patterns`, `glossary` and `in_sentences` are.
        """
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"texts[{number}] is {text!r}, which is not a text.")
        demands = Demands(make_kept_finder(keep, keep_patterns), glossary or Glossary(()), keep)
        split = self.reader.split(texts, directions or self.directions(len(texts)), demands)
        if in_sentences:
            split = split.with_parts(map(self.reader.sentences, split.segments))
        split = replace(split, segments=self.reader.read(split.segments))
        return without_unknown(self.reader.cut(split))

    def compute_segments(
        self,
        segments: Sequence[Segment],
        call: TranslatorCall,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[list[Segment]]:
        """Computes `n_best` outputs for each segment, best first; see `Stages.compute`.

        Segments whose targets begin with the same token share batches, and those with parts that
        are kept, which are aligned.
        """

        def compute(key: tuple[FirstTokens, bool], alike: list[Segment]) -> list[list[Segment]]:
            begun = call.with_first_token(key[0])
            if begun is not call:
                engine = self._engines.without(self.engine.problems(begun.search))
                begun = replace(begun, engine=engine)
            return self._stages.compute(alike, begun, on_batch)

        keys = [(segment.direction.begin, bool(segment.kept)) for segment in segments]
        rows = map_grouped(segments, keys, compute)
        if not call.cuts_again:
            return rows
        sentences = {
            number: parts
            for number, row in enumerate(rows)
            if not row[0].is_complete and len(parts := self.reader.sentences(segments[number])) > 1
        }
        again = [part for row in sentences.values() for part in row if isinstance(part, Segment)]
        call = replace(call, cuts_again=False)
        computed = iter(self.compute_segments(self.reader.read(again), call))
        for number, parts in sentences.items():
            pieces = [
                [part] * len(rows[number]) if isinstance(part, Cut) else next(computed)
                for part in parts
            ]
            rows[number] = [
                replace(output, pieces=of_rank)
                for output, *of_rank in zip(rows[number], *pieces, strict=True)
            ]
        return rows

    def join_outputs(
        self, layout: TextLayout, outputs: Sequence[Sequence[Segment]], call: TranslatorCall
    ) -> list[Translation]:
        """Makes the outputs of a text from those of its segments, in the order of their scores."""
        return self._stages.join(layout, outputs, call)

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
        pairs = self._compute_pairs(
            sources, targets, src_lang, tgt_lang, OutputOptions(scores=True), batch_tokens
        )
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
        pairs = self._compute_pairs(
            sources, targets, src_lang, tgt_lang, OutputOptions(words=True), batch_tokens
        )
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
            begun = call.with_first_token(begin)
            if details.linked:
                return self._stages.link(pairs, begun)
            engine = self._engines.without(self.engine.token_problems(begun.search.settings))
            return self._stages.score(pairs, replace(begun, engine=engine))

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
        cut_off: list[int] = []  # a number for each output
        of_remaining = cycle(directions)  # a stream has one for all of its texts
        num_computed = 0  # segments of a chunk

        def on_batch(count: int) -> None:
            nonlocal num_computed
            num_computed += count
            shown.update(num_done + len(chunk) * num_computed // len(split.segments))

        num_unknown, num_characters = 0, 0
        total = len(texts) if isinstance(texts, Sized) else None
        with Progress(total, "texts", shown=progress) as shown:
            while chunk := list(islice(remaining, TEXTS_PER_CHUNK)):
                split = split_texts(chunk, list(islice(of_remaining, len(chunk))))
                num_computed = 0
                computed = self.compute_segments(split.segments, call, on_batch)
                for number, layout in enumerate(split.layouts, start=num_done):
                    outputs = self.join_outputs(layout, computed, call)
                    if metric is not None:
                        outputs = [outputs[least_risk([output.text for output in outputs], metric)]]
                    cut_off += [number for output in outputs if not output.is_complete]
                    yield outputs
                num_unknown += sum(segment.unknown for segment in split.segments)
                num_characters += sum(count_characters(segment.text) for segment in split.segments)
                num_done += len(chunk)
                shown.update(num_done)
        if cut_off:
            numbers = list(dict.fromkeys(cut_off))
            names = [name_text(number) if name_text else f"text {number + 1}" for number in numbers]
            others = f", and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
            logger.warning(
                f"Outputs that are cut off at the longest length of {call.search.max_new_tokens} "
                f"tokens: {len(cut_off):,}. Give a larger `max_new_tokens` (--max-new-tokens), or "
                "train the model longer if they repeat themselves. "
                f"They are in {', '.join(names[:MOST_NAMED])}{others}."
            )
        if num_unknown:
            logger.warning(
                f"The vocabulary does not know {num_unknown:,} of {num_characters:,} characters of "
                f"the texts ({num_unknown / num_characters:.1%}): the model does not see which. "
                "`unknown_share` of a result (--json) tells the share of its text."
            )


def _source_limit(limit: int | None, tokenizer: Any, config: Any) -> int:
    """Returns the longest source in tokens: this limit, the tokenizer's, or the model's."""
    limit = limit or int(tokenizer.model_max_length)
    if limit >= NO_LIMIT or learned_positions(config):
        limit = min(limit, getattr(config, "max_position_embeddings", limit))
    return limit
