"""The expected chrF of an output, from the scores of its tokens and its length.

A calibration is fitted to outputs with references that the model has not been trained on, by
least squares and a monotone map (Barlow et al. 1972). It ranks outputs, and does not find mistakes
of which the model is sure.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers.utils import logging

from vanilla_transformer.files.atomic_files import write_atomic
from vanilla_transformer.files.file_contents import content_digest, read_object, text_digest
from vanilla_transformer.files.model_directory import WEIGHTS
from vanilla_transformer.inference.results import Features, Translation

logger = logging.get_logger(__name__)

QUALITY = "quality.json"
"""File of a calibration beside a model."""

FEWEST = 100
"""Smallest number of outputs to which a calibration is fitted."""

_QUANTILES = (0.02, *(part / 10 for part in range(1, 10)), 0.98)
"""Quantiles that divide the outputs, sorted by their sums, into the groups of the map's points."""
_LOWEST = -100.0  # a token of no probability, in nats
_WEIGHT_PENALTY = 3.0  # strength of the penalty of the weights
_RANK_EXPONENT = 0.5
"""Exponent of the ranks that a calibration learns: below 1, low ranks weigh more.

On catalogues of five languages, 1 finds 58 to 74% of the worst tenth, with a rank correlation of
0.55 in the mean; 0.7 finds 63 to 76%, with 0.54; 0.5 finds 65 to 77%, with 0.53.
"""
_ANY_LANGUAGE = ""  # name of the calibration for languages that have none

Floats = NDArray[np.float64]


class Outcome(NamedTuple):
    """An output with a reference, from which a calibration learns."""

    features: Features
    chrf: float
    language: str | None  # its tag, if it is known


def describe_output(
    output: Translation, source: str, num_source_tokens: int, num_kept: int
) -> Features:
    """Returns the features of an output with scores; its source has `num_kept` kept parts."""
    scores = np.nan_to_num(np.asarray(output.token_scores or [0.0], np.float64), nan=_LOWEST)
    scores = scores.clip(_LOWEST, 0.0)
    source_length, length = max(len(source), 1), max(len(output.text), 1)
    return Features(
        mean_surprise=float(np.sqrt(-scores).mean()),
        mean_probability=float(np.exp(scores).mean()),
        probability=float(np.exp(scores.sum())),
        density=len(scores) / length,
        token_ratio=float(np.log(max(num_source_tokens, 1) / len(scores))),
        source_length=float(np.log1p(num_source_tokens)),
        growth=float(abs(np.log(length / source_length))),
        length=float(np.log1p(len(output.text))),
        is_copied=output.text.strip() == source.strip()
        and any(map(str.isalpha, source))
        and not source.isupper(),
        num_kept=num_kept,
        num_restored=len(output.restored),
        digits=sum(map(str.isdecimal, source)) / source_length,
        longest_word=float(np.log1p(max(map(len, source.split()), default=0))),
        unknown_share=output.unknown_share,
        repeated=output.repeated,
        is_cut=not output.is_complete,
    )


@dataclass(frozen=True)
class _Regression:
    """A weighted sum of the features of an output, and a monotone map from sums to chrF.

    Attributes:
        weights: The weight of each feature, and the constant.
        sums, values: The sum and the chrF of each point of the map.
    """

    weights: list[float]
    sums: list[float]
    values: list[float]

    @classmethod
    def fit(cls, features: Floats, values: Floats) -> "_Regression":
        """Fits the sum to the ranks of values, (outputs,), and the map to the values."""
        ranks = (_mean_ranks(values) / len(values)) ** _RANK_EXPONENT
        weights, constant = _ridge_regression(features, ranks)
        order = np.argsort(features @ weights, kind="stable")
        groups = np.split(order, [round(quantile * len(order)) for quantile in _QUANTILES])
        sums = [float((features[group] @ weights).mean()) + constant for group in groups]
        means = np.array([float(values[group].mean()) for group in groups])
        return cls(
            weights=[round(float(weight), 4) for weight in (*weights, constant)],
            sums=[round(total, 4) for total in sums],
            values=[round(float(value), 1) for value in _isotonic(means)],
        )

    def expected(self, features: Features) -> float:
        """Returns the expected chrF, 0 to 100; the lowest for an output that repeats itself."""
        if features.repeated:
            return self.values[0]
        total = float(np.dot(self.weights, [*features, 1.0]))
        return round(float(np.interp(total, self.sums, self.values)), 1)


def _ridge_regression(features: Floats, targets: Floats) -> tuple[Floats, float]:
    """Returns the weights of features, and a constant, whose sum is nearest to the targets."""
    mean, deviation = features.mean(0), features.std(0)
    scale = np.where(deviation > 0, deviation, 1.0)
    scaled = (features - mean) / scale
    square = scaled.T @ scaled + _WEIGHT_PENALTY * np.eye(features.shape[1])
    weights: Floats = np.linalg.solve(square, scaled.T @ (targets - targets.mean())) / scale
    return weights, float(targets.mean() - mean @ weights)


def _isotonic(values: Floats) -> Floats:
    """Returns the nearest values that do not fall: the means of neighbours that do."""
    pools: list[list[float]] = []
    for value in values:
        pools.append([float(value)])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return np.array([np.mean(pool) for pool in pools for _ in pool])


@dataclass(frozen=True)
class Calibration:
    """Expected chrF of the outputs of one model, by the tag of their language."""

    by_language: Mapping[str, _Regression]

    @classmethod
    def fit(cls, outcomes: Sequence[Outcome], fewest: int = FEWEST) -> "Calibration | None":
        """Fits a calibration, or returns None if the outputs are too few or do not differ."""
        features = np.array([outcome.features for outcome in outcomes], np.float64)
        values = np.array([outcome.chrf for outcome in outcomes], np.float64)
        tags = np.array([outcome.language or _ANY_LANGUAGE for outcome in outcomes])
        fitted = {}
        for tag in sorted({_ANY_LANGUAGE, *tags.tolist()}):
            chosen = (tags == tag) | (tag == _ANY_LANGUAGE)
            if chosen.sum() < fewest:
                continue
            if np.ptp(values[chosen]) and np.ptp(features[chosen], 0).any():
                fitted[tag] = _Regression.fit(features[chosen], values[chosen])
        return cls(fitted) if _ANY_LANGUAGE in fitted else None

    def expected(self, features: Features, language: str | None) -> float:
        """Returns the expected chrF of an output in a language, from 0 to 100."""
        fallback = self.by_language[_ANY_LANGUAGE]
        return self.by_language.get(language or _ANY_LANGUAGE, fallback).expected(features)

    def save(self, folder: Path) -> None:
        """Writes the calibration beside the model that it belongs to."""
        content = {"model": _fingerprint(folder), "languages": self.to_dict()}
        write_atomic(folder / QUALITY, json.dumps(content))

    def to_dict(self) -> dict[str, Any]:
        """Returns the regressions by the tag of their language, as JSON writes them."""
        return {tag: asdict(regression) for tag, regression in self.by_language.items()}

    @classmethod
    def load(cls, folder: Path) -> "Calibration | None":
        """Loads the calibration of a model; None: it has none that fits these weights."""
        if not (folder / QUALITY).is_file():
            return None
        try:
            content = read_object(folder / QUALITY)
        except ValueError as error:  # it is no reason to compute nothing
            logger.warning(f"Outputs have no quality: {error}")
            return None
        if content.get("model") != _fingerprint(folder):
            return None
        fitted = {tag: _Regression(**saved) for tag, saved in content["languages"].items()}
        if any(len(each.weights) != len(Features._fields) + 1 for each in fitted.values()):
            logger.warning(
                f"Outputs have no quality: {folder / QUALITY} weighs other features than this "
                "version: `evaluate --calibrate` makes it anew."
            )
            return None
        return cls(fitted)


def _fingerprint(folder: Path) -> str:
    """Returns a digest of the weights of a model."""
    files = sorted(file for pattern in WEIGHTS for file in folder.glob(pattern))
    return text_digest(" ".join(map(content_digest, files)))[:16]


def rank_correlation(values: Sequence[float], others: Sequence[float]) -> float:
    """Computes Spearman's correlation; 0 if one side does not vary."""
    first, second = (_mean_ranks(np.asarray(side, np.float64)) for side in (values, others))
    if min(first.std(), second.std()) == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _mean_ranks(values: Floats) -> Floats:
    _, indices, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean: Floats = (counts.cumsum() - (counts - 1) / 2)[indices]
    return mean
