"""A translator that somebody has written from scratch, with layouts of their own.

`TABLE` renames its weights.
"""

import torch
from torch import nn

WIDTH, HEADS, INNER = 12, 3, 20
UNK, PAD, SOS, EOS = range(4)
TABLE = r"""
config: {encoder_attention_heads: 3, decoder_attention_heads: 3, tie_word_embeddings: false,
  share_encoder_decoder_embeddings: false, position_embedding_type: learned, lm_head_bias: true,
  unk_token_id: 0, pad_token_id: 1, bos_token_id: 2, eos_token_id: 3, decoder_start_token_id: 2}
zeros: ['.*_attn\.(q|k|v)_proj\.bias']
weights:
  '(\w+)\.tok\.weight': 'model.\1.embed_tokens.weight'
  '(\w+)\.pos': 'model.\1.embed_positions.weight'
  '(\w+)\.blocks\.(\d+)\.attn\.W_qkv': {transpose: true, split: [
    'model.\1.layers.\2.self_attn.q_proj.weight',
    'model.\1.layers.\2.self_attn.k_proj.weight',
    'model.\1.layers.\2.self_attn.v_proj.weight']}
  '(\w+)\.blocks\.(\d+)\.cross\.(q|k|v)\.(\d+)\.weight':
    {stack: 4, to: 'model.\1.layers.\2.encoder_attn.\3_proj.weight'}
  '(\w+)\.blocks\.(\d+)\.attn\.out\.(\w+)': 'model.\1.layers.\2.self_attn.out_proj.\3'
  '(\w+)\.blocks\.(\d+)\.cross\.out\.(\w+)': 'model.\1.layers.\2.encoder_attn.out_proj.\3'
  '(\w+)\.blocks\.(\d+)\.mlp\.0\.(\w+)': 'model.\1.layers.\2.feed_forward.fc1.\3'
  '(\w+)\.blocks\.(\d+)\.mlp\.2\.(\w+)': 'model.\1.layers.\2.feed_forward.fc2.\3'
  '(\w+)\.blocks\.(\d+)\.norms\.a\.(\w+)': 'model.\1.layers.\2.self_attn_post_norm.\3'
  '(\w+)\.blocks\.(\d+)\.norms\.c\.(\w+)': 'model.\1.layers.\2.encoder_attn_post_norm.\3'
  '(\w+)\.blocks\.(\d+)\.norms\.f\.(\w+)': 'model.\1.layers.\2.feed_forward_post_norm.\3'
  'project\.(\w+)': 'lm_head.\1'
  '.*\.causal': null
"""


class FusedAttention(nn.Module):
    """Self-attention with one matrix for three projections, stored as (inputs, outputs)."""

    def __init__(self, length=None):
        super().__init__()
        self.W_qkv = nn.Parameter(torch.randn(WIDTH, 3 * WIDTH) / 3)
        self.out = nn.Linear(WIDTH, WIDTH)
        if length is not None:
            self.register_buffer("causal", torch.ones(length, length).tril().bool())

    def forward(self, states, hidden=None):
        q, k, v = (states @ self.W_qkv).chunk(3, dim=-1)
        causal = getattr(self, "causal", None)
        if causal is not None:
            hidden = ~causal[: states.shape[1], : states.shape[1]][None]
        return self.out(attend(q, k, v, hidden))


class HeadwiseAttention(nn.Module):
    """Cross-attention with one small projection for each head."""

    def __init__(self):
        super().__init__()
        for part in "qkv":
            small = [nn.Linear(WIDTH, WIDTH // HEADS, bias=False) for _ in range(HEADS)]
            setattr(self, part, nn.ModuleList(small))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, states, memory, hidden):
        inputs = {"q": states, "k": memory, "v": memory}
        q, k, v = (torch.cat([h(inputs[p]) for h in getattr(self, p)], dim=-1) for p in "qkv")
        return self.out(attend(q, k, v, hidden))


def attend(q, k, v, hidden):
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
    scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
    scores = scores.masked_fill(hidden[:, None], -1e9)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


class Block(nn.Module):
    def __init__(self, length=None):
        super().__init__()
        self.attn = FusedAttention(length)
        self.norms = nn.ModuleDict({"a": nn.LayerNorm(WIDTH), "f": nn.LayerNorm(WIDTH)})
        self.mlp = nn.Sequential(nn.Linear(WIDTH, INNER), nn.ReLU(), nn.Linear(INNER, WIDTH))
        if length is not None:
            self.cross = HeadwiseAttention()
            self.norms["c"] = nn.LayerNorm(WIDTH)

    def forward(self, states, padding, memory=None):
        states = self.norms["a"](states + self.attn(states, padding))
        if memory is not None:
            states = self.norms["c"](states + self.cross(states, memory, padding))
        return self.norms["f"](states + self.mlp(states))


class Half(nn.Module):
    def __init__(self, vocab_size, layers, length=None):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, WIDTH)
        self.pos = nn.Parameter(torch.randn(16, WIDTH))
        self.blocks = nn.ModuleList([Block(length) for _ in range(layers)])

    def forward(self, ids, padding, memory=None):
        states = self.tok(ids) * WIDTH**0.5 + self.pos[: ids.shape[1]]
        for block in self.blocks:
            states = block(states, padding, memory)
        return states


class FromScratch(nn.Module):
    """A post-norm translator with learned positions and untied matrices."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Half(31, 2), Half(27, 1, length=16)
        self.project = nn.Linear(WIDTH, 27)

    def forward(self, source, target):
        padding = (source == PAD)[:, None]
        return self.project(self.decoder(target, padding, self.encoder(source, padding)))
