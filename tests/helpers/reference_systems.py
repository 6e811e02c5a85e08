"""The systems of five tutorials, written from their descriptions, without the package.

A: "[Transformer] Transformer 코드 리뷰", the blog of MongTae.
B: "트랜스포머 인코더 구현하기", Crimsonjoo's Easy-Transformer
   (https://github.com/crimsonjoo/Easy-Transformer).
C: "트랜스포머 디코더 핵심 코드 구현을 통한 동작 메커니즘 이해하기", a blog post of 4 February 2024.
D: "LLM 구현 2편 - Transformer 아키텍처 이해", 8 November 2025.
E: an untitled notebook, `Transformer(encoder, decoder)`.
"""

import copy
import math
from functools import partial

import torch
from torch import nn


def sinusoids(length, d_model):
    table = torch.zeros(length, d_model)
    position = torch.arange(length).float()[:, None]
    pair = torch.arange(0, d_model, 2).float()
    table[:, 0::2] = torch.sin(position / 10000 ** (pair / d_model))
    table[:, 1::2] = torch.cos(position / 10000 ** (pair / d_model))
    return table


def look_ahead(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


class FeedForward(nn.Module):
    def __init__(self, d_model, inner, activation=torch.relu, after_first=0.0, after_second=0.0):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d_model, inner), nn.Linear(inner, d_model)
        self.activation = activation
        self.dropout1, self.dropout2 = nn.Dropout(after_first), nn.Dropout(after_second)

    def forward(self, x):
        return self.dropout2(self.linear2(self.dropout1(self.activation(self.linear1(x)))))


class SeparateAttention(nn.Module):
    """A, D, E: three projections and a mask of ones and zeros."""

    def __init__(self, d_model, heads, dropout=0.0):
        super().__init__()
        self.heads, self.size = heads, d_model // heads
        self.q, self.k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v, self.out = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, *source_and_mask):
        """(queries, mask) for self-attention, (queries, source, mask) for cross-attention."""
        *source, mask = source_and_mask
        batch, keys = query.shape[0], source[0] if source else query

        def heads(x):
            return x.reshape(batch, -1, self.heads, self.size).permute(0, 2, 1, 3)

        q, k, v = heads(self.q(query)), heads(self.k(keys)), heads(self.v(keys))
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(self.size)
        weights = scores.masked_fill(mask == 0, -1e9).softmax(dim=-1)
        mixed = torch.einsum("bhij,bhjd->bhid", self.dropout(weights), v)
        return self.out(mixed.permute(0, 2, 1, 3).reshape(batch, -1, self.heads * self.size))


class PerHeadAttention(nn.Module):
    """B, C: one projection, split by head first, then into queries, keys and values."""

    def __init__(self, d_model, heads):
        super().__init__()
        self.heads, self.size = heads, d_model // heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask):
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, self.heads, 3 * self.size).permute(0, 2, 1, 3)
        q, k, v = qkv.chunk(3, dim=-1)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(self.size) + mask).softmax(dim=-1)
        return self.out((weights @ v).permute(0, 2, 1, 3).reshape(batch, length, width))


class PerHeadCrossAttention(nn.Module):
    """C: one projection for the keys and values of the source."""

    def __init__(self, d_model, heads):
        super().__init__()
        self.heads, self.size = heads, d_model // heads
        self.kv, self.q = nn.Linear(d_model, 2 * d_model), nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, y, source, mask):
        batch, length, width = y.shape
        kv = self.kv(source).reshape(batch, -1, self.heads, 2 * self.size).permute(0, 2, 1, 3)
        q = self.q(y).reshape(batch, length, self.heads, self.size).permute(0, 2, 1, 3)
        k, v = kv.chunk(2, dim=-1)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(self.size) + mask).softmax(dim=-1)
        return self.out((weights @ v).permute(0, 2, 1, 3).reshape(batch, length, width))


class SampleNorm(nn.Module):
    """B: the sample standard deviation; eps is added to it."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, unbiased=True, keepdim=True)
        return self.gain * (x - mean) / (std + self.eps) + self.bias


class WrittenOutNorm(nn.Module):
    """C: the population variance; eps is added inside the root."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
        return self.gamma * ((x - mean) / (variance + self.eps).sqrt()) + self.beta


class Stack(nn.Module):
    def __init__(self, vocab, d_model, layers, scale=1.0, dropout=0.0, longest=64):
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.positions = nn.Module()
        self.positions.register_buffer("table", sinusoids(longest, d_model))
        self.layers, self.scale, self.dropout = nn.ModuleList(layers), scale, nn.Dropout(dropout)

    def forward(self, ids, *args):
        x = self.embedding(ids) * self.scale + self.positions.table[: ids.shape[1]]
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x, *args)
        return x


class EncoderLayer(nn.Module):
    """A, C: a norm after each sum. D: before each sublayer."""

    def __init__(self, attention, norm, feed_forward, dropout, norm_first=False):
        super().__init__()
        self.self_attention, self.feed_forward = attention, feed_forward
        self.norm1, self.norm2 = norm(), norm()
        self.dropout, self.norm_first = nn.Dropout(dropout), norm_first

    def add(self, x, sublayer, norm):
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def forward(self, x, mask):
        x = self.add(x, lambda y: self.self_attention(y, mask), self.norm1)
        return self.add(x, self.feed_forward, self.norm2)


class DecoderLayer(EncoderLayer):
    """The same with attention to the source."""

    def __init__(self, attention, cross_attention, norm, *args, **options):
        super().__init__(attention, norm, *args, **options)
        self.cross_attention, self.norm3 = cross_attention, norm()

    def forward(self, x, source, self_mask, cross_mask):
        x = self.add(x, lambda y: self.self_attention(y, self_mask), self.norm1)
        x = self.add(x, lambda y: self.cross_attention(y, source, cross_mask), self.norm2)
        return self.add(x, self.feed_forward, self.norm3)


class Translator(nn.Module):
    """What A, C and D share: two stacks of layers and a projection to target tokens."""

    attention = cross_attention = SeparateAttention
    norm = nn.LayerNorm
    norm_first, scaled, output_bias = False, False, True

    def __init__(self, sizes, dropout=0.1):
        super().__init__()
        width, self.p = sizes["d_model"], dropout
        scale = math.sqrt(width) if self.scaled else 1.0
        for name, vocab in (("encoder", "source"), ("decoder", "target")):
            layers = [self.make_layer(name, sizes) for _ in range(sizes["layers"])]
            setattr(self, name, Stack(sizes[vocab], width, layers, scale, dropout))
        self.output = nn.Linear(width, sizes["target"], bias=self.output_bias)

    def make_layer(self, stack, sizes):
        shape = (sizes["d_model"], sizes["heads"])
        rest = (partial(self.norm, shape[0]), self.feed_forward(shape[0], sizes["inner"]), self.p)
        if stack == "encoder":
            return EncoderLayer(self.attention(*shape), *rest, norm_first=self.norm_first)
        attentions = self.attention(*shape), self.cross_attention(*shape)
        return DecoderLayer(*attentions, *rest, norm_first=self.norm_first)

    def feed_forward(self, width, inner):
        return FeedForward(width, inner)

    def forward(self, source_ids, target_ids, pad):
        source_mask = (source_ids != pad)[:, None, None, :]
        target_mask = look_ahead(target_ids.shape[1])
        source = self.encoder(source_ids, source_mask)
        return self.output(self.decoder(target_ids, source, target_mask, source_mask))


class SystemA(Translator):
    output_bias = False


class LayerB(nn.Module):
    def __init__(self, d_model, heads, inner, dropout):
        super().__init__()
        self.self_attention = PerHeadAttention(d_model, heads)
        self.feed_forward = FeedForward(d_model, inner, after_first=dropout)
        self.norm1, self.norm2 = SampleNorm(d_model), SampleNorm(d_model)

    def forward(self, x, mask):
        x = self.norm1(x + self.self_attention(x, mask))
        return self.norm2(x + self.feed_forward(x))


class SystemB(nn.Module):
    def __init__(self, sizes, dropout=0.1):
        super().__init__()
        shape = (sizes["d_model"], sizes["heads"], sizes["inner"], dropout)
        self.layers = nn.ModuleList(LayerB(*shape) for _ in range(sizes["layers"]))
        self.norm = SampleNorm(sizes["d_model"])

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class SystemC(Translator):
    attention, cross_attention, norm = PerHeadAttention, PerHeadCrossAttention, WrittenOutNorm

    def feed_forward(self, width, inner):
        return FeedForward(width, inner, after_first=self.p)

    def forward(self, source_ids, target_ids, pad):
        def additive(allowed):
            return torch.zeros(allowed.shape).masked_fill(~allowed, -1e9)

        real_source, real_target = source_ids != pad, target_ids != pad
        encoder_mask = additive(real_source[:, None, None, :])
        causal = look_ahead(target_ids.shape[1])
        decoder_mask = additive(real_target[:, None, None, :] & causal)
        cross_mask = additive(real_target[:, None, :, None] & real_source[:, None, None, :])
        source = self.encoder(source_ids, encoder_mask)
        return self.output(self.decoder(target_ids, source, decoder_mask, cross_mask))


class SystemD(Translator):
    norm_first = scaled = True

    def attention(self, d_model, heads):
        return SeparateAttention(d_model, heads, self.p)

    cross_attention = attention

    def feed_forward(self, width, inner):
        return FeedForward(width, inner, nn.GELU(), self.p, self.p)


class LayerE(nn.Module):
    def __init__(self, attentions, feed_forward):
        super().__init__()
        self.self_attention = copy.deepcopy(attentions[0])
        self.cross_attention = copy.deepcopy(attentions[1]) if len(attentions) > 1 else None
        self.feed_forward = copy.deepcopy(feed_forward)

    def forward(self, x, mask, source=None, cross_mask=None):
        x = x + self.self_attention(x, mask)
        if self.cross_attention is not None:
            x = x + self.cross_attention(x, source, cross_mask)
        return x + self.feed_forward(x)


class SystemE(nn.Module):
    """Deep-copies the given modules; returns log-softmax scores and hidden states."""

    def __init__(self, sizes):
        super().__init__()
        width = sizes["d_model"]
        attention = SeparateAttention(width, sizes["heads"])
        feed_forward = FeedForward(width, sizes["inner"])
        blocks = {
            "encoder": LayerE([attention], feed_forward),
            "decoder": LayerE([attention, attention], feed_forward),
        }
        for name, block in blocks.items():
            layers = [copy.deepcopy(block) for _ in range(sizes["layers"])]
            vocab = sizes["source" if name == "encoder" else "target"]
            setattr(self, name, Stack(vocab, width, layers, math.sqrt(width), longest=256))
        self.output = nn.Linear(width, sizes["target"])

    def forward(self, source_ids, target_ids, pad):
        def pairs(queries, keys):
            return (queries != pad)[:, None, :, None] & (keys != pad)[:, None, None, :]

        target_mask = pairs(target_ids, target_ids) & look_ahead(target_ids.shape[1])
        source = self.encoder(source_ids, pairs(source_ids, source_ids))
        hidden = self.decoder(target_ids, target_mask, source, pairs(target_ids, source_ids))
        return self.output(hidden).log_softmax(dim=-1), hidden


WIDTH, INNER = 8, 12


def weights_of(system, layers=1):
    """Random weights of a system under the documented names."""
    torch.manual_seed(0)
    sizes = {"source": 20, "target": 22, "d_model": WIDTH, "inner": INNER, "heads": 2}
    weights = system({**sizes, "layers": layers}).state_dict()
    return {name: torch.randn_like(tensor) for name, tensor in weights.items()}


weights_of_a = partial(weights_of, SystemA)
