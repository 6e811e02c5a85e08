"""Additions to the loss of a training step: R-Drop, SimCut, teachers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import Seq2SeqLMOutput

from vanilla_transformer.model.inputs import IGNORE_INDEX
from vanilla_transformer.model.losses import mean_per_item, token_loss


def rdrop_loss(
    model: nn.Module,
    inputs: Mapping[str, Any],
    alpha: float,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
    nll_weight: float = 1.0,
) -> tuple[torch.Tensor, Seq2SeqLMOutput]:
    """Computes the loss of R-Drop (Liang et al. 2021, arXiv:2106.14448): two passes must agree.

    The loss is (NLL₁ + NLL₂) / 2 + alpha · (KL(p₁‖p₂) + KL(p₂‖p₁)) / 4, where p₁ and p₂ are the
    predictions of two passes with different dropout. It is half of the paper's loss (§2, equation
    4), which has the scale of a plain loss. Both passes run in one call, on the batch and a copy.

    Args:
        inputs: Tensors whose first dimension is the batch, with "labels" and "decoder_input_ids".
        alpha: Weight of the divergence; 5 in the paper for translation.
        num_items_in_batch: Divisor of the sums: the number of tokens to predict over all steps of
            gradient accumulation. None: the number of tokens to predict in this batch.
        nll_weight: Factor on the part that is not the divergence.

    Returns:
        (The loss, in nats per token; the outputs of the model for the doubled batch.)
    """
    labels, outputs = inputs["labels"], _run_twice(model, inputs)
    count = (labels != IGNORE_INDEX).sum()
    if num_items_in_batch is None:
        num_items_in_batch = count
    both = torch.cat([labels, labels])  # (2 · batch, target_len)
    nll = token_loss(outputs["logits"], both, label_smoothing, num_items_in_batch) / 2
    first, second = _log_probabilities(outputs["logits"], labels)
    divergence = ((first.exp() - second.exp()) * (first - second)).sum()
    mean = mean_per_item(divergence, count, num_items_in_batch)
    return nll_weight * nll + alpha / 4 * mean, outputs


def _run_twice(model: nn.Module, inputs: Mapping[str, Any]) -> Seq2SeqLMOutput:
    """Returns the outputs for a batch and, below it, a copy of it: two passes in one call."""
    doubled = {
        name: torch.cat([value, value]) if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
        if name != "labels"
    }
    # Without labels the model would return a cache.
    return cast(Seq2SeqLMOutput, model(**{"use_cache": False, **doubled}))


def simcut_loss(
    model: nn.Module,
    inputs: Mapping[str, Any],
    alpha: float,
    cutoff: float,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
    nll_weight: float = 1.0,
) -> tuple[torch.Tensor, Seq2SeqLMOutput]:
    """Computes the loss of SimCut (Gao et al. 2022, arXiv:2206.02368): few missing tokens matter.

    The loss is NLL(p) + alpha · KL(p‖q), where p are the predictions of a pass, and q of a pass
    that does not see some tokens of source and target (§3.1 there). The gradient reaches
    both p and q. Both passes run in one call, with different dropout, as in `rdrop_loss`.

    Args:
        model: Model of this package, possibly wrapped.
        alpha: Weight of the divergence; 3 in the paper.
        cutoff: Probability that a token is not seen; 0.05 in the paper.
    """
    labels = inputs["labels"]
    with _cut_tokens(model, cutoff):
        outputs = _run_twice(model, inputs)
    whole, _ = outputs["logits"].chunk(2)
    nll = token_loss(whole, labels, label_smoothing, num_items_in_batch)
    first, second = _log_probabilities(outputs["logits"], labels)
    divergence = (first.exp() * (first - second)).sum()
    mean = mean_per_item(divergence, (labels != IGNORE_INDEX).sum(), num_items_in_batch)
    return nll_weight * nll + alpha * mean, outputs


@contextmanager
def _cut_tokens(model: nn.Module, cutoff: float) -> Iterator[None]:
    """Sets the embeddings of random tokens to zero in the second half of each batch.

    This is the token cutoff of Shen et al. 2020 (arXiv:2009.13818): positions stay. Any token may
    be cut; the code of Gao et al. spares the end of each source and the start of each target.
    """

    def cut(stack: Any, args: tuple[()], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        ids = kwargs["input_ids"]  # (2 · batch, length)
        seen = torch.rand(ids.shape, device=ids.device) >= cutoff
        seen[: len(ids) // 2] = True
        embeds = stack.embed_tokens(ids) * seen[..., None]
        return args, {**kwargs, "input_ids": None, "inputs_embeds": embeds}

    # By name: a stack may come from the code of a saved directory.
    stacks = [module for module in model.modules() if hasattr(module, "embed_positions")]
    hooks = [stack.register_forward_pre_hook(cut, with_kwargs=True) for stack in stacks]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _log_probabilities(logits: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
    """Returns the values of each pass, in nats, of shape (tokens to predict, vocab).

    Args:
        logits: Of shape (passes · batch, target_len, vocab): the first pass, then the others.
        labels: Of shape (batch, target_len); positions with -100 do not count.
    """
    counted, wide = labels != IGNORE_INDEX, torch.promote_types(logits.dtype, torch.float32)
    passes = (rows[counted].to(wide) for rows in logits.split(len(labels)))
    return [F.log_softmax(rows, dim=-1) for rows in passes]


@dataclass(frozen=True)
class Teachers:
    """Trained models whose predictions a student learns, token by token (Kim and Rush 2016, §3.1).

    The loss is (1 - weight) · NLL + weight · KL(p‖q). Here p is the mean of the teachers'
    predictions, and q are the student's.

    Attributes:
        models: Models with the student's tokenizer, on its device. They are set to eval mode.
        weight: Share of the teachers in the loss.
    """

    models: Sequence[nn.Module]
    weight: float = 0.5

    def __post_init__(self) -> None:
        for model in self.models:
            model.eval().requires_grad_(False)

    def divergence(self, logits: torch.Tensor, inputs: Mapping[str, Any]) -> torch.Tensor:
        """Computes KL(p‖q), summed over the tokens to predict: a scalar in nats.

        Args:
            logits: The student's, of shape (batch, target_len, vocab), or of several passes of the
                batch, one below the other; then the result is their mean.
            inputs: The batch, with "labels" and "decoder_input_ids".
        """
        expected = self._mean_probabilities(**inputs)  # (tokens to predict, vocab)
        predicted = _log_probabilities(logits, inputs["labels"])
        terms = [F.kl_div(rows, expected, reduction="sum") for rows in predicted]
        return torch.stack(terms).mean()

    @torch.no_grad()
    def _mean_probabilities(self, labels: torch.Tensor, **inputs: Any) -> torch.Tensor:
        outputs = (model(**inputs, use_cache=False) for model in self.models)
        rows = [_log_probabilities(output["logits"], labels)[0].exp() for output in outputs]
        return torch.stack(rows).mean(0)
