"""The steps from segments to outputs: search, decode, link, restore, score."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress, islice
from typing import Any

from vanilla_transformer.inference.constrained import TermIds
from vanilla_transformer.inference.engine import Hypothesis, Ids, OnBatch
from vanilla_transformer.inference.engine_choice import Engines
from vanilla_transformer.inference.job import Call
from vanilla_transformer.inference.reader import Reader
from vanilla_transformer.inference.segments import Output, Segment
from vanilla_transformer.model.directions import FirstTokens, with_first_token
from vanilla_transformer.search import Search, needed_start
from vanilla_transformer.text.edits import (
    Edit,
    OutputSpan,
    SourceSpan,
    apply_edits,
    moved,
    spans_after,
    stripped,
    without_overlaps,
)
from vanilla_transformer.text.kept import Copies
from vanilla_transformer.text.languages import words_have_spaces
from vanilla_transformer.text.percent_signs import edits_to_add_percents, edits_to_double_percents
from vanilla_transformer.text.restoring import edits_to_restore
from vanilla_transformer.text.terms import missing_targets, targets_in
from vanilla_transformer.text.token_links import TokenLinks

Outputs = list[Output]
"""The outputs of one segment, best first."""


class Steps:
    """The steps of one model; each returns outputs with more of their attributes.

    Args:
        end: The token that ends a target. None: no token does.
    """

    def __init__(self, reader: Reader, engines: Engines, end: int | None) -> None:
        self.reader, self.engines, self.end = reader, engines, end

    def with_begin(self, call: Call, begin: FirstTokens) -> Call:
        """Returns a call for targets that begin with these tokens."""
        settings = with_first_token(call.search.settings, begin)
        if settings is call.search.settings:
            return call
        return self.with_search(call, replace(call.search, settings=settings))

    def with_search(self, call: Call, search: Search) -> Call:
        """Returns a call with another search, its engine, and batches that take as much memory."""
        batch_tokens = max(1, call.batch_tokens * call.search.num_beams // search.num_beams)
        engine = self.engines.for_search(search)
        return replace(call, search=search, engine=engine, batch_tokens=batch_tokens)

    def run(
        self,
        segments: Sequence[Segment],
        call: Call,
        on_batch: OnBatch = lambda _: None,
        terms: Sequence[Sequence[TermIds]] | None = None,
    ) -> list[Outputs]:
        """Computes `n_best` outputs of each segment by all steps.

        Args:
            terms: The terms that the outputs of each segment must contain, which transformers can
                search for. None: there are none.
        """
        search = call.search
        ids = [segment.ids for segment in segments]
        if terms is None:
            align = call.details.linked or any(segment.probably_needs_links for segment in segments)
            rows = call.engine.generate(ids, search, call.batch_tokens, align, on_batch)
        else:
            engine = self.engines.transformers
            rows = engine.generate(ids, search, call.batch_tokens, terms=terms)
        outputs = self.link(self.decode(segments, rows, search), call)
        remaining = iter(self.score(list(map(restore, outputs)), call))
        return [list(islice(remaining, len(row))) for row in rows]

    def decode(
        self, segments: Sequence[Segment], rows: Sequence[Sequence[Hypothesis]], search: Search
    ) -> list[Output]:
        """Decodes found tokens to texts, in which parts of the source replace stand-ins."""
        ids = [list(hypothesis.ids) for row in rows for hypothesis in row]
        decode = self.reader.target_tokenizer.batch_decode
        texts = iter(decode(ids, skip_special_tokens=True) if ids else [])
        return [
            self._as_output(segment, hypothesis, next(texts), search)
            for segment, row in zip(segments, rows, strict=True)
            for hypothesis in row
        ]

    @staticmethod
    def _as_output(
        segment: Segment, hypothesis: Hypothesis, decoded: str, search: Search
    ) -> Output:
        """Makes an output of the text of a hypothesis, in which tokens stand for kept parts."""
        source = segment.source
        edits = segment.reading.edits_to_replace_stand_ins(decoded)
        if source.demands.keeps:
            percents = edits_to_double_percents(source.text, segment.kept, decoded, source.flags)
            edits = without_overlaps([*edits, *percents], lambda edit: edit.span)
        text = apply_edits(decoded, edits)
        return Output(
            segment,
            hypothesis,
            decoded=decoded,
            stand_in_edits=edits,
            text=text,
            copies=_copies(segment, text, edits, {}) if source.demands.keeps else None,
            missing_terms=missing_targets(segment.terms, text, segment.target_language),
            is_complete=not _is_cut_off(hypothesis, search),
        )

    def link(self, outputs: Sequence[Output], call: Call) -> list[Output]:
        """Adds links to the outputs that need them.

        Links are returned with an output; they tell the place of a missing part or an invisible
        space; and in languages without spaces, they tell the words that a term replaces.
        """
        wanted = [call.details.linked or _needs_links(output) for output in outputs]
        linked = iter(self._linked(list(compress(outputs, wanted)), call))
        columns = zip(outputs, wanted, strict=True)
        return [next(linked) if is_wanted else output for output, is_wanted in columns]

    def _linked(self, outputs: Sequence[Output], call: Call) -> list[Output]:
        """Returns outputs with links; transformers aligns them if the search has not."""
        rows: Any = [output.hypothesis.aligned for output in outputs]
        if None in rows:
            start = needed_start(call.search.settings)
            sources = [output.segment.ids for output in outputs]
            targets = [self._ended(output.hypothesis) for output in outputs]
            align = self.engines.transformers.alignments
            rows = align(sources, targets, call.batch_tokens, start)
        in_sources = self.reader.source_spans([output.segment for output in outputs])
        in_outputs = self.reader.output_spans(outputs)
        linked = []
        columns = zip(outputs, in_sources, in_outputs, rows, strict=True)
        for output, in_source, in_output, aligned in columns:
            links = TokenLinks(in_source, in_output, aligned[: len(in_output)])
            hypothesis = replace(output.hypothesis, aligned=tuple(links.aligned))
            links = links.edited(output.stand_in_edits)
            linked.append(replace(output, hypothesis=hypothesis, links=links))
        return linked

    def score(self, outputs: Sequence[Output], call: Call) -> list[Output]:
        """Computes the scores of the tokens of outputs, if these are wanted."""
        if not call.details.scores:
            return list(outputs)
        settings, longest = call.search.settings, call.search.max_new_tokens
        # A score needs an end; that of an output without one is left out below.
        ended = [self._ended(output.hypothesis) for output in outputs]
        sources = [output.segment.ids for output in outputs]
        start = needed_start(settings)
        rows = call.engine.token_scores(sources, ended, call.batch_tokens, start)
        scored = []
        for output, ids, row in zip(outputs, ended, rows, strict=True):
            scores = row[: len(output.hypothesis.tokens)]
            # Tokens that settings force have the probability 1; no setting ends a given target.
            if scores and ids[0] == settings.forced_bos_token_id:
                scores[0] = 0.0
            can_be_forced = settings.forced_eos_token_id is not None and output.given is None
            if can_be_forced and len(scores) == longest:
                scores[-1] = 0.0
            scored.append(replace(output, token_scores=tuple(scores)))
        return scored

    def _ended(self, hypothesis: Hypothesis) -> Ids:
        """Returns the ids of an output with an end."""
        end = self.end if hypothesis.end is None else hypothesis.end
        return [*hypothesis.ids, *([] if end is None else [end])]


def _needs_links(output: Output) -> bool:
    """Returns whether links tell the place of a missing part, of a space or of a term."""
    segment = output.segment
    return bool(
        (output.copies and output.copies.missing)
        or segment.reading.spaces
        # In other languages, the words themselves tell the place of a term.
        or (segment.matches and not words_have_spaces(segment.target_language))
    )


def _copies(
    segment: Segment, text: str, edits: Sequence[Edit], origins: Mapping[OutputSpan, SourceSpan]
) -> Copies:
    """Compares the kept parts of a segment and of an edited text; edits move the `origins`."""
    origins = {moved(span, edits): origin for span, origin in origins.items()}
    for edit, span in zip(edits, spans_after(edits), strict=True):
        if edit.in_source:
            origins[stripped(text, span)] = edit.in_source
    return Copies.find(segment.text, segment.kept, text, segment.source.flags, origins)


def edited(output: Output, edits: Sequence[Edit]) -> Output:
    """Returns an output with an edited text, and the links, kept parts and terms of that text."""
    segment = output.segment
    text = apply_edits(output.text, edits)
    return replace(
        output,
        text=text,
        links=output.links.edited(edits),
        copies=output.copies and _copies(segment, text, edits, output.copies.origins),
        missing_terms=missing_targets(segment.terms, text, segment.target_language),
    )


def restore(output: Output) -> Output:
    """Adds the spaces, kept parts and percent signs of a source that its output lacks."""
    segment = output.segment
    edits: list[Edit] = []
    if spaces := segment.reading.edits_to_restore_spaces(output.text, output.links):
        output = edited(output, spaces)
    if output.copies and not output.copies.are_right:
        terms = targets_in(output.text, segment.terms, segment.target_language)
        spans = [term.span for term in terms]
        edits = edits_to_restore(output.copies, output.links, spans)
        output = edited(output, edits)
    if output.copies:
        kept = output.copies.in_output
        if percents := edits_to_add_percents(segment.text, segment.kept, output.text, kept):
            output = edited(output, percents)
            edits = [*edits, *percents]
    return replace(output, restored=tuple(edit.text.strip() for edit in edits if edit.text))


def _is_cut_off(hypothesis: Hypothesis, search: Search) -> bool:
    """Returns whether a search reached the longest length before the model ended the output.

    An end that `forced_eos_token_id` sets does not count.
    """
    forced = search.settings.forced_eos_token_id is not None
    ended = hypothesis.end is not None and not forced
    return not ended and len(hypothesis.ids) >= search.max_new_tokens - forced
