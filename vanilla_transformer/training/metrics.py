"""Scores of generated text, also as the `compute_metrics` of a `Seq2SeqTrainer`.

All scores are in percent. BLEU, chrF and TER are computed by sacrebleu; word error rate and phoneme
error rate are defined as for grapheme-to-phoneme conversion.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import sacrebleu
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from torch import distributed
from transformers import EvalPrediction, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import nested_concat

from vanilla_transformer.names import METRIC_NAMES

References = Sequence[str] | Sequence[Sequence[str]]
"""One reference per example, or several, whose number may differ between examples."""

_SCORES_OF_SACREBLEU: dict[str, Callable[..., Any]] = {
    "bleu": sacrebleu.BLEU,
    "chrf": sacrebleu.CHRF,
    "ter": sacrebleu.TER,
}


def score_texts(
    name: str, predictions: Sequence[str], references: References, **options: Any
) -> dict[str, Any]:
    """Scores predicted texts against one or several reference texts each.

    Args:
        references: One or several reference texts for each prediction.
        **options: Arguments of `sacrebleu.BLEU`, `CHRF` or `TER`, such as `tokenize="zh"`.

    Returns:
        The score, by `name`, and its details: for the scores of sacrebleu "signature"; for BLEU
        also "brevity_penalty", "precisions" (of 1-grams to 4-grams, in percent), and "hyp_len" and
        "ref_len" (in tokens of sacrebleu); for "wer" also "wrong" and "total" (in words), for "per"
        "edits" and "phonemes".

    Raises:
        ValueError: If there is nothing to score, predictions and references differ in number, if an
            example has no reference, or if the references hold no phoneme for "per".
    """
    lists = _as_lists(references)
    if not predictions:
        raise ValueError("There are 0 predictions to score: give at least one.")
    if len(predictions) != len(lists):
        raise ValueError(
            f"There are {len(predictions)} predictions but {len(lists)} references: give equally "
            "many."
        )
    if not all(lists):
        raise ValueError(f"Example {lists.index([])} has no reference: give at least one.")
    if name == "wer":
        return _word_errors(predictions, lists)
    if name == "per":
        return _phoneme_errors(predictions, lists)
    metric = _SCORES_OF_SACREBLEU[name](**options)
    # One stream per position of a reference, padded by None if examples differ in number.
    streams = [
        [texts[i] if i < len(texts) else None for texts in lists]
        for i in range(max(map(len, lists)))
    ]
    score = metric.corpus_score(predictions, streams)
    found = {name: score.score, "signature": str(metric.get_signature())}
    if name == "bleu":
        found |= {"brevity_penalty": score.bp, "precisions": list(score.precisions)}
        found |= {"hyp_len": score.sys_len, "ref_len": score.ref_len}
    return found


def _word_errors(predictions: Sequence[str], references: list[list[str]]) -> dict[str, Any]:
    """Computes the share of words whose predicted pronunciation equals none of the references.

    This is the word error rate of grapheme-to-phoneme conversion (Yao & Zweig 2015), not that of
    speech recognition. Pronunciations are compared phoneme by phoneme, so spacing does not matter.
    """
    pairs = zip(predictions, references, strict=True)
    wrong = sum(p.split() not in [text.split() for text in texts] for p, texts in pairs)
    total = len(predictions)
    return {"wer": 100 * wrong / total, "wrong": wrong, "total": total}


def _phoneme_errors(predictions: Sequence[str], references: list[list[str]]) -> dict[str, Any]:
    """Computes the edits to the closest reference, per phoneme of that reference.

    PER = 100 x (sum of edit distances) / (sum of the lengths of the closest references), in
    phonemes separated by white space (Yao & Zweig 2015). Of equally close references the first
    counts.
    """
    edits = phonemes = 0
    for prediction, texts in zip(predictions, references, strict=True):
        candidates = [text.split() for text in texts]
        distances = [Levenshtein.distance(prediction.split(), one) for one in candidates]
        edits += min(distances)
        phonemes += len(candidates[distances.index(min(distances))])
    if phonemes == 0:
        raise ValueError("The references hold 0 phonemes: give at least one that is not empty.")
    return {"per": 100 * edits / phonemes, "edits": edits, "phonemes": phonemes}


def _as_lists(references: References) -> list[list[str]]:
    return [[texts] if isinstance(texts, str) else list(texts) for texts in references]


class GenerationMetrics:
    """Scores generated token ids, as the `compute_metrics` of a `Seq2SeqTrainer`.

    It needs `predict_with_generate=True`. Labels and predictions are decoded by
    `tokenizer.batch_decode(ids, skip_special_tokens=True)`; -100 (Trainer's padding) counts as the
    padding token.

    Args:
        names: Names of the scores, of `names.METRIC_NAMES`.
        references: One or several reference texts per example of the split that is evaluated, in
            its order. None: the references are the decoded labels. They are tokenized text, which
            differs from the real references if the tokenizer loses or truncates text.
        options: Options of the scores, by name, such as `{"bleu": {"tokenize": "zh"}}`.

    Attributes:
        references: As above. Assign the texts of another split before evaluating on it.
        last_predictions: Decoded predictions of the last call.
        num_cut: How many of them were cut off at the longest length, where the caller counts them.
        signatures: Signature of each score of sacrebleu in the last call, by name.

    Raises:
        ValueError: If a name is unknown, or the tokenizer has no padding token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        names: Sequence[str],
        references: References | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        if tokenizer.pad_token_id is None:
            raise ValueError("`tokenizer.pad_token_id` is None: set a padding token.")
        if unknown := [name for name in names if name not in METRIC_NAMES]:
            raise ValueError(
                f"`names` has unknown scores {unknown}: choose from {', '.join(METRIC_NAMES)}."
            )
        self.tokenizer, self.names, self.references = tokenizer, tuple(names), references
        self.options = {name: dict((options or {}).get(name, {})) for name in names}
        self.last_predictions: list[str] = []
        self.num_cut = 0
        self.signatures: dict[str, str] = {}

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Scores one evaluation.

        Args:
            prediction: `predictions` and `label_ids` are arrays of token ids, of shape (batch,
                target_len), padded by -100 or the padding token.

        Returns:
            The score of each metric, in percent, by name; and "gen_len", the mean length of the
            predictions in tokens, without special tokens.

        Raises:
            ValueError: If the predictions are not token ids, or do not match the references.
        """
        ids = self._to_token_ids(prediction.predictions)
        references = self._choose_references(prediction, len(ids))
        ids = ids[: len(references)]
        lengths = (~np.isin(ids, self.tokenizer.all_special_ids)).sum(axis=1)
        return self._score_texts(self._decode_ids(ids), lengths.tolist(), references)

    def score(self, predictions: Sequence[str], lengths: Sequence[int]) -> dict[str, float]:
        """Scores generated texts against `references`, as a call does.

        The lengths are numbers of tokens without special tokens.

        Raises:
            ValueError: If there are no references.
        """
        if self.references is None:
            raise ValueError("`references` is None: set it.")
        return self._score_texts(list(predictions), lengths, _as_lists(self.references))

    def _score_texts(
        self, predictions: list[str], lengths: Sequence[int], references: list[list[str]]
    ) -> dict[str, float]:
        self.last_predictions = predictions
        scores = {}
        for name in self.names:
            found = score_texts(name, predictions, references, **self.options[name])
            scores[name] = float(found[name])
            if "signature" in found:
                self.signatures[name] = found["signature"]
        return {**scores, "gen_len": float(np.mean(lengths))}

    def _choose_references(self, prediction: EvalPrediction, count: int) -> list[list[str]]:
        """Returns the references of each example: those given, or else the decoded labels."""
        if self.references is None:
            if prediction.label_ids is None:
                raise ValueError("`references` is None: set it, or give the data set labels.")
            return _as_lists(self._decode_ids(self._to_token_ids(prediction.label_ids)))
        references = _as_lists(self.references)
        # Several processes repeat the first examples at the end, to get equally many each.
        may_repeat = distributed.is_initialized() and distributed.get_world_size() > 1
        if len(references) != count and not (may_repeat and len(references) < count):
            raise ValueError(
                f"There are {count} predictions but {len(references)} references: assign the "
                "references of the split that is evaluated to `references`."
            )
        return references

    def _to_token_ids(self, values: Any) -> NDArray[np.int64]:
        """Returns ids of shape (batch, target_len), with the padding token in place of -100."""
        if isinstance(values, list):  # one array per batch, with `eval_do_concat_batches` False
            values = reduce(nested_concat, values)
        ids = np.asarray(values[0] if isinstance(values, tuple) else values)
        if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(
                f"The predictions have shape {ids.shape} and type {ids.dtype}, so they are not "
                "token ids: set predict_with_generate=True."
            )
        if len(ids) == 0:
            raise ValueError(
                "There are 0 predictions to score: add examples to the evaluation set."
            )
        return np.where(ids == -100, self.tokenizer.pad_token_id, ids).astype(np.int64)

    def _decode_ids(self, ids: NDArray[np.int64]) -> list[str]:
        return list(self.tokenizer.batch_decode(ids.tolist(), skip_special_tokens=True))
