"""The stages from segments to translations: search, link, restore, score, join."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import chain, islice
from typing import Any

from transformers.utils import logging

from vanilla_transformer.inference.constrained import TermIds, ids_of_term, search_with_terms
from vanilla_transformer.inference.engine_choice import Engines
from vanilla_transformer.inference.engines import (
    Hypothesis,
    Ids,
    TransformersEngine,
    chosen_scores,
    is_cut_off,
)
from vanilla_transformer.inference.job import Call, Job, JobText
from vanilla_transformer.inference.quality import Calibration, describe_output
from vanilla_transformer.inference.results import Mark, Translation, least_risk, linked_words
from vanilla_transformer.inference.segments import (
    Output,
    Reader,
    Segment,
    Source,
    SplitTexts,
)
from vanilla_transformer.model.directions import FirstTokens, with_first_token
from vanilla_transformer.search import Search, needed_start
from vanilla_transformer.text.edits import Edit, Span, apply_edits, moved, stripped
from vanilla_transformer.text.grouping import map_grouped
from vanilla_transformer.text.kept import (
    Copies,
    TokenLinks,
    edits_to_double_signs,
    edits_to_keep,
    edits_to_number,
)
from vanilla_transformer.text.languages import tag_of_texts, words_have_spaces
from vanilla_transformer.text.lines import TextLayout, count_characters
from vanilla_transformer.text.printf import may_be_numbered
from vanilla_transformer.text.repetition import tokens_not_repeated
from vanilla_transformer.text.sentences import Cut
from vanilla_transformer.text.terms import edits_to_exchange, missing_targets, targets_in
from vanilla_transformer.text.tokenizer_sides import vocabulary_of
from vanilla_transformer.text.word_alignment import Links

logger = logging.get_logger(__name__)

Row = list[Output]
"""The outputs of a segment, best first."""

_CANDIDATES = 8
"""Outputs among which one is chosen whose placeholders are in order."""


# The reasons to compute outputs once more.


def copies_similar(row: Row) -> bool:
    """Returns whether the best output is the stored translation of a text with other words."""
    similar = row[0].segment.source.similar
    if similar is None or similar.similarity == 1:
        return False
    return row[0].text.lower() == similar.target.strip().lower()


def loses_its_way(row: Row) -> bool:
    """Returns whether one of the outputs has lost its way."""
    return any(map(has_lost_its_way, row))


def changes_values(row: Row) -> bool:
    """Returns whether a program would take a value for another one in one of the outputs."""
    return any(map(has_other_values, row))


def lacks_terms(row: Row) -> bool:
    """Returns whether one of the outputs lacks terms."""
    return any(output.missing_terms for output in row)


def has_lost_its_way(output: Output) -> bool:
    """Returns whether an output repeats itself, unlike its text, or goes on far too long."""
    is_too_long = not output.is_complete and len(output.hypothesis.ids) > 2 * len(output.segment)
    return is_too_long or output.repeats


def has_other_values(output: Output) -> bool:
    """Returns whether placeholders, which nothing can number, are in another order."""
    source, copies = output.segment.source, output.copies
    if copies is None or may_be_numbered(source.flags):
        return False
    return bool(edits_to_number(source.text, output.text, copies.pairs))


class Stages:
    """The stages of one model; segments become outputs, and these translations.

    Args:
        end: The token that ends a target. None: no token does.
    """

    def __init__(
        self, reader: Reader, engines: Engines, end: int | None, calibration: Calibration | None
    ) -> None:
        self.reader, self.engines, self.end = reader, engines, end
        self.calibration = calibration
        self.call_with_begin = lru_cache(maxsize=64)(self._call_with_begin)

    def compute(
        self,
        segments: Sequence[Segment],
        call: Call,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[Row]:
        """Computes `n_best` outputs for each segment, best first.

        Segments share batches if their targets begin with the same tokens. Segments with kept parts
        have batches of their own, because their outputs are aligned.
        """
        rows = self._compute_once(segments, call, on_batch)
        return self._with_sentences(rows, call) if call.retries else rows

    def _compute_once(
        self,
        segments: Sequence[Segment],
        call: Call,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[Row]:
        keys = [(segment.source.direction.begin, bool(segment.kept)) for segment in segments]
        return map_grouped(segments, keys, partial(self._compute_group, call, on_batch))

    def _with_sentences(self, rows: list[Row], call: Call) -> list[Row]:
        """Translates texts whose outputs are cut off sentence by sentence."""
        sentences = {
            number: parts
            for number, (output, *_) in enumerate(rows)
            if not output.is_complete
            and len(parts := self.reader.sentences(output.segment.source)) > 1
        }
        again = [part for row in sentences.values() for part in row if isinstance(part, Source)]
        computed = iter(self._compute_once(self.reader.read(again), call))
        for number, parts in sentences.items():
            pieces = [
                [part] * len(rows[number]) if isinstance(part, Cut) else next(computed)
                for part in parts
            ]
            rows[number] = [
                replace(output, pieces=own_pieces)
                for output, *own_pieces in zip(rows[number], *pieces, strict=True)
            ]
        return rows

    def _call_with_begin(self, call: Call, begin: FirstTokens) -> Call:
        """Returns a call for targets that begin with these tokens."""
        settings = with_first_token(call.search.settings, begin)
        if settings is call.search.settings:
            return call
        search = replace(call.search, settings=settings)
        return replace(call, search=search, engine=self.engines.for_search(search))

    def _compute_group(
        self,
        call: Call,
        on_batch: Callable[[int], None] | None,
        key: tuple[FirstTokens, bool],
        segments: Sequence[Segment],
    ) -> list[Row]:
        """Computes the outputs of segments with one key: see `compute`.

        Five kinds of outputs are computed once more: copies of the translation of a similar text,
        without that text; outputs that repeat themselves, by a search without repetition; outputs
        that lack terms, with the terms in the source if the model reads these; outputs that lack
        them still, which get them by a search or in the place of other words; and outputs in which
        a program would take a value for another one, by a search for more outputs.
        """
        call = self.call_with_begin(call, key[0])
        rows = self._outputs(segments, call, on_batch)
        for is_wrong, compute_again in (
            (copies_similar, self._without_similar),
            (loses_its_way, self._without_repetition),
            (lacks_terms, self._reading_terms),
            (lacks_terms, self._adding_terms),
            (changes_values, self._keeping_order),
        ):
            numbers = [number for number, row in enumerate(rows) if is_wrong(row)]
            again = compute_again([rows[number] for number in numbers], call) if numbers else []
            for number, row in zip(numbers, again, strict=True):
                rows[number] = row
        return rows

    def _without_similar(self, rows: list[Row], call: Call) -> list[Row]:
        sources = [replace(row[0].segment.source, similar=None) for row in rows]
        return self._outputs(self.reader.read(sources), call)

    def _without_repetition(self, rows: list[Row], call: Call) -> list[Row]:
        """Adds other outputs; outputs that have not lost their way come first."""
        tokens = tokens_not_repeated(vocabulary_of(self.reader.tokenizer, "target"))
        search = call.search.without_repetition(tokens) if call.retries else None
        if search is None:
            return rows
        call = replace(call, search=search, engine=self.engines.for_search(search))
        return self._with_others(rows, call, has_lost_its_way)

    def _keeping_order(self, rows: list[Row], call: Call) -> list[Row]:
        """Adds other outputs; outputs in which the values have their order come first."""
        if not call.retries:
            return rows
        search = call.search.with_outputs(_CANDIDATES)
        batch_tokens = call.batch_tokens * call.search.num_beams // search.num_beams
        call = replace(call, search=search, batch_tokens=batch_tokens)
        return self._with_others(rows, call, has_other_values)

    def _with_others(
        self, rows: list[Row], call: Call, is_wrong: Callable[[Output], bool]
    ) -> list[Row]:
        """Returns the first outputs that are not wrong, of these and of another search."""
        best = []
        again = self._outputs([row[0].segment for row in rows], call)
        for row, new in zip(rows, again, strict=True):
            found = {output.hypothesis.ids for output in row}
            others = [output for output in new if output.hypothesis.ids not in found]
            best.append(sorted([*row, *others], key=is_wrong)[: len(row)])
        return best

    def _reading_terms(self, rows: list[Row], call: Call) -> list[Row]:
        if not self.reader.reads_terms:
            return rows
        return self._outputs([self.reader.read_terms(row[0].segment) for row in rows], call)

    def _adding_terms(self, rows: list[Row], call: Call) -> list[Row]:
        def add(have_spaces: bool, rows: Sequence[Row]) -> list[Row]:
            return (self._placing_terms if have_spaces else self._exchanging_terms)(rows, call)

        languages = [row[0].segment.target_language for row in rows]
        return map_grouped(rows, list(map(words_have_spaces, languages)), add)

    def _exchanging_terms(self, rows: Sequence[Row], call: Call) -> list[Row]:
        """Puts the terms in the place of the words that translate them.

        Where words are not inflected, nothing else in an output depends on them. Most outputs of a
        search for the terms would have both words.
        """
        alone = dict.fromkeys(
            Source(term.source, row[0].segment.source.direction)
            for row in rows
            for term in row[0].segment.terms
        )
        outputs = self._outputs(self.reader.read([*alone]), call)
        usual = dict(zip(alone, (row[0].text for row in outputs), strict=True))
        return [[_exchanged(output, usual) for output in row] for row in rows]

    def _placing_terms(self, rows: Sequence[Row], call: Call) -> list[Row]:
        """Computes outputs that contain the terms; equally many beams share batches."""
        if not isinstance(call.engine, TransformersEngine):
            logger.debug("Transformers searches outputs that lack terms again.")
            call = replace(call, engine=self.engines.transformers)
        terms = [self._terms_to_place(row[0]) for row in rows]
        searches = [search_with_terms(call.search, of_output) for of_output in terms]

        def search_group(beams: int, numbers: list[int]) -> list[Row]:
            batch_tokens = call.batch_tokens * call.search.num_beams // beams  # as much memory
            return self._outputs(
                [rows[number][0].segment for number in numbers],
                replace(call, search=searches[numbers[0]], batch_tokens=batch_tokens),
                terms=[terms[number] for number in numbers],
            )

        beams = [search.num_beams for search in searches]
        return map_grouped(list(range(len(rows))), beams, search_group)

    def _terms_to_place(self, output: Output) -> list[TermIds]:
        """Returns the ids of the terms that an output must have.

        A model that reads terms may keep the forms that it has inflected in this output.
        """
        segment = output.segment
        wanted = Counter(term.target for term in segment.terms)
        if self.reader.reads_terms:
            inflected = Counter(missing_targets(segment.terms, output.text))
            wanted -= inflected - Counter(output.missing_terms)
        candidates = (
            ids_of_term(self.reader.of_targets, target, segment.target_language)
            for target in wanted.elements()
        )
        return [term for term in candidates if term is not None]

    def _outputs(
        self,
        segments: Sequence[Segment],
        call: Call,
        on_batch: Callable[[int], None] | None = None,
        terms: Sequence[Sequence[TermIds]] | None = None,
    ) -> list[Row]:
        outputs = self.search(segments, call, on_batch, terms)
        outputs = self.link(outputs, call)
        outputs = self.score(list(map(restore, outputs)), call)
        remaining = iter(outputs)
        return [list(islice(remaining, call.search.n_best)) for _ in segments]

    def search(
        self,
        segments: Sequence[Segment],
        call: Call,
        on_batch: Callable[[int], None] | None = None,
        terms: Sequence[Sequence[TermIds]] | None = None,
    ) -> list[Output]:
        """Searches for `n_best` outputs of each segment, which may have to contain terms.

        Parts of the source come in the place of their stand-ins.
        """
        options = {} if terms is None else {"terms": terms}
        align = call.details.linked or any(segment.kept for segment in segments)
        rows = call.engine.generate(
            [segment.ids for segment in segments],
            call.search,
            call.batch_tokens,
            align,
            on_batch,
            **options,
        )
        ids = [list(hypothesis.ids) for row in rows for hypothesis in row]
        texts = iter(
            self.reader.of_targets.batch_decode(ids, skip_special_tokens=True) if ids else []
        )
        return [
            self._as_output(segment, hypothesis, next(texts), call.search)
            for segment, row in zip(segments, rows, strict=True)
            for hypothesis in row
        ]

    @staticmethod
    def _as_output(
        segment: Segment, hypothesis: Hypothesis, written: str, search: Search
    ) -> Output:
        """Makes an output of the text of a hypothesis, in which tokens stand for kept parts."""
        edits, source = segment.reading.edits_to_restore(written), segment.source
        if source.demands.keeps:
            edits += edits_to_double_signs(source.text, segment.kept, written, source.flags)
            edits.sort(key=lambda edit: edit.begin)
        text = apply_edits(written, edits)
        origins = {
            stripped(text, moved((edit.begin, edit.end), edits)): edit.source
            for edit in edits
            if edit.source
        }
        return Output(
            segment,
            hypothesis,
            written=written,
            put_back=edits,
            text=text,
            copies=Copies.find(source.text, segment.kept, text, source.flags, origins)
            if source.demands.keeps
            else None,
            is_complete=not is_cut_off(hypothesis, search.settings, search.max_new_tokens),
        )

    def link(self, outputs: Sequence[Output], call: Call) -> list[Output]:
        """Aligns the outputs whose links are needed.

        They are returned, or tell where a missing part or an invisible space goes, or which words a
        term takes the place of, in languages without spaces.
        """
        linked = list(outputs)
        wanted = [
            number
            for number, output in enumerate(outputs)
            if call.details.linked
            or (output.copies and output.copies.missing)
            or output.segment.reading.spaces
            or (output.segment.matches and not words_have_spaces(output.segment.target_language))
        ]
        aligned: Any = [outputs[number].hypothesis.aligned for number in wanted]
        if None in aligned:  # the search itself has not aligned them
            aligned = self.engines.transformers.alignments(
                [outputs[number].segment.ids for number in wanted],
                [self._ended(outputs[number].hypothesis) for number in wanted],
                call.batch_tokens,
                needed_start(call.search.settings),
            )
        for number, row in zip(wanted, aligned, strict=True):
            output = outputs[number]
            places = self.reader.target_spans(output)
            links = TokenLinks(self.reader.source_spans(output.segment), places, row[: len(places)])
            linked[number] = replace(
                output,
                hypothesis=replace(output.hypothesis, aligned=tuple(links.aligned)),
                links=links.edited(output.put_back),
            )
        return linked

    def score(self, outputs: Sequence[Output], call: Call) -> list[Output]:
        """Computes the scores of the tokens of outputs, if these are wanted."""
        if not call.details.scores:
            return list(outputs)
        settings, longest = call.search.settings, call.search.max_new_tokens
        # A score needs an end; that of an output without one is left out below.
        ended = [self._ended(output.hypothesis) for output in outputs]
        rows = call.engine.token_scores(
            [output.segment.ids for output in outputs],
            ended,
            call.batch_tokens,
            needed_start(settings),
        )
        scored = []
        for output, ids, row in zip(outputs, ended, rows, strict=True):
            scores = row[: len(output.hypothesis.tokens)]
            end = longest if output.given is None else None  # no setting ends a given target
            scored.append(replace(output, token_scores=chosen_scores(scores, ids, settings, end)))
        return scored

    def _ended(self, hypothesis: Hypothesis) -> Ids:
        """Returns the ids of an output with an end."""
        end = self.end if hypothesis.end is None else hypothesis.end
        return [*hypothesis.ids, *([] if end is None else [end])]

    def join(
        self, job: Job, split: SplitTexts[Segment], rows: Sequence[Row]
    ) -> list[list[Translation]]:
        """Makes the outputs of each text, best first, from the outputs of its segments."""
        return [
            self._outputs_of(job, text, layout, rows)
            for text, layout in zip(job.texts, split.layouts, strict=True)
        ]

    def _outputs_of(
        self, job: Job, text: JobText, layout: TextLayout, rows: Sequence[Row]
    ) -> list[Translation]:
        ranks = range(job.call.search.n_best)
        joined = [self._join(layout, rows, rank, job.call) for rank in ranks]
        if text.former:
            similar = text.former.suggestion
            joined = [replace(output, from_memory=similar) for output in joined]
        best_first = sorted(joined, key=lambda output: -(output.score or 0.0))
        if job.metric is None:
            return best_first
        return [best_first[least_risk([output.text for output in best_first], job.metric)]]

    def _join(self, layout: TextLayout, rows: Sequence[Row], rank: int, call: Call) -> Translation:
        """Makes an output of a text from one for each of its segments."""
        details = call.details
        layout, parts = _with_pieces(layout, [rows[number][rank] for number in layout.segments])
        joined, read = _joined(layout, parts), [part.segment for part in parts]
        links = joined.links
        characters = sum(count_characters(segment.text) for segment in read)
        scores = tuple(score for part in parts for score in part.token_scores)
        normaliser = float(max(len(scores), 1)) ** call.search.length_penalty
        tokens = (self.reader.target_tokens(part.hypothesis.tokens) for part in parts)
        translation = Translation(
            text=joined.text,
            score=sum(scores) / normaliser if details.scores else None,
            token_scores=scores if details.scores else None,
            tokens=tuple(chain.from_iterable(tokens)) if details.tokens else None,
            alignment=_token_pairs(parts) if details.alignment else None,
            source_tokens=tuple(chain.from_iterable(map(self.reader.source_tokens, read)))
            if details.alignment
            else None,
            word_alignment=linked_words(joined.source, joined.text, links)
            if details.word_alignment
            else None,
            links=links if details.links else None,
            is_complete=all(part.is_complete for part in parts),
            stays=joined.stays,
            repeated=any(part.repeats for part in parts),
            unknown_share=sum(segment.num_unknown for segment in read) / max(characters, 1),
            restored=tuple(span for part in parts for span in part.restored),
            terms=tuple(
                (segment.text[match.begin : match.end], match.term.target)
                for segment in read
                for match in segment.matches
            ),
            missing_terms=tuple(term for part in parts for term in part.missing_terms),
            marks=tuple(sorted(joined.marks)) if details.marks else (),
        )
        is_described = details.scores and bool(parts)
        return self._described(translation, joined.source, read) if is_described else translation

    def _described(
        self, translation: Translation, source: str, read: Sequence[Segment]
    ) -> Translation:
        """Returns an output with its features, and the quality that a calibration expects."""
        num_tokens = sum(len(segment) - segment.num_shown for segment in read)
        described, known = describe_output(translation, source, num_tokens), self.calibration
        quality = known.expected(described, read[0].target_language) if known else None
        return replace(translation, described=described, quality=quality)


def _with_pieces(layout: TextLayout, outputs: Sequence[Output]) -> tuple[TextLayout, list[Output]]:
    """Returns the layout of a text with numbers into its own outputs, or those of sentences."""
    numbered = layout.with_parts({old: [new] for new, old in enumerate(layout.segments)})
    split = SplitTexts([numbered], list(outputs)).with_parts(
        output.pieces or [output] for output in outputs
    )
    return split.layouts[0], split.segments


@dataclass
class _Joined:
    """A text and its output, as far as they are put together.

    Attributes:
        sources: The spans of the tokens; see `TokenLinks`, also for `targets` and `aligned`.
        values: A kept part of the source, and the same part of the output.
        stays: As for `Translation`.
    """

    source: str = ""
    text: str = ""
    sources: list[Span] = field(default_factory=list)
    targets: list[Span] = field(default_factory=list)
    aligned: list[int] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    values: list[tuple[Span, Span]] = field(default_factory=list)
    stays: bool = False

    def add(self, output: Output) -> None:
        """Adds a part and its output."""
        segment, copies, links = output.segment, output.copies, output.links
        in_source, in_text = partial(_shifted, len(self.source)), partial(_shifted, len(self.text))
        self.aligned += [len(self.sources) + index for index in links.aligned]
        self.sources += map(in_source, links.sources)
        self.targets += map(in_text, links.targets)
        kept = copies.found if copies else ()
        terms = targets_in(output.text, segment.terms, segment.target_language, kept)
        self.marks += [Mark(*in_text(span), "kept") for span in kept]
        self.marks += [Mark(*in_text((term.begin, term.end)), "term") for term in terms]
        pairs = copies.pairs if copies else ()
        self.values += [(in_source(span), in_text(part)) for span, part in pairs]
        self.source, self.text = self.source + segment.text, self.text + output.text

    @property
    def links(self) -> TokenLinks:
        """The links of the tokens of both texts."""
        return TokenLinks(self.sources, self.targets, self.aligned)

    def numbered(self, can_number: bool) -> "_Joined":
        """Returns the text with numbered placeholders, or the source, if their order is another."""
        edits = edits_to_number(self.source, self.text, self.values)
        if not edits:
            return self
        if not can_number:
            return _Joined(self.source, self.source, stays=True)
        links = self.links.edited(edits)
        return _Joined(
            self.source,
            apply_edits(self.text, edits),
            [*links.sources],
            [*links.targets],
            [*links.aligned],
            [Mark(*moved(mark[:2], edits), mark.kind) for mark in self.marks],
        )


def _shifted(shift: int, span: Span) -> Span:
    return span[0] + shift, span[1] + shift


def _joined(layout: TextLayout, parts: Sequence[Output]) -> _Joined:
    """Puts the outputs of a text together.

    The language of the target, or else its script, tells how parts of a long line are joined.
    """

    @cache
    def language() -> str | None:
        return parts[0].segment.target_language or tag_of_texts(part.text for part in parts)

    joined = _Joined()
    for origin, part in zip(layout.parts, layout.in_language(language), strict=True):
        if isinstance(part, int):
            joined.add(parts[part])
        else:
            joined.source += origin.space if isinstance(origin, Cut) else part
            joined.text += part
    return joined.numbered(may_be_numbered(parts[0].segment.source.flags)) if parts else joined


def _exchanged(output: Output, usual: Mapping[Source, str]) -> Output:
    """Returns an output with the terms that it lacks in the place of their usual translations."""
    segment, direction = output.segment, output.segment.source.direction
    edits = edits_to_exchange(
        output.text,
        output.links,
        [match for match in segment.matches if match.term.target in output.missing_terms],
        {term.source: usual[Source(term.source, direction)] for term in segment.terms},
        output.copies.found if output.copies else (),
    )
    return _edited(output, edits)


def _edited(output: Output, edits: Sequence[Edit]) -> Output:
    """Returns an output with edits of its text, and the kept parts and terms that it then has."""
    segment, text = output.segment, apply_edits(output.text, edits)
    return replace(
        output,
        text=text,
        links=output.links.edited(edits),
        copies=output.copies
        and Copies.find(segment.text, segment.kept, text, segment.source.flags),
        missing_terms=missing_targets(segment.terms, text, segment.target_language),
    )


def restore(output: Output) -> Output:
    """Puts invisible spaces, and kept parts that it lacks, into an output; finds missing terms."""
    if spaces := output.segment.reading.edits_of_spaces(output.text, output.links):
        output = _edited(output, spaces)
    copies, segment = output.copies, output.segment
    if copies is None or copies.are_right:
        missing = missing_targets(segment.terms, output.text, segment.target_language)
        return replace(output, missing_terms=missing)
    found = targets_in(output.text, segment.terms, segment.target_language)
    edits = edits_to_keep(copies, output.links, [(match.begin, match.end) for match in found])
    restored = tuple(edit.text.strip() for edit in edits if edit.text)
    return replace(_edited(output, edits), restored=restored)


def _token_pairs(parts: Sequence[Output]) -> Links:
    """Returns the links of all tokens of parts by their indices, the ends included in the count."""
    links, sources, targets = [], 0, 0
    for part in parts:
        links += [(sources + s, targets + t) for t, s in enumerate(part.hypothesis.aligned or ())]
        sources += len(part.segment)
        targets += len(part.hypothesis.tokens)
    return tuple(links)
