"""Counts what a model costs: parameters, floating point operations (FLOPs) and memory.

A product of matrices (m, k) and (k, n) has 2·m·n·k FLOPs, a multiplication and an addition for each
term (Kaplan et al. 2020, §2.1). Only products are counted: norms, activations, softmax and
positions have far fewer operations. With S source tokens, T target tokens, width d = heads ·
head_dim, and keys and values of width e = key_value_heads · head_dim:

    projection (in -> out) of N tokens        2 · N · in · out
    scores of N queries and M keys            2 · N · M · d
    weighted sum of the values                2 · N · M · d

Self-attention has N = M; cross-attention has N = T queries and M = S keys, which are projected once
for a source. A call with T target tokens computes all T · T scores, also those that the causal mask
hides. Fewer key and value heads make projections and cache smaller, not the two products.

With a cache, the token at place t (from 1) has one query, t keys of the target and S of the source.

A training step has three times the FLOPs of a forward: the backward of each product has two
products of the same size, for the gradients of both factors (Kaplan et al. 2020, §2.1).

On N GPUs, each sends (N - 1)/N of the gradients twice in a step of DDP (a ring, Patarasuk and Yuan
2009). FSDP gathers the weights for the forward and for the backward, and scatters the
gradients: three times (N - 1)/N (Rajbhandari et al. 2020, §7.2).
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import nn

from vanilla_transformer.inspection.head_ablation import find_attention_modules

_LAYER = re.compile(r"(?:^|\.)(?P<stack>encoder|decoder)\.layers\.\d+\.")
_SOURCE_SIDE = re.compile(r"\.encoder_attn\.[kv]_proj(\.|$)")


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
        optimizer_bytes: Memory of AdamW, which keeps two moments of each gradient in its type.
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
    optimizer_bytes: int
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

    def __str__(self) -> str:
        """Returns a table with a line for each figure."""
        return _make_table(self._table_rows())

    def _table_rows(self) -> Iterator[tuple[str, str, str]]:
        """Yields name, value and note of each line; a heading has no value."""
        yield "parameters", "", ""
        for part, count in self.parameters.items():
            yield f"  {part}", f"{count:,}", ""
        yield "  total", f"{self.total_parameters:,}", "tied ones count once" if self.tied else ""
        for names in self.tied:
            yield f"  tied: {' = '.join(names)}", "", ""
        lengths = (
            f"{self.batch} x ({self.source_length} source + {self.target_length} target tokens)"
        )
        yield f"FLOPs of matrix products, {lengths}", "", ""
        for part, flops in self.forward_flops.items():
            yield f"  forward: {part}", _with_unit(flops, 1000), ""
        yield "  training step", _with_unit(self.training_step_flops, 1000), "3 x forward"
        yield "  generation", _with_unit(self.generation_flops, 1000), "with a cache, greedy"
        yield "  per source token", _with_unit(self.source_token_flops, 1000), ""
        note = f"mean of {self.target_length} tokens, with a cache"
        yield "  per generated token", _with_unit(self.generated_token_flops, 1000), note
        yield f"memory in bytes, {self.dtype}", "", ""
        yield "  weights", _with_unit(self.weight_bytes, 1024), ""
        yield "  gradients", _with_unit(self.gradient_bytes, 1024), ""
        yield "  AdamW", _with_unit(self.optimizer_bytes, 1024), "two moments"
        note = "keys and values of a sequence"
        yield "  cache per source token", _with_unit(self.source_cache_bytes, 1024), note
        yield "  cache per target token", _with_unit(self.target_cache_bytes, 1024), "and per beam"


@dataclass(frozen=True)
class TrainingCost:
    """What an epoch of pairs costs on several GPUs. `str()` makes a table.

    Attributes:
        model: The cost of the model, for a batch of pairs of the mean lengths.
        teraflops: What a GPU computes in a second, in 10¹² FLOPs. docs/scale.md has published
            values.
        vocab_size: Number of tokens of the larger vocabulary.
    """

    model: Cost
    gpus: int
    pairs: int
    teraflops: float = 200.0
    vocab_size: int = 32000

    @property
    def epoch_flops(self) -> float:
        """FLOPs of an epoch, without padding."""
        return self.pairs / self.model.batch * self.model.training_step_flops

    @property
    def epoch_hours(self) -> float:
        """Hours of an epoch, if no GPU waits for data or for another."""
        return self.epoch_flops / (self.gpus * self.teraflops * 1e12) / 3600

    @property
    def checkpoint_bytes(self) -> int:
        """Disk for a checkpoint: the weights, and AdamW's moments."""
        return self.model.weight_bytes + self.model.optimizer_bytes

    @property
    def state_bytes(self) -> int:
        """Memory of weights, gradients and AdamW, which DDP needs on each GPU."""
        return self.checkpoint_bytes + self.model.gradient_bytes

    @property
    def corpus_bytes(self) -> int:
        """Disk for the encoded pairs: 2 bytes a token, or 4, and 8 for the lengths of a pair."""
        tokens = self.model.source_length + self.model.target_length
        return self.pairs * ((2 if self.vocab_size <= 2**16 else 4) * tokens + 8)

    @property
    def ddp_traffic(self) -> float:
        """Bytes that each GPU sends in a step with DDP."""
        return 2 * self.model.gradient_bytes * (self.gpus - 1) / self.gpus

    @property
    def fsdp_traffic(self) -> float:
        """Bytes that each GPU sends in a step with FSDP."""
        both = 2 * self.model.weight_bytes + self.model.gradient_bytes
        return both * (self.gpus - 1) / self.gpus

    def __str__(self) -> str:
        """Returns a table with a line for each figure."""
        note = "weights, gradients, AdamW; activations come on top"
        rows = [
            (f"an epoch of {self.pairs:,} pairs on {self.gpus} GPUs", "", ""),
            ("  FLOPs", _with_unit(self.epoch_flops, 1000), ""),
            ("  hours", f"{self.epoch_hours:,.3g}", f"at {self.teraflops:g} TFLOP/s a GPU"),
            ("  bytes on a GPU, DDP", _with_unit(self.state_bytes, 1024), note),
            ("  bytes on a GPU, FSDP", _with_unit(self.state_bytes / self.gpus, 1024), ""),
            ("  network, DDP", _with_unit(self.ddp_traffic, 1024), "sent by each GPU, in a step"),
            ("  network, FSDP", _with_unit(self.fsdp_traffic, 1024), ""),
            ("  disk, encoded pairs", _with_unit(self.corpus_bytes, 1024), ""),
            ("  disk, a checkpoint", _with_unit(self.checkpoint_bytes, 1024), ""),
        ]
        return _make_table(rows)


def cost(
    model: nn.Module, source_length: int = 128, target_length: int = 128, batch: int = 1
) -> Cost:
    """Counts parameters, FLOPs and memory of a model, without running it.

    The formulas stand at the top of this file. They count what the model's modules would compute
    for sequences without padding; a test compares them with torch's own count of a run. Memory of
    activations is not estimated: it depends on the attention implementation, on padding and on
    gradient checkpointing.

    Args:
        model: A model with an encoder, a decoder or both, and possibly a language model head.
        source_length: Source tokens of a sequence; without an encoder, they do not count.
        target_length: Target tokens of a sequence, the start token included; without a decoder,
            they do not count.

    Raises:
        ValueError: If a length is below 1, if the model has no attention layers, or if it has a
            head of another kind.
    """
    lengths = {"source_length": source_length, "target_length": target_length, "batch": batch}
    for name, length in lengths.items():
        if length < 1:
            raise ValueError(f"`{name}` is {length}: give at least 1.")
    products = _count_products(model)
    source_length *= bool(products.linear["encoder"])
    target_length *= bool(products.linear["decoder"])
    parameters = list(model.parameters())
    gradient_bytes = sum(_bytes_of(p) for p in parameters if p.requires_grad)
    element = parameters[0].element_size()
    return Cost(
        source_length=source_length,
        target_length=target_length,
        batch=batch,
        parameters=_count_parameters(model),
        tied=_find_tied(model),
        forward_flops=products.forward(source_length, target_length, batch),
        source_token_flops=products.per_source_token(source_length),
        generated_token_flops=products.per_generated_token(source_length, target_length),
        weight_bytes=sum(map(_bytes_of, parameters)),
        gradient_bytes=gradient_bytes,
        optimizer_bytes=2 * gradient_bytes,
        source_cache_bytes=2 * products.cached["decoder.encoder_attn"] * element,
        target_cache_bytes=2 * products.cached["decoder.self_attn"] * element,
        dtype=", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
    )


@dataclass(frozen=True)
class _Products:
    """The sizes behind the products, summed over layers.

    Attributes:
        linear: FLOPs of the projections per token, by "encoder", "source" (the decoder's keys and
            values of a source token), "decoder" and "head".
        widths: Sum of heads · head_dim over the layers, by attention module.
        cached: Sum of key_value_heads · head_dim over the layers, by attention module.
    """

    linear: dict[str, int]
    widths: dict[str, int]
    cached: dict[str, int]

    def forward(self, source_length: int, target_length: int, batch: int) -> dict[str, int]:
        """Returns the FLOPs of each part in a forward with all target tokens at once."""
        from_source = self.linear["source"]
        per_token = self.linear["decoder"] + self._flops_of_keys(source_length, target_length)
        per_sequence = {
            "encoder": source_length * (self.per_source_token(source_length) - from_source),
            "decoder": source_length * from_source + target_length * per_token,
            "head": target_length * self.linear["head"],
        }
        return {part: batch * flops for part, flops in per_sequence.items()}

    def per_source_token(self, source_length: int) -> int:
        """Returns the FLOPs of the encoder, and of the decoder's keys and values, per token."""
        attention = 4 * self.widths["encoder.self_attn"] * source_length
        return self.linear["encoder"] + attention + self.linear["source"]

    def per_generated_token(self, source_length: int, target_length: int) -> float:
        """Returns the FLOPs of the decoder and the head, as the mean of all places."""
        attention = self._flops_of_keys(2 * source_length, target_length + 1) / 2
        return self.linear["decoder"] + self.linear["head"] + attention

    def _flops_of_keys(self, source_keys: int, target_keys: int) -> int:
        """Returns the FLOPs of a target token's scores and sums with that many keys."""
        cross = self.widths["decoder.encoder_attn"] * source_keys
        return 4 * (cross + self.widths["decoder.self_attn"] * target_keys)


def _count_products(model: nn.Module) -> _Products:
    """Collects the sizes of a model's products."""
    linear = dict.fromkeys(("encoder", "source", "decoder", "head"), 0)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            linear[_part_of_linear(name)] += 2 * module.in_features * module.out_features
    names = ("encoder.self_attn", "decoder.self_attn", "decoder.encoder_attn")
    widths, cached = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for name, layers in find_attention_modules(model).items():
        for module in layers.values():
            widths[name] += module.out_proj.in_features
            cached[name] += module.out_proj.in_features // module.num_key_value_groups
    if not any(widths.values()):
        raise ValueError("The model has no attention layers: give a model of this package.")
    return _Products(linear, widths, cached)


def _part_of_linear(name: str) -> str:
    """Returns which tokens a projection has as its input."""
    if match := _LAYER.search(name):
        is_source = match["stack"] == "decoder" and _SOURCE_SIDE.search(name)
        return "source" if is_source else match["stack"]
    if "lm_head" in name.split("."):
        return "head"
    raise ValueError(
        f"The head {name!r} is of a kind that is not counted: give its encoder or decoder, such as "
        "`model.base_model`."
    )


def _count_parameters(model: nn.Module) -> dict[str, int]:
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


def _find_tied(model: nn.Module) -> tuple[tuple[str, ...], ...]:
    """Returns the names of each parameter that has several."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


def _make_table(rows: Iterable[tuple[str, str, str]]) -> str:
    """Makes lines of name, value and note; a heading has no value."""
    rows = list(rows)
    name_width = max(len(name) for name, value, _ in rows if value)
    value_width = max(len(value) for _, value, _ in rows)
    lines = [
        f"{name:<{name_width}}  {value:>{value_width}}  {note}" if value else name
        for name, value, note in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def _bytes_of(parameter: nn.Parameter) -> int:
    return parameter.numel() * parameter.element_size()


def _with_unit(value: float, base: int) -> str:
    """Formats a number with four digits and a prefix of the unit: 1000 or 1024 to the next one."""
    prefixes = ("", "K", "M", "G", "T", "P", "E", "Z")
    step = min(int(math.log(max(value, 1), base)), len(prefixes) - 1)
    mark = "i" if base == 1024 and step else ""
    return f"{value / base**step:,.4g} {prefixes[step]}{mark}".rstrip()
