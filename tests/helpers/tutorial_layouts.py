"""Models in the layouts of two tutorials: the reference systems under other names."""

import re

import torch
from reference_systems import SampleNorm, Translator
from tiny_models import add_noise
from torch import nn

WIDTH, HEADS, INNER, SIZE = 16, 4, 24, 20
SIZES = {"d_model": WIDTH, "heads": HEADS, "inner": INNER, "layers": 2}
SIZES |= {"source": SIZE, "target": SIZE}


class Seq2Seq(Translator):
    """Post-norm, with learned positions."""

    scaled, pad = True, 1
    names = (
        (r"\.embedding", ".tok_embedding"),
        (r"\.positions\.table", ".pos_embedding.weight"),
        (r"attention\.(q|k|v)\.", r"attention.fc_\1."),
        (r"attention\.out", "attention.fc_o"),
        ("cross_attention", "encoder_attention"),
        (r"feed_forward\.linear(.)", r"positionwise_feedforward.fc_\1"),
        ("norm1", "self_attn_layer_norm"),
        (r"(decoder.*)norm2", r"\1enc_attn_layer_norm"),
        ("norm[23]", "ff_layer_norm"),
        ("^output", "decoder.fc_out"),
    )

    def __init__(self):
        super().__init__(SIZES)
        for stack in (self.encoder, self.decoder):
            del stack.positions.table
            stack.positions.table = nn.Parameter(torch.randn(30, WIDTH))


class Annotated(Translator):
    """Pre-norm, with norms by the sample standard deviation, also after each stack."""

    norm, norm_first, scaled, pad = SampleNorm, True, True, 2
    names = (
        (r"norm(.*)\.gain", r"norm\1.a_2"),
        (r"norm(.*)\.bias", r"norm\1.b_2"),
        (r"encoder\.embedding", "src_embed.0.lut"),
        (r"decoder\.embedding", "tgt_embed.0.lut"),
        (r"encoder\.positions\.table", "src_embed.1.pe"),
        (r"decoder\.positions\.table", "tgt_embed.1.pe"),
        ("self_attention", "self_attn"),
        ("cross_attention", "src_attn"),
        *((rf"attn\.{part}\.", f"attn.linears.{i}.") for i, part in enumerate(("q", "k", "v"))),
        (r"attn\.out", "attn.linears.3"),
        (r"feed_forward\.linear(.)", r"feed_forward.w_\1"),
        *((rf"\.norm{i + 1}", f".sublayer.{i}.norm") for i in range(3)),
        ("^output", "generator.proj"),
        ("^(..coder)_norm", r"\1.norm"),
    )

    def __init__(self):
        super().__init__(SIZES)
        self.encoder_norm, self.decoder_norm = SampleNorm(WIDTH), SampleNorm(WIDTH)
        self.encoder.register_forward_hook(lambda *call: self.encoder_norm(call[2]))
        self.decoder.register_forward_hook(lambda *call: self.decoder_norm(call[2]))


def random_model(kind):
    torch.manual_seed(0)
    return add_noise(kind().eval(), 0.3)


def weights_of(model):
    """The weights under the names of the tutorial."""
    found = {}
    for name, tensor in model.state_dict().items():
        for pattern, new in model.names:
            name = re.sub(pattern, new, name)
        found[name] = tensor[None] if name.endswith(".pe") else tensor
    return found
