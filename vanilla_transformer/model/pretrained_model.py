"""The base class of all models here: what transformers asks of a model besides its forward."""

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from .adapted_embeddings import AdaptedEmbeddings
from .configuration_vanilla_transformer import (
    BIASED_SCHEMES,
    PACKED_SCHEMES,
    VanillaTransformerConfig,
)
from .initialization import set_initial_values
from .modes import is_tracing
from .sharing import warn_of_untested_versions
from .token_layout import (
    PADDED,
    StepPlan,
    TokenLayout,
    batch_shape,
    layout_of,
    packed_layout,
    pop_bounds,
    source_token_mask,
    target_token_mask,
)
from .wide_states import has_wide_states

_RECORDED_STATES = ("output_attentions", "output_hidden_states")


class VanillaTransformerPreTrainedModel(AdaptedEmbeddings, PreTrainedModel):
    """Base class: initial values, shortcuts, tied weights, resizing, plans for devices, saving."""

    config: VanillaTransformerConfig
    config_class = VanillaTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    _no_split_modules: set[str] | list[str] | None = [  # noqa: RUF012 - the base class's own form
        "EncoderLayer",
        "DecoderLayer",
    ]
    _skip_keys_device_placement = ["past_key_values", "cache"]  # noqa: RUF012 - as above

    is_submodule = False
    """Whether the model is a part of another, which resizes all of its parts together."""

    is_padding_free = True
    """Whether a training step may take shortcuts; `set_padding_free` sets it."""

    def __init__(self, config: VanillaTransformerConfig) -> None:
        config.check()
        warn_of_untested_versions(getattr(config, "saved_with", None))
        if has_wide_states(config):
            self._keep_in_fp32_modules = ["fc2"]
        super().__init__(config)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        set_initial_values(module, self.config)

    # Training shortcuts --------------------------------------------------------------------------

    def set_padding_free(self, enabled: bool) -> None:
        """Turns the shortcuts of a training step on, which is the default, or off.

        A training step then skips padding. If it has many tokens and a large vocabulary, it
        computes the loss in chunks, and the output's `logits` are None. Loss and gradients are the
        same either way. Without shortcuts, hooks on layers see padded states, and second
        derivatives exist.
        """
        for module in self.modules():
            if isinstance(module, VanillaTransformerPreTrainedModel):
                module.is_padding_free = enabled

    def takes_shortcuts(self, kwargs: Mapping[str, Any]) -> bool:
        """Returns whether a call takes the shortcuts of a training step.

        A call that returns attention weights or all hidden states, or whose decoder reads in both
        directions, takes none, nor does a call that is traced, a replica of `nn.DataParallel`
        (whose outputs are gathered), or a model under NEFTune (which scales its noise by the padded
        length).
        """
        needs_padded_states = (
            any(self._asks_for(name, kwargs) for name in _RECORDED_STATES)
            or getattr(self, "_is_replica", False)
            or hasattr(self.get_input_embeddings(), "neftune_noise_alpha")
            or kwargs.get("is_causal") is False  # labels may then depend on later slots
        )
        is_possible = self.training and not needs_padded_states and not is_tracing()
        return is_possible and self.is_padding_free

    def _asks_for(self, name: str, kwargs: Mapping[str, Any]) -> bool:
        value = kwargs.get(name)
        return bool(getattr(self.config, name) if value is None else value)

    def packs_sequences(self, kwargs: Mapping[str, Any] = MappingProxyType({})) -> bool:
        """Returns whether attention takes concatenated sequences.

        It does so on a GPU, by a kernel that returns no weights, and has no dropout on them and no
        bias on the scores. The kernel's gradient is not deterministic where torch must be.
        """
        config, device = self.config, self.device
        heads = (config.encoder_attention_heads, config.decoder_attention_heads)
        return (
            device.type == "cuda"
            and torch.cuda.get_device_capability(device) >= (8, 0)
            and not torch.are_deterministic_algorithms_enabled()
            and config._attn_implementation == "sdpa"
            and config.attention_dropout == 0
            and config.position_embedding_type in PACKED_SCHEMES
            and all(config.head_dim_with(count) % 8 == 0 for count in heads)
            and not self._asks_for("output_attentions", kwargs)
        )

    def plan_source(
        self, attention_mask: Any, shape: tuple[int, ...], arguments: dict[str, Any]
    ) -> TokenLayout:
        """Decides which slots a call of an encoder alone computes, as `plan_step` does."""
        if sequences := pop_bounds(arguments):
            return packed_layout(*sequences[0], shape, self.packs_sequences(arguments))
        is_free = self.takes_shortcuts(arguments)
        return layout_of(source_token_mask(attention_mask, shape) if is_free else None)

    def plan_step(
        self,
        inputs: tuple[tuple[Any, ...], tuple[Any, ...]],
        masks: tuple[Any, Any],
        labels: torch.Tensor | None,
        has_cache: bool,
        arguments: dict[str, Any],
    ) -> StepPlan:
        """Decides what a call of an encoder-decoder computes; the outermost model calls it.

        Args:
            inputs, masks: Of both sides; the first input that is not None counts.
            arguments: Further arguments; the bounds of packed sequences are taken out.
        """
        shapes = tuple(batch_shape(*side) for side in inputs)
        if sequences := pop_bounds(arguments):
            if has_cache:
                raise ValueError("A packed batch has no cache: leave `use_cache` out.")
            packs = self.packs_sequences(arguments)
            target = packed_layout(*sequences[0], shapes[1], packs)
            source = packed_layout(*sequences[1], shapes[0], packs)
            return StepPlan(source, target, self.training and self.is_padding_free)
        is_free = self.takes_shortcuts(arguments)
        source = target = PADDED
        if is_free and not has_cache:  # a cache holds every slot
            slots = (
                source_token_mask(masks[0], shapes[0]),
                target_token_mask(labels, masks[1], shapes[1]),
            )
            # The target's mask may hide tokens that are computed: attention must read it.
            packs = masks[1] is None and self.packs_sequences(arguments)
            source, target = (layout_of(side, packs) for side in slots)
            if packs and PADDED in (source, target):  # the kernel takes both sides packed
                source, target = map(layout_of, slots)
        return StepPlan(source, target, is_free)

    # Attention implementations -------------------------------------------------------------------

    def _check_and_adjust_attn_implementation(
        self, attn_implementation: str | None, *args: Any, **kwargs: Any
    ) -> str:
        """Refuses flash attention with a bias on the scores: it would silently ignore the bias."""
        positions = self.config.position_embedding_type
        if positions in BIASED_SCHEMES and "flash" in str(attn_implementation):
            raise ValueError(
                f"`attn_implementation` {attn_implementation!r} does not support a bias on the "
                f"scores, which `position_embedding_type={positions!r}` needs: choose 'sdpa', "
                "'flex_attention' or 'eager'."
            )
        return super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)

    # Tied and resized embeddings -----------------------------------------------------------------

    @property
    def _tied_weights_keys(self) -> dict[str, str]:  # type: ignore[override]  # not a constant here
        """Returns the tied parameters as {target: source}, named relative to this model."""
        return {}

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Returns {target: source} for all weights that are tied under the current config.

        The base class ties nothing when `tie_word_embeddings` is off; here source and target may
        still share their embedding.
        """
        if all_submodels:
            return cast(dict[str, str], super().get_expanded_tied_weights_keys(True))
        return self._tied_weights_keys

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Embedding:
        """Resizes the vocabulary of `input_ids`, with all that depends on it."""
        if self.is_submodule and (new_num_tokens is not None or pad_to_multiple_of is not None):
            raise ValueError(
                f"{type(self).__name__} is a part of a model, whose other parts would keep their "
                "old size: call the same method of the whole model."
            )
        self.settle_ties()
        resize: Any = super().resize_token_embeddings
        with self._limited_new_biases():
            embedding: nn.Embedding = resize(new_num_tokens, pad_to_multiple_of, mean_resizing)
        return embedding

    def resize_decoder_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Embedding:
        """Resizes the target's vocabulary: the decoder's embedding and the output projection.

        With separate vocabularies `resize_token_embeddings` resizes the source's. With a shared
        one both methods resize both.
        """
        sizes = new_num_tokens, pad_to_multiple_of, mean_resizing
        self.settle_ties()
        if self.is_submodule or self.config.share_encoder_decoder_embeddings:
            return self.resize_token_embeddings(*sizes)
        untyped: Any = self  # the base class's methods have no types
        with self._limited_new_biases():
            embedding: nn.Embedding = untyped.get_decoder()._resize_token_embeddings(*sizes)
            if (head := untyped.get_output_embeddings()) is not None:
                new_head = self._get_resized_lm_head(
                    head, embedding.num_embeddings, mean_resizing=mean_resizing
                )
                untyped.set_output_embeddings(new_head.requires_grad_(head.weight.requires_grad))
            self.config.decoder_vocab_size = embedding.num_embeddings
            self.tie_weights()
        return embedding

    @contextmanager
    def _limited_new_biases(self) -> Iterator[None]:
        """Limits the output biases of tokens that the block adds to the mean of the old ones.

        transformers sets 0, by which new tokens win every search where the old biases are negative.
        """
        bias = getattr(cast(Any, self).get_output_embeddings(), "bias", None)
        count = 0 if bias is None else len(bias)
        yield
        if count:
            bias = cast(Any, self).get_output_embeddings().bias.detach()
            bias[count:].clamp_(max=bias[:count].mean())

    # Devices, tracing, saving ---------------------------------------------------------------------

    def init_parallel_plans(self) -> None:
        """Builds the plans for splitting the model over devices; called when the model is built.

        Stacks and embedding layouts differ in their modules: only rules that name an existing
        module or parameter are kept.
        """
        super().init_parallel_plans()
        named = itertools.chain(self.named_modules(), self.named_parameters())
        names = {re.sub(r"\.\d+(?=\.|$)", ".*", name) for name, _ in named}
        if self.config.fused_qkv or self.config.position_embedding_type in BIASED_SCHEMES:
            # A device would need only the rows, or the biases, of its own heads.
            names = {name for name in names if ".self_attn." not in name}
        self._tp_plan = {k: v for k, v in (self._tp_plan or {}).items() if k in names}
        self._fsdp_plan = {k: v for k, v in (self._fsdp_plan or {}).items() if k in names}
        kinds = {type(module).__name__ for module in self.modules()}
        self._no_split_modules = kinds & set(self._no_split_modules or ())

    @property
    def dummy_inputs(self) -> dict[str, torch.Tensor]:
        """A small legal batch: two rows, the second with padding."""
        pad = self.config.pad_token_id or 0
        ids = torch.tensor([[3, 4, 5, 2], [3, 4, 2, pad]], device=self.device)
        ids = ids % min(self.config.vocab_size, cast(int, self.config.decoder_vocab_size))
        mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]], device=self.device)
        target = {"decoder_input_ids": ids} if self.config.is_encoder_decoder else {}
        return {"input_ids": ids, "attention_mask": mask, **target}

    def save_pretrained(self, save_directory: str | os.PathLike[str], **kwargs: Any) -> None:  # type: ignore[override]  # the options are the base class's
        """Saves weights, configs and code."""
        kind = type(self)
        if kind.__name__.startswith("FSDP"):  # torch has made this class; the saved code names ours
            ours = kind.__bases__[-1]
            kind.__name__, kind.__module__ = ours.__name__, ours.__module__
        self.settle_ties()
        super().save_pretrained(save_directory, **kwargs)


def config_with(config: VanillaTransformerConfig, **fields: Any) -> VanillaTransformerConfig:
    """Returns the config if its fields have these values already, otherwise a changed copy."""
    if all(getattr(config, name) == value for name, value in fields.items()):
        return config
    config = deepcopy(config)
    for name, value in fields.items():
        setattr(config, name, value)
    return config
