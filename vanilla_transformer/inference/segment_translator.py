"""`SegmentTranslator` computes the outputs of segments, and computes wrong ones again."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise, starmap
from typing import NamedTuple

from vanilla_transformer.grouping import map_grouped
from vanilla_transformer.inference.constrained import TermIds, ids_of_term, search_with_terms
from vanilla_transformer.inference.engine import OnBatch
from vanilla_transformer.inference.job import Call
from vanilla_transformer.inference.segments import Output, Segment, Source
from vanilla_transformer.inference.steps import Outputs, Steps, edited
from vanilla_transformer.language_tags import known_tag
from vanilla_transformer.model.directions import FirstTokens
from vanilla_transformer.text.edits import SourceSpan
from vanilla_transformer.text.languages import words_have_spaces
from vanilla_transformer.text.printf import edits_to_number, may_be_numbered
from vanilla_transformer.text.repetition import tokens_not_repeated
from vanilla_transformer.text.sentences import is_sure_end, sentences_have_signs, split_sentences
from vanilla_transformer.text.terms import edits_to_place_terms, missing_targets, targets_in
from vanilla_transformer.tokenizer_sides import vocabulary_of

_OUTPUTS_TO_CHOOSE_FROM = 8
"""Number of outputs among which one with ordered placeholders is looked for."""


def copies_similar(row: Outputs) -> bool:
    """Returns whether the best output is the stored translation of a text with other words."""
    similar = row[0].segment.source.similar
    if similar is None or similar.similarity == 1:
        return False
    return row[0].text.lower() == similar.target.strip().lower()


def lacks_terms(row: Outputs) -> bool:
    """Returns whether one of the outputs lacks terms."""
    return any(output.missing_terms for output in row)


def lacks_searched_terms(row: Outputs) -> bool:
    """Returns whether one of the outputs lacks terms, in a language with spaces between words.

    In other languages, most outputs of a search for a term have its usual translation, too.
    """
    return lacks_terms(row) and words_have_spaces(row[0].segment.target_language)


def has_lost_its_way(output: Output) -> bool:
    """Returns whether an output repeats itself, unlike its text, or goes on far too long."""
    is_too_long = not output.is_complete and len(output.hypothesis.ids) > 2 * len(output.segment)
    return is_too_long or output.repeats


def has_other_values(output: Output) -> bool:
    """Returns whether an output gives values to wrong placeholders.

    It does if its placeholders have no numbers and another order than those of its source.
    """
    source, copies = output.segment.source, output.copies
    if copies is None or may_be_numbered(source.flags):
        return False
    return bool(edits_to_number(source.text, output.text, copies.pairs))


def lacks_sentences(output: Output) -> bool:
    """Returns whether an output is cut off, or a translation has fewer sentences than its source.

    A model that has learnt from short texts leaves most sentences of a paragraph out.
    """
    segment = output.segment
    source = known_tag(segment.source.direction.source)
    target = segment.target_language
    sentences = _sentences_of(segment.text, source, segment.kept)
    if len(sentences) == 1:
        return False
    if not output.is_complete:
        return True
    is_translation = bool(source and target) and source != target  # and no summary
    if not is_translation or segment.source.similar or not sentences_have_signs(target):
        return False
    num_needed = 1 + sum(starmap(is_sure_end, pairwise(sentences)))
    return len(_sentences_of(output.text, target)) < num_needed


def _sentences_of(text: str, language: str | None, kept: Sequence[SourceSpan] = ()) -> list[str]:
    """Returns the sentences of a text, without the cuts between them."""
    pieces = split_sentences(text, language, kept)
    return [piece for piece in pieces if isinstance(piece, str)]


def _any_output(is_wrong: Callable[[Output], bool]) -> Callable[[Outputs], bool]:
    return lambda row: any(map(is_wrong, row))


class Retry(NamedTuple):
    """A second computation of wrong outputs; not all calls have the optional ones."""

    is_wrong: Callable[[Outputs], bool]
    compute: Callable[[list[Outputs], Call], list[Outputs]]
    is_optional: bool = False

    def run(self, rows: list[Outputs], call: Call) -> None:
        """Replaces the wrong outputs in the rows."""
        indices = [index for index, row in enumerate(rows) if self.is_wrong(row)]
        if not indices:
            return
        again = self.compute([rows[index] for index in indices], call)
        for index, row in zip(indices, again, strict=True):
            rows[index] = row


class SegmentTranslator:
    """Computes the outputs of segments by steps, and computes the wrong ones again."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.reader = steps, steps.reader
        self.retries = (  # in this order
            Retry(copies_similar, self._without_similar),
            Retry(_any_output(has_lost_its_way), self._without_repetition, is_optional=True),
            Retry(lacks_terms, self._with_terms_in_source),
            Retry(lacks_terms, self._with_placed_terms),
            Retry(lacks_searched_terms, self._with_searched_terms),
            Retry(_any_output(has_other_values), self._with_values_in_order, is_optional=True),
        )

    def translate(
        self, segments: Sequence[Segment], call: Call, on_batch: OnBatch = lambda _: None
    ) -> list[Outputs]:
        """Computes `n_best` outputs of each segment, best first.

        Segments share batches if their targets begin with the same tokens. Segments whose
        outputs are aligned have batches of their own.
        """
        rows = self._translate_in_groups(segments, call, on_batch)
        return self._with_sentences(rows, call) if call.has_optional_retries else rows

    def _translate_in_groups(
        self, segments: Sequence[Segment], call: Call, on_batch: OnBatch = lambda _: None
    ) -> list[Outputs]:
        def run_group(key: tuple[FirstTokens, bool], segments: list[Segment]) -> list[Outputs]:
            begin, _ = key
            group_call = self.steps.with_begin(call, begin)
            rows = self.steps.run(segments, group_call, on_batch)
            for retry in self.retries:
                if call.has_optional_retries or not retry.is_optional:
                    retry.run(rows, group_call)
            return rows

        keys = [(each.source.direction.begin, each.probably_needs_links) for each in segments]
        return map_grouped(segments, keys, run_group)

    def _with_sentences(self, rows: list[Outputs], call: Call) -> list[Outputs]:
        """Translates segments whose outputs are cut off or lack sentences sentence by sentence."""
        sentences = {
            index: self.reader.sentences(row[0].segment.source)
            for index, row in enumerate(rows)
            if lacks_sentences(row[0])
        }
        again = self.reader.read_pieces([*sentences.values()])
        computed = iter(self._translate_in_groups(again.segments, call))
        for index, read in zip(sentences, again.texts, strict=True):
            columns = [
                next(computed) if isinstance(piece, Segment) else [piece] * len(rows[index])
                for piece in read
            ]
            outputs = zip(rows[index], *columns, strict=True)
            rows[index] = [replace(output, sentences=of_output) for output, *of_output in outputs]
        return rows

    def _without_similar(self, rows: list[Outputs], call: Call) -> list[Outputs]:
        """Computes outputs from segments without a similar text."""
        sources = [replace(row[0].segment.source, similar=None) for row in rows]
        return self.steps.run(self.reader.read(sources), call)

    def _without_repetition(self, rows: list[Outputs], call: Call) -> list[Outputs]:
        """Returns outputs of two searches; those that have not lost their way come first."""
        if (search := call.search.without_repetition(self._tokens_not_repeated)) is None:
            return rows
        call = self.steps.with_search(call, search)
        return self._best_of_two_searches(rows, call, has_lost_its_way)

    @cached_property
    def _tokens_not_repeated(self) -> int:
        return tokens_not_repeated(vocabulary_of(self.reader.tokenizer, "target"))

    def _with_values_in_order(self, rows: list[Outputs], call: Call) -> list[Outputs]:
        """Returns outputs of two searches; those with ordered values come first."""
        call = self.steps.with_search(call, call.search.with_outputs(_OUTPUTS_TO_CHOOSE_FROM))
        return self._best_of_two_searches(rows, call, has_other_values)

    def _best_of_two_searches(
        self, rows: list[Outputs], call: Call, is_wrong: Callable[[Output], bool]
    ) -> list[Outputs]:
        """Returns as many outputs, the wrong ones last, of these and of those of another search."""
        best = []
        again = self.steps.run([row[0].segment for row in rows], call)
        for row, new in zip(rows, again, strict=True):
            found = {output.hypothesis.ids for output in row}
            others = [output for output in new if output.hypothesis.ids not in found]
            best.append(sorted([*row, *others], key=is_wrong)[: len(row)])
        return best

    def _with_terms_in_source(self, rows: list[Outputs], call: Call) -> list[Outputs]:
        """Computes outputs from segments with annotated terms, if the model reads these."""
        if not self.reader.reads_terms:
            return rows
        return self.steps.run([self.reader.read_terms(row[0].segment) for row in rows], call)

    def _with_placed_terms(self, rows: list[Outputs], call: Call) -> list[Outputs]:
        """Puts the terms in the place of their usual translations.

        A search may write both words: of 59 German outputs whose usual translation is known, those
        with replaced words have chrF 48.8, those of the search 47.8.
        """
        alone = dict.fromkeys(
            Source(term.source, row[0].segment.source.direction)
            for row in rows
            for term in row[0].segment.terms
        )
        outputs = self.steps.run(self.reader.read([*alone]), call)
        usual = dict(zip(alone, (row[0].text for row in outputs), strict=True))
        return [[_with_terms_placed(output, usual) for output in row] for row in rows]

    def _with_searched_terms(self, rows: list[Outputs], call: Call) -> list[Outputs]:
        """Searches for outputs in place of those that lack terms.

        Searches of the same width share batches.
        """
        terms = [self._ids_of_terms(row[0]) for row in rows]
        searches = [search_with_terms(call.search, term_ids) for term_ids in terms]

        def search_group(beams: int, indices: list[int]) -> list[Outputs]:
            segments = [rows[index][0].segment for index in indices]
            group_call = self.steps.with_search(call, searches[indices[0]])
            again = self.steps.run(segments, group_call, terms=[terms[index] for index in indices])
            return [_filled_up(rows[n], new) for n, new in zip(indices, again, strict=True)]

        beams = [search.num_beams for search in searches]
        return map_grouped(list(range(len(rows))), beams, search_group)

    def _ids_of_terms(self, output: Output) -> list[TermIds]:
        """Returns the ids of the terms that an output must have.

        If the model reads terms, the inflected forms in this output may stay.
        """
        segment = output.segment
        wanted = Counter(term.target for term in segment.terms)
        if self.reader.reads_terms:
            inflected = Counter(missing_targets(segment.terms, output.text))
            wanted -= inflected - Counter(output.missing_terms)
        candidates = (
            ids_of_term(self.reader.target_tokenizer, target, segment.target_language)
            for target in wanted.elements()
        )
        return [term for term in candidates if term is not None]


def _filled_up(row: Outputs, new: Outputs) -> Outputs:
    """Keeps the outputs of a row that have their terms; new ones, equal texts last, fill it up."""
    kept = [output for output in row if not output.missing_terms]
    texts = {output.text for output in kept}
    new = sorted(new, key=lambda output: output.text in texts)
    return [*kept, *new][: len(row)]


def _with_terms_placed(output: Output, usual: Mapping[Source, str]) -> Output:
    """Returns an output in which missing terms replace their usual translations."""
    segment, direction = output.segment, output.segment.source.direction
    placed = targets_in(output.text, segment.terms, segment.target_language)
    edits = edits_to_place_terms(
        output.text,
        output.links,
        [match for match in segment.matches if match.term.target in output.missing_terms],
        {term.source: usual[Source(term.source, direction)] for term in segment.terms},
        [*(match.span for match in placed), *(output.copies.in_output if output.copies else ())],
        segment.target_language,
    )
    return edited(output, edits)
