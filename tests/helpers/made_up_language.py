"""A small made-up language pair, and the arguments of a run that learns it in seconds."""

import random

import pytest
from programs import command

NOUNS = {
    "dog": "Hund",
    "cat": "Katze",
    "man": "Mann",
    "woman": "Frau",
    "child": "Kind",
    "horse": "Pferd",
    "bird": "Vogel",
    "boat": "Boot",
}
OTHERS = ("Köter", "Mieze", "Kerl", "Dame", "Gör", "Gaul", "Piepmatz", "Kahn")
"""Other translations of the nouns."""
VERBS = {"sees": "sieht", "likes": "mag", "finds": "findet"}
WORDS = [" ".join(f"w{index}" for index in range(36))]
SIZES = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "norm_placement": "pre",
    "initializer": "xavier",  # attention that differs from head to head
}
TRAINING = {
    "choose_defaults": False,
    "tokenizer_kind": "word",
    "max_tokens": 512,
    "learning_rate": 0.01,
    "lr_scheduler_type": "linear",
    "warmup_steps": 20,
    "num_train_epochs": 12,
    "generation_num_beams": 2,
    "generation_max_length": 16,
    "seed": 3,
}


@pytest.fixture(scope="session")
def shared_words():
    """A tokenizer of 40 words."""
    from vanilla_transformer import VanillaTransformerTokenizer

    return VanillaTransformerTokenizer.train(WORDS, kind="word")


@pytest.fixture(scope="session")
def separate_words():
    """A tokenizer of 40 source words and 44 target words."""
    from vanilla_transformer import VanillaTransformerTokenizer

    target = [" ".join(f"t{index}" for index in range(40))]
    return VanillaTransformerTokenizer.train(WORDS, target, kind="word", shared=False)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder with train, val and test in two languages; every word is translated by itself."""
    folder = tmp_path_factory.mktemp("corpus")
    chance = random.Random(0)
    for name, count in (("train", 400), ("val", 16), ("test", 16)):
        pairs = []
        for _ in range(count):
            first, second = chance.choices(list(NOUNS), k=2)
            verb = chance.choice(list(VERBS))
            german = f"{NOUNS[first]} {VERBS[verb]} {NOUNS[second]} ."
            pairs.append((f"a {first} {verb} a {second} .", german))
        write_pairs(folder, name, pairs)
    return folder


def write_pairs(folder, name, pairs):
    """Writes the sides of pairs into two files."""
    for side, suffix in enumerate(("en", "de")):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{suffix}").write_text(lines, encoding="utf-8")


def arguments(corpus, output_dir, *splits, **changes):
    """The command line of a run on the corpus, as a list."""
    files = {"train": "train", "validation": "val", "test": "test"}
    data = {
        f"{split}_{side}": corpus / f"{files[split]}.{suffix}"
        for split in splits or files
        for side, suffix in (("source", "en"), ("target", "de"))
    }
    options = {**data, "output_dir": output_dir, **SIZES, **TRAINING, **changes}
    return [text for name, value in options.items() for text in (f"--{name}", str(value))]


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory):
    """The directory of a finished run of `vanilla-transformer train` on the corpus."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    options = {"save_strategy": "epoch", "save_total_limit": 1, "license": "mit"}
    done = command("train", *arguments(corpus, folder, **options))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="session")
def padded(trained, tmp_path_factory):
    """The trained model with rows that only pad its matrices, and win each step if they may."""
    import torch

    from vanilla_transformer.files.loading import load_model

    model, tokenizer = load_model(str(trained), "cpu")
    size = len(tokenizer)
    model.resize_token_embeddings(pad_to_multiple_of=32, mean_resizing=False)
    with torch.no_grad():
        weight = model.lm_head.weight
        weight[size:] = 3 * weight[4:size].repeat(8, 1)[: len(weight) - size]
    folder = tmp_path_factory.mktemp("padded")
    for saved in (model, tokenizer):
        saved.save_pretrained(folder)
    return str(folder)


def main(argv):
    """Carries out the run of a command line, with its messages, and returns its figures."""
    from vanilla_transformer.run import training_run
    from vanilla_transformer.run.arguments import parse_arguments

    arguments = parse_arguments(argv)
    training_run.show_messages(arguments)
    return training_run.run(arguments)
