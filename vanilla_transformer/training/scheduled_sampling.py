"""Scheduled sampling: a decoder trains on some of its own predictions, as in generation."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from vanilla_transformer.model.evaluation_mode import evaluation_mode
from vanilla_transformer.model.labels import IGNORE_INDEX

if TYPE_CHECKING:
    from vanilla_transformer.model.modeling_vanilla_transformer import (
        VanillaTransformerForConditionalGeneration,
    )


def mix_predictions(
    model: "VanillaTransformerForConditionalGeneration", inputs: Mapping[str, Any], rate: float
) -> dict[str, Any]:
    """Replaces some of the decoder's input tokens by the model's own predictions.

    A Transformer decodes all positions at once, so scheduled sampling takes two passes (Mihaylova
    and Martins 2019, "Scheduled Sampling for Transformers", §3). The first pass, without gradients
    and dropout, reads the true tokens and predicts the next ones. The second pass is the caller's
    and reads the mixture. The labels do not change.

    Args:
        model: The model, not wrapped.
        inputs: Arguments of its forward, with "labels" of shape (batch, target_len).
        rate: Probability, independent for each token, that the token is replaced.

    Returns:
        The inputs, with "decoder_input_ids" of shape (batch, target_len). The start token and
        padding are never replaced.

    Raises:
        ValueError: If `rate` is not from 0 to 1, or there are no labels.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"`rate` is {rate}: it must be a probability, from 0 to 1.")
    if inputs.get("labels") is None:
        raise ValueError(
            "`inputs` has no labels, but scheduled sampling replaces target tokens: add them."
        )
    true_ids = inputs.get("decoder_input_ids")
    if true_ids is None:
        true_ids = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    first_pass = {name: value for name, value in inputs.items() if name != "labels"}
    with evaluation_mode(model):
        logits = model(**{**first_pass, "decoder_input_ids": true_ids}).logits
    replaced = torch.rand(true_ids[:, 1:].shape, device=true_ids.device) < rate
    replaced &= inputs["labels"][:, :-1] != IGNORE_INDEX
    mixed = true_ids.clone()
    mixed[:, 1:] = torch.where(replaced, logits[:, :-1].argmax(-1), true_ids[:, 1:])
    return {**inputs, "decoder_input_ids": mixed}
