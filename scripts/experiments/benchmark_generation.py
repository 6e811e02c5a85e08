"""Measures the speed of `generate()`; `benchmark.py generate` runs it.

Models of the same size with random weights generate the same number of tokens from the same random
sources. They take turns in one process, so other work on the machine affects all of them.

Shapes: `input_ids` and `attention_mask` are (rows, source_len).
"""

import argparse
import re
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmark_models import (
    PADDING,
    SPECIAL_TOKENS,
    load_export,
    make_generating_model,
    save_system,
)
from benchmark_reports import clock_of, ratio_text, speeds_of, time_in_turns
from torch import nn

_NOT_READ = re.compile(r"embed_tokens|encoder_attn\.[kv]_proj")  # once a source, or one row
Generate = Callable[[torch.Tensor, torch.Tensor, int], Any]


def make_sources(rows: int, options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws sources of half to full length; the first is the longest.

    Returns:
        `input_ids`, padded with 1, and `attention_mask`.
    """
    longest = options.source_tokens
    generator = torch.Generator().manual_seed(options.seed)
    lengths = torch.randint(longest // 2, longest, (rows,), generator=generator) + 1
    lengths[0] = longest
    real = torch.arange(longest) < lengths[:, None]
    ids = torch.randint(SPECIAL_TOKENS, options.vocab_size, real.shape, generator=generator)
    return ids.masked_fill(~real, PADDING), real.long()


def generate_with_model(
    model: Any, new_tokens: int, ids: torch.Tensor, mask: torch.Tensor, beams: int, **options: Any
) -> Any:
    """Generates with a model of transformers; no row ends early.

    Args:
        **options: Of `generate()`.
    """
    return model.generate(
        input_ids=ids,
        attention_mask=mask,
        num_beams=beams,
        max_new_tokens=new_tokens,
        eos_token_id=None,
        do_sample=False,
        **options,
    )


def generate_with_ctranslate2(
    translator: Any,
    tokenizer: Any,
    new_tokens: int,
    ids: torch.Tensor,
    mask: torch.Tensor,
    beams: int,
) -> Any:
    """Generates with CTranslate2; no row ends early."""
    rows = [row[real == 1].tolist() for row, real in zip(ids, mask, strict=True)]
    return translator.translate_batch(
        [tokenizer.convert_ids_to_tokens(row) for row in rows],
        beam_size=beams,
        min_decoding_length=new_tokens,
        max_decoding_length=new_tokens,
    )


def make_generator(system: str, options: argparse.Namespace, stack: ExitStack) -> Generate:
    """Makes a function of `input_ids`, `attention_mask` and beams that generates.

    Args:
        stack: Removes the exported model in the end.
    """
    if not system.startswith("ctranslate2"):
        model = make_generating_model(system, options)
        if options.bf16:
            model = model.bfloat16()
        return partial(generate_with_model, model.to(options.device), options.new_tokens)
    exported = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model"
    save_system(system, options, exported)
    translator, tokenizer = load_export(exported, options)
    return partial(generate_with_ctranslate2, translator, tokenizer, options.new_tokens)


def bytes_per_token(model: nn.Module) -> int:
    """Returns the bytes of weights that a row reads for each token: decoder and projection."""
    decoder: Any = model.get_submodule("model.decoder")
    head: Any = model.get_submodule("lm_head")
    named = [*decoder.named_parameters(), *head.named_parameters()]
    return sum(part.nbytes for name, part in named if not _NOT_READ.search(name))


def measure_generation(
    generators: dict[str, Generate],
    rows: int,
    beams: int,
    options: argparse.Namespace,
    machine: dict[str, Any],
) -> dict[str, Any]:
    """Times one setting.

    Args:
        generators: A function of `make_generator` for each system.

    Returns:
        The setting; `tokens_per_second` of each system, those of the best beam; `speedup` relative
        to the first system, and its `spread`, the lowest and the highest of all turns. With one row
        and one beam also `limit`, the tokens per second at which the memory gives the weights.
    """
    ids, mask = (tensor.to(options.device) for tensor in make_sources(rows, options))
    actions: dict[str, Callable[[], Any]] = {
        name: partial(run, ids, mask, beams) for name, run in generators.items()
    }
    times = time_in_turns(actions, options.repeats, clock_of(options.device))
    result: dict[str, Any] = {
        "rows": rows,
        "beams": beams,
        "new_tokens": options.new_tokens,
        **speeds_of(times, rows * options.new_tokens, "tokens"),
    }
    if rows == beams == 1:
        weights = bytes_per_token(make_generating_model("ours", options))
        result["limit"] = machine["bandwidth"] / weights
    return result


def format_generation(result: dict[str, Any]) -> str:
    """Formats one setting: a line per system, with ratios relative to the first system."""
    speeds = result["tokens_per_second"]
    search = "greedy" if result["beams"] == 1 else f"beam {result['beams']}"
    lines = [f"{search}, rows: {result['rows']}, new tokens: {result['new_tokens']}"]
    for system, speed in speeds.items():
        lines.append(f"  {system:17}{speed:8.0f} tokens/s  {ratio_text(result, system)}")
    if "limit" in result:
        limit = result["limit"]
        ratio = f"x{limit / next(iter(speeds.values())):.2f}"
        lines.append(f"  {'limit in float32':17}{limit:8.0f} tokens/s  {ratio}  memory bandwidth")
    return "\n".join(lines)
