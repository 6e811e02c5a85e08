"""Compares a model with its source, or with its export, on random input."""

from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from vanilla_transformer.interop.probe import (
    SourceLogits,
    compute_outputs,
    is_within_tolerance,
    largest_difference,
    probe_inputs,
)
from vanilla_transformer.model.sharing import CODE_VERSION
from vanilla_transformer.search import start_token_of

NEW_TOKENS = 8


@dataclass(frozen=True)
class Comparison:
    """How far a model is from its source.

    Attributes:
        library: What computed the outputs of the source: library, version and class.
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
        close = is_within_tolerance(self.difference, self.expected)
        return close and self.equal_output is not False

    def describe(self) -> str:
        """Returns the result in one sentence."""
        found = "equal" if self.equal_output else "different"
        greedy = f", greedy output of {NEW_TOKENS} tokens {found}"
        return (
            f"Compared with {self.library} on random input in float32: largest difference of two "
            f"logits {self.difference:.1e} (largest logit {float(self.expected.abs().max()):.1f})"
            f"{'' if self.equal_output is None else greedy}."
        )


@torch.no_grad()
def compare_logits(
    model: Any, library: str, source_logits: SourceLogits, limit: int | None = None
) -> Comparison:
    """Compares the logits of a model with those of its source for the inputs of the probe.

    Args:
        library: Library, version and class of the source.
        source_logits: Computes the logits of the source.
        limit: Longest row in tokens. None: as many as the model's config says.
    """
    inputs = probe_inputs(model.config, limit)
    expected = source_logits(inputs).float()
    return Comparison(
        library, expected, largest_difference(compute_outputs(model, inputs), expected)
    )


@torch.no_grad()
def compare_models(source: PreTrainedModel, model: Any) -> Comparison:
    """Compares the logits and the greedy outputs of two models for the inputs of the probe.

    Args:
        source: The source, in evaluation mode. It is float32 afterwards.
        model: The other model, in evaluation mode. It is float32 afterwards.
    """
    source.float()
    model.float()

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
    if limit < 2:  # no room for the start and a token
        return compared
    batch = probe_inputs(model.config, limit)
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


@dataclass(frozen=True)
class Exported:
    """A model that was written in another format.

    Attributes:
        notes: What a user must know about the tokenizer, one sentence each.
    """

    class_name: str
    comparison: Comparison
    notes: tuple[str, ...] = ()
