"""Scheduled sampling: a decoder that trains on some of its own predictions, as it will decode."""

from collections.abc import Mapping
from typing import Any

import torch

from vanilla_transformer.model.evaluation_mode import evaluation_mode
from vanilla_transformer.model.labels import IGNORE_INDEX


def mix_predictions(model: Any, inputs: Mapping[str, Any], rate: float) -> dict[str, Any]:
    """Feeds the decoder its own predictions in place of some target tokens.

    Two passes, as a Transformer decodes all positions at once (Mihaylova and Martins 2019,
    "Scheduled Sampling for Transformers", §3): the first, without gradients and without dropout,
    reads the true tokens and predicts the next ones; the second, which is the caller's, reads the
    mixture. The labels stay true.

    Args:
        model: A `VanillaTransformerForConditionalGeneration`, not wrapped.
        inputs: Arguments of its forward, with "labels" of shape (batch, target_len).
        rate: Probability that a token is replaced, for each token alone.

    Returns:
        The inputs, with "decoder_input_ids" of shape (batch, target_len). The start token and
        padding are never replaced.

    Raises:
        ValueError: If `rate` is not from 0 to 1, or there are no labels.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"`rate` is {rate}: it must be a probability, from 0 to 1.")
    if inputs.get("labels") is None:
        raise ValueError("`inputs` has no labels: scheduled sampling replaces tokens of a target.")
    fed = inputs.get("decoder_input_ids")
    if fed is None:
        fed = model.prepare_decoder_input_ids_from_labels(inputs["labels"])
    first_pass = {name: value for name, value in inputs.items() if name != "labels"}
    with evaluation_mode(model):
        logits = model(**{**first_pass, "decoder_input_ids": fed}).logits
    replaced = torch.rand(fed[:, 1:].shape, device=fed.device) < rate
    replaced &= inputs["labels"][:, :-1] != IGNORE_INDEX
    mixed = fed.clone()
    mixed[:, 1:] = torch.where(replaced, logits[:, :-1].argmax(-1), fed[:, 1:])
    return {**inputs, "decoder_input_ids": mixed}
