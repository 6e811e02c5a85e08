"""Counts the cost of a model: parameters, floating point operations (FLOPs) and memory.

torch's own counter counts the matrix products of a copy of the model that has shapes and no values.
A product of matrices (m, k) and (k, n) has 2·m·n·k FLOPs, a multiplication and an addition for each
term (Kaplan et al. 2020, §2.1). Norms, activations, softmax and positions have far fewer
operations, and are left out. Sequences have no padding, and all scores count, also scores that the
causal mask hides. The memory of activations is not estimated: it depends on the attention
implementation, on padding and on gradient checkpointing.
"""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.cache_utils import DynamicCache, EncoderDecoderCache


@dataclass(frozen=True)
class Cost:
    """The cost of a model. `str()` has a line for each number.

    Attributes:
        parameters: Number of parameters. A tied one counts once.
        forward_flops: FLOPs of a forward of the batch, with all target tokens at once.
        training_step_flops: FLOPs of a forward and a backward, which has two products for each of
            the forward's, for the gradients of both factors (Kaplan et al. 2020, §2.1).
        source_token_flops: FLOPs per source token: the encoder, and the decoder's keys and values
            for it. They depend on `source_length`.
        generated_token_flops: FLOPs per generated token with a cache: the decoder and the head, as
            the mean of `target_length` tokens.
        weight_bytes: Memory of the parameters. Gradients have as much, and AdamW twice as much.
        source_cache_bytes: Memory of the cached keys and values per source token of a sequence.
        target_cache_bytes: The same per target token. Each beam has its own.
    """

    parameters: int
    forward_flops: int
    training_step_flops: int
    source_token_flops: float
    generated_token_flops: float
    weight_bytes: int
    source_cache_bytes: int
    target_cache_bytes: int

    def __str__(self) -> str:
        """Returns a line for each number."""
        return "\n".join(f"{name:<24}{value:>20,.0f}" for name, value in asdict(self).items())


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
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    steps, inputs = [0, 0, 0], {"input_ids": source}
    if config.is_encoder_decoder:
        encoder = shapes.get_encoder()
        with torch.no_grad():  # the counter takes no view of a tensor that needs gradients
            encoded = encoder(**inputs)
        call = {"encoder_outputs": encoded, "decoder_input_ids": source[:, :1], "use_cache": True}
        steps = [_count_flops(lambda: shapes(**call, past_key_values=cache)) for _ in steps]
        encoding = _count_flops(lambda: encoder(**inputs))
        forward = _count_flops(lambda: shapes(**inputs, decoder_input_ids=target, use_cache=False))
    else:
        encoding = forward = _count_flops(lambda: shapes(**inputs))
    # Each step with a cache has one key more than the one before it, and the first one also
    # computes the keys and values of the source.
    further_key = steps[2] - steps[1]
    source_keys = steps[0] - (steps[1] - further_key)
    mean_step = steps[1] + further_key * ((target_length + 1) / 2 - 2)
    return Cost(
        parameters=model.num_parameters(),
        forward_flops=forward,
        training_step_flops=3 * forward,
        source_token_flops=(encoding + source_keys) / (batch * source_length),
        generated_token_flops=mean_step / batch,
        weight_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        source_cache_bytes=_cached_bytes(cache.cross_attention_cache) // (batch * source_length),
        target_cache_bytes=_cached_bytes(cache.self_attention_cache) // (batch * len(steps)),
    )


def _count_flops(call: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    flops: int = counter.get_total_flops()
    return flops


def _cached_bytes(cache: Any) -> int:
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
