"""A hundred random pairs are learned by heart, and every way of decoding recites them."""

import random

import pytest
import torch

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.inference.translator import Translator

STEPS, RATE, WARMUP = 200, 0.006, 20
SIZES = {
    "d_model": 64,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
}
PRECISIONS = [torch.float32, torch.bfloat16, torch.float16]
QUICK = ("post", torch.float32)


def draw_pairs():
    chance = random.Random(0)
    pairs = {}
    while len(pairs) < 100:
        words = [
            " ".join(chance.choices([f"{side}{i}" for i in range(20)], k=chance.randint(low, 6)))
            for side, low in (("s", 3), ("t", 2))
        ]
        pairs[words[0]] = words[1]
    return list(pairs), list(pairs.values())


def learn(model, batch, precision):
    """Trains under autocast on a CPU, all pairs in each step."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=RATE)
    for step in range(STEPS):
        share = min(1, (step + 1) / WARMUP, 2 * (1 - step / STEPS))
        optimizer.param_groups[0]["lr"] = RATE * share
        with torch.autocast("cpu", dtype=precision, enabled=precision is not torch.float32):
            loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()


@pytest.mark.parametrize(
    ("norm_placement", "precision"),
    [
        pytest.param(norm, precision, marks=[] if (norm, precision) == QUICK else pytest.mark.slow)
        for norm in ("post", "pre", "none")
        for precision in PRECISIONS
    ],
    ids=str,
)
def test_every_pair_is_recited_by_every_way_of_decoding(tmp_path, norm_placement, precision):
    sources, targets = draw_pairs()
    tokenizer = VanillaTransformerTokenizer.train(sources, targets, kind="word")
    torch.manual_seed(0)
    config = VanillaTransformerConfig(
        vocab_size=len(tokenizer), norm_placement=norm_placement, dropout=0.0, **SIZES
    )
    model = VanillaTransformerForConditionalGeneration(config)
    inputs = tokenizer(sources, padding=True, return_tensors="pt")
    labels = tokenizer(text_target=targets, padding=True, return_tensors="pt")["input_ids"]
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    learn(model, {**inputs, "labels": labels}, precision)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    engine = "transformers" if norm_placement == "none" else "ctranslate2"
    fast = Translator.from_pretrained(tmp_path, engine=engine)
    recited = {"Translator": fast.translate(sources)}
    for dtype in {torch.float32, precision}:
        model.to(dtype)
        for use_cache in (True, False):
            ids = model.generate(**inputs, max_new_tokens=8, use_cache=use_cache)
            texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
            recited[f"{dtype}, cache: {use_cache}"] = texts
    for way, texts in recited.items():
        right = sum(found == wanted for found, wanted in zip(texts, targets, strict=True))
        assert right == 100, way
