"""Measures what `Translator` costs beyond CTranslate2; `benchmark.py translator` runs it.

Three ways compute the same outputs with the same export of one model: CTranslate2 alone, from
tokens to tokens; a loop that puts the tokenizer around it; and `Translator`, from texts to texts.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmark_models import SPECIAL_TOKENS, make_generating_model
from benchmark_reports import Bars, name_of_search, ratio_text, speeds_of, time_in_turns

from vanilla_transformer.data.text_files import read_lines
from vanilla_transformer.inference.ctranslate2_engine import CTranslate2Engine
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

WAYS = ("ctranslate2", "ctranslate2-texts", "translator")
_BATCH_TOKENS = 4096


def load_translator(options: argparse.Namespace, compute_type: str, folder: Path) -> Translator:
    """Loads the model of the command line, or one with random weights.

    Args:
        folder: Directory for a model with random weights.
    """
    path = options.model or str(folder)
    if not options.model and not any(folder.iterdir()):
        make_generating_model("ours", options).save_pretrained(folder)
        words = " ".join(f"w{index}" for index in range(options.vocab_size - SPECIAL_TOKENS))
        VanillaTransformerTokenizer.train(
            [words], vocab_size=options.vocab_size, kind="word"
        ).save_pretrained(folder)
    return Translator.from_pretrained(path, "ctranslate2", compute_type=compute_type)


def make_texts(options: argparse.Namespace) -> list[str]:
    """Reads the texts of the command line, or draws texts of words that the random model knows."""
    if options.input:
        return [line for line in read_lines(options.input) if line.strip()][: options.texts]
    generator = torch.Generator().manual_seed(options.seed)
    longest = options.source_tokens - 1  # and the end
    sizes = torch.randint(longest // 2, longest + 1, (options.texts,), generator=generator)
    words = options.vocab_size - SPECIAL_TOKENS
    return [
        " ".join(f"w{word}" for word in torch.randint(words, (int(size),), generator=generator))
        for size in sizes
    ]


def measure_translator(
    translator: Translator, texts: list[str], beams: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Times the three ways in turns.

    Returns:
        The setting; `texts_per_second` of each way, its `speedup` relative to the first, and
        `spread`, the lowest and the highest of all turns.
    """
    tokenizer, limit = translator.tokenizer, options.new_tokens
    encoded = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(texts)["input_ids"]]
    search = translator.resolve_search(num_beams=beams, max_new_tokens=limit)
    alone = partial(
        _engine_of(translator).translator.translate_batch,
        max_batch_size=_BATCH_TOKENS,
        batch_type="tokens",
        beam_size=beams,
        length_penalty=search.length_penalty,
        max_input_length=0,
        max_decoding_length=limit,
    )
    actions: dict[str, Callable[[], Any]] = {
        "ctranslate2": partial(alone, encoded),
        "ctranslate2-texts": partial(_translate_in_loop, alone, tokenizer, texts),
        "translator": partial(
            translator.translate,
            texts,
            num_beams=beams,
            max_new_tokens=limit,
            batch_tokens=_BATCH_TOKENS,
        ),
    }
    if actions["translator"]() != actions["ctranslate2-texts"]():
        raise RuntimeError("`Translator` and CTranslate2 alone give different texts.")
    actions = {way: actions[way] for way in options.systems}
    times = time_in_turns(actions, options.repeats, time.process_time)
    return {"beams": beams, "texts": len(texts), **speeds_of(times, len(texts), "texts")}


def _engine_of(translator: Translator) -> CTranslate2Engine:
    if not isinstance(translator.engine, CTranslate2Engine):
        raise TypeError(f"The engine is {translator.engine.name!r}, not CTranslate2.")
    return translator.engine


def _translate_in_loop(alone: Callable[..., Any], tokenizer: Any, texts: list[str]) -> list[str]:
    tokens = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(texts)["input_ids"]]
    target = tokenizer
    if getattr(tokenizer, "separate_vocabularies", False):
        target = tokenizer.target_tokenizer()
    rows = [target.convert_tokens_to_ids(one.hypotheses[0]) for one in alone(tokens)]
    decoded: list[str] = target.batch_decode(rows, skip_special_tokens=True)
    return decoded


def format_translator(result: dict[str, Any]) -> str:
    """Formats the measurements of one setting: a line for each way."""
    search = name_of_search(result["beams"])
    lines = [f"{result['compute_type']}, {search}, texts: {result['texts']}"]
    for way, speed in result["texts_per_second"].items():
        lines.append(f"  {way:17}{speed:8.0f} texts/s  {ratio_text(result, way)}")
    return "\n".join(lines)


def bars_of_translator(result: dict[str, Any]) -> Bars:
    """Returns the ratios of a result, for the picture."""
    return {f"{result['compute_type']}, {name_of_search(result['beams'])}": result["speedup"]}
