"""Scores generated token ids during training: the `compute_metrics` of a `Seq2SeqTrainer`."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import distributed
from transformers import EvalPrediction, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import nested_concat

from vanilla_transformer.training.metrics import METRICS, References, as_reference_lists


class GenerationMetrics:
    """Scores generated token ids, as the `compute_metrics` of a `Seq2SeqTrainer`.

    It needs `predict_with_generate=True`. Labels and predictions are decoded by
    `tokenizer.batch_decode(ids, skip_special_tokens=True)`; -100 (Trainer's padding) counts as the
    padding token.

    Args:
        tokenizer: Decodes the target side.
        names: Names of the metrics, keys of `METRICS`.
        references: One or several reference texts per example of the split that is evaluated, in
            its order. None: the references are the decoded labels. They are tokenized text, which
            differs from the real references if the tokenizer loses or truncates text.
        options: Arguments of the metrics, by name, such as `{"bleu": {"tokenize": "zh"}}`.

    Attributes:
        references: As above. Assign the texts of another split before evaluating on it.
        last_predictions: Decoded predictions of the last call.
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
        for name in names:
            if name not in METRICS:
                raise ValueError(
                    f"The metric {name!r} is unknown: choose from {', '.join(METRICS)}."
                )
        self.tokenizer = tokenizer
        self.metrics = {name: METRICS[name]() for name in names}
        self.references = references
        self.options = {name: dict((options or {}).get(name, {})) for name in names}
        self.last_predictions: list[str] = []
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
        self.last_predictions = self._decode_ids(ids)
        special = np.isin(ids, self.tokenizer.all_special_ids)
        scores = {name: self._compute_score(name, references) for name in self.metrics}
        return {**scores, "gen_len": float((~special).sum(axis=1).mean())}

    def _compute_score(self, name: str, references: list[list[str]]) -> float:
        result = self.metrics[name].compute(
            predictions=self.last_predictions, references=references, **self.options[name]
        )
        if result is None:  # only with num_process > 1, which is never passed here
            raise RuntimeError(f"The metric {name!r} gave no result.")
        if "signature" in result:
            self.signatures[name] = result["signature"]
        return float(result[name])

    def _choose_references(self, prediction: EvalPrediction, count: int) -> list[list[str]]:
        """Returns the references of each example: those given, or else the decoded labels."""
        if self.references is None:
            if prediction.label_ids is None:
                raise ValueError(
                    "There are no references: set `references`, or give the data set labels."
                )
            return as_reference_lists(self._decode_ids(self._to_token_ids(prediction.label_ids)))
        references = as_reference_lists(self.references)
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
                "There is nothing to score, because the evaluation set is empty: add examples."
            )
        return np.where(ids == -100, self.tokenizer.pad_token_id, ids).astype(np.int64)

    def _decode_ids(self, ids: NDArray[np.int64]) -> list[str]:
        return list(self.tokenizer.batch_decode(ids.tolist(), skip_special_tokens=True))
