"""Scores of generated text, as `evaluate.Metric` objects that need no network.

Every score is in percent. BLEU, chrF and TER are those of sacrebleu; word and phoneme error rate
are those of grapheme-to-phoneme conversion.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar

import datasets
import evaluate
import numpy as np
import sacrebleu
from rapidfuzz.distance import Levenshtein
from torch import distributed
from transformers import EvalPrediction, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import nested_concat

References = Sequence[str] | Sequence[Sequence[str]]
"""One reference per example, or several, not necessarily equally many."""

_TEXT = datasets.Value("string")


class TextMetric(evaluate.Metric):  # type: ignore[misc]  # evaluate ships no types
    """A score of predicted texts against one or several reference texts each.

    Predictions stay in memory, so parallel processes cannot collide in the metrics cache. `compute`
    takes `predictions` (list of str) and `references` (list of str, or of lists of str), and passes
    further arguments on to the score.

    Attributes:
        lower_is_better: True for an error rate.

    Raises:
        ValueError: from `compute`, when there is nothing to score, when predictions and references
            differ in number, or when an example has no reference.
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
        """Score the predictions, and those that were added before.

        Args:
            predictions: texts.
            references: one or several texts for each prediction.
            **kwargs: further arguments of the score.

        Returns:
            The score under the metric's name in `METRICS`, with its details. None on processes
            other than the first when `num_process` is greater than 1.
        """
        if predictions is not None and references is not None:
            predictions, references = list(predictions), _as_lists(references)
            _check_counts(predictions, references)
        elif predictions is None and references is None and self.writer is None:
            raise ValueError("nothing to score: give predictions and references")
        result: dict[str, Any] | None = super().compute(
            predictions=predictions, references=references, **kwargs
        )
        return result


class _SacreBleuMetric(TextMetric):
    """A corpus score of sacrebleu; `compute` takes the arguments of its class."""

    name_of_score: ClassVar[str]
    score_class: ClassVar[type[Any]]

    def _compute(
        self, predictions: list[str], references: References, **kwargs: Any
    ) -> dict[str, Any]:
        metric = self.score_class(**kwargs)
        score = metric.corpus_score(predictions, _transposed(_as_lists(references)))
        signature = str(metric.get_signature())
        return {self.name_of_score: score.score, "signature": signature, **self._details(score)}

    def _details(self, score: Any) -> dict[str, Any]:
        return {}


class Bleu(_SacreBleuMetric):
    """Corpus BLEU (Papineni et al. 2002) of sacrebleu.

    `compute` takes the arguments of `sacrebleu.BLEU`, such as `tokenize="zh"`, and returns "bleu",
    "signature", "brevity_penalty", "precisions" (of 1- to 4-grams, in percent), and "hyp_len" and
    "ref_len" (in sacrebleu's tokens).
    """

    description = "Corpus BLEU of sacrebleu, in percent."
    name_of_score = "bleu"
    score_class = sacrebleu.BLEU

    def _details(self, score: Any) -> dict[str, Any]:
        return {
            "brevity_penalty": score.bp,
            "precisions": list(score.precisions),
            "hyp_len": score.sys_len,
            "ref_len": score.ref_len,
        }


class ChrF(_SacreBleuMetric):
    """Corpus chrF (Popović 2015) of sacrebleu.

    `compute` takes the arguments of `sacrebleu.CHRF`, such as `word_order=2` for chrF++, and
    returns "chrf" and "signature".
    """

    description = "Corpus chrF of sacrebleu, in percent."
    name_of_score = "chrf"
    score_class = sacrebleu.CHRF


class Ter(_SacreBleuMetric):
    """Translation edit rate (Snover et al. 2006) of sacrebleu.

    `compute` takes the arguments of `sacrebleu.TER`, and returns "ter" and "signature".
    """

    lower_is_better = True
    description = "Corpus translation edit rate of sacrebleu, in percent."
    name_of_score = "ter"
    score_class = sacrebleu.TER


class WordErrorRate(TextMetric):
    """Share of words whose predicted pronunciation equals none of the references.

    This is the WER of grapheme-to-phoneme conversion (Yao & Zweig 2015), not that of speech
    recognition. `compute` returns "wer", "wrong" and "total" (both in words). Pronunciations are
    compared phoneme by phoneme, so spacing does not matter.
    """

    lower_is_better = True
    description = "Percent of words with no correct pronunciation."

    def _compute(self, predictions: list[str], references: References) -> dict[str, Any]:
        pairs = zip(predictions, _as_lists(references), strict=True)
        wrong = sum(p.split() not in [text.split() for text in texts] for p, texts in pairs)
        total = len(predictions)
        return {"wer": 100 * wrong / total, "wrong": wrong, "total": total}


class PhonemeErrorRate(TextMetric):
    """Edits to the closest reference, per phoneme of that reference.

    PER = 100 x (sum of edit distances) / (sum of the lengths of the closest references), in
    whitespace-separated phonemes (Yao & Zweig 2015). Among equally close references the first one
    counts. `compute` returns "per", "edits" and "phonemes".

    Raises:
        ValueError: from `compute`, when the references hold no phoneme.
    """

    lower_is_better = True
    description = "Percent of edited phonemes."

    def _compute(self, predictions: list[str], references: References) -> dict[str, Any]:
        pairs = zip(predictions, _as_lists(references), strict=True)
        closest = [_closest(prediction, texts) for prediction, texts in pairs]
        edits, phonemes = (sum(column) for column in zip(*closest, strict=True))
        if phonemes == 0:
            raise ValueError("the references hold no phoneme: they must not all be empty")
        return {"per": 100 * edits / phonemes, "edits": edits, "phonemes": phonemes}


METRICS: dict[str, type[TextMetric]] = {
    "bleu": Bleu,
    "chrf": ChrF,
    "ter": Ter,
    "wer": WordErrorRate,
    "per": PhonemeErrorRate,
}
"""The metrics by name; the name is also the key of the score in the result of `compute`."""


def lower_is_better(name: str) -> bool:
    """Return whether the metric is an error rate.

    Raises:
        ValueError: when there is no metric of this name.
    """
    return _metric_class(name).lower_is_better


class GenerationMetrics:
    """Scores generated token ids: the `compute_metrics` of a `Seq2SeqTrainer`.

    Use it with `predict_with_generate=True`. Ids are decoded by
    `tokenizer.batch_decode(ids, skip_special_tokens=True)`, for labels and predictions alike, with
    -100 (Trainer's padding) taken for the padding token.

    Args:
        tokenizer: decodes the target side.
        names: keys of `METRICS`.
        references: one or several reference texts per example of the split under evaluation, in its
            order. When None, the decoded labels are the references; they are tokenized text, which
            differs from the real references wherever the tokenizer loses or truncates something.
        options: arguments for the metrics, by name, such as `{"bleu": {"tokenize": "zh"}}`.

    Attributes:
        references: as above; assign the texts of another split before evaluating on it.
        last_predictions: the decoded predictions of the last call.
        signatures: the signature of each of sacrebleu's scores of the last call, by name.

    Raises:
        ValueError: when a name is unknown, or when the tokenizer has no padding token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        names: Sequence[str],
        references: References | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        if tokenizer.pad_token_id is None:
            raise ValueError("tokenizer.pad_token_id is None: set a padding token")
        self.tokenizer = tokenizer
        self.metrics = {name: _metric_class(name)() for name in names}
        self.references = references
        self.options = {name: dict((options or {}).get(name, {})) for name in names}
        self.last_predictions: list[str] = []
        self.signatures: dict[str, str] = {}

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Score one evaluation.

        Args:
            prediction: `predictions` and `label_ids` are arrays of token ids, (batch, target_len),
                padded by -100 or the padding token.

        Returns:
            The score of each metric, in percent, by name, and "gen_len", the mean length of the
            predictions in tokens, special ones not counted.

        Raises:
            ValueError: when the predictions are no token ids, or do not match the references.
        """
        ids = self._token_ids(prediction.predictions)
        references = self._references_for(prediction, len(ids))
        ids = ids[: len(references)]
        self.last_predictions = self._decode(ids)
        special = np.isin(ids, self.tokenizer.all_special_ids)
        scores = {name: self._score(name, references) for name in self.metrics}
        return {**scores, "gen_len": float((~special).sum(axis=1).mean())}

    def _score(self, name: str, references: list[list[str]]) -> float:
        result = self.metrics[name].compute(
            predictions=self.last_predictions, references=references, **self.options[name]
        )
        if result is None:  # only with num_process > 1, which is never passed here
            raise RuntimeError(f"metric {name!r} gave no result")
        if "signature" in result:
            self.signatures[name] = result["signature"]
        return float(result[name])

    def _references_for(self, prediction: EvalPrediction, count: int) -> list[list[str]]:
        if self.references is None:
            if prediction.label_ids is None:
                raise ValueError("no references: set references or give the data set labels")
            return _as_lists(self._decode(self._token_ids(prediction.label_ids)))
        references = _as_lists(self.references)
        # Several processes repeat the first examples at the end, to get equally many each.
        surplus_is_padding = distributed.is_initialized() and distributed.get_world_size() > 1
        if len(references) != count and not (surplus_is_padding and len(references) < count):
            raise ValueError(
                f"{count} predictions but {len(references)} references: assign the references of "
                "the split under evaluation to `references`"
            )
        return references

    def _token_ids(self, values: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        if isinstance(values, list):  # a batch each, with `eval_do_concat_batches` False
            values = reduce(nested_concat, values)
        ids = np.asarray(values[0] if isinstance(values, tuple) else values)
        if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(
                f"predictions have shape {ids.shape} and type {ids.dtype} instead of token ids: "
                "set predict_with_generate=True"
            )
        if len(ids) == 0:
            raise ValueError("nothing to score: the evaluation set is empty")
        return np.where(ids == -100, self.tokenizer.pad_token_id, ids).astype(np.int64)

    def _decode(self, ids: np.ndarray[Any, np.dtype[np.int64]]) -> list[str]:
        return list(self.tokenizer.batch_decode(ids.tolist(), skip_special_tokens=True))


def _metric_class(name: str) -> type[TextMetric]:
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}: choose from {', '.join(METRICS)}")
    return METRICS[name]


def _as_lists(references: References) -> list[list[str]]:
    return [[texts] if isinstance(texts, str) else list(texts) for texts in references]


def _check_counts(predictions: list[str], references: list[list[str]]) -> None:
    if len(predictions) != len(references):
        raise ValueError(
            f"{len(predictions)} predictions but {len(references)} references: give equally many"
        )
    if not predictions:
        raise ValueError("nothing to score: predictions and references are empty")
    if not all(references):
        raise ValueError(f"example {references.index([])} has no reference: give at least one")


def _transposed(references: list[list[str]]) -> list[list[str | None]]:
    """Turn the references of each example into sacrebleu's streams, ragged ones padded by None."""
    streams = max(map(len, references))
    return [[texts[i] if i < len(texts) else None for texts in references] for i in range(streams)]


def _closest(prediction: str, references: Sequence[str]) -> tuple[int, int]:
    """Return the distance to, and the length of, the closest reference, in phonemes."""
    phonemes = prediction.split()
    candidates = [text.split() for text in references]
    distances = [Levenshtein.distance(phonemes, candidate) for candidate in candidates]
    best = distances.index(min(distances))
    return distances[best], len(candidates[best])
