"""Guided alignment: a head of cross-attention learns to which source token a target token belongs.

Source: Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models",
arXiv:1909.02074. A cross-entropy between links, which come with the data, and the weights of one
head is added to the loss (§4.2 there).

The weights of the head are computed from its own queries and keys, which the model's projections
return anyway. So attention may stay fused, and padding is not computed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from vanilla_transformer.columns import LINKS
from vanilla_transformer.model.attention import CrossAttention
from vanilla_transformer.model.inputs import IGNORE_INDEX
from vanilla_transformer.model.token_layout import PADDED, TokenLayout

NO_LINK = -1


@dataclass(frozen=True)
class GuidedHead:
    """The head of cross-attention that is guided; layers and heads count from 0."""

    layer: int
    head: int
    weight: float  # of the cross-entropy of the links; λ in the paper


class LinkCollator:
    """Adds links of tokens to the batches of another collator."""

    def __init__(self, collator: Any) -> None:
        self.collator = collator
        self.tokenizer = getattr(collator, "tokenizer", None)  # Trainer saves it

    def __call__(self, features: Sequence[Mapping[str, Any]], *args: Any, **options: Any) -> Any:
        """Makes a batch of examples with pairs of token indices in "alignment".

        Returns:
            The batch with "alignment" of shape (batch, links, 2), filled up with `NO_LINK`;
            without it if the examples have no links.
        """
        rows = [feature[LINKS] for feature in features] if LINKS in features[0] else []
        plain = [{k: v for k, v in feature.items() if k != LINKS} for feature in features]
        batch = self.collator(plain, *args, **options)
        if not rows:
            return batch
        links = torch.full((len(rows), max(map(len, rows)), 2), NO_LINK)
        widths = torch.tensor([batch[name].shape[1] for name in ("input_ids", "labels")])
        pads_left = getattr(self.tokenizer, "padding_side", "") == "left"
        for row, feature in zip(links, features, strict=True):
            pairs = torch.as_tensor(feature[LINKS], dtype=torch.long).reshape(-1, 2)
            lengths = torch.tensor([len(feature[name]) for name in ("input_ids", "labels")])
            if ((pairs < 0) | (pairs >= lengths)).any():
                raise ValueError(
                    f"{LINKS!r} {pairs.tolist()} has a link beyond the {lengths.tolist()} tokens "
                    "of source and target: give pairs of token indices, counted from 0."
                )
            row[: len(pairs)] = pairs + pads_left * (widths - lengths)
        batch[LINKS] = links
        return batch


@dataclass
class RecordedHeads:
    """The results of the projections of one layer of cross-attention in one call."""

    module: CrossAttention
    query: torch.Tensor | None = None  # in `layout`; None: the layer was left out
    key: torch.Tensor | None = None  # in `source_layout`
    layout: TokenLayout = field(default=PADDED)
    source_layout: TokenLayout = field(default=PADDED)

    def log_weights(self, head: int, visible: torch.Tensor | None) -> torch.Tensor:
        """Computes the logarithms of the attention weights of a head, in float32 or wider.

        Args:
            visible: Which source positions a target position may attend to, of shape (batch, 1,
                source_len); of one copy of the batch. None: all of them.

        Returns:
            A tensor of shape (batch, target_len, source_len).
        """
        groups, width = self.module.num_key_value_groups, self.module.head_dim
        query = self.query.unflatten(-1, (-1, width))  # type: ignore[union-attr]
        key = self.key.unflatten(-1, (-1, width))  # type: ignore[union-attr]
        query, key = self.module.q_norm(query)[:, :, head], self.module.k_norm(key)
        key = key[:, :, head // groups]
        # (batch, length, head_dim)
        query, key = self.layout.to_batch(query), self.source_layout.to_batch(key)
        wide = torch.promote_types(query.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * self.module.scaling
        if visible is not None:
            copies = len(scores) // len(visible)
            visible = visible.to(scores.device).repeat(copies, 1, 1)
            scores = scores.masked_fill(~visible, torch.finfo(wide).min)
        return scores.log_softmax(-1)


@contextmanager
def recorded_heads(model: nn.Module, layer: int) -> Iterator[RecordedHeads]:
    """Records queries and keys of a decoder layer, from 0, in the first call of a `with` block."""
    module = next(
        module
        for module in model.modules()
        if isinstance(module, CrossAttention) and module.layer_idx == layer
    )
    record = RecordedHeads(module)

    def keep_layouts(_: Any, args: Any) -> None:
        record.layout, record.source_layout = args[1].layout, args[1].source_layout

    def keep_query(_: Any, args: Any, output: torch.Tensor) -> None:
        record.query = output if record.query is None else record.query

    def keep_key(_: Any, args: Any, output: torch.Tensor) -> None:
        record.key = output if record.key is None else record.key

    hooks = [
        module.register_forward_pre_hook(keep_layouts),
        module.q_proj.register_forward_hook(keep_query),
        module.k_proj.register_forward_hook(keep_key),
    ]
    try:
        yield record
    finally:
        for hook in hooks:
            hook.remove()


def guided_loss(
    record: RecordedHeads, guide: GuidedHead, inputs: Mapping[str, Any]
) -> torch.Tensor:
    """Computes the cross-entropy between links and the weights of the guided head (equation 3).

    The links of a target token share its weight. A target token without a link, or whose label is
    -100, does not count.

    Args:
        inputs: Arguments of the model's forward, and "alignment" of shape (batch, links, 2).

    Returns:
        The sum over the target tokens, in nats; the mean of both sums if there are two copies.
    """
    labels, mask, visible = inputs["labels"], inputs.get("attention_mask"), None
    if mask is not None:
        real = mask.bool()  # (batch, source_len)
        visible = (real | ~real.any(-1, keepdim=True))[:, None]  # (batch, 1, source_len)
    log_weights = record.log_weights(guide.head, visible)
    copies = len(log_weights) // len(labels)
    labels = labels.to(log_weights.device).repeat(copies, 1)
    links = inputs[LINKS].to(log_weights.device).repeat(copies, 1, 1)  # (batch, links, 2)
    source, target = links.clamp(min=0).unbind(-1)  # (batch, links)
    counts = (links >= 0).all(-1) & (labels.gather(1, target) != IGNORE_INDEX)
    per_target = torch.zeros(labels.shape, device=labels.device)
    per_target.scatter_add_(1, target, counts.float())
    share = counts / per_target.gather(1, target).clamp(min=1)
    rows = torch.arange(len(links), device=links.device)[:, None]
    total: torch.Tensor = (log_weights[rows, target, source] * share).masked_fill(~counts, 0).sum()
    return -total / copies
