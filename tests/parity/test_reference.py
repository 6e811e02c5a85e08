"""The whole model equals independent ones: torch's own layers, and plain functions."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

D_MODEL = 16


def sinusoids(length):
    table = torch.zeros(length, D_MODEL)
    for position in range(length):
        for pair in range(D_MODEL // 2):
            angle = position / 10000 ** (2 * pair / D_MODEL)
            table[position, 2 * pair] = math.sin(angle)
            table[position, 2 * pair + 1] = math.cos(angle)
    return table


def copy_attention(theirs, ours):
    for part in ("weight", "bias"):
        parts = [getattr(m, part) for m in (ours.q_proj, ours.k_proj, ours.v_proj)]
        getattr(theirs, f"in_proj_{part}").copy_(torch.cat(parts))
        getattr(theirs.out_proj, part).copy_(getattr(ours.out_proj, part))


def copy_rest(theirs, ours, norms, placement):
    theirs.linear1.load_state_dict(ours.feed_forward.fc1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.fc2.state_dict())
    for index, name in enumerate(norms, start=1):
        norm = getattr(ours, f"{name}_{placement}_norm")
        getattr(theirs, f"norm{index}").load_state_dict(norm.state_dict())


class TorchReference(nn.Module):
    """nn.TransformerEncoderLayer and DecoderLayer with the weights of one of our models."""

    def __init__(self, model, placement):
        super().__init__()
        config = model.config
        common = {"dropout": 0.0, "batch_first": True, "norm_first": placement == "pre"}
        self.embedding = nn.Parameter(model.model.shared.weight.detach().clone())
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(
                D_MODEL, config.encoder_attention_heads, config.encoder_ffn_dim, **common
            )
            for _ in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(
                D_MODEL, config.decoder_attention_heads, config.decoder_ffn_dim, **common
            )
            for _ in range(config.decoder_layers)
        )
        self.finals = nn.ModuleList()
        with torch.no_grad():
            for theirs, ours in zip(self.encoder, model.model.encoder.layers, strict=True):
                copy_attention(theirs.self_attn, ours.self_attn)
                copy_rest(theirs, ours, ("self_attn", "feed_forward"), placement)
            for theirs, ours in zip(self.decoder, model.model.decoder.layers, strict=True):
                copy_attention(theirs.self_attn, ours.self_attn)
                copy_attention(theirs.multihead_attn, ours.encoder_attn)
                norms = ("self_attn", "encoder_attn", "feed_forward")
                copy_rest(theirs, ours, norms, placement)
            for stack in (model.model.encoder, model.model.decoder):
                final = nn.LayerNorm(D_MODEL) if placement == "pre" else nn.Identity()
                final.load_state_dict(stack.final_norm.state_dict())
                self.finals.append(final)

    def embed(self, ids):
        return F.embedding(ids, self.embedding, padding_idx=1) * math.sqrt(D_MODEL) + sinusoids(
            ids.shape[1]
        )

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        source, padding = self.embed(input_ids), attention_mask == 0
        for layer in self.encoder:
            source = layer(source, src_key_padding_mask=padding)
        source = self.finals[0](source)
        target = self.embed(decoder_input_ids)
        length = target.shape[1]
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        for layer in self.decoder:
            target = layer(target, source, tgt_mask=later, memory_key_padding_mask=padding)
        return self.finals[1](target) @ self.embedding.T


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_logits_and_gradients_are_those_of_torch_layers(
    tiny_model, tiny_batch, placement, attention
):
    model = tiny_model(norm_placement=placement, attention=attention, dropout=0.0).train()
    reference = TorchReference(model, placement).train()
    batch = tiny_batch()
    arguments = {k: batch[k] for k in ("input_ids", "attention_mask", "decoder_input_ids")}
    ours, theirs = model(**arguments).logits, reference(**arguments)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)

    weights = torch.randn_like(ours)
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    pairs = {
        "embedding": (model.model.shared.weight.grad[:], reference.embedding.grad),
        "first fc1": (
            model.model.encoder.layers[0].feed_forward.fc1.weight.grad,
            reference.encoder[0].linear1.weight.grad,
        ),
        "last fc2": (
            model.model.decoder.layers[-1].feed_forward.fc2.weight.grad,
            reference.decoder[-1].linear2.weight.grad,
        ),
        "out": (
            model.model.decoder.layers[1].encoder_attn.out_proj.weight.grad,
            reference.decoder[1].multihead_attn.out_proj.weight.grad,
        ),
        "qkv": (
            torch.cat(
                [
                    getattr(model.model.encoder.layers[1].self_attn, f"{x}_proj").weight.grad
                    for x in "qkv"
                ]
            ),
            reference.encoder[1].self_attn.in_proj_weight.grad,
        ),
        "norm": (
            getattr(model.model.decoder.layers[0], f"encoder_attn_{placement}_norm").weight.grad,
            reference.decoder[0].norm2.weight.grad,
        ),
    }
    for name, (found, expected) in pairs.items():
        scale = expected.abs().max()
        torch.testing.assert_close(
            found / scale, expected / scale, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )


def plain_attention(weights, name, queries, keys, heads, allowed):
    def project(x, which):
        return x @ weights[f"{name}.{which}_proj.weight"].T + weights[f"{name}.{which}_proj.bias"]

    q, k, v = project(queries, "q"), project(keys, "k"), project(keys, "v")
    size = D_MODEL // heads
    mixed = []
    for head in range(heads):
        dims = slice(head * size, (head + 1) * size)
        scores = q[..., dims] @ k[..., dims].transpose(1, 2) / math.sqrt(size)
        mixed.append(scores.masked_fill(~allowed, -math.inf).softmax(-1) @ v[..., dims])
    return project(torch.cat(mixed, -1), "out")


def plain_feed_forward(weights, name, x):
    inner = (x @ weights[f"{name}.fc1.weight"].T + weights[f"{name}.fc1.bias"]).relu()
    return inner @ weights[f"{name}.fc2.weight"].T + weights[f"{name}.fc2.bias"]


def plain_model(config, weights, input_ids, attention_mask, decoder_input_ids):
    """A residual-only encoder-decoder as one function of its state dict."""
    embedding = weights["model.shared.weight"]
    x = F.embedding(input_ids, embedding, padding_idx=1) * 4 + sinusoids(input_ids.shape[1])
    y = F.embedding(decoder_input_ids, embedding, padding_idx=1) * 4 + sinusoids(
        decoder_input_ids.shape[1]
    )
    real = attention_mask[:, None, :].bool()
    causal = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool).tril()
    for i in range(config.encoder_layers):
        name, heads = f"model.encoder.layers.{i}", config.encoder_attention_heads
        x = x + plain_attention(weights, f"{name}.self_attn", x, x, heads, real)
        x = x + plain_feed_forward(weights, f"{name}.feed_forward", x)
    for i in range(config.decoder_layers):
        name, heads = f"model.decoder.layers.{i}", config.decoder_attention_heads
        y = y + plain_attention(weights, f"{name}.self_attn", y, y, heads, causal)
        y = y + plain_attention(weights, f"{name}.encoder_attn", y, x, heads, real)
        y = y + plain_feed_forward(weights, f"{name}.feed_forward", y)
    return y @ embedding.T


def test_the_residual_only_model_is_a_plain_function_of_its_weights(tiny_model, tiny_batch):
    model = tiny_model(norm_placement="none").double()
    batch = tiny_batch()
    arguments = {k: batch[k] for k in ("input_ids", "attention_mask", "decoder_input_ids")}
    weights = {k: v.detach().clone().requires_grad_() for k, v in model.state_dict().items()}
    expected = plain_model(model.config, weights, **arguments)
    found = model(**arguments).logits
    torch.testing.assert_close(found / found.std(), expected / found.std(), rtol=1e-5, atol=1e-5)
    found.std().backward()
    expected.std().backward()
    for name, parameter in model.named_parameters():
        scale = weights[name].grad.abs().max() + 1e-3
        torch.testing.assert_close(
            parameter.grad / scale, weights[name].grad / scale, rtol=0, atol=1e-4,
            msg=lambda m, n=name: f"{n}: {m}",
        )  # fmt: skip
