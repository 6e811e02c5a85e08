"""Compares a converted model with its source on random input."""

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

LENGTHS = (12, 7)
TARGET_LENGTH = 6
NEW_TOKENS = 8
TOLERANCE = 1e-4
"""The difference of logits that float32 explains, as a share of the largest logit, or of 1."""


@dataclass(frozen=True)
class Comparison:
    """How far a converted model is from its source.

    Attributes:
        source_class: Class of the source.
        difference: Largest absolute difference of two logits, in float32.
        largest: Largest absolute logit of the source.
        equal_output: Whether the greedy outputs are equal.
    """

    source_class: str
    difference: float
    largest: float
    equal_output: bool

    @property
    def agrees(self) -> bool:
        """Whether both models compute the same, as far as float32 can tell."""
        return self.equal_output and self.difference <= TOLERANCE * max(1.0, self.largest)

    def describe(self) -> str:
        """Returns the result in one sentence."""
        greedy = "equal" if self.equal_output else "different"
        return (
            f"Compared with {self.source_class} of transformers {transformers.__version__} on "
            f"random input in float32: largest difference of two logits {self.difference:.1e} "
            f"(largest logit {self.largest:.1f}), greedy output of {len(LENGTHS)} x {NEW_TOKENS} "
            f"tokens {greedy}."
        )


@torch.no_grad()
def compare_models(source: PreTrainedModel, model: PreTrainedModel, seed: int = 0) -> Comparison:
    """Compares the logits and the greedy outputs of two models for the same random input.

    The input has two rows, and the second one ends with padding. Both models are float32
    afterwards.

    Args:
        source: The source, in evaluation mode.
        model: The converted model, in evaluation mode.
        seed: Seed of the input.

    Returns:
        The result.
    """
    batch = _draw_batch(model.config, seed)
    target = batch.pop("decoder_input_ids")
    models: list[Any] = [source.float(), model.float()]
    # FSMT hides later tokens only if it fills no cache.
    calls: dict[str, Any] = {**batch, "decoder_input_ids": target, "use_cache": False}
    expected, found = (each(**calls).logits for each in models)
    outputs = [_generate_greedily(each, batch, use_cache=each is model) for each in models]
    return Comparison(
        source_class=type(source).__name__,
        difference=float((expected - found).abs().max()),
        largest=float(expected.abs().max()),
        equal_output=torch.equal(*outputs),
    )


def _generate_greedily(model: Any, batch: dict[str, torch.Tensor], use_cache: bool) -> torch.Tensor:
    """Generates without padding tokens, whose positions fairseq's models do not count.

    T5 cannot make a cache if its decoder has more layers than its encoder.
    """
    pad = model.config.pad_token_id
    suppressed = [*(model.generation_config.suppress_tokens or []), *([] if pad is None else [pad])]
    output: torch.Tensor = model.generate(
        **batch,
        max_length=NEW_TOKENS + 1,
        min_length=0,
        num_beams=1,
        do_sample=False,
        use_cache=use_cache,
        suppress_tokens=suppressed or None,
    )
    return output


def _draw_batch(config: Any, seed: int) -> dict[str, torch.Tensor]:
    """Draws a source with padding and a target without."""
    generator = torch.Generator().manual_seed(seed)
    limit = config.max_position_embeddings
    limit = limit if config.position_embedding_type == "learned" else max(LENGTHS)
    real = torch.arange(min(max(LENGTHS), limit)) < torch.tensor(LENGTHS)[:, None]
    pad = config.pad_token_id
    source = torch.randint(config.vocab_size, real.shape, generator=generator)
    shape = (len(LENGTHS), min(TARGET_LENGTH, limit))
    target = torch.randint(config.decoder_vocab_size, shape, generator=generator)
    if pad is not None:
        source = source.where(source != pad, (pad + 1) % config.vocab_size)
        target = target.where(target != pad, (pad + 1) % config.decoder_vocab_size)
        source = source.where(real, pad)
    return {
        "input_ids": source,
        "attention_mask": real.long(),
        "decoder_input_ids": target,
    }
