"""The results of a `Translator`, and the choice of one among several outputs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, inf
from typing import Literal, NamedTuple
from unicodedata import normalize

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.inference.options import Metric
from vanilla_transformer.names import DOUBTFUL
from vanilla_transformer.text.memory import Suggestion
from vanilla_transformer.text.token_links import TokenLinks
from vanilla_transformer.text.word_alignment import Links, format_links


class Mark(NamedTuple):
    """A kept part of an output, or the target of a term."""

    begin: int
    end: int
    kind: Literal["kept", "term"]


class Features(NamedTuple):
    """The features that tell the quality of an output, as a calibration weighs them.

    Attributes:
        mean_surprise: Mean square root of the tokens' negative log-probabilities, in nats.
        mean_probability: Mean probability of the tokens.
        probability: Probability of the whole output, a feature of outputs of few tokens.
        density: Number of tokens per character of the output. Rare words have many tokens.
        token_ratio: Logarithm of the number of source tokens per token of the output.
        source_length: Logarithm of the source's number of tokens.
        growth: Absolute difference of the logarithms of both lengths in characters.
        length: Logarithm of the output's number of characters.
        is_copied: Whether the output is the source, and this has letters that are not all capitals:
            abbreviations and signs often stay, words rarely do.
        num_kept, num_restored: Number of kept parts that the model reads, and of those that it did
            not copy.
        digits: Share of digits among the characters of the source.
        longest_word: Logarithm of the number of characters of the source's longest word.
        unknown_share, repeated, is_cut: As in `Translation`; a cut output is not complete.
    """

    mean_surprise: float
    mean_probability: float
    probability: float
    density: float
    token_ratio: float
    source_length: float
    growth: float
    length: float
    is_copied: bool
    num_kept: int
    num_restored: int
    digits: float
    longest_word: float
    unknown_share: float
    repeated: bool
    is_cut: bool


@dataclass(frozen=True)
class Translation:
    """The translation of one text, and the details that were requested.

    Attributes:
        score: Log-probability of the tokens in nats, divided by their number to the power of
            `length_penalty`.
        tokens: The tokens of the output; each segment that the model ended has its end.
        token_scores: Log-probability in nats of each of the tokens; 0 if the settings force it.
        alignment: (source token, target token) by their indices in the text, the ends included in
            the count.
        source_tokens: The tokens that the model reads, if an alignment was requested.
        word_alignment: (source word, target word) by their indices among the words of the source
            text and of `text`. A word is text between ASCII white space.
        links: The spans of the source tokens in the source and of the output's tokens in `text`,
            and their links. A part that is `restored` counts as a token.
        is_complete: Whether the model ended the output; False if it, or a segment of it, is cut
            off at the longest length.
        untranslated: Whether `text` is the source, since placeholders without numbers, such as
            `%s`, would have another order.
        repeated: Whether `text` repeats up to six words, or a part of a word, three times in a row,
            and its source does not.
        quality: The expected chrF of the output, from 0 to 100. None: no scores were requested, or
            the model has no calibration; see `inference.quality`.
        unknown_share: Share of the source's characters, without white space, that the vocabulary
            does not know: the model reads a token for "unknown" in their place.
        restored: The parts of the source, such as placeholders, that the model did not copy and the
            alignment put into `text`.
        terms: The terms of the glossary in the source, and their targets.
        missing_terms: The targets that `text` does not contain.
        from_memory: A former translation of the source: if it is exact, `text` is its target.
        marks: The kept parts and the targets of terms in `text`, in order.
        features: The features that tell its quality. None: no scores were requested, or no model
            has computed it.
    """

    text: str
    score: float | None = None
    tokens: tuple[str, ...] | None = None
    token_scores: tuple[float, ...] | None = None
    alignment: Links | None = None
    source_tokens: tuple[str, ...] | None = None
    word_alignment: Links | None = None
    links: TokenLinks | None = None
    is_complete: bool = True
    untranslated: bool = False
    repeated: bool = False
    quality: float | None = None
    unknown_share: float = 0.0
    restored: tuple[str, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()
    missing_terms: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    from_memory: Suggestion | None = None
    features: Features | None = field(default=None, repr=False)

    @property
    def doubts(self) -> list[str]:
        """The names of the reasons to check the translation."""
        reasons = {
            "repeated": self.repeated,
            "cut": not self.is_complete,
            "untranslated": self.untranslated,
            "unknown": self.unknown_share > 0,
            "restored": bool(self.restored),
            "unsure": self.quality is not None and self.quality < DOUBTFUL,
        }
        return [name for name, is_so in reasons.items() if is_so]

    @property
    def pharaoh(self) -> str:
        """The links of words in Pharaoh's format, such as "0-0 1-2"; an error if there are none."""
        if self.word_alignment is None:
            raise ValueError("Ask for `return_word_alignment`.")
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
    """The probability of a given target.

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
    """Returns exp of the mean negative log-probability of a token, ends included."""
    mean = -log_probability / max(tokens, 1)
    return exp(mean) if mean < 700 else inf  # exp overflows from 710 on


def metric_by_name(metric: str | Metric) -> Metric:
    """Returns the given function, or the chrF of single sentences, as sacreBLEU computes it."""
    if callable(metric):
        return metric
    if metric != "chrf":
        raise ValueError(f"Unknown metric {metric!r}: give 'chrf', or a function.")
    with optional_packages():
        from sacrebleu import CHRF
    scorer = CHRF()

    def similarity(output: str, reference: str) -> float:
        output, reference = normalize("NFC", output), normalize("NFC", reference)
        return float(scorer.sentence_score(output, [reference]).score)

    return similarity


def least_risk(outputs: Sequence[str], metric: Metric) -> int:
    """Returns the index of the first output with the highest mean similarity to all outputs.

    This is minimum Bayes risk (Kumar and Byrne 2004).
    """
    counts = Counter(outputs)
    gains = {
        output: sum(count * metric(output, other) for other, count in counts.items())
        for output in counts
    }
    return max(range(len(outputs)), key=lambda index: (gains[outputs[index]], -index))
