"""What a `Translator` returns, and how the outputs of segments become the output of a text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp
from typing import NamedTuple

from vanilla_transformer.inference.documents import Document


@dataclass(frozen=True)
class Translation:
    """An output with what was asked for besides its text.

    Attributes:
        text: The output.
        score: Log-probability of the tokens in nats, divided by their number to the power of
            `length_penalty`.
        tokens: The tokens of the output; each segment that the model ended has its end.
        token_scores: Log-probability in nats of each of the tokens. exp of it is the probability.
        alignment: (source token, target token) by their indices in the text, the ends included in
            the count.
    """

    text: str
    score: float | None = None
    tokens: tuple[str, ...] | None = None
    token_scores: tuple[float, ...] | None = None
    alignment: tuple[tuple[int, int], ...] | None = None


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
        return perplexity_of([self])


def perplexity_of(scores: Iterable[Score]) -> float:
    """Computes exp of the mean negative log-probability of a token; lower is better.

    Args:
        scores: What `Translator.score` returns. The ends of the targets count as tokens.

    Returns:
        The perplexity; 1 if there are no tokens.
    """
    values = [value for score in scores for value in score.token_scores]
    return exp(-sum(values) / max(len(values), 1))


class Details(NamedTuple):
    """What to return besides the texts."""

    scores: bool = False
    tokens: bool = False
    alignment: bool = False


@dataclass(frozen=True)
class SegmentOutput:
    """One output for one segment.

    Attributes:
        text: The output.
        tokens: Its tokens, with the end if the model ended it.
        token_scores: Log-probability of each token; empty if not asked for.
        aligned: Index of a source token for each token but the end; empty if not asked for.
        source_length: Tokens of the source, the end included.
    """

    text: str
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]
    aligned: tuple[int, ...]
    source_length: int


def join_segments(
    document: Document,
    outputs: Mapping[int, SegmentOutput],
    details: Details,
    length_penalty: float,
) -> Translation:
    """Makes the output of a text from one output for each of its segments.

    Args:
        document: The text.
        outputs: An output for each number of a segment.
        details: What to return besides the text.
        length_penalty: Exponent of the number of tokens by which the score is divided.

    Returns:
        The output. A text without segments gives an empty one.
    """
    text = document.join(lambda number: outputs[number].text) if document.segments else ""
    parts = [outputs[number] for number in document.segments]
    values = tuple(value for part in parts for value in part.token_scores)
    normaliser = float(max(len(values), 1)) ** length_penalty
    return Translation(
        text=text,
        score=sum(values) / normaliser if details.scores else None,
        token_scores=values if details.scores else None,
        tokens=tuple(token for part in parts for token in part.tokens) if details.tokens else None,
        alignment=_join_alignments(parts) if details.alignment else None,
    )


def _join_alignments(parts: Iterable[SegmentOutput]) -> tuple[tuple[int, int], ...]:
    links, sources, targets = [], 0, 0
    for part in parts:
        links += [(sources + s, targets + t) for t, s in enumerate(part.aligned)]
        sources += part.source_length
        targets += len(part.tokens)
    return tuple(links)
