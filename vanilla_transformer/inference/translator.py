"""`Translator`: texts in, texts out, with the fastest engine that computes the model."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import cycle, islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Self, TypeVar

from transformers import AutoConfig, GenerationConfig
from transformers.utils import logging

from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.data.token_words import (
    count_characters,
    has_two_vocabularies,
    in_groups,
    spans_of_encoding,
    spans_of_ids,
    target_side,
    tokens_of_ids,
    unknown_spans,
    vocabulary_of,
)
from vanilla_transformer.data.word_alignment import Span
from vanilla_transformer.documents.kept import (
    Copies,
    TokenLinks,
    apply_edits,
    edits_to_keep,
    make_kept_finder,
    meets,
    stripped,
)
from vanilla_transformer.documents.lines import (
    Document,
    Segment,
    SplitTexts,
    split_texts,
    without_unknown,
)
from vanilla_transformer.documents.readings import Placeholders, Reading
from vanilla_transformer.documents.terms import (
    Glossary,
    GlossaryLike,
    edits_to_annotate,
    missing_targets,
    targets_in,
)
from vanilla_transformer.inference.constrained import forms_of_term, search_with_terms
from vanilla_transformer.inference.engines import (
    Engine,
    Hypothesis,
    Ids,
    TransformersEngine,
    is_cut_off,
)
from vanilla_transformer.inference.loading import (
    default_device,
    load_engine,
    load_generation_settings,
    load_tokenizer,
    load_weights,
)
from vanilla_transformer.inference.results import (
    NO_LINKS,
    Alignment,
    Metric,
    OutputOptions,
    Score,
    SegmentOutput,
    Translation,
    join_segments,
    least_risk,
    linked_words,
    metric_by_name,
)
from vanilla_transformer.languages import closest_tag, known_tag
from vanilla_transformer.model.directions import (
    Begin,
    Direction,
    begun_by,
    in_language,
    language_tokens,
    tags_of_sources,
)
from vanilla_transformer.model.pipeline_vanilla_transformer import NO_LIMIT
from vanilla_transformer.model.tokenization_vanilla_transformer import TERM_TOKENS, WHITE_SPACE
from vanilla_transformer.progress import Progress
from vanilla_transformer.search import (
    Search,
    SearchError,
    learned_positions,
    needed_start,
)

logger = logging.get_logger(__name__)

Row = TypeVar("Row")

TEXTS_PER_CHUNK = 2048
"""Texts that are read, sorted by length and computed together."""

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
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.settings = settings
        self.source_limit = source_limit
        self._load_model = load_model
        self._exact = exact
        self.config = config
        self._loaded_transformers: TransformersEngine | None = None
        self._loading = Lock()
        self._target_tokenizer = target_side(tokenizer)
        # They share the vocabulary, and no call changes the tokenizer itself.
        self._in_language = {
            "source": lru_cache(partial(in_language, tokenizer)),
            "target": lru_cache(partial(target_side, tokenizer)),
        }
        self._tags = tags_of_sources(tokenizer)
        self._placeholders = Placeholders.of(tokenizer)
        self.reads_terms = {*TERM_TOKENS} <= {*tokenizer.get_added_vocab()}
        ends = settings.eos_token_id
        self.end_token_id: int | None = ends[0] if isinstance(ends, list) else ends

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
            engine: "transformers" computes with `model.generate()`; "int8" does so with weights of
                8 bits, on a CPU; "ctranslate2" exports the model to CTranslate2 on first use, into
                a cache. "auto" takes CTranslate2 where it is installed and can compute the model,
                otherwise transformers, and `engine.name` tells which.
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

    @cached_property
    def _letters(self) -> set[str]:
        """The characters that tokens of sources have, without those that only join emoji."""
        return set("".join(vocabulary_of(self.tokenizer, "source"))) - {"\ufe0f", "\u200d"}

    @property
    def _transformers_engine(self) -> TransformersEngine:
        """The engine for what only transformers computes; loads the model when first used."""
        if isinstance(self.engine, TransformersEngine):
            return self.engine
        assert self._load_model is not None
        with self._loading:  # several threads may ask at once
            if self._loaded_transformers is None:
                self._loaded_transformers = TransformersEngine(
                    self._load_model(), tokenizer=self.tokenizer
                )
        return self._loaded_transformers

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
            **options: Settings of the search by their names in `GenerationConfig`, such as
                `num_beams`, `max_new_tokens`, `length_penalty`, `do_sample`, `temperature`.

        Returns:
            For a text its output, for a list a list of outputs, for another iterable an iterator.
            An output is a text. It is a `Translation` if scores, tokens or alignments are asked
            for, and a list of these with `n_best`. A warning tells how many outputs are cut off at
            the longest length.

        Raises:
            ValueError: If a text is not a `str`, or an option is wrong or not possible with the
                engine.
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
        if tgt_lang is not None and options.get("forced_bos_token_id") is not None:
            raise SearchError("Give `tgt_lang` or `forced_bos_token_id`: both name the target.")
        count = len(texts) if isinstance(texts, Sequence) and not isinstance(texts, str) else 1
        directions = self.directions(count, src_lang, tgt_lang, call.search)
        terms = None if glossary is None else Glossary.of(glossary)
        split = partial(self.split_texts, keep=keep, keep_patterns=keep_patterns, glossary=terms)
        how = call, split, metric, n_best
        if isinstance(texts, str):
            (output,) = self._translate_stream([texts], directions, *how, progress=False)
            return output
        stream = self._translate_stream(texts, directions, *how, progress=progress)
        return list(stream) if isinstance(texts, list | tuple) else stream

    def resolve_search(
        self, n_best: int | None = None, candidates: int | None = None, **options: Any
    ) -> Search:
        """Combines the saved settings with those of a call; see `Search.resolve`.

        Args:
            n_best: Outputs per text. None: one.
            candidates: Number of outputs among which one is chosen. None: all are wanted.
            **options: Settings of the search by their names in `GenerationConfig`.

        Raises:
            SearchError: If an option is wrong.
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
    ) -> "TranslatorCall":
        """Decides what `compute_segments` computes, and with which engine.

        `plan_call`, `split_texts`, `compute_segments` and `join_outputs` are the steps of
        `translate`, for callers that put the segments of several texts into batches of their own.

        Args:
            n_best: As for `resolve_search`, as `candidates` and `options` are.
            details: What to return besides the texts. None: nothing.

        Raises:
            ValueError: If an option is wrong, or not possible with the engine.
        """
        search = self.resolve_search(n_best, candidates, **options)
        engine = self._engine_without(self.engine.problems(search))
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

        Raises:
            ValueError: If the model does not know a language, or needs one that is not named.
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
    ) -> SplitTexts:
        """Splits texts into lines, and cuts those that are too long; encodes all of them.

        Args:
            directions: That of each text. None: that of the model, which has one.
            keep: As for `translate`, as `keep_patterns` and `glossary` are.

        Raises:
            ValueError: If a text is not a `str`, or not Unicode text, or lacks a language.
        """
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"texts[{number}] is {text!r}, which is not a text.")
        directions = directions or self.directions(len(texts))
        find = make_kept_finder(keep, keep_patterns)
        make = partial(self._make_segments, find, glossary or Glossary(()))
        split = split_texts(texts, make, self.source_limit, directions, self._tags, find)
        return without_unknown(split)

    def _make_segments(
        self,
        find_kept: Callable[..., list[Span]],
        glossary: Glossary,
        texts: Sequence[str],
        directions: Sequence[Direction],
    ) -> list[Segment]:
        """Decides what is kept of lines, and what the model reads of them."""
        # With two vocabularies, a target need not be in the letters of its source.
        keeps_unknown = not has_two_vocabularies(self.tokenizer)
        segments = list(map(Segment, texts, self._encode_sources(texts, directions), directions))
        for number, (text, direction) in enumerate(zip(texts, directions, strict=True)):
            unknown: list[Span] = []
            if self.tokenizer.unk_token_id in (ids := segments[number].ids):
                (unknown,) = unknown_spans(self.tokenizer, [text])
            kept = find_kept(text, unknown if keeps_unknown else ())
            matches = tuple(glossary.find(text, known_tag(direction.source), kept))
            if not kept and not unknown and not matches:
                continue
            reading = self._placeholders.reading(text, kept)
            read = [(edit.begin, edit.end) for edit in reading.edits]
            unknown = [span for span in unknown if not meets(span, read)]
            if unknown:  # what a model reads for unknown characters would mislead it
                reading = reading.without(
                    [
                        span
                        for span in kept
                        if meets(span, unknown) and self._letters.isdisjoint(text[slice(*span)])
                    ]
                )
            if reading.edits:
                (ids,) = self._encode_sources([reading.text], [direction])
            count = sum(count_characters(text[slice(*span)]) for span in unknown)
            segments[number] = Segment(
                text, ids, direction, count, tuple(kept), reading.edits, matches
            )
        return segments

    def compute_segments(
        self,
        segments: Sequence[Segment],
        call: "TranslatorCall",
        on_batch: Callable[[int], None] | None = None,
    ) -> list[list[SegmentOutput]]:
        """Computes `n_best` outputs for each segment, best first; see `TransformersEngine`.

        Segments whose targets begin with the same token share batches, and those with parts that
        are kept, which are aligned. Those whose outputs lack terms are computed once more, from
        sources with the terms if the model reads them; and where that does not help, by a search of
        transformers that must place them.
        """

        def compute(key: tuple[Begin, bool], alike: list[Segment]) -> list[list[SegmentOutput]]:
            begin, _ = key
            search, engine = call.search, call.engine
            if (settings := begun_by(search.settings, begin)) is not search.settings:
                search = replace(search, settings=settings)
                engine = self._engine_without(self.engine.problems(search))
            of_these = replace(call, search=search, engine=engine)
            rows = self._compute_alike(alike, of_these, on_batch)
            ways = [self._compute_with_terms]
            if self.reads_terms:
                ways.insert(0, self._compute_reading_terms)
            for compute_again in ways:
                lacking = [
                    number
                    for number, row in enumerate(rows)
                    if any(output.missing_terms for output in row)
                ]
                again = compute_again([rows[number][0] for number in lacking], of_these)
                for number, row in zip(lacking, again, strict=True):
                    rows[number] = row
            return rows

        keys = [(segment.direction.begin, bool(segment.kept)) for segment in segments]
        return in_groups(segments, keys, compute)

    def _compute_reading_terms(
        self, outputs: Sequence[SegmentOutput], call: "TranslatorCall"
    ) -> list[list[SegmentOutput]]:
        """Computes outputs of sources with their terms, where the model has room for these."""
        segments = []
        for segment in (output.source for output in outputs):
            terms = [((match.begin, match.end), match.term.target) for match in segment.matches]
            edits = [*segment.edits, *edits_to_annotate(segment.text, terms)]
            reading = Reading(segment.text, sorted(edits, key=lambda edit: edit.begin))
            (ids,) = self._encode_sources([reading.text], [segment.direction])
            if len(ids) <= self.source_limit:
                segment = replace(segment, ids=ids, edits=reading.edits)
            segments.append(segment)
        return self._compute_alike(segments, call)

    def _compute_with_terms(
        self, outputs: Sequence[SegmentOutput], call: "TranslatorCall"
    ) -> list[list[SegmentOutput]]:
        """Computes outputs that contain the terms of others; equally many beams share batches.

        A model that reads terms may inflect those that it has inflected in these outputs.
        """
        if outputs and not isinstance(call.engine, TransformersEngine):
            logger.warning_once("Terms that outputs lack are placed by transformers.")
            call = replace(call, engine=self._transformers_engine)
        segments, rows = [output.source for output in outputs], []
        for segment, output in zip(segments, outputs, strict=True):
            terms = [match.term for match in segment.matches]
            wanted = Counter(term.target for term in terms)
            if self.reads_terms:
                other_forms = Counter(missing_targets(terms, output.text))
                wanted -= other_forms - Counter(output.missing_terms)
            language = known_tag(segment.direction.target)
            forms = (
                forms_of_term(self._target_tokenizer, term, language) for term in wanted.elements()
            )
            rows.append([of_term for of_term in forms if of_term is not None])
        searches = [search_with_terms(call.search, terms) for terms in rows]

        def compute(beams: int, alike: list[int]) -> list[list[SegmentOutput]]:
            batch_tokens = call.batch_tokens * call.search.num_beams // beams  # as much memory
            return self._compute_alike(
                [segments[number] for number in alike],
                replace(call, search=searches[alike[0]], batch_tokens=batch_tokens),
                terms=[rows[number] for number in alike],
            )

        numbers = list(range(len(segments)))
        return in_groups(numbers, [search.num_beams for search in searches], compute)

    def _compute_alike(
        self,
        segments: Sequence[Segment],
        call: "TranslatorCall",
        on_batch: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[list[SegmentOutput]]:
        """Computes the outputs of segments whose targets begin with the same token."""
        search, sources = call.search, [segment.ids for segment in segments]
        align = any(segment.kept for segment in segments) or call.details.linked
        rows = call.engine.generate(sources, search, call.batch_tokens, align, on_batch, **options)
        # From here on there is a row for each output.
        hypotheses = [hypothesis for row in rows for hypothesis in row]
        segments = [segment for segment, row in zip(segments, rows, strict=True) for _ in row]
        ids = [list(hypothesis.ids) for hypothesis in hypotheses]
        written = self._target_tokenizer.batch_decode(ids, skip_special_tokens=True) if ids else []
        put_back = [
            segment.reading.restored(text) for segment, text in zip(segments, written, strict=True)
        ]
        texts = list(map(apply_edits, written, put_back))
        lacks = [
            bool(segment.kept) and not Copies.find(segment.text, segment.kept, text).are_right
            for segment, text in zip(segments, texts, strict=True)
        ]
        some = [number for number, lack in enumerate(lacks) if lack or call.details.linked]
        of_some = self._links(
            [segments[number] for number in some],
            [hypotheses[number] for number in some],
            [written[number] for number in some],
            call,
        )
        links = dict(zip(some, of_some, strict=True))
        # A score needs an end; that of an output without one is left out below.
        ended = [self._ended(hypothesis) for hypothesis in hypotheses]
        scores: list[list[float]] = [[]] * len(ended)
        if call.details.scores:
            scores = call.engine.token_scores(
                [segment.ids for segment in segments],
                ended,
                call.batch_tokens,
                needed_start(search.settings),
            )
        outputs = []
        for number, (segment, hypothesis, text) in enumerate(
            zip(segments, hypotheses, texts, strict=True)
        ):
            length = len(hypothesis.ids) + (hypothesis.end is not None)
            language = known_tag(segment.direction.target)
            terms = [match.term for match in segment.matches]
            of_tokens = links.get(number, NO_LINKS)
            restored: tuple[str, ...] = ()
            aligned = tuple(of_tokens.aligned)
            of_tokens = of_tokens.edited(put_back[number])
            if lacks[number]:
                found = targets_in(text, terms, language)
                whole = [(match.begin, match.end) for match in found]
                copies = Copies.find(segment.text, segment.kept, text)
                edits = edits_to_keep(copies, of_tokens, whole)
                text, of_tokens = apply_edits(text, edits), of_tokens.edited(edits)
                restored = tuple(edit.text.strip() for edit in edits if edit.text)
            outputs.append(
                SegmentOutput(
                    text,
                    segment,
                    is_complete=not is_cut_off(hypothesis, search.settings, search.max_new_tokens),
                    tokens=self._target_tokens(ended[number][:length]),
                    token_scores=_chosen_scores(
                        scores[number][:length],
                        ended[number],
                        search.settings,
                        search.max_new_tokens,
                    ),
                    aligned=aligned,
                    links=of_tokens,
                    restored=restored,
                    missing_terms=missing_targets(terms, text, language),
                )
            )
        remaining = iter(outputs)
        return [list(islice(remaining, len(row))) for row in rows]

    def join_outputs(
        self,
        document: Document,
        outputs: Sequence[Sequence[SegmentOutput]],
        call: "TranslatorCall",
    ) -> list[Translation]:
        """Makes the outputs of a text from those of its segments, in the order of their scores.

        The language of its target, or else their script, tells how the parts of a long line are
        joined.
        """
        joined = [
            join_segments(
                document,
                {number: outputs[number][rank] for number in document.segments},
                call.details,
                call.search.length_penalty,
            )
            for rank in range(call.search.n_best)
        ]
        return sorted(joined, key=lambda output: -(output.score or 0.0))

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

        Raises:
            ValueError: If there are not as many targets as sources, or if a text is too long, or
                the model needs a language.
        """

        def score(settings: GenerationConfig, pairs: list[_Pair]) -> list[Score]:
            engine = self._engine_without(self.engine.token_problems(settings))
            scores = engine.token_scores(*_ids_of(pairs), batch_tokens, needed_start(settings))
            return [
                Score(self._target_tokens(pair.ids), _chosen_scores(row, pair.ids, settings))
                for pair, row in zip(pairs, scores, strict=True)
            ]

        return self._compute_pairs(score, sources, targets, src_lang, tgt_lang)

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

        Raises:
            ValueError: If there are not as many targets as sources, if a text is too long, or the
                model needs a language.
        """

        def align(settings: GenerationConfig, pairs: list[_Pair]) -> list[Alignment]:
            rows = self._transformers_engine.alignments(
                *_ids_of(pairs), batch_tokens, needed_start(settings)
            )
            source_spans = self._spans_of_sources([pair.source for pair in pairs])
            target_spans = self._encode(
                "target",
                [pair.target for pair in pairs],
                [pair.source.direction.target for pair in pairs],
                partial(spans_of_encoding, self.tokenizer, side="target"),
            )
            return [
                Alignment(
                    words=linked_words(source.text, target, TokenLinks(*spans, row[:-1])),
                    tokens=tuple((s, t) for t, s in enumerate(row[:-1])),  # none of the end
                    source_tokens=self.source_tokens(source.ids),
                    target_tokens=self._target_tokens(ids),
                )
                for (source, target, ids), row, spans in zip(
                    pairs, rows, zip(source_spans, target_spans, strict=True), strict=True
                )
            ]

        return self._compute_pairs(align, sources, targets, src_lang, tgt_lang)

    def _compute_pairs(
        self,
        compute: Callable[[GenerationConfig, list["_Pair"]], list[Row]],
        sources: Sequence[str],
        targets: Sequence[str],
        src_lang: Languages,
        tgt_lang: Languages,
    ) -> list[Row]:
        """Computes a row for each given pair without the white space around its texts.

        Those whose targets begin with the same token are computed together.
        """
        for name, texts in (("sources", sources), ("targets", targets)):
            if isinstance(texts, str):  # a list of letters
                raise ValueError(f"`{name}` is {texts!r}: give a list of texts.")
        if len(sources) != len(targets):
            raise ValueError(f"There are {len(sources)} sources and {len(targets)} targets.")
        sources, targets = (
            [text.strip(WHITE_SPACE) for text in side] for side in (sources, targets)
        )
        directions = [
            direction.for_text(text, self._tags)
            for text, direction in zip(
                sources, self.directions(len(sources), src_lang, tgt_lang), strict=True
            )
        ]
        source_ids = self._encode_sources(sources, directions)
        for number, ids in enumerate(source_ids):
            if len(ids) > self.source_limit:
                raise LongSourceError(number, len(ids), self.source_limit)
        languages = [direction.target for direction in directions]
        target_ids = self._encode("target", targets, languages, _ids_of_encoding)
        segments = map(Segment, sources, source_ids, directions)
        return in_groups(
            list(map(_Pair, segments, targets, target_ids)),
            [direction.begin for direction in directions],
            lambda begin, pairs: compute(begun_by(self.settings, begin), pairs),
        )

    def _engine_without(self, problems: list[str]) -> Engine:
        """Returns the engine, or transformers where the former has problems."""
        if not problems:
            return self.engine
        what = "; ".join(problems)
        if self._exact:
            raise ValueError(
                f"The engine {self.engine.name!r} cannot do this search ({what}): use another "
                "engine, one model, or other options."
            )
        logger.warning_once(f"This search is computed by transformers, more slowly: {what}.")
        return self._transformers_engine

    def _translate_stream(
        self,
        texts: Iterable[str],
        directions: Sequence[Direction],
        call: "TranslatorCall",
        split_texts: Callable[[list[str], Sequence[Direction]], SplitTexts],
        metric: Metric | None,
        n_best: int | None,
        *,
        progress: bool,
    ) -> Iterator[Any]:
        """Yields what is returned for each text; warns at the end of what is cut off or unknown."""
        remaining, num_cut, num_done = iter(texts), 0, 0
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
                for document in split.documents:
                    outputs = self.join_outputs(document, computed, call)
                    if metric is not None:
                        outputs = [outputs[least_risk([output.text for output in outputs], metric)]]
                    num_cut += sum(not output.is_complete for output in outputs)
                    returned = [output if any(call.details) else output.text for output in outputs]
                    yield returned[0] if n_best is None else returned
                num_unknown += sum(segment.unknown for segment in split.segments)
                num_characters += sum(count_characters(segment.text) for segment in split.segments)
                num_done += len(chunk)
                shown.update(num_done)
        if num_cut:
            logger.warning(
                f"Outputs that are cut off at the longest length of {call.search.max_new_tokens} "
                f"tokens: {num_cut:,}. Give a larger `max_new_tokens` (--max-new-tokens)."
            )
        if num_unknown:
            logger.warning(
                f"The vocabulary does not know {num_unknown:,} of {num_characters:,} characters of "
                f"the texts ({num_unknown / num_characters:.1%}): the model does not see which. "
                "`unknown_share` of a result (--json) tells the share of its text."
            )

    def _ended(self, hypothesis: Hypothesis) -> Ids:
        """Returns the ids of an output with an end."""
        end = self.end_token_id if hypothesis.end is None else hypothesis.end
        return [*hypothesis.ids, *([] if end is None else [end])]

    def _links(
        self,
        segments: Sequence[Segment],
        hypotheses: Sequence[Hypothesis],
        texts: Sequence[str],
        call: "TranslatorCall",
    ) -> list[TokenLinks]:
        """Returns the links of outputs with their segments."""
        aligned: list[Any] = [hypothesis.aligned for hypothesis in hypotheses]
        if None in aligned:  # the search itself has not aligned them
            aligned = self._transformers_engine.alignments(
                [segment.ids for segment in segments],
                [self._ended(hypothesis) for hypothesis in hypotheses],
                call.batch_tokens,
                needed_start(call.search.settings),
            )
        links = []
        for spans, hypothesis, text, row in zip(
            self._spans_of_sources(segments), hypotheses, texts, aligned, strict=True
        ):
            targets = spans_of_ids(self._target_tokenizer, hypothesis.ids, text)
            of_tokens = [stripped(text, span) for span in targets]
            links.append(TokenLinks(spans, of_tokens, row[: len(of_tokens)]))
        return links

    def _spans_of_sources(self, segments: Sequence[Segment]) -> list[list[Span]]:
        """Returns the span of each token in its text, without the tag that is read before it."""
        readings = [segment.reading for segment in segments]
        texts = [reading.text for reading in readings]
        directions = [segment.direction for segment in segments]
        find = partial(spans_of_encoding, self.tokenizer, side="source")
        rows = self._read_sources(texts, directions, find)
        spans = []
        for reading, direction, row in zip(readings, directions, rows, strict=True):
            shift = len(direction.read(""))
            places = (reading.place((max(b - shift, 0), max(e - shift, 0))) for b, e in row)
            spans.append([stripped(reading.original, place) for place in places])
        return spans

    def _encode_sources(self, texts: Sequence[str], directions: Sequence[Direction]) -> list[Ids]:
        return self._read_sources(texts, directions, _ids_of_encoding)

    def _read_sources(
        self,
        texts: Sequence[str],
        directions: Sequence[Direction],
        compute: Callable[[list[str], Any], list[Row]],
    ) -> list[Row]:
        """Computes a row for each source from its text as the model reads it, and its encoding."""
        read = [direction.read(text) for text, direction in zip(texts, directions, strict=True)]
        return self._encode("source", read, [each.source for each in directions], compute)

    def _encode(
        self,
        side: str,
        texts: Sequence[str],
        languages: Sequence[str | None],
        compute: Callable[[list[str], Any], list[Row]],
    ) -> list[Row]:
        """Computes a row for each text of one side from its encoding in its language."""
        name = {"source": "text", "target": "text_target"}[side]
        options = {"truncation": False, "verbose": False, "return_attention_mask": False}

        def encode(language: str | None, texts: list[str]) -> list[Row]:
            return compute(texts, self._in_language[side](language)(**{name: texts}, **options))

        return in_groups(texts, languages, encode)

    def _target_tokens(self, ids: Ids) -> tuple[str, ...]:
        return tuple(self._target_tokenizer.convert_ids_to_tokens(list(ids)))


class _Pair(NamedTuple):
    """A source, and a given target with its ids."""

    source: Segment
    target: str
    ids: Ids


def _ids_of(pairs: Sequence[_Pair]) -> tuple[list[Ids], list[Ids]]:
    return [pair.source.ids for pair in pairs], [pair.ids for pair in pairs]


def _ids_of_encoding(_: Sequence[str], encoding: Any) -> list[Ids]:
    ids: list[Ids] = encoding["input_ids"]
    return ids


@dataclass(frozen=True)
class TranslatorCall:
    """What one call of `Translator.translate` computes, and with which engine."""

    search: Search
    engine: Engine
    details: OutputOptions
    batch_tokens: int


def _chosen_scores(
    values: list[float], ids: Ids, settings: GenerationConfig, longest: int | None = None
) -> tuple[float, ...]:
    """Returns the scores of tokens, where those that the settings force have the probability 1.

    Args:
        ids: The tokens, of which the first may be that of `forced_bos_token_id`.
        longest: Length at which `forced_eos_token_id` puts an end. None: it puts none.
    """
    chosen = list(values)
    if chosen and ids[0] == settings.forced_bos_token_id:
        chosen[0] = 0.0
    if settings.forced_eos_token_id is not None and len(chosen) == longest:
        chosen[-1] = 0.0
    return tuple(chosen)


def _source_limit(limit: int | None, tokenizer: Any, config: Any) -> int:
    """Returns the longest source in tokens: this limit, the tokenizer's, or the model's."""
    limit = limit or int(tokenizer.model_max_length)
    if limit >= NO_LIMIT or learned_positions(config):
        limit = min(limit, getattr(config, "max_position_embeddings", limit))
    return limit
