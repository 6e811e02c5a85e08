"""A converted model: compared with its source, then saved with a probe and a card."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.interop.probe import (
    OWN_SOURCE,
    compute_outputs,
    is_within_tolerance,
    largest_difference,
    probe_inputs,
    store_probe,
)
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.versions import current_versions

SourceLogits = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]
"""Computes logits with the source's own library, from the inputs that `probe_inputs` makes."""


@dataclass(frozen=True)
class Imported:
    """A converted model that is not saved yet.

    Attributes:
        model: The model, in evaluation mode.
        kind: Kind of the source: a name in `interop.kinds.IMPORTERS`.
        source: The file or directory that was converted.
        tokenizer: Its tokenizer, if the source has one.
        library: Name and version of the library that `source_logits` runs.
        source_logits: Computes the logits of the source; None if its library cannot run.
        notes: Sentences for the model card.
    """

    model: Any
    kind: str
    source: str
    tokenizer: Any = None
    library: str = ""
    source_logits: SourceLogits | None = None
    notes: tuple[str, ...] = field(default=())


def build_model(
    config: VanillaTransformerConfig, weights: Mapping[str, torch.Tensor]
) -> VanillaTransformerForConditionalGeneration:
    """Builds a model with given weights, in float32 and in evaluation mode.

    Args:
        config: The config.
        weights: All weights by name. Weights in half precision become float32, which is exact.
    """
    with torch.random.fork_rng():
        model = VanillaTransformerForConditionalGeneration(config)
    model.load_state_dict(weights)
    model.train(False)
    return model


def save_imported(imported: Imported, output_dir: str | Path) -> str:
    """Compares a converted model with its source, and saves it with a probe and a card.

    Args:
        imported: The model.
        output_dir: Directory of the saved model.

    Returns:
        A sentence on the comparison.

    Raises:
        ValueError: If source and model compute different logits. Nothing is saved then.
    """
    expected, comparison = compare_with_source(imported)
    folder = Path(output_dir)
    imported.model.save_pretrained(folder)
    if imported.tokenizer is not None:
        imported.tokenizer.save_pretrained(folder)
    library = OWN_SOURCE if expected is None else imported.library
    store_probe(imported.model, folder, expected, library)
    (folder / "README.md").write_text(_write_card(imported, comparison), encoding="utf-8")
    return comparison


def compare_with_source(imported: Imported) -> tuple[torch.Tensor | None, str]:
    """Runs source and model on random input.

    Args:
        imported: The model.

    Returns:
        The logits of the source, of shape (batch, target_len, vocab), or None if its library is not
        there or fails, and a sentence on the comparison.

    Raises:
        ValueError: If the logits differ.
    """
    if imported.source_logits is None:
        return None, "The source was not run: the model is not compared with it."
    inputs = probe_inputs(imported.model.config)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the source's library, about its own ways
        try:
            expected = imported.source_logits(inputs).float()
        except Exception as error:  # of the source's library, which may be of another version
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            return None, f"{imported.library} could not run the source ({reason})."
    difference = largest_difference(compute_outputs(imported.model, inputs), expected)
    if not is_within_tolerance(difference, expected):
        raise ValueError(
            f"{imported.library} and the converted model differ on random input by up to "
            f"{difference:.3g}: check the options that the weights do not show, such as the number "
            "of heads, the positions and the placement of norms."
        )
    return expected, (
        f"On random input, the logits differ by at most {difference:.2g} from those of "
        f"{imported.library}."
    )


def _write_card(imported: Imported, comparison: str) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in current_versions().items())
    notes = "".join(f"- {note}\n" for note in imported.notes)
    return f"""---
library_name: transformers
tags:
- vanilla_transformer
- encoder-decoder
---

# A converted model

This model is a vanilla encoder-decoder Transformer ("Attention Is All You Need", Vaswani et al.
2017) with {imported.model.num_parameters():,} parameters. The package `vanilla-transformer`
converted it from `{Path(imported.source).name}`, a checkpoint of the kind `{imported.kind}`.

## Check of the conversion

{comparison} `vanilla-transformer verify` computes the stored probe again.

Versions: {versions}.

{notes}
## Use

```python
from transformers import AutoModelForSeq2SeqLM

model = AutoModelForSeq2SeqLM.from_pretrained("path", trust_remote_code=True)
```

`trust_remote_code=True` runs the model code that is stored beside the weights. If the package is
installed, `import vanilla_transformer` replaces it.
"""
