"""Compares a model with its source: the outputs of both for the same random inputs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import transformers
from transformers import PreTrainedModel

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.sharing import CODE_VERSION
from vanilla_transformer.search import start_token_of

TOLERANCE = 1e-4
"""Largest difference between equal outputs, in float32, relative to the largest output."""

SourceLogits = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]
"""Computes logits with the source's own library, from the inputs that `random_inputs` makes."""

_SOURCE_LENS, _TARGET_LEN = (40, 7, 4), 12
NEW_TOKENS = 8


def random_inputs(
    config: VanillaTransformerConfig, limit: int | None = None
) -> dict[str, torch.Tensor]:
    """Makes inputs for a model: a long row and two short ones, padded on the right.

    The same config always gives the same inputs.

    Args:
        limit: Longest row in tokens. None: `max_position_embeddings`.

    Returns:
        `input_ids` and `attention_mask`, of shape (3, source_len), and `decoder_input_ids`, of
        shape (3, target_len). No row has padding inside.
    """
    generator = torch.Generator().manual_seed(0)
    limit = config.max_position_embeddings if limit is None else limit
    pad = 0 if config.pad_token_id is None else config.pad_token_id

    def draw(length: int, vocab_size: int) -> torch.Tensor:
        shape = len(_SOURCE_LENS), min(length, limit)
        ids = torch.randint(max(vocab_size - 1, 1), shape, generator=generator)
        return (ids + (ids >= pad)).clamp(max=vocab_size - 1)

    input_ids = draw(max(_SOURCE_LENS), config.vocab_size)
    real = torch.arange(input_ids.shape[1]) < torch.tensor(_SOURCE_LENS)[:, None]
    attention_mask = real.long()
    targets = draw(_TARGET_LEN, cast(int, config.decoder_vocab_size))
    targets[:, 0] = config.decoder_start_token_id or 0
    return {
        "input_ids": input_ids.masked_fill(attention_mask == 0, pad),
        "attention_mask": attention_mask,
        "decoder_input_ids": targets,
    }


@dataclass(frozen=True)
class Comparison:
    """How far a model is from its source.

    Attributes:
        library: The library that computed the outputs of the source, with version and class.
        expected: Logits of the source, of shape (batch, target_len, vocab).
        difference: Largest absolute difference of two logits, in float32.
        equal_output: Whether the greedy outputs are equal. None: they were not compared.
    """

    library: str
    expected: torch.Tensor
    difference: float
    equal_output: bool | None = None

    @property
    def agrees(self) -> bool:
        """Whether both models compute the same, as far as float32 can tell."""
        finite = self.expected[self.expected.isfinite()].abs()
        is_close = self.difference <= TOLERANCE * max(1.0, float(finite.max()))
        return is_close and self.equal_output is not False

    def describe(self) -> str:
        """Returns the result in one sentence."""
        result = "equal" if self.equal_output else "different"
        greedy = f", greedy output of {NEW_TOKENS} tokens {result}"
        return (
            f"Compared with {self.library} on random input in float32: largest difference of two "
            f"logits {self.difference:.1e} (largest logit {float(self.expected.abs().max()):.1f})"
            f"{'' if self.equal_output is None else greedy}."
        )


@torch.no_grad()
def compare_logits(
    model: Any, library: str, source_logits: SourceLogits, limit: int | None = None
) -> Comparison:
    """Compares the logits of a model with those of its source for the same random inputs.

    The model is on the CPU, in float32 and in evaluation mode afterwards. Where the shapes differ,
    or a value is no number, the difference is infinite.
    """
    inputs = random_inputs(model.config, limit)
    expected = source_logits(inputs).float()
    computed = model.to("cpu", torch.float32).eval()(**inputs).logits
    if computed.shape != expected.shape:
        return Comparison(library, expected, math.inf)
    differences = torch.where(computed == expected, 0.0, (computed - expected).abs())
    return Comparison(library, expected, float(differences.nan_to_num(nan=math.inf).max()))


@torch.no_grad()
def compare_models(source: PreTrainedModel, model: Any) -> Comparison:
    """Compares the logits and the greedy outputs of two models for the same random inputs.

    The source is in evaluation mode. Both are in float32 afterwards.
    """
    source.float()

    def compute(inputs: Any) -> torch.Tensor:
        # With a cache, FSMT has no causal mask, and T5 wants no more decoder than encoder layers.
        logits: torch.Tensor = source(**inputs, use_cache=False).logits
        return logits

    limits = [getattr(each.config, "max_position_embeddings", None) for each in (source, model)]
    limit: int = min(limit for limit in limits if limit is not None)  # T5 has none
    name = type(source).__module__.partition(".")[0]
    version = transformers.__version__ if name == "transformers" else CODE_VERSION
    library = f"{name} {version}, {type(source).__name__}"
    compared = compare_logits(model, library, compute, limit)
    batch = random_inputs(model.config, limit)
    del batch["decoder_input_ids"]
    pad, outputs = model.config.pad_token_id, []
    for each in (source, model):
        settings: Any = each.generation_config
        # Padding tokens are left out: fairseq's models do not count their positions.
        suppressed = [*(settings.suppress_tokens or []), *([] if pad is None else [pad])]
        # A model of many languages may leave the start token to whoever generates.
        start = start_token_of(settings)
        generate: Any = each.generate
        outputs.append(
            generate(
                **batch,
                max_length=min(NEW_TOKENS + 1, limit),
                min_length=0,
                num_beams=1,
                do_sample=False,
                use_cache=each is model,
                decoder_start_token_id=0 if start is None else start,
                suppress_tokens=suppressed or None,
            )
        )
    return replace(compared, equal_output=torch.equal(*outputs))
