"""`Joiner` makes translations of texts from the outputs of their segments."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from vanilla_transformer.inference.job import Call, Job, JobText
from vanilla_transformer.inference.quality import Calibration, describe_output
from vanilla_transformer.inference.reader import Reader
from vanilla_transformer.inference.results import Mark, Translation, least_risk
from vanilla_transformer.inference.segments import Fixed, Output, Pieces, Segment, SplitTexts
from vanilla_transformer.inference.steps import Outputs
from vanilla_transformer.text.edits import OutputSpan, SourceSpan, Span, apply_edits, moved
from vanilla_transformer.text.languages import asian_language_of
from vanilla_transformer.text.lines import count_characters
from vanilla_transformer.text.printf import edits_to_number, may_be_numbered
from vanilla_transformer.text.sentences import Cut
from vanilla_transformer.text.terms import targets_in
from vanilla_transformer.text.token_links import TokenLinks
from vanilla_transformer.text.word_alignment import Links


class Joiner:
    """Makes translations of texts; a `calibration` tells the quality of outputs."""

    def __init__(self, reader: Reader, calibration: Calibration | None) -> None:
        self.reader, self.calibration = reader, calibration

    def join(self, job: Job, split: SplitTexts, rows: Sequence[Outputs]) -> list[list[Translation]]:
        """Makes the outputs of each text, best first, from the outputs of its segments."""
        remaining = iter(rows)
        joined = []
        for text, pieces in zip(job.texts, split.texts, strict=True):
            outputs = [next(remaining) if isinstance(piece, Segment) else piece for piece in pieces]
            joined.append(self._outputs_of(job, text, outputs))
        return joined

    def _outputs_of(self, job: Job, text: JobText, pieces: Pieces[Outputs]) -> list[Translation]:
        """Makes the outputs of a text, best first, or the one that the metric chooses."""
        ranks = range(job.call.search.n_best)
        outputs = [self._translation_of(_of_rank(pieces, rank), job.call) for rank in ranks]
        if text.former:
            similar = text.former.suggestion
            outputs = [replace(output, from_memory=similar) for output in outputs]
        if job.metric is None:
            return outputs
        return [outputs[least_risk([output.text for output in outputs], job.metric)]]

    def _translation_of(self, pieces: Pieces[Output], call: Call) -> Translation:
        """Makes an output of a text from one for each of its segments."""
        details = call.details
        outputs = [piece for piece in pieces if isinstance(piece, Output)]
        whole = _put_together(pieces, outputs)
        if whole.untranslated:  # the text is the source, and no output counts
            outputs = []
        links = whole.links
        segments = [output.segment for output in outputs]
        characters = sum(count_characters(segment.text) for segment in segments)
        scores = tuple(score for output in outputs for score in output.token_scores)
        normaliser = float(max(len(scores), 1)) ** call.search.length_penalty
        source_tokens = chain.from_iterable(map(self.reader.source_tokens, segments))
        tokens = (self.reader.target_tokens(output.hypothesis.tokens) for output in outputs)
        translation = Translation(
            text=whole.output,
            score=sum(scores) / normaliser if details.scores else None,
            token_scores=scores if details.scores else None,
            tokens=tuple(chain.from_iterable(tokens)) if details.tokens else None,
            alignment=token_links(outputs) if details.alignment else None,
            source_tokens=tuple(source_tokens) if details.alignment else None,
            word_alignment=links.words(whole.source, whole.output)
            if details.word_alignment
            else None,
            links=links if details.links else None,
            is_complete=all(output.is_complete for output in outputs),
            untranslated=whole.untranslated,
            repeated=any(output.repeats for output in outputs),
            unknown_share=sum(segment.num_unknown for segment in segments) / max(characters, 1),
            restored=tuple(span for output in outputs for span in output.restored),
            terms=tuple(
                (segment.text[slice(*match.span)], match.term.target)
                for segment in segments
                for match in segment.matches
            ),
            missing_terms=tuple(term for output in outputs for term in output.missing_terms),
            marks=tuple(sorted(whole.marks)) if details.marks else (),
        )
        if details.scores and outputs:
            return self._with_quality(translation, whole.source, segments)
        return translation

    def _with_quality(
        self, translation: Translation, source: str, segments: Sequence[Segment]
    ) -> Translation:
        """Returns an output with its features, and the quality that a calibration expects."""
        num_tokens = sum(len(segment) - segment.num_memory_tokens for segment in segments)
        num_kept = sum(len(segment.kept) for segment in segments)
        features = describe_output(translation, source, num_tokens, num_kept)
        language = segments[0].target_language
        quality = self.calibration.expected(features, language) if self.calibration else None
        return replace(translation, features=features, quality=quality)


def _of_rank(pieces: Pieces[Outputs], rank: int) -> Pieces[Output]:
    """Returns the pieces of a text: for each segment the output of a rank, or its sentences."""
    of_rank: Pieces[Output] = []
    for piece in pieces:
        if isinstance(piece, list):
            of_rank += piece[rank].sentences or [piece[rank]]
        else:
            of_rank.append(piece)
    return of_rank


@dataclass
class _Whole:
    """Accumulates a text and its output piece by piece.

    Attributes:
        in_source: As for `TokenLinks`, like `in_output` and `aligned`.
        pairs: The span of a kept part in the source, and of the same part in the output.
        untranslated: As for `Translation`.
    """

    source: str = ""
    output: str = ""
    in_source: list[SourceSpan] = field(default_factory=list)
    in_output: list[OutputSpan] = field(default_factory=list)
    aligned: list[int] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    pairs: list[tuple[SourceSpan, OutputSpan]] = field(default_factory=list)
    untranslated: bool = False

    def add(self, output: Output) -> None:
        """Adds the text of a segment and its output."""
        segment, text, copies = output.segment, output.text, output.copies
        kept, pairs = (copies.in_output, copies.pairs) if copies else ((), ())
        terms = targets_in(text, segment.terms, segment.target_language, kept)
        begin = len(self.output)
        self.marks += [Mark(*_shifted(term.span, begin), "term") for term in terms]
        self._add(segment.text, text, output.links, kept, pairs)

    def add_fixed(self, fixed: Fixed) -> None:
        """Adds fixed text to both; its kept parts count as tokens."""
        links = TokenLinks(fixed.kept, fixed.kept, range(len(fixed.kept)))
        self._add(fixed.text, fixed.text, links, fixed.kept, [(span, span) for span in fixed.kept])

    def _add(
        self,
        source: str,
        text: str,
        links: TokenLinks,
        kept: Sequence[OutputSpan],
        pairs: Sequence[tuple[SourceSpan, OutputSpan]],
    ) -> None:
        source_end, text_end = len(self.source), len(self.output)
        self.aligned += [len(self.in_source) + index for index in links.aligned]
        self.in_source += [_shifted(span, source_end) for span in links.in_source]
        self.in_output += [_shifted(span, text_end) for span in links.in_output]
        self.marks += [Mark(*_shifted(span, text_end), "kept") for span in kept]
        self.pairs += [(_shifted(a, source_end), _shifted(b, text_end)) for a, b in pairs]
        self.source, self.output = self.source + source, self.output + text

    @property
    def links(self) -> TokenLinks:
        """The links of the tokens of both texts."""
        return TokenLinks(self.in_source, self.in_output, self.aligned)

    def numbered(self, can_number: bool) -> "_Whole":
        """Returns this with numbered placeholders, or untranslated, if their order differs."""
        edits = edits_to_number(self.source, self.output, self.pairs)
        if not edits:
            return self
        if not can_number:
            return _Whole(self.source, self.source, untranslated=True)
        links = self.links.edited(edits)
        return _Whole(
            self.source,
            apply_edits(self.output, edits),
            in_source=[*links.in_source],
            in_output=[*links.in_output],
            aligned=[*links.aligned],
            marks=[Mark(*moved(mark[:2], edits), mark.kind) for mark in self.marks],
        )


def _shifted(span: Span, by: int) -> Span:
    return span[0] + by, span[1] + by


def _put_together(pieces: Pieces[Output], outputs: Sequence[Output]) -> _Whole:
    """Joins the pieces of a text.

    The target language, or else the script of the outputs, decides on spaces at cuts.

    Args:
        outputs: The outputs among the pieces. Empty: the whole text stays as it is.
    """
    whole, language = _Whole(), None
    if outputs:
        segment = outputs[0].segment
        language = segment.target_language or asian_language_of(output.text for output in outputs)
    for piece in pieces:
        if isinstance(piece, Output):
            whole.add(piece)
        elif isinstance(piece, Cut):
            whole.source += piece.space
            whole.output += piece.in_language(language) if outputs else piece.space
        else:
            whole.add_fixed(piece)
    return whole.numbered(may_be_numbered(outputs[0].segment.source.flags)) if outputs else whole


def token_links(outputs: Sequence[Output]) -> Links:
    """Returns the links of all tokens of outputs by indices that also count ends."""
    links, source_end, target_end = [], 0, 0
    for output in outputs:
        aligned = enumerate(output.hypothesis.aligned or ())
        links += [(source_end + source, target_end + target) for target, source in aligned]
        source_end += len(output.segment)
        target_end += len(output.hypothesis.tokens)
    return tuple(links)
