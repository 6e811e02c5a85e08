"""Models in the layouts of two tutorials are found by their names, and compute the same here.

The models below are written from the descriptions of the tutorials, without the package.
"""

import math

import pytest
import torch
from conftest import add_noise
from torch import nn

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.recognition import recognised_kind
from vanilla_transformer.interop.tutorial_layouts import read_layout

WIDTH, HEADS, INNER, SIZE = 16, 4, 24, 20


def attend(q, k, v, seen):
    q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (q, k, v))
    scores = (q @ k.transpose(-1, -2) / math.sqrt(WIDTH / HEADS)).masked_fill(seen == 0, -1e10)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def masks(source, target, pad):
    causal = torch.ones(target.shape[1], target.shape[1]).tril().bool()
    return (source != pad)[:, None, None], (target != pad)[:, None, None] & causal


class Fc(nn.Module):
    def __init__(self):
        super().__init__()
        for part in "qkvo":
            setattr(self, f"fc_{part}", nn.Linear(WIDTH, WIDTH))

    def forward(self, x, memory, seen):
        return self.fc_o(attend(self.fc_q(x), self.fc_k(memory), self.fc_v(memory), seen))


class PositionwiseFeedforward(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc_1, self.fc_2 = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x):
        return self.fc_2(torch.relu(self.fc_1(x)))


class PostNormLayer(nn.Module):
    def __init__(self, is_decoder):
        super().__init__()
        self.self_attention, self.self_attn_layer_norm = Fc(), nn.LayerNorm(WIDTH)
        if is_decoder:
            self.encoder_attention, self.enc_attn_layer_norm = Fc(), nn.LayerNorm(WIDTH)
        self.positionwise_feedforward, self.ff_layer_norm = (
            PositionwiseFeedforward(),
            nn.LayerNorm(WIDTH),
        )

    def forward(self, x, seen, memory=None, memory_seen=None):
        x = self.self_attn_layer_norm(x + self.self_attention(x, x, seen))
        if memory is not None:
            x = self.enc_attn_layer_norm(x + self.encoder_attention(x, memory, memory_seen))
        return self.ff_layer_norm(x + self.positionwise_feedforward(x))


class Half(nn.Module):
    def __init__(self, is_decoder):
        super().__init__()
        self.tok_embedding, self.pos_embedding = nn.Embedding(SIZE, WIDTH), nn.Embedding(30, WIDTH)
        self.layers = nn.ModuleList(PostNormLayer(is_decoder) for _ in range(2))
        if is_decoder:
            self.fc_out = nn.Linear(WIDTH, SIZE)

    def forward(self, ids, *masks_and_memory):
        x = self.tok_embedding(ids) * math.sqrt(WIDTH)
        x = x + self.pos_embedding(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x, *masks_and_memory)
        return self.fc_out(x) if hasattr(self, "fc_out") else x


class Seq2Seq(nn.Module):
    pad = 1

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Half(False), Half(True)

    def forward(self, source, target):
        seen, target_seen = masks(source, target, self.pad)
        return self.decoder(target, target_seen, self.encoder(source, seen), seen)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return self.a_2 * centred / (x.std(-1, keepdim=True) + 1e-6) + self.b_2


class Sublayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm()

    def forward(self, x, function):
        return x + function(self.norm(x))


class Linears(nn.Module):
    def __init__(self):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x, memory, seen):
        q, k, v, out = self.linears
        return out(attend(q(x), k(memory), v(memory), seen))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x):
        return self.w_2(torch.relu(self.w_1(x)))


class PreNormLayer(nn.Module):
    def __init__(self, is_decoder):
        super().__init__()
        self.self_attn, self.feed_forward = Linears(), FeedForward()
        if is_decoder:
            self.src_attn = Linears()
        self.sublayer = nn.ModuleList(Sublayer() for _ in range(3 if is_decoder else 2))

    def forward(self, x, seen, memory=None, memory_seen=None):
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, seen))
        if memory is not None:
            x = self.sublayer[1](x, lambda y: self.src_attn(y, memory, memory_seen))
        return self.sublayer[-1](x, self.feed_forward)


class Stack(nn.Module):
    def __init__(self, is_decoder):
        super().__init__()
        self.layers = nn.ModuleList(PreNormLayer(is_decoder) for _ in range(2))
        self.norm = Norm()

    def forward(self, x, *rest):
        for layer in self.layers:
            x = layer(x, *rest)
        return self.norm(x)


class Lut(nn.Module):
    def __init__(self):
        super().__init__()
        self.lut = nn.Embedding(SIZE, WIDTH)

    def forward(self, ids):
        return self.lut(ids) * math.sqrt(WIDTH)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        table, place = torch.zeros(50, WIDTH), torch.arange(50)[:, None]
        rates = torch.exp(torch.arange(0, WIDTH, 2) * -(math.log(10000.0) / WIDTH))
        table[:, 0::2], table[:, 1::2] = torch.sin(place * rates), torch.cos(place * rates)
        self.register_buffer("pe", table[None])

    def forward(self, x):
        return x + self.pe[:, : x.shape[1]]


class Annotated(nn.Module):
    pad = 2

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Stack(False), Stack(True)
        self.src_embed = nn.Sequential(Lut(), Positions())
        self.tgt_embed = nn.Sequential(Lut(), Positions())
        self.generator = nn.Module()
        self.generator.proj = nn.Linear(WIDTH, SIZE)

    def forward(self, source, target):
        seen, target_seen = masks(source, target, self.pad)
        memory = self.encoder(self.src_embed(source), seen)
        states = self.decoder(self.tgt_embed(target), target_seen, memory, seen)
        return self.generator.proj(states)


def random_model(kind):
    torch.manual_seed(0)
    return add_noise(kind().eval(), 0.3)


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("kind", [Seq2Seq, Annotated])
def test_the_logits_are_those_of_the_tutorial(kind, prefix, tmp_path):
    model = random_model(kind)
    weights = {f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save(weights, tmp_path / "model.pt")
    assert recognised_kind(tmp_path / "model.pt") == "tutorials"
    imported = read_layout(tmp_path / "model.pt", HEADS)
    source, target = torch.randint(4, SIZE, (3, 9)), torch.randint(4, SIZE, (3, 6))
    source[1, 5:] = model.pad
    with torch.no_grad():
        expected = model(source, target)
        found = imported.model(
            input_ids=source,
            attention_mask=(source != model.pad).long(),
            decoder_input_ids=target,
        ).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert imported.model.config.pad_token_id == model.pad


def test_the_program_converts_a_checkpoint(tmp_path, capsys):
    torch.save({"model_state_dict": random_model(Seq2Seq).state_dict()}, tmp_path / "run.pt")
    words = [str(tmp_path / "run.pt"), str(tmp_path / "out"), "--heads", str(HEADS)]
    run_subcommand("convert", [*words, "--key", "model_state_dict", "--set", "dropout=0.3"])
    assert "unk 0, pad 1, bos 2, eos 3" in capsys.readouterr().out


def test_what_is_of_neither_layout_is_refused(tmp_path):
    torch.save({"mine": torch.ones(2)}, tmp_path / "mine.pt")
    with pytest.raises(ValueError, match=r"neither .*fc_q.* nor .*lut"):
        read_layout(tmp_path / "mine.pt", HEADS)
    weights = random_model(Annotated).state_dict()
    weights["src_embed.1.pe"] = weights["src_embed.1.pe"] + 1
    torch.save(weights, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="The positions are of another kind"):
        read_layout(tmp_path / "other.pt", HEADS)
