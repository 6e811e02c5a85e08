"""Guided alignment: heads of cross-attention learn to which source token a target token belongs.

Source: Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models",
arXiv:1909.02074. A cross-entropy between links and the weights of a head is added to the loss (§4.2
there, for one layer; a head of each layer learns more, docs/log.md). The links come with the data,
or from a lexicon of tokens that is learnt from the data.

The weights of a head are computed from its own queries and keys, which the model's projections
return anyway. So attention may stay fused, and padding is not computed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from vanilla_transformer.columns import LINKS
from vanilla_transformer.model.attention import CrossAttention
from vanilla_transformer.model.inputs import IGNORE_INDEX
from vanilla_transformer.model.token_layout import PADDED, TokenLayout
from vanilla_transformer.text.lexicon import Lexicon

NO_LINK = -1

_LEARNT_FROM = 50_000  # pairs
_MOST_CELLS = 5_000_000  # pairs of a source and a target token; some 500 MB while they are counted
_MOST_TOKENS = 500  # of a text; the rest is not linked
_LINKED = 0.3  # agreement of linked tokens; 0.1 was no better in a short training


def learn_lexicon(rows: Any, num_targets: int) -> Lexicon:
    """Learns which tokens translate each other from some pairs, always the same ones.

    Args:
        rows: Pairs with "input_ids" and "labels".
        num_targets: Size of the target vocabulary.
    """
    count = min(len(rows), _LEARNT_FROM)
    pairs, cells = [], 0
    for index in np.random.default_rng(0).choice(len(rows), count, replace=False).tolist():
        row = rows[index]
        pairs.append(_tokens_of(row))
        cells += len(pairs[-1][0]) * len(pairs[-1][1])
        if cells > _MOST_CELLS:
            break
    return Lexicon(pairs, num_targets)


def _tokens_of(row: Mapping[str, Any]) -> tuple[Sequence[int], Sequence[int]]:
    """Returns the first tokens of a pair, without the last ones, which usually end the texts."""
    source, target = row["input_ids"][:-1], row["labels"][:-1]
    return source[:_MOST_TOKENS], target[:_MOST_TOKENS]


class LinkCollator:
    """Adds links of tokens to the batches of another collator.

    Args:
        lexicon: Links tokens that translate each other. None: the examples have links, or none.
    """

    def __init__(self, collator: Any, lexicon: Lexicon | None = None) -> None:
        self.collator, self.lexicon = collator, lexicon
        self.tokenizer = getattr(collator, "tokenizer", None)  # Trainer saves it

    def __call__(self, features: Sequence[Mapping[str, Any]], *args: Any, **options: Any) -> Any:
        """Makes a batch of examples, which may have pairs of token indices in "alignment".

        Returns:
            The batch with "alignment" of shape (batch, links, 2), filled up with `NO_LINK`;
            without it if the examples have no links and there is no lexicon.
        """
        rows = self._links_of(features)
        plain = [{k: v for k, v in feature.items() if k != LINKS} for feature in features]
        batch = self.collator(plain, *args, **options)
        if not rows:
            return batch
        links = torch.full((len(rows), max(map(len, rows)), 2), NO_LINK)
        widths = torch.tensor([batch[name].shape[1] for name in ("input_ids", "labels")])
        pads_left = getattr(self.tokenizer, "padding_side", "") == "left"
        for row, own, feature in zip(links, rows, features, strict=True):
            pairs = torch.as_tensor(own, dtype=torch.long).reshape(-1, 2)
            lengths = torch.tensor([len(feature[name]) for name in ("input_ids", "labels")])
            if ((pairs < 0) | (pairs >= lengths)).any():
                raise ValueError(
                    f"{LINKS!r} {pairs.tolist()} has a link beyond the {lengths.tolist()} tokens "
                    "of source and target: give pairs of token indices, counted from 0."
                )
            row[: len(pairs)] = pairs + pads_left * (widths - lengths)
        batch[LINKS] = links
        return batch

    def _links_of(self, features: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Returns pairs of token indices for each example; none if there are no links."""
        if self.lexicon is not None:
            agreements = self.lexicon.agreements([*map(_tokens_of, features)])
            return [np.argwhere(each >= _LINKED) for each in agreements]
        return [feature[LINKS] for feature in features] if LINKS in features[0] else []


@dataclass
class RecordedHead:
    """The results of the projections of one layer of cross-attention: its first head is guided."""

    module: CrossAttention
    query: torch.Tensor | None = None  # in `layout`; None: the layer was left out
    key: torch.Tensor | None = None  # in `source_layout`
    layout: TokenLayout = field(default=PADDED)
    source_layout: TokenLayout = field(default=PADDED)

    def log_weights(self, visible: torch.Tensor | None) -> torch.Tensor:
        """Computes the logarithms of the first head's attention weights, in float32 or wider.

        Args:
            visible: Which source positions a target position may attend to, of shape (batch, 1,
                source_len); of one copy of the batch. None: all of them.

        Returns:
            A tensor of shape (batch, target_len, source_len).
        """
        width = self.module.head_dim
        query = self.module.q_norm(self.query[..., :width])  # type: ignore[index]
        key = self.module.k_norm(self.key[..., :width])  # type: ignore[index]
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

    def record_next_call(self) -> list[RemovableHandle]:
        """Records the next call; returns the hooks that do so."""

        def keep_layouts(_: Any, args: Any) -> None:
            self.layout, self.source_layout = args[1].layout, args[1].source_layout

        def keep_query(_: Any, args: Any, output: torch.Tensor) -> None:
            self.query = output if self.query is None else self.query

        def keep_key(_: Any, args: Any, output: torch.Tensor) -> None:
            self.key = output if self.key is None else self.key

        return [
            self.module.register_forward_pre_hook(keep_layouts),
            self.module.q_proj.register_forward_hook(keep_query),
            self.module.k_proj.register_forward_hook(keep_key),
        ]


@contextmanager
def recorded_heads(model: nn.Module) -> Iterator[list[RecordedHead]]:
    """Records queries and keys of all decoder layers in the first call of a `with` block."""
    layers = [module for module in model.modules() if isinstance(module, CrossAttention)]
    records = [RecordedHead(layer) for layer in layers]
    with ExitStack() as stack:
        for record in records:
            for hook in record.record_next_call():
                stack.enter_context(hook)  # which removes it
        yield records


def guided_loss(records: Sequence[RecordedHead], inputs: Mapping[str, Any]) -> torch.Tensor:
    """Computes the cross-entropy between links and the weights of the guided heads (equation 3).

    The links of a target token share its weight. A target token without a link, or whose label is
    -100, does not count; nor does a layer that was left out of the call.

    Args:
        inputs: Arguments of the model's forward, and "alignment" of shape (batch, links, 2).

    Returns:
        The sum over the target tokens, in nats: the mean of the layers, and of two copies.
    """
    labels, mask, visible = inputs["labels"], inputs.get("attention_mask"), None
    if mask is not None:
        real = mask.bool()  # (batch, source_len)
        visible = (real | ~real.any(-1, keepdim=True))[:, None]  # (batch, 1, source_len)
    used = [each for each in records if each.query is not None]
    if not used:
        return torch.zeros((), device=labels.device)
    layers = [each.log_weights(visible).to(labels.device) for each in used]
    log_weights = torch.stack(layers).mean(0)  # (batch, target_len, source_len)
    copies = len(log_weights) // len(labels)
    labels = labels.repeat(copies, 1)
    links = inputs[LINKS].to(labels.device).repeat(copies, 1, 1)  # (batch, links, 2)
    source, target = links.clamp(min=0).unbind(-1)  # (batch, links)
    counts = (links >= 0).all(-1) & (labels.gather(1, target) != IGNORE_INDEX)
    per_target = torch.zeros(labels.shape, device=labels.device)
    per_target.scatter_add_(1, target, counts.float())
    share = counts / per_target.gather(1, target).clamp(min=1)
    rows = torch.arange(len(links), device=links.device)[:, None]
    total: torch.Tensor = (log_weights[rows, target, source] * share).masked_fill(~counts, 0).sum()
    return -total / copies
