"""Lines of text in, lines of text out."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from tqdm.auto import tqdm
from transformers.utils import logging

from vanilla_transformer.model.pipeline_vanilla_transformer import (
    NO_LIMIT,
    Seq2SeqGenerationPipeline,
)

logger = logging.get_logger(__name__)

_LINES_AT_ONCE = 4096


def generate_lines(
    model: Any,
    tokenizer: Any,
    lines: Iterable[str],
    *,
    batch_size: int = 32,
    progress: bool = False,
    **generation: Any,
) -> Iterator[list[str]]:
    """Generates outputs for lines of text, in their order.

    Lines are read in chunks and sorted by length within one, so memory is bounded and batches hold
    little padding.

    Args:
        model: A sequence-to-sequence model; dropout is off for it here, and as before afterwards.
        tokenizer: Its tokenizer.
        lines: Source texts; an empty one gives empty outputs.
        batch_size: Lines per batch.
        progress: Whether to show a progress bar on standard error.
        **generation: Passed to `model.generate`, e.g. `num_beams`, `num_return_sequences`.

    Yields:
        For each line its outputs, `num_return_sequences` of them (1 by default).
    """
    remaining = iter(lines)
    with tqdm(disable=not progress, unit=" lines") as bar:
        while chunk := list(islice(remaining, _LINES_AT_ONCE)):
            yield from _generate_chunk(model, tokenizer, chunk, batch_size, bar, generation)


def _generate_chunk(
    model: Any,
    tokenizer: Any,
    chunk: Sequence[str],
    batch_size: int,
    bar: Any,
    generation: dict[str, Any],
) -> list[list[str]]:
    device = None if getattr(model, "hf_device_map", None) else model.device
    pipe = Seq2SeqGenerationPipeline(model=model, tokenizer=tokenizer, device=device)
    default = model.generation_config.num_return_sequences or 1
    outputs = [[""] * (generation.get("num_return_sequences") or default) for _ in chunk]
    _warn_of_long_lines(tokenizer, chunk)
    by_length = sorted((i for i, line in enumerate(chunk) if line.strip()), key=_length_in(chunk))
    bar.update(len(chunk) - len(by_length))
    texts = (chunk[i] for i in by_length)
    for index, found in zip(
        by_length, pipe(texts, batch_size=batch_size, **generation), strict=True
    ):
        outputs[index] = [output["generated_text"] for output in found]
        bar.update()
    return outputs


def _warn_of_long_lines(tokenizer: Any, chunk: Sequence[str]) -> None:
    """Says how many lines will be truncated, where there is a limit."""
    limit = tokenizer.model_max_length
    if limit >= NO_LIMIT:
        return
    encoded = tokenizer(list(chunk), truncation=False, verbose=False)
    if cut := sum(len(ids) > limit for ids in encoded["input_ids"]):
        logger.warning(f"{cut} of {len(chunk)} sources are truncated to {limit} tokens.")


def _length_in(chunk: Sequence[str]) -> Any:
    return lambda index: len(chunk[index])
