"""Generates text for lines of text."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from itertools import islice
from typing import Any

from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from vanilla_transformer.inference.engines import is_cut_off, read_hypothesis
from vanilla_transformer.inference.search import longest_output, warn_of_cut_outputs
from vanilla_transformer.model.pipeline_vanilla_transformer import (
    NO_LIMIT,
    Seq2SeqGenerationPipeline,
)

logger = logging.get_logger(__name__)

_LINES_PER_CHUNK = 4096
_LENGTH_OF_GENERATE = 20
"""Longest output in tokens of `generate()` where no setting names a length."""


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
        The outputs of each line: `num_return_sequences` texts (1 by default). After the last line,
        a warning tells how many outputs are cut off at the longest length.
    """
    remaining, num_cut = iter(lines), 0
    settings = deepcopy(generation.get("generation_config") or model.generation_config)
    settings.update(**{name: value for name, value in generation.items() if value is not None})
    longest = longest_output(settings, _LENGTH_OF_GENERATE)
    with tqdm(disable=not progress, unit=" lines") as bar:
        while chunk := list(islice(remaining, _LINES_PER_CHUNK)):
            for rows in _generate_chunk(model, tokenizer, chunk, batch_size, bar, generation):
                found = (read_hypothesis(ids, settings) for ids in rows if ids)
                num_cut += sum(is_cut_off(one, settings, longest) for one in found)
                yield tokenizer.batch_decode(rows, skip_special_tokens=True)
    warn_of_cut_outputs(num_cut, longest)


def _generate_chunk(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    chunk: list[str],
    batch_size: int,
    bar: "tqdm[Any]",
    generation: dict[str, Any],
) -> list[list[list[int]]]:
    """Returns ids for the lines of a chunk, which are computed shortest first, in their order."""
    device = None if getattr(model, "hf_device_map", None) else model.device
    pipe = Seq2SeqGenerationPipeline(model=model, tokenizer=tokenizer, device=device)
    default = model.generation_config.num_return_sequences or 1
    num_outputs = generation.get("num_return_sequences") or default
    outputs: list[list[list[int]]] = [[[]] * num_outputs for _ in chunk]
    _warn_about_truncation(tokenizer, chunk)
    filled = [index for index, line in enumerate(chunk) if line.strip()]
    by_length = sorted(filled, key=lambda index: len(chunk[index]))
    bar.update(len(chunk) - len(by_length))
    texts = (chunk[index] for index in by_length)
    results = pipe(texts, batch_size=batch_size, return_tensors=True, **generation)
    for index, found in zip(by_length, results, strict=True):
        outputs[index] = [output["generated_token_ids"] for output in found]
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
