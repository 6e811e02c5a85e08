"""A small model learns permuted sentences, and its guided head learns their links."""

import random

import pytest
from datasets import Dataset
from small import model, trainer

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.data.encoding import encode
from vanilla_transformer.data.word_alignment import alignment_error_rate, format_links
from vanilla_transformer.inference.engines import TransformersEngine
from vanilla_transformer.inference.translator import Translator

SIZES = {
    "d_model": 48,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "norm_placement": "pre",
    "dropout": 0.0,
}


def sentence(rng):
    """Makes a source, a target and their links; a modifier goes behind its word."""
    source, order = [], []
    for _ in range(rng.randint(2, 3)):
        places = [len(source)]
        if rng.random() < 0.5:
            source.append(f"m{rng.randrange(4)}")
            places.insert(0, len(source))
        source.append(f"w{rng.randrange(6)}")
        order += places
    target = [source[place].upper() for place in order]
    links = tuple(sorted((place, index) for index, place in enumerate(order)))
    return " ".join(source), " ".join(target), links


def columns(count, seed):
    rng = random.Random(seed)
    sources, targets, links = zip(*(sentence(rng) for _ in range(count)), strict=True)
    return list(sources), list(targets), list(links)


def measured(folder, steps, **options):
    """Returns the share of sentences without a mistake, and the alignment error rate."""
    sources, targets, links = columns(1500, seed=1)
    words = VanillaTransformerTokenizer.train(sources, targets, kind="word")
    lines = [format_links(one) for one in links]
    texts = Dataset.from_dict({"source": sources, "target": targets, "alignment": lines})
    net = model(**SIZES)
    net.resize_token_embeddings(len(words))
    run = trainer(
        folder,
        net=net,
        data=encode(texts, words),
        max_steps=steps,
        max_tokens=500,
        learning_rate=0.01,
        warmup_steps=20,
        logging_strategy="no",
        **options,
    )
    run.train()
    net.generation_config.max_new_tokens = 12
    translator = Translator(TransformersEngine(net.eval()), words, net.generation_config, 100)
    sources, targets, links = columns(150, seed=2)
    right = [
        one == other for one, other in zip(translator.translate(sources), targets, strict=True)
    ]
    found = [one.words for one in translator.align(sources, targets)]
    return sum(right) / len(right), alignment_error_rate(found, links)


@pytest.mark.slow
def test_the_task_is_learned_as_well_as_without_links(tmp_path):
    plain, rate_of_plain = measured(tmp_path / "plain", 500)
    guided, rate = measured(tmp_path / "guided", 500, guided_alignment="links")
    assert rate < 0.05 < rate_of_plain
    assert guided == pytest.approx(plain, abs=0.05)
    assert plain > 0.9
