"""R-Drop: two passes with other dropout must agree (Liang et al. 2021, arXiv:2106.14448)."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from vanilla_transformer.model.labels import IGNORE_INDEX
from vanilla_transformer.model.losses import token_loss


def rdrop_loss(
    model: nn.Module,
    inputs: Mapping[str, Any],
    alpha: float,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> tuple[torch.Tensor, Any]:
    """Computes half of the paper's loss (§2, equation 4): so it is on the scale of a plain one.

    That is (NLL₁ + NLL₂) / 2 + alpha · (KL(p₁‖p₂) + KL(p₂‖p₁)) / 4, where p₁ and p₂ are what two
    passes with other dropout predict. Both passes run in one call, on the batch and its copy.
    Without dropout it equals the plain loss.

    Args:
        model: Predicts from `inputs`; in train mode, or the two passes are equal.
        inputs: Tensors whose first axis is the batch, with "labels" and "decoder_input_ids".
        alpha: Weight of the divergence; the paper uses 5 for translation.
        label_smoothing: Of the cross-entropy.
        num_items_in_batch: What the sums are divided by: the number of tokens to predict over all
            steps of gradient accumulation. None: the number of them in this batch.

    Returns:
        (the loss, in nats per token; the outputs of the model for the doubled batch).
    """
    labels = inputs["labels"]
    doubled = {
        name: torch.cat([value, value]) if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
        if name != "labels"
    }
    outputs = model(**{"use_cache": False, **doubled})  # training without labels, too
    if num_items_in_batch is None:
        num_items_in_batch = (labels != IGNORE_INDEX).sum().clamp(min=1)
    both = torch.cat([labels, labels])
    nll = token_loss(outputs["logits"], both, label_smoothing, num_items_in_batch) / 2
    divergence = symmetric_divergence(outputs["logits"], labels) / num_items_in_batch
    return nll + alpha / 4 * divergence, outputs


def symmetric_divergence(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sums KL(p₁‖p₂) + KL(p₂‖p₁) over the tokens to predict.

    Args:
        logits: Of shape (2 · batch, target_len, vocab): one pass, then the other.
        labels: Of shape (batch, target_len), -100 where there is nothing to predict.

    Returns:
        A scalar in nats.
    """
    real = labels != IGNORE_INDEX
    first, second = (F.log_softmax(half[real].float(), dim=-1) for half in logits.chunk(2))
    return ((first.exp() - second.exp()) * (first - second)).sum()
