"""Trains Hugging Face's Marian on two text files with the stock `Seq2SeqTrainer`.

    python scripts/experiments/marian_run.py --recipe RECIPE --output_dir DIR \
        --train_source FILE --train_target FILE [--learning_rate RATE ...]

It is the peer of `time_to_quality.py`: what a person writes who takes a model and a trainer from
transformers. Sizes, tokenizer and dropout come from a recipe of this package, so that both systems
have the same number of layers, the same width, the same vocabulary and about as many parameters.
The rest is Marian's, with two changes in its favour: its embeddings are scaled (its default does
not learn), and attention is the eager one, which is faster under bfloat16 on a CPU.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from datasets import Dataset
from transformers import (
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from vanilla_transformer.files.text_files import read_lines
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.run.parsing import parse_arguments

AS_WRITTEN = ("--choose_defaults=False",)
"""Argument of `vanilla-transformer train` that adds nothing to a recipe, for both systems alike."""

_SIZES = ["d_model", "dropout", "attention_dropout"]
_SIZES += [f"{stack}_{part}" for stack in ("encoder", "decoder")
           for part in ("layers", "attention_heads")]  # fmt: skip


@dataclass
class MarianArguments:
    """What is trained, and on what."""

    recipe: str = field(metadata={"help": "YAML file of this package: sizes and tokenizer."})
    train_source: str = field(metadata={"help": "Source texts, one per line."})
    train_target: str = field(metadata={"help": "Target texts, one per line."})
    threads: int = field(default=1, metadata={"help": "CPU threads."})


def recipe_settings(path: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Reads a recipe as `vanilla-transformer train` does.

    Args:
        overrides: Arguments that replace those of the recipe.

    Returns:
        The fields of the config; under "tokenizer", the arguments of
        `VanillaTransformerTokenizer.train`; and `num_train_epochs`.
    """
    run = parse_arguments([path, "--output_dir", "unused", *AS_WRITTEN, *overrides])
    config = VanillaTransformerConfig(**run.architecture).to_dict()
    return {
        **config,
        "tokenizer": run.tokenizer.training_options(),
        "num_train_epochs": run.training.num_train_epochs,
    }


def make_marian(recipe: dict[str, Any], tokenizer: VanillaTransformerTokenizer) -> MarianMTModel:
    """Makes a Marian of the sizes of the recipe, with scaled embeddings."""
    sizes = {name: recipe[name] for name in _SIZES}
    for name in ("encoder_ffn_dim", "decoder_ffn_dim"):  # a gated network has a third matrix
        sizes[name] = recipe[name] * (3 if recipe["gated_ffn"] else 2) // 2
    shared = not tokenizer.separate_vocabularies
    targets = tokenizer if shared else tokenizer.target_tokenizer()
    ids = {
        "vocab_size": len(tokenizer),
        "decoder_vocab_size": len(targets),
        "share_encoder_decoder_embeddings": shared,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "decoder_start_token_id": tokenizer.bos_token_id,
        "forced_eos_token_id": None,
    }
    config = MarianConfig(**sizes, **ids, scale_embedding=True, activation_function="relu")
    config._attn_implementation = "eager"
    return MarianMTModel(config)


def main() -> None:
    """Trains and saves."""
    parser = HfArgumentParser(cast(Any, (MarianArguments, Seq2SeqTrainingArguments)))
    words = sys.argv[1:] if torch.cuda.is_available() else [*sys.argv[1:], "--use_cpu"]
    options, training = parser.parse_args_into_dataclasses(words)
    torch.set_num_threads(options.threads)
    torch.manual_seed(training.seed)
    recipe = recipe_settings(options.recipe)
    sources, targets = map(list, map(read_lines, (options.train_source, options.train_target)))
    tokenizer = VanillaTransformerTokenizer.train(sources, targets, **recipe["tokenizer"])
    encoded = tokenizer(sources, text_target=targets, truncation=True, max_length=256)
    columns = {name: encoded[name] for name in ("input_ids", "labels")}
    model = make_marian(recipe, tokenizer)
    trainer = Seq2SeqTrainer(
        model=model,
        args=training,
        train_dataset=Dataset.from_dict(columns),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
