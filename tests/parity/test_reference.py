"""The whole model equals plain functions of its weights, in logits and in every gradient."""

import math

import pytest
import torch
import torch.nn.functional as F

D_MODEL = 16


def sinusoids(length):
    table = torch.zeros(length, D_MODEL)
    for position in range(length):
        for pair in range(D_MODEL // 2):
            angle = position / 10000 ** (2 * pair / D_MODEL)
            table[position, 2 * pair] = math.sin(angle)
            table[position, 2 * pair + 1] = math.cos(angle)
    return table


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


def plain_norm(weights, name, x):
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * weights[f"{name}.weight"] + weights[
        f"{name}.bias"
    ]


def plain_model(config, weights, input_ids, attention_mask, decoder_input_ids):
    """An encoder-decoder as one function of its state dict."""
    placement, embedding = config.norm_placement, weights["model.shared.weight"]

    def embed(ids):
        return F.embedding(ids, embedding, padding_idx=1) * 4 + sinusoids(ids.shape[1])

    def add(x, name, sublayer):
        if placement == "pre":
            return x + sublayer(plain_norm(weights, f"{name}_pre_norm", x))
        x = x + sublayer(x)
        return plain_norm(weights, f"{name}_post_norm", x) if placement == "post" else x

    def run(stack, x, heads, allowed, source=None):
        def attend(name, keys, visible):
            return lambda y: plain_attention(
                weights, name, y, y if keys is None else keys, heads, visible
            )

        for i in range(getattr(config, f"{stack}_layers")):
            name = f"model.{stack}.layers.{i}"
            x = add(x, f"{name}.self_attn", attend(f"{name}.self_attn", None, allowed))
            if source is not None:
                cross = attend(f"{name}.encoder_attn", source, real)
                x = add(x, f"{name}.encoder_attn", cross)
            feed_forward = f"{name}.feed_forward"
            x = add(x, feed_forward, lambda y, at=feed_forward: plain_feed_forward(weights, at, y))
        return plain_norm(weights, f"model.{stack}.final_norm", x) if placement == "pre" else x

    real = attention_mask[:, None, :].bool()
    source = run("encoder", embed(input_ids), config.encoder_attention_heads, real)
    target = embed(decoder_input_ids)
    causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    return run("decoder", target, config.decoder_attention_heads, causal, source) @ embedding.T


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("placement", ["post", "pre", "none"])
def test_the_model_is_a_plain_function_of_its_weights(tiny_model, tiny_batch, placement, attention):
    model = tiny_model(norm_placement=placement, attention=attention).double()
    batch = tiny_batch()
    arguments = {k: batch[k] for k in ("input_ids", "attention_mask", "decoder_input_ids")}
    weights = {k: v.detach().clone().requires_grad_() for k, v in model.state_dict().items()}
    expected = plain_model(model.config, weights, **arguments)
    found = model(**arguments).logits
    torch.testing.assert_close(found / found.std(), expected / found.std(), rtol=1e-5, atol=1e-5)
    probe = torch.randn_like(found) / found.std().detach()
    (found * probe).sum().backward()
    (expected * probe).sum().backward()
    for name, parameter in model.named_parameters():
        scale = weights[name].grad.abs().max() + 1e-3
        torch.testing.assert_close(
            parameter.grad / scale, weights[name].grad / scale, rtol=0, atol=1e-4,
            msg=lambda m, n=name: f"{n}: {m}",
        )  # fmt: skip
