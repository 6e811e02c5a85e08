"""Measures guided alignment on a made-up language whose links are known.

    python scripts/experiments/alignment.py

A source is a sentence of made-up words. Its target has each word's translation, in an order that
the words decide: an adjective goes behind its noun, a verb to the end, a particle has no
translation, and a compound has two words. Words repeat, so a link is more than a dictionary. The
program trains the same small model without guided alignment, with the known links, and with the
mean of its own heads, and prints for each the share of sentences that are translated without a
mistake, and the alignment error rate (Och and Ney 2000) of unseen pairs.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from datasets import Dataset
from transformers import DataCollatorForSeq2Seq, GenerationConfig, set_seed
from transformers.utils import logging

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.data.encoding import encode
from vanilla_transformer.data.word_alignment import (
    Links,
    alignment_error_rate,
    format_links,
)
from vanilla_transformer.inference.engines import TransformersEngine
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

KINDS = {"noun": 12, "adjective": 6, "verb": 6, "particle": 2, "compound": 3}
"""Number of words of each kind."""

SYLLABLES = ("ba", "do", "fi", "gu", "ka", "lo", "mi", "nu", "pa", "re", "si", "tu", "ve", "wo")

SIZES: dict[str, Any] = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "norm_placement": "pre",
    "dropout": 0.0,
}
METHODS: dict[str, str | None] = {"none": None, "given links": "links", "own average": "own"}


class Pair(NamedTuple):
    """A sentence, its translation, and the links of their words."""

    source: str
    target: str
    links: Links


class Language:
    """A dictionary of made-up words, and the rules of their order.

    Args:
        seed: Seed of the words.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        made: set[str] = set()
        while len(made) < sum(KINDS.values()) * 3:
            syllables = rng.choices(SYLLABLES, k=2)
            made.add("".join(syllables) + rng.choice("lmnrst"))
        words = iter(rng.sample(sorted(made), len(made)))
        self.words = {kind: [next(words) for _ in range(count)] for kind, count in KINDS.items()}
        kinds = [(kind, word) for kind, found in self.words.items() for word in found]
        number = {"particle": 0, "compound": 2}
        self.dictionary = {
            word: [next(words) for _ in range(number.get(kind, 1))] for kind, word in kinds
        }

    def pair(self, rng: random.Random) -> Pair:
        """Makes a sentence, its translation and their links."""
        source: list[str] = []
        order: list[int] = []
        for kind in ("subject", "verb", "object"):
            if kind == "verb":
                verb = len(source)
                source.append(rng.choice(self.words["verb"]))
                continue
            if rng.random() < 0.3:
                source.append(rng.choice(self.words["particle"]))
            adjectives = rng.choices(self.words["adjective"], k=rng.randint(0, 3))
            head = "compound" if rng.random() < 0.2 else "noun"
            noun = len(source) + len(adjectives)
            order += range(noun, len(source) - 1, -1)  # the noun first
            source += [*adjectives, rng.choice(self.words[head])]
        order.append(verb)
        target: list[str] = []
        links = []
        for place in order:
            for word in self.dictionary[source[place]]:
                links.append((place, len(target)))
                target.append(word)
        return Pair(" ".join(source), " ".join(target), tuple(sorted(links)))


def make_pairs(
    language: Language, count: int, seed: int, without: Sequence[Pair] = ()
) -> list[Pair]:
    """Makes different pairs.

    Args:
        language: The language.
        count: Number of pairs.
        seed: Seed of the sentences.
        without: Pairs whose sources must not occur.
    """
    rng, seen = random.Random(seed), {pair.source for pair in without}
    pairs: list[Pair] = []
    while len(pairs) < count:
        pair = language.pair(rng)
        if pair.source not in seen:
            seen.add(pair.source)
            pairs.append(pair)
    return pairs


def train(
    pairs: Sequence[Pair], method: str | None, seed: int, steps: int, **options: Any
) -> Translator:
    """Trains a model.

    Args:
        pairs: The training pairs.
        method: Value of `guided_alignment`.
        seed: Seed of the weights and of the order.
        steps: Number of steps.
        **options: Further training arguments.

    Returns:
        A translator with the trained model.
    """
    set_seed(seed)
    texts = Dataset.from_dict(
        {
            "source": [pair.source for pair in pairs],
            "target": [pair.target for pair in pairs],
            "alignment": [format_links(pair.links) for pair in pairs],
        }
    )
    tokenizer = VanillaTransformerTokenizer.train(
        texts["source"], texts["target"], vocab_size=500, shared=False
    )
    config = VanillaTransformerConfig(
        vocab_size=len(tokenizer), decoder_vocab_size=tokenizer.target_vocab_size, **SIZES
    )
    model: Any = VanillaTransformerForConditionalGeneration(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TokenBudgetTrainingArguments(
            folder,
            max_steps=steps,
            max_tokens=1000,
            learning_rate=5e-3,
            warmup_steps=steps // 10,
            guided_alignment=method,
            seed=seed,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            logging_strategy="no",
            **options,
        )
        trainer = TokenBudgetSeq2SeqTrainer(
            model,
            arguments,
            train_dataset=encode(texts, tokenizer),
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        )
        trainer.train()
    settings = GenerationConfig.from_model_config(model.config)
    settings.max_new_tokens = 128
    return Translator(TransformersEngine(model.eval()), tokenizer, settings, 1024)


def measure(translator: Translator, pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """Measures a model on unseen pairs.

    Args:
        translator: The model.
        pairs: The pairs.

    Returns:
        The share of sources that are translated without a mistake, the alignment error rate of the
        given targets, and that of the outputs without a mistake.
    """
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    outputs = translator.translate(sources, return_word_alignment=True)
    aligned = translator.align(sources, targets)
    right = [
        (output.word_alignment, pair.links)
        for output, pair in zip(outputs, pairs, strict=True)
        if output.text == pair.target
    ]
    forced = alignment_error_rate([one.words for one in aligned], [pair.links for pair in pairs])
    free = alignment_error_rate(*map(list, zip(*right, strict=True))) if right else 1.0
    return len(right) / len(pairs), forced, free


def main() -> None:
    """Trains and measures the models of all seeds, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--train-pairs", type=int, default=6000)
    parser.add_argument("--test-pairs", type=int, default=200)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    logging.set_verbosity_error()
    print("| guided alignment | seed | exact match | AER, targets | AER, outputs | CPU seconds |")
    print("|---|---|---|---|---|---|")
    for seed in options.seeds:
        language = Language(seed)
        training = make_pairs(language, options.train_pairs, seed)
        test = make_pairs(language, options.test_pairs, seed + 1000, without=training)
        for name in options.methods:
            begin = time.process_time()
            translator = train(training, METHODS[name], seed, options.steps)
            seconds = time.process_time() - begin
            exact, forced, free = measure(translator, test)
            print(
                f"| {name} | {seed} | {exact:.3f} | {forced:.3f} | {free:.3f} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
