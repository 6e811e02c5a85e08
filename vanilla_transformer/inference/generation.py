"""Generates text for lines of text."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from vanilla_transformer.model.pipeline_vanilla_transformer import (
    NO_LIMIT,
    Seq2SeqGenerationPipeline,
)

logger = logging.get_logger(__name__)

_LINES_PER_CHUNK = 4096


def generate_lines(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    lines: Iterable[str],
    *,
    batch_size: int = 32,
    progress: bool = False,
    **generation: Any,
) -> Iterator[list[str]]:
    """Generates outputs for lines of text, in the order of the lines.

    Lines are read in chunks and sorted by length within a chunk. This bounds the memory and keeps
    padding small.

    Args:
        model: A sequence-to-sequence model. It generates without dropout; its mode is restored
            afterwards.
        tokenizer: The tokenizer of the model.
        lines: Source texts. An empty line gives empty outputs.
        batch_size: Number of lines per batch.
        progress: Whether to show a progress bar on standard error.
        **generation: Arguments of `model.generate`, e.g. `num_beams`, `num_return_sequences`.

    Yields:
        The outputs of each line: `num_return_sequences` texts (1 by default).
    """
    remaining = iter(lines)
    with tqdm(disable=not progress, unit=" lines") as bar:
        while chunk := list(islice(remaining, _LINES_PER_CHUNK)):
            yield from _generate_chunk(model, tokenizer, chunk, batch_size, bar, generation)


def _generate_chunk(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    chunk: list[str],
    batch_size: int,
    bar: "tqdm[Any]",
    generation: dict[str, Any],
) -> list[list[str]]:
    """Generates for the lines of a chunk, shortest first, and restores their order."""
    device = None if getattr(model, "hf_device_map", None) else model.device
    pipe = Seq2SeqGenerationPipeline(model=model, tokenizer=tokenizer, device=device)
    default = model.generation_config.num_return_sequences or 1
    outputs = [[""] * (generation.get("num_return_sequences") or default) for _ in chunk]
    _warn_about_truncation(tokenizer, chunk)
    filled = [index for index, line in enumerate(chunk) if line.strip()]
    by_length = sorted(filled, key=lambda index: len(chunk[index]))
    bar.update(len(chunk) - len(by_length))
    results = pipe((chunk[i] for i in by_length), batch_size=batch_size, **generation)
    for index, found in zip(by_length, results, strict=True):
        outputs[index] = [output["generated_text"] for output in found]
        bar.update()
    return outputs


def _warn_about_truncation(tokenizer: PreTrainedTokenizerBase, chunk: list[str]) -> None:
    """Warns how many lines are longer than the tokenizer's limit, if it has one."""
    limit = tokenizer.model_max_length
    if limit >= NO_LIMIT:
        return
    encoded = tokenizer(chunk, truncation=False, verbose=False)
    if cut := sum(len(ids) > limit for ids in encoded["input_ids"]):
        logger.warning(f"{cut} of {len(chunk)} sources are truncated to {limit} tokens.")
