"""Embeddings and output projections with adapters of PEFT: which matrices stay tied."""

from typing import Any, cast

import torch
from torch import nn

from .configuration_vanilla_transformer import VanillaTransformerConfig


class AdaptedEmbeddings(nn.Module):
    """Gives an embedding or a head with an adapter a matrix of its own.

    PEFT merges in place: into a tied matrix, it would merge for all of its uses.
    """

    config: VanillaTransformerConfig

    had_adapted_embeddings = False
    """Whether an embedding or the head has, or had, an adapter: it may have its own matrix."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute; an embedding or a head with an adapter gets a matrix of its own."""
        before: Any = self.__dict__.get("_modules", {}).get(name)
        super().__setattr__(name, value)
        if name not in ("shared", "embed_tokens", "lm_head") or before is None:
            return
        if _is_adapter_on(before, value):
            self.had_adapted_embeddings = True
            if not self._adapts_tokens_of_all(name, before, value):
                _give_own_matrix(before)
        elif self.had_adapted_embeddings:
            self.tie_weights()

    def _adapts_tokens_of_all(self, name: str, module: Any, adapter: Any) -> bool:
        """Returns whether PEFT changes the same rows for all uses of a matrix."""
        parts = [part for part in adapter.modules() if hasattr(part, "trainable_tokens_delta")]
        if parts and getattr(module, "bias", None) is not None:
            raise ValueError(
                "`trainable_token_indices` would leave out the bias of the output projection: "
                "leave them out, or load the model with `tie_word_embeddings=False`."
            )
        ties_all = self.config.share_encoder_decoder_embeddings and self.config.tie_word_embeddings
        is_first = name == "embed_tokens" and not getattr(self, "is_causal", False)
        if parts and ties_all and not is_first and parts[0].tied_adapter is None:
            raise ValueError(
                "`trainable_token_indices` must be a list, because all embeddings of this model "
                "are one matrix."
            )
        return bool(parts and ties_all)

    def tie_weights(self, *args: Any, **kwargs: Any) -> None:
        """Ties the weights that the config ties, except those that adapters have changed apart."""
        self.settle_ties()
        cast(Any, super()).tie_weights(*args, **kwargs)

    def settle_ties(self) -> None:
        """Records in the config which matrices are no longer tied after adapters were removed."""
        parts, config = [cast(Any, part) for part in self.modules()], self.config
        tables = [part.embed_tokens for part in parts if hasattr(part, "embed_tokens")]
        head = cast(Any, self).get_output_embeddings()
        is_tied = head is not None and head.weight is tables[-1].weight
        # PEFT compares the head with the source's embedding, and then writes False.
        config.tie_word_embeddings |= is_tied
        owners = [part for part in parts if hasattr(part, "shared")]
        is_plain = all(
            type(module) in (nn.Embedding, nn.Linear, type(None))
            for module in (*tables, head, *(owner.shared for owner in owners))
        )
        if not is_plain or not any(getattr(part, "had_adapted_embeddings", 0) for part in parts):
            return
        for owner in owners:
            owner.shared.weight = tables[0].weight
            if not torch.equal(tables[0].weight, tables[-1].weight):
                config.share_encoder_decoder_embeddings = False
                del owner.shared
        if head is not None and not is_tied:
            config.tie_word_embeddings &= torch.equal(head.weight, tables[-1].weight)
            _give_own_matrix(head)


def _is_adapter_on(module: Any, value: nn.Module) -> bool:
    """Returns whether a value is what PEFT puts in the place of a module, which it keeps inside."""
    names = ("base_layer", "original_module")
    return any(getattr(part, name, None) is module for part in value.modules() for name in names)


def _give_own_matrix(module: nn.Module) -> None:
    weight = cast(torch.Tensor, module.weight)
    module.weight = nn.Parameter(weight.detach().clone(), weight.requires_grad)
