"""Mixes the weights of the old and the adapted model, so that general texts lose little.

A mean of the weights from before and after a fine-tuning keeps most of what each of them knows
([Wortsman et al. 2022](https://arxiv.org/abs/2109.01903)).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.atomic_files import replaced_directory, write_atomic
from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.progress import print_message
from vanilla_transformer.run.evaluation import evaluate_model
from vanilla_transformer.training.averaging import copy_without_weights

_SHARES = (1.0, 0.75, 0.5, 0.25)
"""The shares of the adapted model that are tried."""


def mix_models(old: Path, adapted: Path, share: float, output: Path) -> None:
    """Saves `share` times the adapted weights plus `1 - share` times the old ones.

    Config, tokenizer, code and card are those of the adapted model.
    """
    model, before = (
        VanillaTransformerForConditionalGeneration.from_pretrained(path) for path in (adapted, old)
    )
    olds = dict(before.named_parameters())
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.lerp_(olds[name].to(weights.dtype), 1 - share)
    with replaced_directory(output) as unfinished:
        copy_without_weights(adapted, unfinished)
        model.save_pretrained(unfinished)


def best_share(scores: Mapping[float, tuple[float, float]]) -> float:
    """Returns the share with the best scores.

    Args:
        scores: The own and the general score of each share; higher is better.

    Returns:
        The share with the highest mean of both; of equal ones, the largest.
    """
    return max(scores, key=lambda share: (sum(scores[share]), share))


def choose_mixture(
    old: Path, adapted: Path, validation: Callable[[str], DataArguments], metric: str
) -> Path:
    """Returns the model with the best mixture of the weights before and after the training.

    The scores are kept in `mixture.json`, beside the models.

    Args:
        old: The model that the training has started from.
        adapted: The trained model.
        validation: Returns the data of a validation as a test split; its argument is "validation"
            or "general-validation".
        metric: The score that decides.
    """
    record, mixed = adapted.parent / "mixture.json", adapted.parent / "mixed"
    sign = -1 if metric in ERROR_RATES else 1

    def score(model: Path, name: str) -> float:
        found = evaluate_model(str(model), validation(name), metrics=[metric])
        return sign * float(found.scores[metric][metric])

    if record.is_file():
        share = read_object(record)["share"]
    else:
        scores = {}
        for share in _SHARES:
            if share < 1:
                mix_models(old, adapted, share, mixed)
            model = adapted if share == 1 else mixed
            scores[share] = score(model, "validation"), score(model, "general-validation")
        share = best_share(scores)
        listed = (
            f"{one:.0%} {sign * own:.1f} and {sign * general:.1f}"
            for one, (own, general) in scores.items()
        )
        print_message(
            f"The adapted weights have a share of {share:.0%}. Own and general {metric} of the "
            f"validation by share: {', '.join(listed)}."
        )
        write_atomic(record, json.dumps({"share": share, "scores": scores}, indent=1))
    if share == 1:
        return adapted
    mix_models(old, adapted, share, mixed)
    return mixed
