"""Scores of generated text: `evaluate.Metric` objects that need no network.

All scores are in percent. BLEU, chrF and TER are computed by sacrebleu; word error rate and phoneme
error rate are defined as for grapheme-to-phoneme conversion.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import datasets
import evaluate
import sacrebleu
from rapidfuzz.distance import Levenshtein

References = Sequence[str] | Sequence[Sequence[str]]
"""One reference per example, or several, whose number may differ between examples."""

_TEXT = datasets.Value("string")


class TextMetric(evaluate.Metric):  # type: ignore[misc]  # evaluate ships no types
    """Scores predicted texts against one or several reference texts each.

    Predictions stay in memory, so parallel processes cannot collide in the metrics cache. `compute`
    takes `predictions` (list of str) and `references` (list of str, or of lists of str), and passes
    further arguments to the score.

    Attributes:
        lower_is_better: Whether a lower score is better; True for error rates.

    Raises:
        ValueError: From `compute`, if there is nothing to score, predictions and references differ
            in number, or an example has no reference.
    """

    lower_is_better: ClassVar[bool] = False
    description: ClassVar[str]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"keep_in_memory": kwargs.get("num_process", 1) == 1, **kwargs})

    def _info(self) -> evaluate.MetricInfo:
        several = datasets.Features({"predictions": _TEXT, "references": datasets.Sequence(_TEXT)})
        single = datasets.Features({"predictions": _TEXT, "references": _TEXT})
        return evaluate.MetricInfo(
            description=self.description,
            citation="",
            inputs_description="predictions: texts; references: one or several texts for each.",
            features=[several, single],
        )

    def compute(
        self,
        *,
        predictions: Sequence[str] | None = None,
        references: References | None = None,
        **kwargs: Any,
    ) -> dict[str, Any] | None:
        """Scores the predictions, together with those that were added before.

        Args:
            predictions: Predicted texts.
            references: One or several reference texts for each prediction.
            **kwargs: Further arguments of the score.

        Returns:
            The score under the metric's name in `METRICS`, and its details. None on processes other
            than the first if `num_process` is greater than 1.
        """
        if predictions is not None and references is not None:
            predictions, references = list(predictions), as_reference_lists(references)
            _check_counts(predictions, references)
        elif predictions is None and references is None and self.writer is None:
            raise ValueError("There is nothing to score: give predictions and references.")
        result: dict[str, Any] | None = super().compute(
            predictions=predictions, references=references, **kwargs
        )
        return result


def as_reference_lists(references: References) -> list[list[str]]:
    """Returns references as a list of texts for each example.

    Args:
        references: One or several texts for each example.
    """
    return [[texts] if isinstance(texts, str) else list(texts) for texts in references]


def _check_counts(predictions: list[str], references: list[list[str]]) -> None:
    if len(predictions) != len(references):
        raise ValueError(
            f"There are {len(predictions)} predictions but {len(references)} references: give "
            "equally many."
        )
    if not predictions:
        raise ValueError(
            "There is nothing to score: predictions and references are empty, give at least one."
        )
    if not all(references):
        raise ValueError(f"Example {references.index([])} has no reference: give at least one.")


class _SacreBleuMetric(TextMetric):
    """A corpus score of sacrebleu; `compute` takes the arguments of `score_class`."""

    name_of_score: ClassVar[str]
    score_class: ClassVar[type[sacrebleu.metrics.base.Metric]]

    def _compute(
        self, predictions: list[str], references: References, **kwargs: Any
    ) -> dict[str, Any]:
        metric = self.score_class(**kwargs)
        # One stream per position of a reference, padded by None if examples differ in number.
        lists = as_reference_lists(references)
        streams = [
            [texts[i] if i < len(texts) else None for texts in lists]
            for i in range(max(map(len, lists)))
        ]
        # The annotation of sacrebleu leaves out the None that it accepts.
        score = metric.corpus_score(predictions, cast("Sequence[Sequence[str]]", streams))
        signature = str(metric.get_signature())
        return {
            self.name_of_score: score.score,
            "signature": signature,
            **self._details_of_score(score),
        }

    def _details_of_score(self, score: Any) -> dict[str, Any]:
        return {}


class Bleu(_SacreBleuMetric):
    """Corpus BLEU (Papineni et al. 2002) of sacrebleu.

    `compute` takes the arguments of `sacrebleu.BLEU`, such as `tokenize="zh"`. It returns "bleu",
    "signature", "brevity_penalty", "precisions" (of 1-grams to 4-grams, in percent), and "hyp_len"
    and "ref_len" (in tokens of sacrebleu).
    """

    description = "Corpus BLEU of sacrebleu, in percent."
    name_of_score = "bleu"
    score_class = sacrebleu.BLEU

    def _details_of_score(self, score: Any) -> dict[str, Any]:
        return {
            "brevity_penalty": score.bp,
            "precisions": list(score.precisions),
            "hyp_len": score.sys_len,
            "ref_len": score.ref_len,
        }


class ChrF(_SacreBleuMetric):
    """Corpus chrF (Popović 2015) of sacrebleu.

    `compute` takes the arguments of `sacrebleu.CHRF`, such as `word_order=2` for chrF++. It returns
    "chrf" and "signature".
    """

    description = "Corpus chrF of sacrebleu, in percent."
    name_of_score = "chrf"
    score_class = sacrebleu.CHRF


class Ter(_SacreBleuMetric):
    """Translation edit rate (Snover et al. 2006) of sacrebleu.

    `compute` takes the arguments of `sacrebleu.TER`. It returns "ter" and "signature".
    """

    lower_is_better = True
    description = "Corpus translation edit rate of sacrebleu, in percent."
    name_of_score = "ter"
    score_class = sacrebleu.TER


class WordErrorRate(TextMetric):
    """Share of words whose predicted pronunciation equals none of the references.

    This is the word error rate of grapheme-to-phoneme conversion (Yao & Zweig 2015), not that of
    speech recognition. Pronunciations are compared phoneme by phoneme, so spacing does not matter.
    `compute` returns "wer", "wrong" and "total" (both in words).
    """

    lower_is_better = True
    description = "Percent of words with no correct pronunciation."

    def _compute(self, predictions: list[str], references: References) -> dict[str, Any]:
        pairs = zip(predictions, as_reference_lists(references), strict=True)
        wrong = sum(p.split() not in [text.split() for text in texts] for p, texts in pairs)
        total = len(predictions)
        return {"wer": 100 * wrong / total, "wrong": wrong, "total": total}


class PhonemeErrorRate(TextMetric):
    """Edits to the closest reference, per phoneme of that reference.

    PER = 100 x (sum of edit distances) / (sum of the lengths of the closest references), in
    phonemes separated by white space (Yao & Zweig 2015). Of equally close references the first
    counts. `compute` returns "per", "edits" and "phonemes".

    Raises:
        ValueError: From `compute`, if the references hold no phoneme.
    """

    lower_is_better = True
    description = "Percent of edited phonemes."

    def _compute(self, predictions: list[str], references: References) -> dict[str, Any]:
        pairs = zip(predictions, as_reference_lists(references), strict=True)
        closest = [_measure_closest_reference(prediction, texts) for prediction, texts in pairs]
        edits, phonemes = (sum(column) for column in zip(*closest, strict=True))
        if phonemes == 0:
            raise ValueError("The references hold no phoneme: give at least one that is not empty.")
        return {"per": 100 * edits / phonemes, "edits": edits, "phonemes": phonemes}


def _measure_closest_reference(prediction: str, references: Sequence[str]) -> tuple[int, int]:
    """Returns the distance to the closest reference and the length of it, in phonemes."""
    phonemes = prediction.split()
    candidates = [text.split() for text in references]
    distances = [Levenshtein.distance(phonemes, candidate) for candidate in candidates]
    closest = distances.index(min(distances))
    return distances[closest], len(candidates[closest])


METRICS: dict[str, type[TextMetric]] = {
    "bleu": Bleu,
    "chrf": ChrF,
    "ter": Ter,
    "wer": WordErrorRate,
    "per": PhonemeErrorRate,
}
"""The metrics by name; the name is also the key of the score in the result of `compute`."""
