"""A translator around nn.Transformer, as people write it."""

import torch
from tiny_models import add_noise
from torch import nn

WIDTH, HEADS, SOURCES, TARGETS = 16, 4, 23, 19
TOKENS = {"pad_token_id": 1, "eos_token_id": 3, "decoder_start_token_id": 2, "bos_token_id": 2}
NAMES = {
    "source_embedding": "src_tok_emb.weight",
    "target_embedding": "tgt_tok_emb.weight",
    "generator": "generator",
}


def sinusoids(length=40):
    """The table of PyTorch's tutorial: interleaved, of shape (length, 1, d_model)."""
    places = torch.arange(length)[:, None]
    speeds = torch.exp(-torch.arange(0, WIDTH, 2) * torch.log(torch.tensor(10000.0)) / WIDTH)
    table = torch.zeros(length, 1, WIDTH)
    table[:, 0, 0::2], table[:, 0, 1::2] = torch.sin(places * speeds), torch.cos(places * speeds)
    return table


class Seq2Seq(nn.Module):
    """A translator around nn.Transformer, as people write it."""

    def __init__(self, positions, scale, generator_bias=True, tied=False, **options):
        super().__init__()
        self.transformer = nn.Transformer(WIDTH, HEADS, 2, 3, 24, **options)
        self.src_tok_emb = nn.Embedding(SOURCES, WIDTH)
        self.tgt_tok_emb = nn.Embedding(TARGETS, WIDTH)
        self.generator = nn.Linear(WIDTH, TARGETS, bias=generator_bias)
        if tied:
            self.generator.weight = self.tgt_tok_emb.weight
        self.scale = WIDTH**0.5 if scale else 1.0
        self.kind = positions
        if positions == "learned":
            self.pos = nn.Embedding(12, WIDTH)
        elif positions == "sinusoidal":
            self.register_buffer("pe", sinusoids())

    def places(self, length):
        if self.kind == "learned":
            return self.pos.weight[:length]
        return self.pe[:length, 0] if self.kind == "sinusoidal" else 0

    def forward(self, source, target, pad=1):
        first = self.src_tok_emb(source) * self.scale + self.places(source.shape[1])
        second = self.tgt_tok_emb(target) * self.scale + self.places(target.shape[1])
        if not self.transformer.batch_first:
            first, second = first.transpose(0, 1), second.transpose(0, 1)
        states = self.transformer(
            first,
            second,
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.shape[1]),
            src_key_padding_mask=source == pad,
            memory_key_padding_mask=source == pad,
        )
        return self.generator(states if self.transformer.batch_first else states.transpose(0, 1))


def random_model(positions="learned", scale=True, **options):
    torch.manual_seed(0)
    return add_noise(Seq2Seq(positions, scale, **options).eval(), 0.3)
