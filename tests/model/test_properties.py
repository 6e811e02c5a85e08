"""Random draws among all fields of the config: properties that hold for every architecture.

The seeds are fixed. `pytest tests/model/test_properties.py --fuzz 500` draws 500 random
architectures instead. A failure prints its seed, and `--fuzz 1 --fuzz-seed SEED` repeats it.
"""

import copy
import itertools
import math
import random

import pytest
import torch
from torch.nn.attention import flex_attention
from transformers import DynamicCache, EncoderDecoderCache
from transformers.activations import ACT2FN

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES

VOCAB = 20
SOURCE_LENS, TARGET_LENS = (6, 3, 1), (4, 5, 2)
LEARNED = ("prelu", "xielu")  # activations with parameters, drawn more often than the others
HEADS = (1, 2, 3, 4)


def draw_config(seed):
    """Legal values for every field that is a choice; sizes stay tiny."""
    rng = random.Random(seed)
    flag = lambda: rng.random() < 0.5  # noqa: E731 - one word for many fields
    fields = {
        "share_encoder_decoder_embeddings": flag(),
        "tie_word_embeddings": flag(),
        "activation_function": rng.choice((*sorted(ACT2FN), *LEARNED)),
        "gated_ffn": flag(),
        "norm_placement": rng.choice(CHOICES["norm_placement"]),
        "norm_type": rng.choice(CHOICES["norm_type"]),
        "layer_norm_eps": rng.choice((1e-6, 1e-5, 1e-3)),
        "final_layer_norm": rng.choice((None, True, False)),
        "normalize_embedding": flag(),
        "position_embedding_type": rng.choice(
            (*CHOICES["position_embedding_type"], "rope", "relative")
        ),
        "max_position_embeddings": rng.choice((max(SOURCE_LENS), 16, 40)),
        "fused_qkv": flag(),
        "residual_scale": rng.choice((1, 1.0, 0.5, 2**-0.5)),
        "attention_scale": rng.choice((None, None, 1, 0.3)),
        "logit_scale": rng.choice((1, 1.0, 0.5)),
        "relative_attention_num_buckets": rng.choice((4, 7, 32)),
        "relative_attention_max_distance": rng.choice((17, 128)),
        "label_smoothing": rng.choice((0.0, 0.1)),
        "use_cache": flag(),
        "classifier_pooling": rng.choice(CHOICES["classifier_pooling"]),
        "classifier_dropout": rng.choice((None, 0.1)),
        "pad_token_id": rng.choice((0, 1)),
        "eos_token_id": rng.choice((2, [2, 3])),
        "forced_eos_token_id": rng.choice((None, 2, [2])),
        "is_encoder_decoder": True,
    }
    fields |= {"bos_token_id": 1 - fields["pad_token_id"]}
    fields |= {"decoder_start_token_id": rng.choice((fields["bos_token_id"], 2))}
    names = ("scale_embedding", "attention_bias", "ffn_bias", "lm_head_bias")
    fields |= {name: flag() for name in names}
    for name in (
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "ffn_dropout",
        "final_dropout",
    ):
        fields[name] = rng.choice((0, 0.0, 0.1, 0.5))
    fields |= draw_vocabularies(rng, fields["share_encoder_decoder_embeddings"])
    rope = fields["position_embedding_type"] == "rope"
    fields |= draw_stacks(rng, rope)
    fields["head_dim"] = rng.choice((None, None, 4, 8))
    fields["position_offset"] = rng.choice((0, 2))
    if fields["position_embedding_type"] == "sinusoidal_fairseq":
        fields["d_model"] = max(fields["d_model"], math.lcm(*HEADS))
    fields |= {"rope_parameters": draw_rope(rng, fields)} if rope else {}
    fields["initializer"] = rng.choice(CHOICES["initializer"])
    fits_any = fields["norm_type"] != "unbiased_std"
    fields["qk_norm"] = rng.choice(CHOICES["qk_norm"] if fits_any else ("none",))
    aligned = ([[0, 0]],) if fields["decoder_layers"] else ()
    return fields | {"alignment_heads": rng.choice((None, *aligned))}


def draw_vocabularies(rng, shared):
    other = None if shared else rng.choice((None, VOCAB + 7, VOCAB - 3))
    return {"vocab_size": VOCAB, "decoder_vocab_size": other}


def draw_stacks(rng, rope):
    """Heads first: the width is a multiple of both numbers, odd as often as they allow it."""
    heads = [rng.choice(HEADS) for _ in range(2)]
    fields = {"d_model": math.lcm(*heads) * rng.choice((4, 8) if rope else (1, 3, 4, 5))}
    fields["d_model"] *= 1 if fields["d_model"] > 3 else 5
    for side, count in zip(("encoder", "decoder"), heads, strict=True):
        shared = rng.choice([None, *(n for n in range(1, count + 1) if count % n == 0)])
        fields |= {
            f"{side}_layers": rng.choice((1, 2, 3)),
            f"{side}_attention_heads": count,
            f"{side}_num_key_value_heads": shared,
            f"{side}_ffn_dim": rng.choice((1, 5, 12)),
            f"{side}_layerdrop": rng.choice((0, 0.3)),
        }
    return fields


def draw_rope(rng, fields):
    """None, or parameters that these heads allow, of whole heads or of a part."""
    stacks = ("encoder", "decoder")
    sizes = {
        fields["head_dim"] or fields["d_model"] // fields[f"{s}_attention_heads"] for s in stacks
    }
    parts = [1.0] if any(size % 8 for size in sizes) else [1.0, 0.5]
    theta = {"rope_theta": rng.choice((100.0, 10000.0))}
    return rng.choice((None, {**theta, "partial_rotary_factor": rng.choice(parts)}))


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


def draw_splits(seed):
    """The target in random pieces, as assisted generation feeds a cache."""
    chance, length = random.Random(seed), max(TARGET_LENS)
    inner = chance.sample(range(1, length), chance.randint(0, length - 1))
    places = [0, *sorted(inner), length]
    return list(itertools.pairwise(places))


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


def check_masks_of_other_types(model, batch, logits):
    """A mask says what is real, whatever the type of its numbers."""
    real = batch["decoder_attention_mask"] == 1
    masks = [name for name in batch if name.endswith("attention_mask")]
    for dtype in (torch.bool, torch.int32, torch.float32):
        found = model(**batch | {name: batch[name].to(dtype) for name in masks}).logits
        assert_same(found[real], logits[real], f"a mask of {dtype} is a mask", 1e-5)


def check_cached_is_uncached(model, batch, logits, splits=((0, 2), (2, 3), (3, 5))):
    real, cache, steps = batch["decoder_attention_mask"], None, []
    for start, end in splits:
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
    weights = loaded.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert_same(loaded.eval()(**batch).logits, logits, "loaded is saved", 1e-5)
    assert loaded.config.to_diff_dict() == model.config.to_diff_dict()


def check_generation(model, batch):
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    found = [model.generate(**inputs, max_new_tokens=4, use_cache=cache) for cache in (True, False)]
    assert torch.equal(*found), "cached generation is uncached generation"
    for beams in (1, 3):
        options = {"max_new_tokens": 4, "num_beams": beams, "use_cache": True}
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        short = model.generate(**inputs, **options)
        long = model.generate(**inputs, **options, past_key_values=cache)
        assert torch.equal(short, long), f"steps are calls of the forward, beams: {beams}"


def gradients_of(model, batch):
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.cat([loss.detach().flatten(), *(g.flatten() for g in gradients)])


def check_train_mode_is_eval_mode(model, batch):
    """Without chance, a training step, which leaves padding out, is that of the whole batch."""
    certain = copy.deepcopy(model.config)
    for name in [name for name in VanillaTransformerConfig.__annotations__ if "drop" in name]:
        setattr(certain, name, 0.0)
    twin = type(model)(certain)
    twin.load_state_dict(model.state_dict())
    found = gradients_of(twin.train(), batch)
    assert_same(found, gradients_of(twin.eval(), batch), "train mode is eval mode")


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
    model, sides = build(config, seed), ("left", "right")[:: (-1, 1)[seed % 2]]
    batch, other = (make_batch(config, side, seed) for side in sides)
    with torch.no_grad():
        logits = model(**batch).logits
        assert torch.equal(model(**batch).logits, logits), "eval mode draws nothing"
        check_batched_is_single(model, batch, logits)
        check_batched_is_single(model, other, model(**other).logits)
        check_masks_of_other_types(model, batch, logits)
        check_cached_is_uncached(model, batch, logits)
        check_cached_is_uncached(model, batch, logits, draw_splits(seed))
        check_implementations(model, batch, logits)
        check_saving(model, batch, logits, directory)
        check_generation(model, batch)
    check_train_mode_is_eval_mode(model, batch)
    check_training(model, batch, ("eager", "sdpa")[seed // 2 % 2])


@pytest.mark.parametrize("block", range(4))
@pytest.mark.usefixtures("unfused_flex")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_every_drawn_architecture_keeps_its_promises(block, seeds_to_draw, tmp_path):
    for seed in seeds_to_draw[block::4]:
        try:
            check_everything(seed, tmp_path / str(seed))
        except Exception as error:
            pytest.fail(f"--fuzz 1 --fuzz-seed {seed} drew {draw_config(seed)}:\n{error!r}")


def test_the_draws_differ_and_reach_every_field():
    """A new field fails here until it is drawn; the rest are constants by nature."""
    drawn = [draw_config(seed) for seed in range(64)]
    assert len({repr(sorted(fields.items(), key=str)) for fields in drawn}) >= 60
    drawn = [draw_config(seed) for seed in range(600)]
    reached = {name for fields in drawn for name in fields}
    assert reached == set(VanillaTransformerConfig.__annotations__)
    values = {name: {str(fields.get(name)) for fields in drawn} for name in reached}
    constant = {"vocab_size", "is_encoder_decoder"}
    assert {name for name, found in values.items() if len(found) == 1} == constant
    for name, choices in CHOICES.items():
        assert values[name] == set(choices)
    assert values["activation_function"] == set(ACT2FN)
    assert any(fields["d_model"] % 2 for fields in drawn)
