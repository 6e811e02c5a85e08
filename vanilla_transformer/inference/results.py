"""What a `Translator` returns: the outputs of segments joined, and the chosen one of several."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import exp, inf, isfinite
from typing import Any, Literal, NamedTuple
from unicodedata import normalize

from vanilla_transformer.data.token_words import count_characters
from vanilla_transformer.data.word_alignment import Links, format_links, word_links, words_of_spans
from vanilla_transformer.documents.kept import Copies, Span, TokenLinks
from vanilla_transformer.documents.lines import Document, Segment
from vanilla_transformer.documents.sentences import Cut
from vanilla_transformer.documents.terms import targets_in
from vanilla_transformer.extras import optional_packages
from vanilla_transformer.languages import known_tag, tag_of_texts, words_have_spaces

Metric = Callable[[str, str], float]
"""Returns the similarity of an output and a reference, higher for better."""

METRICS = ("chrf", "bleu")


class Mark(NamedTuple):
    """A part of an output that is kept from the source, or the target of a term."""

    begin: int
    end: int
    kind: Literal["kept", "term"]


@dataclass(frozen=True)
class Translation:
    """An output with what was asked for besides its text.

    Attributes:
        score: Log-probability of the tokens in nats, divided by their number to the power of
            `length_penalty`.
        tokens: The tokens of the output; each segment that the model ended has its end.
        token_scores: Log-probability in nats of each of the tokens. exp of it is the probability,
            1 for a token that the settings force.
        alignment: (source token, target token) by their indices in the text, the ends included in
            the count.
        word_alignment: (source word, target word) by their indices among the words of the source
            text and of `text`. A word is text between ASCII white space.
        links: Where the source tokens are in the text and those of the output in `text`, in order,
            and which belong together. A part that is `restored` counts as a token.
        is_complete: Whether the model ended the output; False if it, or a segment of it, is cut
            off at the longest length.
        unknown_share: Share of the source's characters, without white space, that the vocabulary
            does not know: the model reads a token for "unknown" in their place.
        restored: What the model did not copy from the source, such as a placeholder, and the
            alignment put into `text`.
        terms: The terms of the glossary in the source, and their targets.
        missing_terms: Those of the targets that it does not contain.
        marks: What `text` has of the parts that are kept and of the targets, in order.
    """

    text: str
    score: float | None = None
    tokens: tuple[str, ...] | None = None
    token_scores: tuple[float, ...] | None = None
    alignment: Links | None = None
    word_alignment: Links | None = None
    links: TokenLinks | None = None
    is_complete: bool = True
    unknown_share: float = 0.0
    restored: tuple[str, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()
    missing_terms: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()

    @property
    def pharaoh(self) -> str:
        """The links of words in Pharaoh's format, such as "0-0 1-2"; an error if there are none."""
        assert self.word_alignment is not None, "ask for `return_word_alignment`"
        return format_links(self.word_alignment)


@dataclass(frozen=True)
class Alignment:
    """The links of a source and a given target.

    Attributes:
        words: (source word, target word) by their indices; a word is text between ASCII
            white space.
        tokens: (source token, target token) by their indices, a link for each target token.
        source_tokens: The tokens of the source, with the end.
        target_tokens: The tokens of the target, with the end.
    """

    words: Links
    tokens: Links
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]

    @property
    def pharaoh(self) -> str:
        """The links of words in Pharaoh's format, such as "0-0 1-2"."""
        return format_links(self.words)


@dataclass(frozen=True)
class Score:
    """How probable a given target is.

    Attributes:
        tokens: The tokens of the target, with the end.
        token_scores: Log-probability in nats of each token.
    """

    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]

    @property
    def log_probability(self) -> float:
        """Log-probability of the target in nats."""
        return sum(self.token_scores)

    @property
    def perplexity(self) -> float:
        """Perplexity per token; see `perplexity_of`."""
        return perplexity_of(self.log_probability, len(self.tokens))


def perplexity_of(log_probability: float, tokens: int) -> float:
    """Computes exp of the mean negative log-probability of a token, ends included."""
    mean = -log_probability / max(tokens, 1)
    return exp(mean) if mean < 700 else inf


def without_infinities(report: Any) -> Any:
    """Returns a report as JSON can hold it, which has no infinity and no NaN: None instead."""
    if isinstance(report, Mapping):
        return {name: without_infinities(value) for name, value in report.items()}
    if isinstance(report, (list, tuple)):
        return [without_infinities(value) for value in report]
    return None if isinstance(report, float) and not isfinite(report) else report


class OutputOptions(NamedTuple):
    """What to return besides the texts."""

    scores: bool = False
    tokens: bool = False
    alignment: bool = False
    words: bool = False
    links: bool = False
    marks: bool = False

    @property
    def linked(self) -> bool:
        """Whether tokens are to be aligned."""
        return self.alignment or self.words or self.links


NO_LINKS = TokenLinks((), (), ())


@dataclass(frozen=True)
class SegmentOutput:
    """One output for one segment. What was not asked for is empty.

    Attributes:
        aligned: Index of a source token for each token but the end.
        links: The same with the places of the tokens, and with what is restored.
        is_complete: Whether the model ended it; False if it is cut off at the longest length.
    """

    text: str
    source: Segment
    is_complete: bool
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    aligned: tuple[int, ...] = ()
    links: TokenLinks = NO_LINKS
    restored: tuple[str, ...] = ()
    missing_terms: tuple[str, ...] = ()


def join_segments(
    document: Document,
    outputs: Mapping[int, SegmentOutput],
    details: OutputOptions,
    length_penalty: float,
) -> Translation:
    """Makes the output of a text from one for each of its segments.

    Args:
        length_penalty: Exponent of the number of tokens by which the score is divided.
    """
    parts = [outputs[number] for number in document.segments]

    def language() -> str | None:
        target = known_tag(parts[0].source.direction.target)
        return target or tag_of_texts(part.text for part in parts)

    written = document.in_language(language)
    source, links = _join_links(document, written, outputs)
    text = "".join(outputs[part].text if isinstance(part, int) else part for part in written)
    characters = sum(count_characters(part.source.text) for part in parts)
    share = sum(part.source.unknown for part in parts) / max(characters, 1)
    values = tuple(value for part in parts for value in part.token_scores)
    normaliser = float(max(len(values), 1)) ** length_penalty
    return Translation(
        text=text,
        score=sum(values) / normaliser if details.scores else None,
        token_scores=values if details.scores else None,
        tokens=tuple(token for part in parts for token in part.tokens) if details.tokens else None,
        alignment=_join_alignments(parts) if details.alignment else None,
        word_alignment=linked_words(source, text, links) if details.words else None,
        links=links if details.links else None,
        is_complete=all(part.is_complete for part in parts),
        unknown_share=share,
        restored=tuple(span for part in parts for span in part.restored),
        terms=tuple(
            (part.source.text[match.begin : match.end], match.term.target)
            for part in parts
            for match in part.source.matches
        ),
        missing_terms=tuple(term for part in parts for term in part.missing_terms),
        marks=_join_marks(written, outputs) if details.marks else (),
    )


def _join_alignments(parts: Iterable[SegmentOutput]) -> tuple[tuple[int, int], ...]:
    links, sources, targets = [], 0, 0
    for part in parts:
        links += [(sources + s, targets + t) for t, s in enumerate(part.aligned)]
        sources += len(part.source)
        targets += len(part.tokens)
    return tuple(links)


def _join_marks(
    written: Sequence[str | int], outputs: Mapping[int, SegmentOutput]
) -> tuple[Mark, ...]:
    marks: list[Mark] = []
    place = 0
    for part in written:
        if isinstance(part, str):
            place += len(part)
            continue
        source, text = outputs[part].source, outputs[part].text
        kept = Copies.find(source.text, source.kept, text).places
        language = known_tag(source.direction.target)
        terms = targets_in(text, (match.term for match in source.matches), language, kept)
        marks += [Mark(place + begin, place + end, "kept") for begin, end in kept]
        marks += [Mark(place + term.begin, place + term.end, "term") for term in terms]
        place += len(text)
    return tuple(sorted(marks))


def _join_links(
    document: Document, written: Sequence[str | int], outputs: Mapping[int, SegmentOutput]
) -> tuple[str, TokenLinks]:
    """Returns a whole source, and the links of its segments with places in it and in its output."""
    source, target = "", 0
    sources: list[Span] = []
    targets: list[Span] = []
    aligned: list[int] = []
    for origin, part in zip(document.parts, written, strict=True):
        if isinstance(part, str):
            source += origin.space if isinstance(origin, Cut) else part
            target += len(part)
            continue
        output = outputs[part]
        aligned += [len(sources) + index for index in output.links.aligned]
        sources += [(begin + len(source), end + len(source)) for begin, end in output.links.sources]
        targets += [(begin + target, end + target) for begin, end in output.links.targets]
        source, target = source + output.source.text, target + len(output.text)
    return source, TokenLinks(sources, targets, aligned)


def linked_words(source: str, target: str, links: TokenLinks) -> Links:
    """Links two words where any of their tokens are linked, in order."""
    words = words_of_spans(source, links.sources), words_of_spans(target, links.targets)
    return word_links([(s, t) for t, s in enumerate(links.aligned)], *words)


def metric_by_name(metric: str | Metric) -> Metric:
    """Returns a metric of sacreBLEU for single sentences, or the given function.

    It serves minimum Bayes risk (Kumar and Byrne 2004): the output that is most similar to the
    others. In scripts without spaces, the words of BLEU are characters.
    """
    if callable(metric):
        return metric
    if metric not in METRICS:
        raise ValueError(f"Unknown metric {metric!r}: use one of {METRICS}, or a function.")
    with optional_packages():
        sacrebleu = import_module("sacrebleu")
    spaced, unspaced = (
        sacrebleu.CHRF()
        if metric == "chrf"
        else sacrebleu.BLEU(effective_order=True, tokenize=tokenizer)
        for tokenizer in ("13a", "char")
    )

    def similarity(output: str, reference: str) -> float:
        texts = normalize("NFC", output), normalize("NFC", reference)
        tag = tag_of_texts(texts) if metric == "bleu" else None
        scorer = spaced if tag is None or words_have_spaces(tag) else unspaced
        return float(scorer.sentence_score(texts[0], [texts[1]]).score)

    return similarity


def least_risk(outputs: Sequence[str], metric: Metric) -> int:
    """Returns the index of the first output with the highest mean similarity to all outputs."""
    counts = Counter(outputs)
    gains = {
        output: sum(count * metric(output, other) for other, count in counts.items())
        for output in counts
    }
    return max(range(len(outputs)), key=lambda index: (gains[outputs[index]], -index))
