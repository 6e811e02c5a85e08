"""Random draws among all fields of the config: what must hold for every architecture.

Each run draws new configurations. A failure prints the seed of its draw; `PROPERTY_SEED=<seed>
pytest tests/test_properties.py` starts with that draw again, and PROPERTY_DRAWS makes more of them.
"""

import os
import random
import time

import pytest
import torch
from torch.nn.attention import flex_attention

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)

DRAWS = int(os.environ.get("PROPERTY_DRAWS", 64))
FIRST_SEED = int(os.environ.get("PROPERTY_SEED", time.time_ns() % 10**9))
VOCAB = 20
SOURCE_LENS, TARGET_LENS = (6, 3, 1), (4, 5, 2)


def draw_config(seed):
    """Legal values for every field that is a choice; sizes stay tiny."""
    rng = random.Random(seed)
    flag = lambda: rng.random() < 0.5  # noqa: E731 - one word for many fields
    fields = {
        "d_model": 8 * rng.choice((1, 2, 3)),
        "share_encoder_decoder_embeddings": flag(),
        "tie_word_embeddings": flag(),
        "activation_function": rng.choice(("relu", "gelu", "silu", "gelu_new", "tanh")),
        "gated_ffn": flag(),
        "norm_placement": rng.choice(("post", "pre", "none")),
        "norm_type": rng.choice(("layer_norm", "rms_norm", "unbiased_std")),
        "layer_norm_eps": rng.choice((1e-6, 1e-5, 1e-3)),
        "final_layer_norm": rng.choice((None, True, False)),
        "normalize_embedding": flag(),
        "position_embedding_type": rng.choice(
            ("sinusoidal", "sinusoidal_half", "learned", "rope", "alibi", "none")
        ),
        "max_position_embeddings": rng.choice((16, 40)),
        "fused_qkv": flag(),
        "residual_scale": rng.choice((1.0, 0.5, 2**-0.5)),
        "label_smoothing": rng.choice((0.0, 0.1)),
        "use_cache": flag(),
        "classifier_pooling": rng.choice(("mean", "first")),
        "classifier_dropout": rng.choice((None, 0.1)),
        "pad_token_id": rng.choice((0, 1)),
        "forced_eos_token_id": rng.choice((None, 2)),
    }
    fields |= {"bos_token_id": 1 - fields["pad_token_id"]}
    fields |= {"decoder_start_token_id": fields["bos_token_id"], "eos_token_id": 2}
    fields |= {name: flag() for name in ("scale_embedding", "attention_bias", "ffn_bias")}
    fields |= {"lm_head_bias": flag(), "is_encoder_decoder": True}
    for name in ("dropout", "attention_dropout", "activation_dropout", "ffn_dropout"):
        fields[name] = rng.choice((0, 0.0, 0.1, 0.5))
    fields |= draw_vocabularies(rng, fields["share_encoder_decoder_embeddings"])
    for side in ("encoder", "decoder"):
        fields |= draw_stack(rng, side)
    if fields["position_embedding_type"] == "rope":
        fields["rope_parameters"] = draw_rope(rng, fields)
    return fields


def draw_vocabularies(rng, shared):
    other = None if shared else rng.choice((None, VOCAB + 7, VOCAB - 3))
    return {"vocab_size": VOCAB, "decoder_vocab_size": other}


def draw_stack(rng, side):
    heads = rng.choice((1, 2, 4))
    shared = rng.choice([None, *(n for n in (1, 2, 4) if heads % n == 0)])
    return {
        f"{side}_layers": rng.choice((1, 2, 3)),
        f"{side}_attention_heads": heads,
        f"{side}_num_key_value_heads": shared,
        f"{side}_ffn_dim": rng.choice((5, 12)),
        f"{side}_layerdrop": rng.choice((0, 0.3)),
    }


def draw_rope(rng, fields):
    """None, or one of the kinds of scaling that these heads allow."""
    pairs = {
        fields["d_model"] // fields[f"{s}_attention_heads"] // 2 for s in ("encoder", "decoder")
    }
    kinds = ["default", "linear", "yarn", "llama3", "proportional"]
    kinds += ["dynamic"] if min(pairs) > 1 else []
    kinds += ["longrope"] if len(pairs) == 1 else []
    kind = rng.choice([None, *kinds])
    factors = [rng.uniform(1, 4) for _ in range(max(pairs))]
    needs = {
        "linear": {"factor": 2.0},
        "dynamic": {"factor": 2.0},
        "yarn": {"factor": 4.0, "original_max_position_embeddings": 12},
        "longrope": {
            "short_factor": factors,
            "long_factor": factors[::-1],
            "original_max_position_embeddings": 12,
            "factor": 2.0,
        },
        "llama3": {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 12,
        },
    }
    theta = rng.choice((100.0, 10000.0))
    return kind and {"rope_type": kind, "rope_theta": theta, **needs.get(kind, {})}


def make_batch(config, side, seed):
    generator = torch.Generator().manual_seed(seed)
    batch = {}
    for prefix, lengths, size in (
        ("", SOURCE_LENS, config.vocab_size),
        ("decoder_", TARGET_LENS, config.decoder_vocab_size),
    ):
        real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        real = real.flip(1) if side == "left" else real
        ids = torch.randint(3, size, real.shape, generator=generator)
        batch[f"{prefix}input_ids"] = ids.masked_fill(~real, config.pad_token_id)
        batch[f"{prefix}attention_mask"] = real.long()
    labels = torch.randint(3, config.decoder_vocab_size, real.shape, generator=generator)
    return batch | {"labels": labels.masked_fill(~real, -100)}


def build(config, seed):
    """A model with every parameter off its default; a small one where nothing is normalised.

    Without norms a gate squares the residual stream in every layer: at full size that tests the
    range of float32 and not the code.
    """
    torch.manual_seed(seed)
    size = 0.5 if config.norm_placement == "none" else 1.0
    model = VanillaTransformerForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter)).mul_(size)
    return model.eval()


def assert_same(found, expected, what, tolerance=2e-4):
    scale = expected.std() + 1e-9
    torch.testing.assert_close(
        found / scale, expected / scale, rtol=0, atol=tolerance, msg=lambda m: f"{what}: {m}"
    )


def check_batched_is_single(model, batch, logits):
    for row in range(len(SOURCE_LENS)):
        real = batch["decoder_attention_mask"][row] == 1
        single = model(
            batch["input_ids"][row][batch["attention_mask"][row] == 1][None],
            decoder_input_ids=batch["decoder_input_ids"][row][real][None],
        ).logits[0]
        assert_same(logits[row][real], single, f"row {row} of a batch is the row alone")


def check_cached_is_uncached(model, batch, logits):
    real, cache, steps = batch["decoder_attention_mask"], None, []
    for start, end in ((0, 2), (2, 3), (3, 5)):
        output = model(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=batch["decoder_input_ids"][:, start:end],
            decoder_attention_mask=real[:, :end],
            past_key_values=cache,
            use_cache=True,
        )
        cache = output.past_key_values
        steps.append(output.logits)
    assert_same(torch.cat(steps, 1)[real == 1], logits[real == 1], "cached is uncached")


def check_implementations(model, batch, logits):
    real = batch["decoder_attention_mask"] == 1
    for implementation in ("sdpa", "flex_attention"):
        model.set_attn_implementation(implementation)
        found = model(**batch).logits
        assert_same(found[real], logits[real], f"{implementation} is eager")
        check_cached_is_uncached(model, batch, found)
    model.set_attn_implementation("eager")


@pytest.fixture
def unfused_flex(monkeypatch):
    """Flex attention without its compiler: the same masks and biases, much sooner."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    with torch.compiler.set_stance("force_eager"):
        yield


def check_saving(model, batch, logits, directory):
    model.save_pretrained(directory)
    loaded, info = type(model).from_pretrained(
        directory, output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    torch.testing.assert_close(loaded.eval()(**batch).logits, logits, rtol=0, atol=0)
    assert loaded.config.to_diff_dict().keys() == model.config.to_diff_dict().keys()


def check_generation(model, batch):
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    found = [model.generate(**inputs, max_new_tokens=4, use_cache=cache) for cache in (True, False)]
    assert torch.equal(*found), "cached generation is uncached generation"


def check_training(model, batch, implementation):
    model.set_attn_implementation(implementation)
    for dtype in (torch.float32, torch.bfloat16):
        model = model.to(dtype).train()
        model.zero_grad()
        output = model(**batch)
        output.loss.backward()
        assert output.logits.isfinite().all(), dtype
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert gradients, dtype
        assert all(gradient.isfinite().all() for gradient in gradients), dtype


def check_everything(seed, directory):
    config = VanillaTransformerConfig(**draw_config(seed), attn_implementation="eager")
    side = ("left", "right")[seed % 2]
    model, batch = build(config, seed), make_batch(config, side, seed)
    with torch.no_grad():
        logits = model(**batch).logits
        assert torch.equal(model(**batch).logits, logits), "eval mode draws nothing"
        check_batched_is_single(model, batch, logits)
        check_cached_is_uncached(model, batch, logits)
        check_implementations(model, batch, logits)
        check_saving(model, batch, logits, directory)
        check_generation(model, batch)
    check_training(model, batch, ("eager", "sdpa")[seed // 2 % 2])


@pytest.mark.parametrize("block", range(4))
@pytest.mark.usefixtures("unfused_flex")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_every_drawn_architecture_keeps_its_promises(block, tmp_path):
    for index in range(block, DRAWS, 4):
        seed = FIRST_SEED + index
        try:
            check_everything(seed, tmp_path / str(seed))
        except Exception as error:
            pytest.fail(f"PROPERTY_SEED={seed} drew {draw_config(seed)}:\n{error!r}")


def test_the_draws_differ_and_reach_every_field():
    """A new field fails here until it is drawn; the rest are constants by nature."""
    drawn = [draw_config(seed) for seed in range(FIRST_SEED, FIRST_SEED + DRAWS)]
    assert len({repr(sorted(fields.items(), key=str)) for fields in drawn}) >= 60
    reached = {name for seed in range(300) for name in draw_config(seed)}
    assert reached == set(VanillaTransformerConfig.__annotations__)
    for name in reached - {"vocab_size", "is_encoder_decoder", "eos_token_id"}:
        values = {repr(draw_config(seed).get(name)) for seed in range(300)}
        assert len(values) > 1, name
