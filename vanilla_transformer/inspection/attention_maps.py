"""Records the attention weights of one text together with its tokens, and draws heat maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vanilla_transformer.inspection.attention_figures import plot_heads
from vanilla_transformer.model.evaluation import banned_ids, evaluation_mode
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.tokenizer_sides import target_side, tokens_of_ids, unnamed_ids

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one source text and one target text.

    A row of weights belongs to the token that attends; in the decoder, that is the token which the
    position predicts. A column belongs to the token that is attended to. A row sums to 1.

    Attributes:
        source: Tokens of the source, of length source_len.
        fed: Tokens fed to the decoder, of length target_len: the start token, then the target
            without its last token.
        predicted: Tokens of the target, of length target_len: `fed` shifted by one position.
        encoder: Weights of shape (encoder_layers, encoder_heads, source_len, source_len).
        decoder: Weights of shape (decoder_layers, decoder_heads, target_len, target_len).
        cross: Weights of shape (decoder_layers, decoder_heads, target_len, source_len).
    """

    source: list[str]
    fed: list[str]
    predicted: list[str]
    encoder: torch.Tensor
    decoder: torch.Tensor
    cross: torch.Tensor

    def alignment(self, layer: int = -1, head: int | None = None) -> list[tuple[str, str, float]]:
        """Returns each target token, the source token that it attends to most, and the weight.

        Without a head, it is the mean over all heads of the layer.
        """
        best = self.weights_of("cross", layer, head).max(-1)
        pairs = zip(self.predicted, best.indices.tolist(), best.values.tolist(), strict=True)
        return [(token, self.source[index], weight) for token, index, weight in pairs]

    def figure(self, kind: str = "cross", layer: int = -1) -> "Figure":
        """Draws a heat map for each head of a layer of "cross", "encoder" or "decoder"."""
        weights: torch.Tensor = getattr(self, kind)  # (layers, heads, query_len, key_len)
        title = f"{kind} attention, layer {layer % len(weights)}"
        return plot_heads(weights[layer], *self.axes_of(kind), title=title)

    def axes_of(self, kind: str) -> tuple[list[str], list[str]]:
        """Returns the tokens that attend and the tokens attended to, as `plot_heads` takes them."""
        rows = self.source if kind == "encoder" else self.predicted
        return rows, self.fed if kind == "decoder" else self.source

    def weights_of(self, kind: str, layer: int = -1, head: int | None = None) -> torch.Tensor:
        """Returns the weights of a head, or the mean of a layer, of shape (query_len, key_len)."""
        weights: torch.Tensor = getattr(self, kind)[layer]  # (heads, query_len, key_len)
        return weights.mean(0) if head is None else weights[head]


def attention_maps(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: Any,
    source: str,
    target: str | Sequence[int] | None = None,
) -> AttentionMaps:
    """Runs a model once on a text; returns weights in float32 on the CPU, and the tokens.

    Args:
        target: A target text, or the ids of its tokens, the end included. None: the text that the
            model generates for the source.
    """
    inputs = tokenizer([source], return_tensors="pt").to(model.device)
    unnamed = unnamed_ids(tokenizer, model.lm_head.out_features)
    with evaluation_mode(model), banned_ids(model, unnamed):
        labels = _target_ids(model, tokenizer, inputs, target)
        fed = model.prepare_decoder_input_ids_from_labels(labels)
        outputs = model(**inputs, decoder_input_ids=fed, output_attentions=True, use_cache=False)
    weights = {
        kind: torch.cat([layer.float().cpu() for layer in outputs[f"{kind}_attentions"]])
        for kind in ("encoder", "decoder", "cross")
    }
    return AttentionMaps(
        source=tokens_of_ids(tokenizer, inputs["input_ids"][0].tolist(), "source"),
        fed=tokens_of_ids(tokenizer, fed[0].tolist(), "target"),
        predicted=tokens_of_ids(tokenizer, labels[0].tolist(), "target"),
        **weights,
    )


def _target_ids(
    model: Any,  # the type of `generate` in transformers excludes models of other packages
    tokenizer: Any,
    inputs: Any,
    target: str | Sequence[int] | None,
) -> torch.Tensor:
    """Encodes the target, or generates one. Shape (1, target_len), without the start token."""
    if target is None:
        options = {"num_return_sequences": 1, "return_dict_in_generate": False}
        ids: torch.Tensor = model.generate(**inputs, **options)
        return ids[:, 1:]
    if not isinstance(target, str):
        return torch.tensor([list(target)], device=model.device)
    encoded = target_side(tokenizer)(text_target=[target], return_tensors="pt")
    labels: torch.Tensor = encoded["input_ids"].to(model.device)
    return labels
