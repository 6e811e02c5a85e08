"""`Reader` makes sources of texts, and segments, which a model reads, of sources."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any
from unicodedata import normalize

from vanilla_transformer.grouping import map_grouped
from vanilla_transformer.inference.engine import Hypothesis, Ids
from vanilla_transformer.inference.job import Job, JobText
from vanilla_transformer.inference.segments import (
    Encoded,
    Fixed,
    Output,
    Pieces,
    Segment,
    Source,
    SplitTexts,
)
from vanilla_transformer.language_tags import known_tag
from vanilla_transformer.model.directions import Direction, in_language, tags_of_sources
from vanilla_transformer.model.tokenization_vanilla_transformer import MEMORY_TOKEN, TERM_TOKENS
from vanilla_transformer.text.edits import Edit, Span, meets, stripped
from vanilla_transformer.text.kept import Copies
from vanilla_transformer.text.lines import Line, count_characters, split_lines
from vanilla_transformer.text.memory import Suggestion, memory_suffix
from vanilla_transformer.text.readings import Reading, StandIns, edits_to_unify_spaces
from vanilla_transformer.text.sentences import Cut, cut_line, split_sentences
from vanilla_transformer.text.terms import Match, edits_to_annotate
from vanilla_transformer.text.token_words import spans_of_encoding, spans_of_ids, unknown_spans
from vanilla_transformer.tokenizer_sides import (
    call_tokenizer,
    has_two_vocabularies,
    ids_of_texts,
    target_side,
    tokens_of_ids,
    vocabulary_of,
)


class Reader:
    """Splits texts for a model, and encodes segments of at most `limit` tokens."""

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self.tokenizer, self.limit = tokenizer, limit
        self.target_tokenizer = target_side(tokenizer)
        # Views of the tokenizer in one language. They share its vocabulary, and no call changes it.
        self._in_language = {
            "source": lru_cache(partial(in_language, tokenizer)),
            "target": lru_cache(partial(target_side, tokenizer)),
        }
        self._tags = tags_of_sources(tokenizer)
        self._stand_ins = StandIns.of(tokenizer)
        # With two vocabularies, source and target may have different scripts, so an unknown
        # source character is not copied.
        self._keeps_unknown = not has_two_vocabularies(tokenizer)
        self.reads_terms = {*TERM_TOKENS} <= {*tokenizer.get_added_vocab()}
        self.reads_memory = MEMORY_TOKEN in tokenizer.get_added_vocab()

    @cached_property
    def _characters(self) -> set[str]:
        """The characters in the tokens of sources, but for those that only join emoji."""
        return {*"".join(vocabulary_of(self.tokenizer, "source"))} - {"\ufe0f", "\u200d"}

    def split(self, job: Job) -> SplitTexts:
        """Splits texts into lines or sentences, encodes these, and cuts those that are too long.

        A text with an answer of a former translation has no segments.
        """
        return self.read_pieces([self._lines(text, job) for text in job.texts])

    def read_pieces(self, texts: Sequence[Pieces[Source]]) -> SplitTexts:
        """Reads the sources in texts as segments that are short enough."""
        sources = [piece for pieces in texts for piece in pieces if isinstance(piece, Source)]
        segments = map(self._short_pieces, self.read(sources))
        split: list[Pieces[Segment]] = []
        for pieces in texts:
            split.append([])
            for piece in pieces:
                split[-1] += next(segments) if isinstance(piece, Source) else [piece]
        return SplitTexts(split)

    def _lines(self, text: JobText, job: Job) -> Pieces[Source]:
        """Returns the lines of a text, or the sentences of those with letters, and the rest."""
        former, direction = text.former, text.direction
        if former and former.answer is not None:
            return [Fixed(former.answer)]
        lines = split_lines(text.text)
        pieces: Pieces[Source] = []
        whole = Source(text.text, direction, job.demands, text.flags, kept=text.kept)
        # A similar text belongs to the whole text, so that this is not divided.
        is_one = sum(isinstance(line, Line) for line in lines) == 1
        similar = former.suggestion if former and former.is_read and is_one else None
        for line in lines:
            if isinstance(line, str):
                pieces.append(Fixed(line))
                continue
            line_direction = direction.for_text(line.text, self._tags)
            source = replace(whole.part(line.span, line_direction), similar=similar)
            if job.in_sentences and not any(map(str.isalpha, line.text)):
                pieces.append(Fixed(line.text, source.find_kept()))
            elif job.in_sentences and not similar:
                pieces += self.sentences(source)
            else:
                pieces.append(source)
            _, direction = direction.of_text(line.text, self._tags)  # a tag counts for all lines
        return pieces

    def _short_pieces(self, segment: Segment) -> Pieces[Segment]:
        """Returns a segment in short pieces, in which kept parts alone become fixed text.

        Kept parts alone, such as an emoji or a row of paths, need no model. A model without tokens
        for them would write other words.
        """
        pieces = [segment] if len(segment) <= self.limit else self._cut(segment.source)
        return [
            Fixed(piece.text, piece.kept) if isinstance(piece, Segment) and piece.is_kept else piece
            for piece in pieces
        ]

    def read(self, sources: Sequence[Source]) -> list[Segment]:
        """Finds the kept parts and the terms of sources, and encodes them."""
        texts = [source.direction.read(source.text) for source in sources]
        languages = [source.direction.source for source in sources]
        encoded = self.encode("source", texts, languages)
        return list(map(self._read_one, sources, encoded))

    def _read_one(self, source: Source, encoded: Encoded) -> Segment:
        """Makes the segment of a source whose text, as it stands, has been encoded."""
        text = source.text
        spaces = edits_to_unify_spaces(text)
        unknown = self._unknown_in(text, encoded, [edit.span for edit in spaces])
        kept, matches = self._kept_and_terms(source, unknown)
        if not (kept or unknown or matches or spaces or source.similar):  # the usual case
            return Segment(source, encoded, Reading(text))
        reading = self._stand_ins.reading(text, kept).with_edits(spaces)
        replaced = [edit.span for edit in reading.edits]
        unknown = [span for span in unknown if not meets(span, replaced)]
        if unknown:  # the token for unknown characters would mislead the model
            strange = [span for span in kept if meets(span, unknown)]
            reading = reading.without([span for span in strange if not self._knows_any(text, span)])
        num_unknown = sum(count_characters(text[slice(*span)]) for span in unknown)
        segment = Segment(source, encoded, Reading(text), tuple(kept), tuple(matches), num_unknown)
        segment = self._with_reading(segment, reading) if reading.edits else segment
        return self._read_memory(segment, source.similar) if source.similar else segment

    def _kept_and_terms(
        self, source: Source, unknown: Sequence[Span]
    ) -> tuple[list[Span], list[Match]]:
        """Finds the kept parts of a source, and its terms.

        A kept part that is a term has the user's translation; other kept parts hold no terms.
        """
        glossary = source.demands.glossary
        language = known_tag(source.direction.source)
        matches = glossary.find(source.text, language)
        terms = {match.span for match in matches}
        kept = source.find_kept(unknown if self._keeps_unknown else ())
        kept = [span for span in kept if span not in terms]
        return kept, glossary.find(source.text, language, kept) if kept else matches

    def _unknown_in(self, text: str, encoded: Encoded, unseen: Sequence[Span]) -> list[Span]:
        """Returns the parts of a text that the vocabulary lacks, without `unseen` ones."""
        if self.tokenizer.unk_token_id not in encoded.ids:
            return []
        (unknown,) = unknown_spans(self.tokenizer, [text])
        return [span for span in unknown if not meets(span, unseen)]

    def _knows_any(self, text: str, span: Span) -> bool:
        """Returns whether the vocabulary has any character of a part of a text."""
        return not self._characters.isdisjoint(normalize("NFC", text[slice(*span)]))

    def _read_memory(self, segment: Segment, similar: Suggestion) -> Segment:
        """Adds the translation of a similar text to a segment, if there is room.

        Parts that both have share their tokens.
        """
        end = len(segment.text)
        suffix = memory_suffix(segment.text, similar)
        spans = segment.source.demands.find_kept(suffix, flags=segment.source.flags)
        shown = self._stand_ins.reading_of_target(suffix, spans, segment.reading)
        reading = segment.reading.with_edits([Edit(end, end, shown.text)])
        with_memory = self._with_reading(segment, reading)
        if len(with_memory) > self.limit:
            return segment
        return replace(with_memory, num_memory_tokens=len(with_memory) - len(segment))

    def _with_reading(self, segment: Segment, reading: Reading) -> Segment:
        """Returns a segment with another reading."""
        direction = segment.source.direction
        (encoded,) = self.encode("source", [direction.read(reading.text)], [direction.source])
        return replace(segment, reading=reading, encoded=encoded)

    def read_terms(self, segment: Segment) -> Segment:
        """Adds the targets of its terms to a segment, if there is room."""
        terms = [(match.span, match.term.target) for match in segment.matches]
        reading = segment.reading.with_edits(edits_to_annotate(segment.text, terms))
        annotated = self._with_reading(segment, reading)
        return annotated if len(annotated) <= self.limit else segment

    def sentences(self, source: Source) -> Pieces[Source]:
        """Returns the sentences of a source, and the cuts between them."""
        return self._divide(source, split_sentences)

    def _cut(self, source: Source) -> Pieces[Segment]:
        """Cuts a source into pieces that are short enough."""
        _, piece_direction = source.direction.of_text(source.text, self._tags)

        def count_tokens(text: str) -> int:
            return len(self.read([source.with_text(text, piece_direction)])[0])

        cut = partial(cut_line, count_tokens=count_tokens, limit=self.limit)
        pieces = self._divide(source, cut)
        return [self.read([piece])[0] if isinstance(piece, Source) else piece for piece in pieces]

    def _divide(self, source: Source, split: Callable[..., list[str | Cut]]) -> Pieces[Source]:
        """Divides a source into pieces; a tag at its beginning counts for all of them."""
        tag, direction = source.direction.of_text(source.text, self._tags)
        line = source.part((len(tag), len(source.text)), direction)
        language = known_tag(direction.source)
        pieces: Pieces[Source] = []
        end = len(tag)
        for piece in split(line.text, language=language, undivided=line.find_kept()):
            begin, end = end, end + len(piece.space if isinstance(piece, Cut) else piece)
            if isinstance(piece, Cut):
                pieces.append(piece)
            elif pieces:
                pieces.append(source.part((begin, end), direction))
            else:  # with the tag
                pieces.append(source.part((0, end), source.direction))
        return pieces

    def read_pairs(
        self, sources: Sequence[str], targets: Sequence[str], directions: Sequence[Direction]
    ) -> list[Output]:
        """Makes outputs of given pairs, from segments of the sources and encoded targets."""
        pairs = zip(sources, directions, strict=True)
        asked = [Source(text, direction.for_text(text, self._tags)) for text, direction in pairs]
        segments = self.read(asked)
        readings = []
        for segment, target in zip(segments, targets, strict=True):
            kept = Copies.find(segment.text, segment.kept, target).in_output
            readings.append(self._stand_ins.reading_of_target(target, kept, segment.reading))
        texts = [reading.text for reading in readings]
        languages = [segment.source.direction.target for segment in segments]
        encoded = self.encode("target", texts, languages)
        columns = zip(segments, encoded, readings, targets, strict=True)
        return [
            Output(
                segment,
                Hypothesis((*given.ids[:-1],), given.ids[-1]),
                given,
                decoded=reading.text,
                stand_in_edits=reading.undone,
                text=target,
            )
            for segment, given, reading, target in columns
        ]

    def encode(
        self, side: str, texts: Sequence[str], languages: Sequence[str | None]
    ) -> list[Encoded]:
        """Encodes the texts of one side, each in its language."""

        def encode(language: str | None, texts: list[str]) -> list[Encoded]:
            view = self._in_language[side](language)
            return list(map(Encoded, texts, ids_of_texts(view, side, texts)))

        return map_grouped(texts, languages, encode)

    def source_tokens(self, segment: Segment) -> tuple[str, ...]:
        """Returns the tokens of a segment."""
        return tuple(tokens_of_ids(self.tokenizer, segment.ids, "source"))

    def source_spans(self, segments: Sequence[Segment]) -> list[list[Span]]:
        """Returns the span of each token of segments in their texts; a tag has an empty one."""
        encoded = [segment.encoded for segment in segments]
        languages = [segment.source.direction.source for segment in segments]
        rows = self._spans("source", encoded, languages)
        spans = []
        for segment, row in zip(segments, rows, strict=True):
            shift = len(segment.source.direction.read(""))  # the tag is no part of the text
            in_text = (
                segment.reading.in_original((max(begin - shift, 0), max(end - shift, 0)))
                for begin, end in row
            )
            spans.append([stripped(segment.text, span) for span in in_text])
        return spans

    def output_spans(self, outputs: Sequence[Output]) -> list[list[Span]]:
        """Returns the span of each token but the end, in `output.decoded`."""
        # The outputs of a call are either all given or all found.
        given = [output.given for output in outputs if output.given is not None]
        targets = [output.segment.source.direction.target for output in outputs]
        if given:
            rows = self._spans("target", given, targets)
        else:
            rows = [
                spans_of_ids(self.target_tokenizer, output.hypothesis.ids, output.decoded)
                for output in outputs
            ]
        return [
            [stripped(output.decoded, span) for span in row[: len(output.hypothesis.ids)]]
            for output, row in zip(outputs, rows, strict=True)
        ]

    def _spans(
        self, side: str, encoded: Sequence[Encoded], languages: Sequence[str | None]
    ) -> list[list[Span]]:
        """Returns the spans of the tokens of encoded texts."""

        def spans(language: str | None, texts: list[str]) -> list[list[Span]]:
            view = self._in_language[side](language)
            encoding = call_tokenizer(view, side, texts, truncation=False)
            return spans_of_encoding(self.tokenizer, texts, encoding, side)

        return map_grouped([each.text for each in encoded], languages, spans)

    def target_tokens(self, ids: Ids) -> tuple[str, ...]:
        """Returns the tokens of ids of a target."""
        return tuple(self.target_tokenizer.convert_ids_to_tokens(list(ids)))
