"""One decoding step: what the decoder computes for one new token of each row, and nothing else.

The functions here compute what the modules' forwards compute in evaluation mode. They are chosen
once, when `generate()` begins. What a forward also handles, such as dropout, packing, hooks, checks
and any length, is not asked for again at each step and layer.

Shapes: states are (rows, d_model): a step has one position. Other names are those of `attention`
and `decoding_cache`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers.cache_utils import Cache

from .attention import (
    CrossAttention,
    FusedSelfAttention,
    SelfAttention,
    StackedLinear,
    choose_attention,
    eager_attention_forward,
)
from .decoding_cache import DecodingCache
from .dropout import Dropout, ScaledDropout
from .feed_forward import FeedForward, GatedFeedForward
from .layers import CausalLayer, DecoderLayer
from .positions import NoPositions, PositionEncoding, SinusoidalPositions
from .stacks import CausalStack

Map = Callable[[torch.Tensor], torch.Tensor]

_POSITIONS_AHEAD = 64
_SEVERAL, _LARGE = 4, 2**20  # rows, and weights of a matrix


class Moment(NamedTuple):
    """What all layers of a step share.

    Attributes:
        positions: Of the new token.
        mask: For self-attention: None, a boolean mask, or one that is added to the scores, of shape
            (rows, 1, 1, length), or with a bias (rows or 1, key_value_heads, groups, length).
    """

    positions: PositionEncoding
    mask: torch.Tensor | None


# Modules as functions ----------------------------------------------------------------------------


def function_of(module: Any, rows: int = 1) -> Map:
    """Returns the function of (rows, d_model) that a module computes in evaluation mode.

    Modules of other types, such as adapters, are called as they are, with the position axis that
    they expect.

    Args:
        module: The module.
        rows: Number of rows to compute at once. 1: it is not known, or a projection is small.

    Returns:
        The function.
    """
    if type(module) in (nn.Linear, StackedLinear):
        return _linear_function(module.weight, module.bias, rows)
    if type(module) is nn.LayerNorm:
        return partial(
            torch.layer_norm,
            normalized_shape=module.normalized_shape,
            weight=module.weight,
            bias=module.bias,
            eps=module.eps,
        )
    if type(module) in (nn.Identity, Dropout):
        return _same_states
    if type(module) is ScaledDropout:
        return partial(torch.mul, other=module.scale)
    if type(module) is nn.ReLU:
        return torch.relu
    if hasattr(module, "_packed_params"):  # a linear map of `torch.ao.quantization`
        return cast(Map, module.forward)
    return lambda states: module(states[:, None])[:, 0]


def _linear_function(weight: torch.Tensor, bias: torch.Tensor | None, rows: int) -> Map:
    """Chooses oneDNN for several rows and a large matrix, otherwise what torch chooses.

    For 4 to 128 rows and the sizes of the paper, the feed-forward and the output projection take a
    tenth to a third less time with oneDNN than with MKL; for one row more. PyTorch's compiler calls
    the same operator.
    """
    one_dnn = torch.backends.mkldnn.is_available() and weight.dtype == torch.float32
    if one_dnn and type(weight) is nn.Parameter and rows >= _SEVERAL and weight.numel() >= _LARGE:
        multiply = torch.ops.mkldnn._linear_pointwise
        return lambda states: multiply(states, weight, bias, "none", [], "")
    return partial(F.linear, weight=weight, bias=bias)


def _same_states(states: torch.Tensor) -> torch.Tensor:
    return states


def _feed_forward_function(module: Any, rows: int) -> Map:
    if type(module) not in (FeedForward, GatedFeedForward):
        return function_of(module)
    activate = function_of(module.activation)
    inner, outer = function_of(module.fc1, rows), function_of(module.fc2, rows)
    if type(module) is FeedForward:
        return lambda states: outer(activate(inner(states)))
    gate = function_of(module.gate, rows)
    return lambda states: outer(activate(gate(states)) * inner(states))


# Attention ---------------------------------------------------------------------------------------


def sdpa_step(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """Attends with torch's fused function; shapes as in `attention`, and so is the result's."""
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=module.scaling)


def eager_step(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """Attends with the written-out function."""
    mixed, _ = eager_attention_forward(module, query, key, value, mask, module.scaling)
    return mixed.transpose(1, 2)


ATTENTION_STEPS = {"sdpa": sdpa_step, "eager": eager_step}


class SelfAttentionStep:
    """Self-attention of the new token to itself and to what the cache holds.

    Query heads that share a key head stand where queries of several positions would.

    Args:
        attention: The module.
        cache: Keys and values of all layers.
    """

    def __init__(self, attention: SelfAttention, cache: DecodingCache) -> None:
        self.module, self.cache = attention, cache
        self.attend = ATTENTION_STEPS[attention.config._attn_implementation]
        self.project = _projections_of(attention)
        self.out = function_of(attention.out_proj)
        self.queries = (-1, attention.num_key_value_groups, attention.head_dim)

    def __call__(self, states: torch.Tensor, moment: Moment) -> torch.Tensor:
        """Returns the output of the sublayer, of shape (rows, d_model)."""
        rows, head_dim = len(states), self.module.head_dim
        query, key, value = (part.view(rows, -1, 1, head_dim) for part in self.project(states))
        query, key = moment.positions.rotate(query), moment.positions.rotate(key)
        keys, values = self.cache.append(self.module.layer_idx, key[:, :, 0], value[:, :, 0])
        query = query.view(rows, *self.queries)  # (rows, key_value_heads, groups, head_dim)
        mixed = self.attend(self.module, query, keys, values, moment.mask)
        return self.out(mixed.reshape(rows, -1))


def _projections_of(
    attention: SelfAttention,
) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    if isinstance(attention, FusedSelfAttention):
        stacked, sizes = function_of(attention.qkv_proj), attention.part_sizes
        return lambda states: torch.split(stacked(states), sizes, dim=-1)
    query, key, value = map(function_of, (attention.q_proj, attention.k_proj, attention.v_proj))
    return lambda states: (query(states), key(states), value(states))


class CrossAttentionStep:
    """Attention of the new tokens to their sources.

    All rows of a source attend to its one copy, as queries of several positions would.

    Args:
        attention: The module.
        cache: Keys and values of all layers.
        mask: Hides source padding, of shape (sources, 1, 1, source_len). None: there is no padding.
    """

    def __init__(
        self, attention: CrossAttention, cache: DecodingCache, mask: torch.Tensor | None
    ) -> None:
        self.module, self.mask = attention, mask
        self.keys, self.values = cache.sources[attention.layer_idx]
        self.attend = ATTENTION_STEPS[attention.config._attn_implementation]
        self.query, self.out = function_of(attention.q_proj), function_of(attention.out_proj)
        sources, heads, _, _ = self.keys.shape
        self.queries = (sources, cache.copies, heads, -1, attention.head_dim)
        self.shared = (sources, heads, -1, attention.head_dim)
        self.mixed = (sources, heads, cache.copies, -1, attention.head_dim)

    def __call__(self, states: torch.Tensor, moment: Moment) -> torch.Tensor:
        """Returns the output of the sublayer, of shape (rows, d_model)."""
        query = self.query(states).view(self.queries).transpose(1, 2)
        query = query.reshape(self.shared)  # (sources, key_value_heads, copies · groups, head_dim)
        mixed = self.attend(self.module, query, self.keys, self.values, self.mask)
        return self.out(mixed.view(self.mixed).transpose(1, 2).reshape(len(states), -1))


# The decoder -------------------------------------------------------------------------------------


class LayerStep:
    """A layer: each sublayer with its residual sum and its norms (Vaswani et al. §3.1).

    Args:
        layer: The module.
        cache: Keys and values of all layers.
        source_mask: As in `CrossAttentionStep`.
    """

    def __init__(
        self,
        layer: DecoderLayer | CausalLayer,
        cache: DecodingCache,
        source_mask: torch.Tensor | None,
    ) -> None:
        self.scale = function_of(layer.dropout)
        feed_forward = _feed_forward_function(layer.feed_forward, cache.rows)
        sublayers: dict[str, Callable[[torch.Tensor, Moment], torch.Tensor]]
        sublayers = {"self_attn": SelfAttentionStep(layer.self_attn, cache)}
        if isinstance(layer, DecoderLayer):
            sublayers["encoder_attn"] = CrossAttentionStep(layer.encoder_attn, cache, source_mask)
        sublayers["feed_forward"] = lambda states, moment: feed_forward(states)
        self.sublayers = [
            (
                function_of(getattr(layer, f"{name}_pre_norm")),
                sublayer,
                function_of(getattr(layer, f"{name}_post_norm")),
            )
            for name, sublayer in sublayers.items()
        ]

    def __call__(self, states: torch.Tensor, moment: Moment) -> torch.Tensor:
        """Returns the states of the layer, of shape (rows, d_model)."""
        for pre_norm, sublayer, post_norm in self.sublayers:
            states = post_norm(states + self.scale(sublayer(pre_norm(states), moment)))
        return states


class DecodingStep(Cache):
    """The decoder and the output projection, for one new token of each row.

    The loops of `generate()` hold it as their cache: they ask it to follow the beams.

    Args:
        stack: The decoder.
        head: The output projection.
        cache: Keys and values of all layers.
        source_mask: As in `CrossAttentionStep`.
    """

    def __init__(
        self,
        stack: CausalStack,
        head: nn.Module,
        cache: DecodingCache,
        source_mask: torch.Tensor | None = None,
    ) -> None:
        super().__init__(layers=[])
        self.stack, self.cache, self.has_source = stack, cache, bool(cache.sources)
        prefix = "decoder_" if self.has_source else ""
        self.input_names = (f"{prefix}input_ids", f"{prefix}attention_mask")
        table = stack.embed_tokens
        plain = type(table) is nn.Embedding
        self.embed = partial(torch.embedding, table.weight) if plain else table
        self.embed_norm = function_of(stack.embed_norm)
        layers: Any = stack.layers
        self.layer_steps = [LayerStep(layer, cache, source_mask) for layer in layers]
        self.final_norm, self.head = function_of(stack.final_norm), function_of(head, cache.rows)
        self.logit_scale = stack.config.logit_scale
        scheme = stack.embed_positions
        is_table = isinstance(scheme, (SinusoidalPositions, NoPositions))
        self.positions_at = TablePositions(scheme) if is_table else partial(_positions_at, scheme)
        attention: Any = stack.layers[0].self_attn
        self.heads = (-1, attention.num_key_value_groups)  # one bias for each
        self.attention = choose_attention(stack.config, {})

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the number of tokens of a row in the cache."""
        return self.cache.length

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Follows the beams; see `DecodingCache.reorder_cache`."""
        self.cache.reorder_cache(beam_idx)

    def next_logits(self, ids: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Computes the logits of the next tokens.

        Args:
            ids: The new tokens, of shape (rows, 1).
            attention_mask: 1 for a token, 0 for padding, of shape (rows, length). None: there is no
                padding.

        Returns:
            Logits of shape (rows, 1, vocab).
        """
        embeds = self.embed(ids) * self.stack.embed_scale
        states, moment = self._embed_and_mask(embeds, attention_mask)
        self.cache.begin_step()
        for layer in self.layer_steps:
            states = layer(states, moment)
        return self.head(self.final_norm(states) * self.logit_scale)[:, None]

    def _embed_and_mask(
        self, embeds: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, Moment]:
        """Adds the positions, and makes what all layers share."""
        if attention_mask is None:  # the token attends to all before it
            positions, mask = self.positions_at(self.cache.length, embeds), None
            states = self.embed_norm(positions.add_to(embeds)[:, 0])
        else:
            context = self.stack.make_context(
                self.attention, embeds, attention_mask, None, self.cache
            )
            states = self.stack.add_positions(embeds, context)[:, 0]
            mask, positions = context.mask, context.positions
        if positions.bias is not None:
            mask = _with_bias(mask, positions.bias[:, :, 0].unflatten(1, self.heads))
        return states, Moment(positions, mask)


def _with_bias(mask: torch.Tensor | None, bias: torch.Tensor) -> torch.Tensor:
    """Joins a mask and a bias on the scores to one mask that is added to them."""
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return torch.where(mask, bias, torch.finfo(bias.dtype).min)
    return mask + bias


def _positions_at(scheme: nn.Module, length: int, embeds: torch.Tensor) -> PositionEncoding:
    """Asks a scheme for the position of the token that follows `length` tokens."""
    keys = torch.arange(length + 1, device=embeds.device)[None]
    encoding: PositionEncoding = scheme(keys[:, -1:], embeds.dtype, keys)
    return encoding


class TablePositions:
    """Position embeddings that depend on the position alone, computed for many steps at once.

    Args:
        scheme: The position scheme.
    """

    def __init__(self, scheme: nn.Module) -> None:
        self.scheme = scheme
        self.start, self.table = -_POSITIONS_AHEAD, PositionEncoding()

    def __call__(self, length: int, embeds: torch.Tensor) -> PositionEncoding:
        """Returns the position of the token that follows `length` tokens."""
        if not self.start <= length < self.start + _POSITIONS_AHEAD:
            self.start = length
            ids = torch.arange(length, length + _POSITIONS_AHEAD, device=embeds.device)[None]
            self.table = self.scheme(ids, embeds.dtype)
        if self.table.embedding is None:
            return self.table
        row = length - self.start
        return PositionEncoding(embedding=self.table.embedding[:, row : row + 1])
