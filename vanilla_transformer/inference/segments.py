"""Texts become segments, and what the model reads of these: the stages `split` and `read`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple
from unicodedata import normalize

from vanilla_transformer.inference.engines import Hypothesis, Ids
from vanilla_transformer.inference.repetition import repeats_itself
from vanilla_transformer.model.directions import Direction, in_language, tags_of_sources
from vanilla_transformer.model.tokenization_vanilla_transformer import MEMORY_TOKEN, TERM_TOKENS
from vanilla_transformer.text.grouping import map_grouped
from vanilla_transformer.text.kept import (
    Copies,
    Edit,
    Span,
    TokenLinks,
    apply_edits,
    make_kept_finder,
    meets,
    stripped,
)
from vanilla_transformer.text.languages import known_tag
from vanilla_transformer.text.lines import TextLayout, count_characters, split_lines
from vanilla_transformer.text.memory import Suggestion, shown_behind
from vanilla_transformer.text.readings import Placeholders, Reading
from vanilla_transformer.text.sentences import Cut, cut_line, split_sentences
from vanilla_transformer.text.terms import Glossary, Match, Term, edits_to_annotate
from vanilla_transformer.text.token_words import spans_of_encoding, spans_of_ids, unknown_spans
from vanilla_transformer.text.tokenizer_sides import (
    call_tokenizer,
    has_two_vocabularies,
    target_side,
    vocabulary_of,
)

NO_LINKS = TokenLinks((), (), ())


class Encoded(NamedTuple):
    """A text as tokens.

    Attributes:
        text: With the tag that the model reads before it.
        ids: Ids of its tokens, the end included.
        row: What a fast tokenizer knows of the tokens. None: the tokenizer is not fast.
    """

    text: str
    ids: Ids = ()
    row: Any = None


class Demands(NamedTuple):
    """What is decided of outputs before they are made.

    Attributes:
        find_kept: Finds the parts of a text that its output has too.
        glossary: Terms whose translation is decided.
        keeps: Whether outputs keep these parts, and have no other placeholders.
    """

    find_kept: Callable[..., list[Span]] = make_kept_finder()
    glossary: Glossary = Glossary(())
    keeps: bool = True


_UNREAD, _UNSEARCHED, _NO_DEMANDS = Encoded(""), Hypothesis((), None), Demands()


@dataclass(frozen=True)
class Segment:
    """A line, or a part of one, on its way; each stage fills in what it decides.

    Attributes:
        text: What stands in the document.
        direction: Its languages, and the tag that the model reads before it.
        encoded: What the model reads.
        demands: What is decided of its outputs.
        flags: The flags of gettext, such as `c-format`, if the text is of a message.
        known: A similar text and its translation, which the model may read. None: there is none.
        num_shown: Number of tokens of this translation that the model reads.
        kept: Spans of the text that the output has too, unchanged.
        matches: The terms of a glossary in it.
        unknown: Number of characters of the text that the model reads as unknown.
        edits: What the model reads in the place of parts of the text.
        hypothesis: One of the outputs that the search has found, or a given one.
        given: A given target. None: the search has found it.
        written: The text of the hypothesis.
        put_back: Edits of `written` that put parts of the source in the place of placeholders.
        output: `written` with these edits, and with what the model did not copy.
        is_complete: Whether the model ended it; False if it is cut off at the longest length.
        links: Links of source tokens with the output. Empty: they were not needed.
        copies: What the output has of the spans that are kept. None: there are none.
        restored: What the model did not copy.
        missing_terms: Targets of terms that the output lacks.
        token_scores: Log-probability of each token in nats. Empty: it was not asked for.
        pieces: Outputs of its sentences, and the cuts between these, which stand for its own
            output. Empty: its own counts.
    """

    text: str
    direction: Direction
    encoded: Encoded = _UNREAD
    demands: Demands = _NO_DEMANDS
    flags: frozenset[str] = frozenset()
    known: Suggestion | None = None
    num_shown: int = 0
    kept: tuple[Span, ...] = ()
    matches: tuple[Match, ...] = ()
    unknown: int = 0
    edits: Sequence[Edit] = ()
    hypothesis: Hypothesis = _UNSEARCHED
    given: Encoded | None = None
    written: str = ""
    put_back: Sequence[Edit] = ()
    output: str = ""
    is_complete: bool = True
    links: TokenLinks = NO_LINKS
    copies: Copies | None = field(default=None, repr=False)
    restored: tuple[str, ...] = ()
    missing_terms: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    pieces: tuple["Segment | Cut", ...] = ()

    def with_text(self, text: str, direction: Direction) -> "Segment":
        """Returns another text that is not read yet, with the same demands."""
        return Segment(text, direction, demands=self.demands, flags=self.flags)

    @property
    def ids(self) -> Ids:
        """The ids of what the model reads, the end included."""
        return self.encoded.ids

    @property
    def reading(self) -> Reading:
        """What the model reads of the text."""
        return Reading(self.text, self.edits)

    @property
    def terms(self) -> list[Term]:
        """The terms in it, each as often as it is there."""
        return [match.term for match in self.matches]

    @property
    def target_language(self) -> str | None:
        """The tag of its target's language; None: it is unknown."""
        return known_tag(self.direction.target)

    @property
    def repeats(self) -> bool:
        """Whether its output repeats itself, and the text does not."""
        return repeats_itself(self.output) and not repeats_itself(self.text)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class SplitTexts:
    """Texts that are split into segments.

    Attributes:
        layouts: Each text, with numbers into `segments` in the place of its segments.
    """

    layouts: list[TextLayout]
    segments: list[Segment]

    def with_parts(self, rows: Iterable[Iterable[Segment | Cut | str]]) -> "SplitTexts":
        """Returns the texts with a row of parts in the place of each segment."""
        segments: list[Segment] = []
        numbered: list[list[int | Cut | str]] = []
        for row in rows:
            numbered.append([])
            for part in row:
                if isinstance(part, Segment):
                    numbered[-1].append(len(segments))
                    segments.append(part)
                else:
                    numbered[-1].append(part)
        return SplitTexts([layout.with_parts(numbered) for layout in self.layouts], segments)


class Reader:
    """Splits texts for a model, and encodes what it reads of them: at most `limit` tokens."""

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self.tokenizer, self.limit = tokenizer, limit
        self.of_targets = target_side(tokenizer)
        # They share the vocabulary, and no call changes the tokenizer itself.
        self._in_language = {
            "source": lru_cache(partial(in_language, tokenizer)),
            "target": lru_cache(partial(target_side, tokenizer)),
        }
        self._tags = tags_of_sources(tokenizer)
        self._placeholders = Placeholders.of(tokenizer)
        # With two vocabularies, a target need not be in the letters of its source.
        self._keeps_unknown = not has_two_vocabularies(tokenizer)
        self.reads_terms = {*TERM_TOKENS} <= {*tokenizer.get_added_vocab()}
        self.reads_memory = MEMORY_TOKEN in tokenizer.get_added_vocab()

    @cached_property
    def _letters(self) -> set[str]:
        """The characters that tokens of sources have, without those that only join emoji."""
        return {*"".join(vocabulary_of(self.tokenizer, "source"))} - {"\ufe0f", "\u200d"}

    def split(
        self,
        texts: Sequence[str],
        directions: Sequence[Direction],
        demands: Demands,
        suggestions: Sequence[Suggestion | None],
    ) -> SplitTexts:
        """Splits texts into lines; one that a memory has exactly becomes its translation."""
        pairs = list(zip(texts, suggestions, strict=True))
        layouts, lines = split_lines(
            ["" if known and known.is_exact else text for text, known in pairs]
        )
        segments = []
        for direction, layout, (text, known) in zip(directions, layouts, pairs, strict=True):
            is_shown = self.reads_memory and len(layout.segments) == 1  # it is of the whole text
            for line in (lines[number] for number in layout.segments):
                segments.append(
                    Segment(
                        line,
                        direction.for_text(line, self._tags),
                        demands=demands,
                        flags=getattr(text, "flags", frozenset()),
                        known=known if is_shown else None,
                    )
                )
        layouts = [
            TextLayout((known.target,) if known and known.is_exact else layout.parts, known)
            for layout, known in zip(layouts, suggestions, strict=True)
        ]
        return SplitTexts(layouts, segments)

    def read(self, segments: Sequence[Segment]) -> list[Segment]:
        """Decides what is kept of segments, and what the model reads of them."""
        texts = [segment.direction.read(segment.text) for segment in segments]
        languages = [segment.direction.source for segment in segments]
        return [
            self._read_one(replace(segment, encoded=encoded))
            for segment, encoded in zip(
                segments, self.encode("source", texts, languages), strict=True
            )
        ]

    def _read_one(self, segment: Segment) -> Segment:
        text, demands = segment.text, segment.demands
        unknown: list[Span] = []
        if self.tokenizer.unk_token_id in segment.ids:
            (unknown,) = unknown_spans(self.tokenizer, [text])
        kept_unknown = unknown if self._keeps_unknown else ()
        kept = demands.find_kept(text, kept_unknown, flags=segment.flags)
        matches = demands.glossary.find(text, known_tag(segment.direction.source), kept)
        if not kept and not unknown and not matches and not segment.known:  # the usual case
            return segment
        reading = self._placeholders.reading(text, kept)
        read = [(edit.begin, edit.end) for edit in reading.edits]
        unknown = [span for span in unknown if not meets(span, read)]
        if unknown:  # what a model reads for unknown characters would mislead it
            strange = [
                span
                for span in kept
                if meets(span, unknown)
                and self._letters.isdisjoint(normalize("NFC", text[slice(*span)]))
            ]
            reading = reading.without(strange)
        count = sum(count_characters(text[slice(*span)]) for span in unknown)
        segment = replace(segment, kept=tuple(kept), matches=tuple(matches), unknown=count)
        segment = self._with_edits(segment, reading.edits) if reading.edits else segment
        return self._read_memory(segment, segment.known) if segment.known else segment

    def _read_memory(self, segment: Segment, known: Suggestion) -> Segment:
        """Returns a segment that is read with the translation of a similar text, if there is room.

        The tokens that stand for parts of the segment do so in that, too.
        """
        behind, end = shown_behind(segment.text, known), len(segment.text)
        spans = segment.demands.find_kept(behind, flags=segment.flags)
        shown = self._placeholders.reading_of_target(behind, spans, segment.reading)
        edits = [*segment.edits, Edit(end, end, shown.text)]
        with_memory = self._with_edits(segment, edits)
        if len(with_memory) > self.limit:
            return segment
        return replace(with_memory, num_shown=len(with_memory) - len(segment))

    def _with_edits(self, segment: Segment, edits: Sequence[Edit]) -> Segment:
        """Returns a segment of which the model reads something else."""
        segment = replace(segment, edits=edits)
        text = segment.direction.read(segment.reading.text)
        (encoded,) = self.encode("source", [text], [segment.direction.source])
        return replace(segment, encoded=encoded)

    def read_terms(self, segment: Segment) -> Segment:
        """Returns a segment that is read with the targets of its terms, if there is room."""
        terms = [((match.begin, match.end), match.term.target) for match in segment.matches]
        edits = [*segment.edits, *edits_to_annotate(segment.text, terms)]
        annotated = self._with_edits(segment, sorted(edits, key=lambda edit: edit.begin))
        return annotated if len(annotated) <= self.limit else segment

    def cut(self, split: SplitTexts) -> SplitTexts:
        """Cuts segments that are too long, and reads their pieces."""
        return split.with_parts(
            [segment] if len(segment) <= self.limit else self._pieces(segment)
            for segment in split.segments
        )

    def sentences(self, segment: Segment) -> list[Segment | Cut]:
        """Returns the sentences of a segment, which are not read yet, and the cuts between them."""
        return self._parts(segment, split_sentences, segment.with_text)

    def _pieces(self, segment: Segment) -> list[Segment | Cut]:
        """Returns pieces of a segment that are short enough, and the cuts between them."""
        _, of_pieces = segment.direction.of_text(segment.text, self._tags)

        def read_piece(text: str, direction: Direction = of_pieces) -> Segment:
            return self.read([segment.with_text(text, direction)])[0]

        cut = partial(cut_line, count_tokens=lambda text: len(read_piece(text)), limit=self.limit)
        return self._parts(segment, cut, read_piece)

    def _parts(
        self,
        segment: Segment,
        split: Callable[..., list[str | Cut]],
        make: Callable[[str, Direction], Segment],
    ) -> list[Segment | Cut]:
        """Splits a segment; all parts are read with the tag that its text may begin with."""
        tag, direction = segment.direction.of_text(segment.text, self._tags)
        line, language = segment.text[len(tag) :], known_tag(direction.source)
        kept = segment.demands.find_kept(line, flags=segment.flags)
        first, *others = split(line, language=language, whole=kept)
        return [
            make(f"{tag}{first}", segment.direction),
            *(part if isinstance(part, Cut) else make(part, direction) for part in others),
        ]

    def read_pairs(
        self, sources: Sequence[str], targets: Sequence[str], directions: Sequence[Direction]
    ) -> list[Segment]:
        """Reads sources as `translate` does, and given targets as the model would write them."""
        segments = [
            Segment(text, direction.for_text(text, self._tags))
            for text, direction in zip(sources, directions, strict=True)
        ]
        pairs = []
        for segment, target in zip(self.read(segments), targets, strict=True):
            kept = Copies.find(segment.text, segment.kept, target).found
            reading = self._placeholders.reading_of_target(target, kept, segment.reading)
            written, back = reading.text, reading.undone
            pairs.append(replace(segment, written=written, put_back=back, output=target))
        written_by = [pair.written for pair in pairs], [pair.direction.target for pair in pairs]
        return [
            replace(pair, given=given, hypothesis=Hypothesis((*given.ids[:-1],), given.ids[-1]))
            for pair, given in zip(pairs, self.encode("target", *written_by), strict=True)
        ]

    def encode(
        self, side: str, texts: Sequence[str], languages: Sequence[str | None]
    ) -> list[Encoded]:
        """Encodes the texts of one side, each in its language."""
        options = {"truncation": False, "return_attention_mask": False}

        def encode(language: str | None, texts: list[str]) -> list[Encoded]:
            encoding = call_tokenizer(self._in_language[side](language), side, texts, **options)
            rows = getattr(encoding, "encodings", None) or [None] * len(texts)
            return list(map(Encoded, texts, encoding["input_ids"], rows))

        return map_grouped(texts, languages, encode)

    def source_spans(self, segment: Segment) -> list[Span]:
        """Returns the span of each token in the text, without the tag that is read before it."""
        reading, shift = segment.reading, len(segment.direction.read(""))
        places = (
            reading.in_original((max(begin - shift, 0), max(end - shift, 0)))
            for begin, end in self._spans(segment.encoded, "source")
        )
        return [stripped(segment.text, place) for place in places]

    def target_spans(self, output: Segment) -> list[Span]:
        """Returns the span of each token but the end in what is written."""
        ids, text = output.hypothesis.ids, output.written
        if output.given is None:
            spans = spans_of_ids(self.of_targets, ids, text)
        else:
            spans = self._spans(output.given, "target")[: len(ids)]
        return [stripped(text, span) for span in spans]

    def _spans(self, encoded: Encoded, side: str) -> list[Span]:
        if encoded.row is not None:
            return list(encoded.row.offsets)
        encoding = {"input_ids": [encoded.ids]}
        (spans,) = spans_of_encoding(self.tokenizer, [encoded.text], encoding, side)
        return spans

    def target_tokens(self, ids: Ids) -> tuple[str, ...]:
        """Returns the tokens of ids of a target."""
        return tuple(self.of_targets.convert_ids_to_tokens(list(ids)))


def without_unknown(split: SplitTexts) -> SplitTexts:
    """Leaves segments of kept and unknown parts alone, such as an emoji, as they are.

    A model that reads no token in their place would write words out of nothing.
    """

    def is_alone(segment: Segment) -> bool:
        others = apply_edits(segment.text, [Edit(*span, "") for span in segment.kept])
        return bool(segment.unknown) and not segment.edits and not others.strip()

    return split.with_parts(
        [segment.text if is_alone(segment) else segment] for segment in split.segments
    )
