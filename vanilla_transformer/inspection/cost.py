"""Counts what a model costs: parameters, floating point operations (FLOPs) and memory.

torch's own counter counts the matrix products of a copy of the model that has shapes and no values.
A product of matrices (m, k) and (k, n) has 2·m·n·k FLOPs, a multiplication and an addition for each
term (Kaplan et al. 2020, §2.1). Norms, activations, softmax and positions have far fewer
operations, and are left out. Sequences have no padding, and all scores count, also those that the
causal mask hides. The memory of activations is not estimated: it depends on the attention
implementation, on padding and on gradient checkpointing.

A training step has three times the FLOPs of a forward: the backward of each product has two
products of the same size, for the gradients of both factors (Kaplan et al. 2020, §2.1).
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.cache_utils import DynamicCache, EncoderDecoderCache


@dataclass(frozen=True)
class Cost:
    """What a model costs. `str()` makes a table.

    FLOPs are counts of whole calls unless a name says otherwise; memory is in bytes.

    Attributes:
        parameters: Number of parameters of "embeddings", "positions", "encoder", "decoder" and
            "head". A tied one counts once, in the first of these parts that has it.
        tied: The names of each matrix that has several.
        forward_flops: FLOPs of "encoder", "decoder" and "head" in a forward of the batch, with all
            target tokens at once. The decoder's include the keys and values of the source.
        source_token_flops: FLOPs per source token: the encoder, and the decoder's keys and values
            for it. They depend on `source_length`.
        generated_token_flops: FLOPs per generated token with a cache: the decoder and the head, as
            the mean of `target_length` tokens.
        gradient_bytes: Memory of the gradients of the parameters that are trained.
        source_cache_bytes: Memory of the cached keys and values per source token of a sequence.
        target_cache_bytes: The same per target token. Each beam has its own.
    """

    source_length: int
    target_length: int
    batch: int
    parameters: dict[str, int]
    tied: tuple[tuple[str, ...], ...]
    forward_flops: dict[str, int]
    source_token_flops: float
    generated_token_flops: float
    weight_bytes: int
    gradient_bytes: int
    source_cache_bytes: int
    target_cache_bytes: int
    dtype: str

    @property
    def total_parameters(self) -> int:
        """Number of parameters of the model."""
        return sum(self.parameters.values())

    @property
    def training_step_flops(self) -> int:
        """FLOPs of a forward and a backward of the batch."""
        return 3 * sum(self.forward_flops.values())

    @property
    def generation_flops(self) -> float:
        """FLOPs of encoding the batch and generating `target_length` tokens for each source."""
        source = self.source_length * self.source_token_flops
        return self.batch * (source + self.target_length * self.generated_token_flops)

    @property
    def optimizer_bytes(self) -> int:
        """Memory of AdamW, which keeps two moments of each gradient in its type."""
        return 2 * self.gradient_bytes

    def __str__(self) -> str:
        """Returns a table with a line for each figure."""
        sizes = f"{self.batch} x ({self.source_length} source + {self.target_length} target tokens)"
        mean = f"mean of {self.target_length} tokens, with a cache"
        counts = {**self.parameters, "total": self.total_parameters}
        notes = {"total": "tied ones count once"} if self.tied else {}
        rows = [("parameters", "", "")]
        rows += [(f"  {name}", f"{count:,}", notes.get(name, "")) for name, count in counts.items()]
        rows += [(f"  tied: {' = '.join(names)}", "", "") for names in self.tied]
        rows += [(f"FLOPs of matrix products, {sizes}", "", "")]
        figures: list[tuple[str, float, str]]
        figures = [(f"forward: {part}", flops, "") for part, flops in self.forward_flops.items()]
        figures += [
            ("training step", self.training_step_flops, "3 x forward"),
            ("generation", self.generation_flops, "with a cache, greedy"),
            ("per source token", self.source_token_flops, ""),
            ("per generated token", self.generated_token_flops, mean),
        ]
        rows += [(f"  {name}", _with_prefix(flops, 1000), note) for name, flops, note in figures]
        rows += [(f"memory in bytes, {self.dtype}", "", "")]
        for name, size, note in (
            ("weights", self.weight_bytes, ""),
            ("gradients", self.gradient_bytes, ""),
            ("AdamW", self.optimizer_bytes, "two moments"),
            ("cache per source token", self.source_cache_bytes, "keys and values of a sequence"),
            ("cache per target token", self.target_cache_bytes, "and per beam"),
        ):
            rows.append((f"  {name}", _with_prefix(size, 1024), note))
        widths = [max(len(row[column]) for row in rows if row[1]) for column in (0, 1)]
        return "\n".join(
            f"{name:<{widths[0]}}  {value:>{widths[1]}}  {note}".rstrip() if value else name
            for name, value, note in rows
        )


def cost(model: Any, source_length: int = 128, target_length: int = 128, batch: int = 1) -> Cost:
    """Counts parameters, FLOPs and memory of a model, without computing with its weights.

    Args:
        model: A model of this package with an encoder, a decoder or both.
        source_length: Source tokens of a sequence.
        target_length: Target tokens of a sequence, the start token included; without a decoder,
            they do not count.
    """
    with torch.device("meta"):
        config = copy.deepcopy(model.config)
        # torch's counter knows the products of eager attention on every device.
        shapes = type(model)._from_config(config, attn_implementation="eager", dtype=model.dtype)
        source = torch.zeros(batch, source_length, dtype=torch.long)
        target = torch.zeros(batch, target_length, dtype=torch.long)
    shapes.eval()
    inputs = {"input_ids": source}
    steps: tuple[int, ...] = (0, 0, 0)
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    if any(name.split(".")[-1] == "decoder" for name, _ in model.named_modules()):
        inputs["decoder_input_ids"] = target
        steps = _count_steps(shapes, source, cache)
    else:
        target_length = 0
    forward = _count_flops(lambda: shapes(**inputs, use_cache=False))
    # Each step with a cache has one key more than the one before it, and the first one also
    # computes the keys and values of the source.
    further_key = steps[2] - steps[1]
    source_keys = steps[0] - (steps[1] - further_key)
    mean_step = steps[1] + further_key * ((target_length + 1) / 2 - 2)
    parameters = list(model.parameters())
    return Cost(
        source_length=source_length,
        target_length=target_length,
        batch=batch,
        parameters=_count_parameters(model),
        tied=_find_tied(model),
        forward_flops=forward,
        source_token_flops=(forward["encoder"] + source_keys) / (batch * source_length),
        generated_token_flops=mean_step / batch if target_length else 0,
        weight_bytes=sum(parameter.nbytes for parameter in parameters),
        gradient_bytes=sum(parameter.nbytes for parameter in parameters if parameter.requires_grad),
        source_cache_bytes=_cached_bytes(cache.cross_attention_cache) // (batch * source_length),
        target_cache_bytes=_cached_bytes(cache.self_attention_cache) // (batch * len(steps)),
        dtype=", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
    )


def _count_flops(call: Callable[[], Any]) -> dict[str, int]:
    """Returns the FLOPs of a call in the encoder, in the decoder, and outside of both."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    stacks = {"encoder": 0, "decoder": 0}
    for name, flops in counter.get_flop_counts().items():
        part = name.rpartition(".")[2]
        if part in stacks:
            stacks[part] += sum(flops.values())
    return {**stacks, "head": counter.get_total_flops() - sum(stacks.values())}


def _count_steps(model: Any, source: torch.Tensor, cache: EncoderDecoderCache) -> tuple[int, ...]:
    """Returns the FLOPs of the first three steps of generation, which fill a cache."""
    with torch.no_grad():
        encoded = model.get_encoder()(input_ids=source)
    call = {"encoder_outputs": encoded, "decoder_input_ids": source[:, :1], "use_cache": True}
    steps = [_count_flops(lambda: model(**call, past_key_values=cache)) for _ in range(3)]
    return tuple(sum(step.values()) for step in steps)


def _cached_bytes(cache: Any) -> int:
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def _count_parameters(model: Any) -> dict[str, int]:
    """Returns the number of parameters of each part. A tied one counts once."""
    counts = dict.fromkeys(("embeddings", "positions", "encoder", "decoder", "head"), 0)
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        if "embed_positions" in parts:
            part = "positions"
        elif {"shared", "embed_tokens"} & set(parts):
            part = "embeddings"
        else:
            part = next((stack for stack in ("encoder", "decoder") if stack in parts), "head")
        counts[part] += parameter.numel()
    return counts


def _find_tied(model: Any) -> tuple[tuple[str, ...], ...]:
    """Returns the names of each parameter that has several."""
    names: dict[Any, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


def _with_prefix(value: float, base: int) -> str:
    """Formats a number with four digits and the prefix of its unit."""
    prefixes = ("", "K", "M", "G", "T", "P", "E", "Z")
    step = min(int(math.log(max(value, 1), base)), len(prefixes) - 1)
    mark = "i" if base == 1024 and step else ""
    return f"{value / base**step:,.4g} {prefixes[step]}{mark}".rstrip()
