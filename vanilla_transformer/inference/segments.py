"""The records of a text within a job: source, segment, output."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from vanilla_transformer.inference.engine import Hypothesis, Ids
from vanilla_transformer.inference.job import NO_DEMANDS, Demands
from vanilla_transformer.language_tags import known_tag
from vanilla_transformer.model.directions import Direction
from vanilla_transformer.model.tokenization_vanilla_transformer import WHITE_SPACE
from vanilla_transformer.text.edits import Edit, SourceSpan, apply_edits, meets
from vanilla_transformer.text.kept import Copies, with_unknown
from vanilla_transformer.text.memory import Suggestion
from vanilla_transformer.text.readings import Reading
from vanilla_transformer.text.repetition import repeats_itself
from vanilla_transformer.text.sentences import Cut
from vanilla_transformer.text.terms import Match, Term
from vanilla_transformer.text.token_links import TokenLinks

NO_LINKS = TokenLinks((), (), ())


class Encoded(NamedTuple):
    """A text and its tokens.

    Attributes:
        text: The text, with the tag that the model reads before it.
        ids: The ids of its tokens, the end included.
    """

    text: str
    ids: Ids = ()


@dataclass(frozen=True)
class Source:
    """A line, or a part of one, before the model reads it.

    Attributes:
        text: The text, as it stands in the document.
        direction: Its languages, and the tag that the model reads before it.
        demands: The decisions on its outputs.
        flags: The flags of gettext, such as `c-format`, if the text is of a message.
        similar: A similar text and its translation, which the model reads if there is room. None:
            there is none.
        kept: The spans of the parts that its outputs keep, if these are decided already.
    """

    text: str
    direction: Direction
    demands: Demands = NO_DEMANDS
    flags: frozenset[str] = frozenset()
    similar: Suggestion | None = None
    kept: Sequence[SourceSpan] | None = None

    def with_text(self, text: str, direction: Direction) -> "Source":
        """Returns the source of another text with the same demands."""
        return replace(self, text=text, direction=direction, similar=None, kept=None)

    def part(self, span: SourceSpan, direction: Direction) -> "Source":
        """Returns the source of a part of the text, with the same demands."""
        begin, end = span
        inner = ((b - begin, e - begin) for b, e in self.kept or () if begin <= b and e <= end)
        kept = None if self.kept is None else list(inner)
        return replace(self.with_text(self.text[begin:end], direction), kept=kept)

    def find_kept(self, unknown: Sequence[SourceSpan] = ()) -> list[SourceSpan]:
        """Finds the parts that outputs keep; the vocabulary lacks the `unknown` ones."""
        if self.kept is None:
            return self.demands.find_kept(self.text, unknown, self.flags)
        return with_unknown(self.text, self.kept, unknown)


@dataclass(frozen=True)
class Segment:
    """A source in the form that the model reads.

    Attributes:
        encoded: The tokens that the model reads.
        kept: The spans of the parts that its outputs keep.
        matches: The terms of a glossary in it.
        num_unknown: Number of characters of the text that the model reads as unknown.
        reading: The text as the model reads it, without a tag.
        num_memory_tokens: Number of its tokens that belong to the translation of a similar text.
    """

    source: Source
    encoded: Encoded
    reading: Reading
    kept: tuple[SourceSpan, ...] = ()
    matches: tuple[Match, ...] = ()
    num_unknown: int = 0
    num_memory_tokens: int = 0

    @property
    def text(self) -> str:
        """The text, as it stands in the document."""
        return self.source.text

    @property
    def ids(self) -> Ids:
        """The ids of the tokens that the model reads, the end included."""
        return self.encoded.ids

    @property
    def is_kept(self) -> bool:
        """Whether the text has nothing but kept parts, whose order the model cannot change.

        It can change the order of several parts if it reads stand-ins of them.
        """
        others = apply_edits(self.text, [Edit(*span, "") for span in self.kept])
        is_read = any(edit.text and meets(edit.span, self.kept) for edit in self.reading.edits)
        is_in_order = len(self.kept) < 2 or not is_read
        # Signs between kept parts, as in a list of them, need no translation either.
        return is_in_order and not others.strip(WHITE_SPACE + ",;")

    @property
    def probably_needs_links(self) -> bool:
        """Whether its outputs probably need links, so that the search itself aligns them."""
        return bool(self.kept or self.reading.spaces)

    @property
    def terms(self) -> list[Term]:
        """The terms of all matches, so that a term may come several times."""
        return [match.term for match in self.matches]

    @property
    def target_language(self) -> str | None:
        """The tag of the target language; None: it is unknown."""
        return known_tag(self.source.direction.target)

    def __len__(self) -> int:
        return len(self.ids)


class Fixed(NamedTuple):
    """Text that no model computes: an answer, white space around lines, or kept parts alone.

    Attributes:
        kept: The spans of the kept parts in it.
    """

    text: str
    kept: Sequence[SourceSpan] = ()


@dataclass(frozen=True)
class Output:
    """The output of one segment; the attributes stand in the order of the steps.

    `Reader.read_pairs` makes an output of a given target, with the attributes up to `text`.

    Attributes:
        hypothesis: The tokens that the search has found, or those of a given target. The step
            `link` aligns them.
        given: A given target. None: the search has found the output.
        decoded: The text of the hypothesis. The step `decode` sets it, and all until `copies`.
        stand_in_edits: Edits of `decoded` that put parts of the source in the place of stand-ins,
            and double percent signs.
        text: `decoded` with these edits, and with those of the step `restore`.
        is_complete: Whether the model ended it, so that it is not cut off at the longest length.
        missing_terms: Targets of terms that the text lacks.
        copies: The kept parts that the text has, and lacks. None: nothing is kept.
        links: Links of source tokens with the text, of `link`. Empty: nothing needs them.
        restored: The kept parts that `restore` has put into the text.
        token_scores: Log-probability of each token in nats, of `score`. Empty: none was requested.
        sentences: Outputs of the segment's sentences, and the text between them, which replace
            `text`. Empty: `text` counts.
    """

    segment: Segment
    hypothesis: Hypothesis
    given: Encoded | None = None
    decoded: str = ""
    stand_in_edits: Sequence[Edit] = ()
    text: str = ""
    is_complete: bool = True
    missing_terms: tuple[str, ...] = ()
    copies: Copies | None = field(default=None, repr=False)
    links: TokenLinks = NO_LINKS
    restored: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    sentences: tuple["Output | Cut | Fixed", ...] = ()

    @cached_property
    def repeats(self) -> bool:
        """Whether the text repeats itself, and its source does not."""
        return repeats_itself(self.text) and not repeats_itself(self.segment.text)


Unit = TypeVar("Unit")
Pieces = list[Unit | Cut | Fixed]
"""A text in pieces: units that are translated, cuts between these, and text that stays."""


@dataclass(frozen=True)
class SplitTexts:
    """Texts in pieces: segments, cuts between them, and text that stays."""

    texts: Sequence[Pieces[Segment]]

    @cached_property
    def segments(self) -> list[Segment]:
        """The segments of all texts, in order."""
        return [piece for pieces in self.texts for piece in pieces if isinstance(piece, Segment)]
