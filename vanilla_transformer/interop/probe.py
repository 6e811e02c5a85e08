"""A probe: inputs and outputs of a model, stored beside its weights, that can be computed again.

The outputs come from the library that the model was converted from, if it could run, or else from
the model itself when it was saved. `verify_model` computes them again.
"""

import copy
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

import vanilla_transformer
from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.pretrained_model import PROBE_FILE
from vanilla_transformer.model.sharing import CODE_VERSION
from vanilla_transformer.search import start_token_of

TOLERANCE = 1e-4
"""Largest difference between equal outputs, in float32, relative to the largest output."""

OWN_SOURCE = "vanilla_transformer"
"""The source of a probe that the saved model computed itself."""

SourceLogits = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]
"""Computes logits with the source's own library, from the inputs that `probe_inputs` makes."""

_COLUMNS = 16
_SOURCE_LENS, _TARGET_LEN = (40, 7, 4), 12
NEW_TOKENS = 8


def probe_inputs(
    config: VanillaTransformerConfig, limit: int | None = None
) -> dict[str, torch.Tensor]:
    """Makes inputs for a model: a long row and two short ones, padded on the right.

    The same config always gives the same inputs.

    Args:
        limit: Longest row in tokens. None: `max_position_embeddings`.

    Returns:
        `input_ids` and `attention_mask`, of shape (3, source_len), and for a model with both stacks
        `decoder_input_ids`, of shape (3, target_len). No row has padding inside.
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
    inputs = {
        "input_ids": input_ids.masked_fill(attention_mask == 0, pad),
        "attention_mask": attention_mask,
    }
    if config.is_encoder_decoder:
        targets = draw(_TARGET_LEN, config.decoder_vocab_size or config.vocab_size)
        targets[:, 0] = config.decoder_start_token_id or 0
        inputs["decoder_input_ids"] = targets
    return inputs


@torch.no_grad()
def compute_outputs(model: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the logits of a model in float32 on the CPU, without dropout, or its last states.

    States of padding are zero in an encoder alone.
    """
    if model.dtype != torch.float32 or model.device.type != "cpu":
        model = copy.deepcopy(model).to("cpu", torch.float32)
    was_training = model.training
    outputs = model.train(False)(**inputs)
    model.train(was_training)
    computed: torch.Tensor = outputs["logits" if "logits" in outputs else "last_hidden_state"]
    if computed.dim() == 3 and "decoder_input_ids" not in inputs:
        computed = computed * inputs["attention_mask"][..., None]
    return computed.float()


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


# Storing and verifying ---------------------------------------------------------------------------


def store_probe(
    directory: str | Path, expected: torch.Tensor | None = None, source: str = OWN_SOURCE
) -> Path:
    """Stores a probe beside a saved model; without outputs of its source, it computes its own."""
    model = _load_saved(directory)
    inputs = probe_inputs(model.config)
    outputs = compute_outputs(model, inputs) if expected is None else expected.float()
    content = {
        "source": source,
        "inputs": {name: tensor.tolist() for name, tensor in inputs.items()},
        "outputs": _summarize(outputs).tolist(),
    }
    path = Path(directory) / PROBE_FILE
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")
    return path


def verify_model(directory: str | Path) -> Comparison:
    """Computes the probe of a saved model again."""
    probe = read_object(Path(directory) / PROBE_FILE)
    inputs = {name: torch.tensor(rows) for name, rows in probe["inputs"].items()}
    computed = _summarize(compute_outputs(_load_saved(directory), inputs))
    return _compare(probe["source"], computed, torch.tensor(probe["outputs"]))


def _summarize(outputs: torch.Tensor) -> torch.Tensor:
    """Returns some columns of the outputs, and one number about all of them as the last column."""
    count = outputs.shape[-1]
    columns = torch.linspace(0, count - 1, min(_COLUMNS, count)).long()
    return torch.cat((outputs[..., columns], outputs.logsumexp(-1, keepdim=True)), -1)


def _load_saved(directory: str | Path) -> Any:
    """Loads a saved model of any of the package's classes."""
    config = VanillaTransformerConfig.from_pretrained(directory)
    name = (config.architectures or ["VanillaTransformerForConditionalGeneration"])[0]
    return getattr(vanilla_transformer, name).from_pretrained(directory, dtype=torch.float32)


# Comparing two models ----------------------------------------------------------------------------


def _compare(library: str, computed: torch.Tensor, expected: torch.Tensor) -> Comparison:
    """Compares outputs; where shapes differ, or a value is no number, by infinity."""
    if computed.shape != expected.shape:
        return Comparison(library, expected, math.inf)
    differences = torch.where(computed == expected, 0.0, (computed - expected).abs())
    return Comparison(library, expected, float(differences.nan_to_num(nan=math.inf).max()))


@torch.no_grad()
def compare_logits(
    model: Any, library: str, source_logits: SourceLogits, limit: int | None = None
) -> Comparison:
    """Compares the logits of a model and its source for the inputs of the probe."""
    inputs = probe_inputs(model.config, limit)
    return _compare(library, compute_outputs(model, inputs), source_logits(inputs).float())


@torch.no_grad()
def compare_models(source: PreTrainedModel, model: Any) -> Comparison:
    """Compares the logits and the greedy outputs of two models for the inputs of the probe.

    Both are in evaluation mode; they are float32 afterwards.
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
