"""Converts models of transformers' own classes into directories for the Auto classes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import ModelCard, ModelCardData
from transformers import AutoConfig, PreTrainedModel

from vanilla_transformer.interop.bart import BART
from vanilla_transformer.interop.blenderbot import BLENDERBOT
from vanilla_transformer.interop.comparison import Comparison, compare_models
from vanilla_transformer.interop.families import Family, import_model, raise_problems
from vanilla_transformer.interop.fsmt import FSMT
from vanilla_transformer.interop.m2m100 import M2M100
from vanilla_transformer.interop.marian import MARIAN
from vanilla_transformer.interop.mbart import MBART
from vanilla_transformer.interop.pegasus import PEGASUS
from vanilla_transformer.interop.probe import probe_inputs, store_probe
from vanilla_transformer.interop.t5 import MT5, T5
from vanilla_transformer.interop.tokenizers import load_tokenizer, save_tokenizer
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

KINDS: dict[str, tuple[Family, ...]] = {
    "marian": (MARIAN,),
    "pegasus": (PEGASUS,),
    "bart": (BART,),
    "mbart": (MBART,),
    "blenderbot": (BLENDERBOT,),
    "fsmt": (FSMT,),
    "m2m100": (M2M100,),
    "nllb": (M2M100,),
    "t5": (T5, MT5),
}
"""The families by name on the command line."""

TOKENIZER_PACKAGES = {"fsmt": ("sacremoses",), "bart": (), "blenderbot": ()}
"""Modules that the tokenizers of some kinds may need; of the others: sentencepiece."""


@dataclass(frozen=True)
class ConvertedModel:
    """A model that was converted and saved.

    Attributes:
        model: The model, as it was loaded from its directory, in float32.
        comparison: How far it is from its source.
        tokenizer_class: Class of its tokenizer. None: the source has no tokenizer.
    """

    model: VanillaTransformerForConditionalGeneration
    comparison: Comparison
    tokenizer_class: str | None


def convert_model(kind: str, source: str | Path, output_dir: str | Path) -> ConvertedModel:
    """Converts a model of transformers, saves it with its tokenizer, and compares both models.

    Args:
        kind: Key of `KINDS`.
        source: Directory of the model, or its name on the Hub.
        output_dir: Directory of the new model. Its README.md holds the comparison.

    Returns:
        The new model and the comparison.

    Raises:
        OSError: If there is no such model.
        ModuleNotFoundError: If a package is missing that the tokenizer needs.
        ValueError: If the source is of another kind, if its weights do not fit, or if it has an
            option that no config here expresses. One error lists all of them. Also if the new model
            or its tokenizer computes something else than the source.
    """
    family = _find_family(kind, source)
    tokenizer = load_tokenizer(source, TOKENIZER_PACKAGES.get(kind, ("sentencepiece",)))
    theirs = load_source(family, source)
    import_model(family, theirs).save_pretrained(output_dir)
    tokenizer_class = None if tokenizer is None else save_tokenizer(tokenizer, output_dir)
    model = VanillaTransformerForConditionalGeneration.from_pretrained(output_dir)
    comparison = compare_models(theirs, model)
    if not comparison.agrees:
        raise ValueError(f"The converted model differs from its source. {comparison.describe()}")
    converted = ConvertedModel(model, comparison, tokenizer_class)
    write_card(kind, source, output_dir, converted)
    _store_probe_of_source(theirs, model, output_dir)
    return converted


def _store_probe_of_source(theirs: Any, model: Any, output_dir: str | Path) -> None:
    """Stores what the source computes, so that `vanilla-transformer verify` can compare it."""
    inputs = probe_inputs(model.config)
    with torch.no_grad():
        expected = theirs(**inputs, use_cache=False).logits  # with a cache, FSMT has no causal mask
    library = f"transformers {transformers.__version__}, {type(theirs).__name__}"
    store_probe(model, output_dir, expected, library)


def load_source(family: Family, source: str | Path) -> PreTrainedModel:
    """Loads a model of a family. Code that the files may hold is never run.

    Args:
        family: The family.
        source: Directory of the model, or its name on the Hub.

    Returns:
        The model in evaluation mode, with the types of its weights.

    Raises:
        OSError: If there is no such model.
        ValueError: If weights are missing or left over, or cannot be read.
    """
    load: Any = family.model_class.from_pretrained
    try:
        model, info = load(source, output_loading_info=True, weights_only=True)
    except (OSError, ValueError):
        raise
    except Exception as error:  # the unpickler raises errors of any type on bytes of any kind
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(
            f"The weights of {str(source)!r} cannot be read; code in a checkpoint is never run, so "
            f"save the model as safetensors ({reason})"
        ) from error
    problems = [f"`{name}` is missing" for name in sorted(info["missing_keys"])]
    problems += [f"`{name}` is left over" for name in sorted(info["unexpected_keys"])]
    problems += [f"`{name}` has another shape" for name, *_ in sorted(info["mismatched_keys"])]
    raise_problems(family, problems)
    loaded: PreTrainedModel = model
    return loaded


def write_card(
    kind: str, source: str | Path, output_dir: str | Path, converted: ConvertedModel
) -> None:
    """Writes README.md: where the model comes from, how to load it, and the comparison.

    Args:
        kind: Key of `KINDS`.
        source: Directory of the source, or its name on the Hub. The card names the last part of a
            directory only.
        output_dir: Directory of the new model.
        converted: The new model and the comparison.
    """
    comparison = converted.comparison
    has_tokenizer = converted.tokenizer_class is not None
    is_directory = Path(source).is_dir()
    name = Path(source).resolve().name if is_directory else str(source)
    data = ModelCardData(
        library_name="transformers",
        base_model=None if is_directory else name,
        tags=["vanilla-transformer", "encoder-decoder", f"converted-from-{kind}"],
    )
    text = f"""---
{data.to_yaml()}
---

# {name}, converted

`vanilla-transformer convert --from {kind}` made this model from `{name}`, a
`{comparison.source_class}`. It computes the same function, and generates with the same settings.

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

path = "{Path(output_dir).name}"
model = AutoModelForSeq2SeqLM.from_pretrained(path, trust_remote_code=True)
{"tokenizer = AutoTokenizer.from_pretrained(path)" if has_tokenizer else "# no tokenizer yet"}
```

## Proof

{comparison.describe()}
"""
    ModelCard(text).save(Path(output_dir) / "README.md")


def _find_family(kind: str, source: str | Path) -> Family:
    """Returns the family of a kind that the config of a source belongs to."""
    if kind not in KINDS:
        raise ValueError(f"There is no `kind` {kind!r}: choose one of {list(KINDS)}.")
    model_type = AutoConfig.from_pretrained(source, trust_remote_code=False).model_type
    for family in KINDS[kind]:
        if family.config_class.model_type == model_type:
            return family
    fitting = [
        name
        for name, families in KINDS.items()
        if model_type in {each.config_class.model_type for each in families}
    ]
    raise ValueError(
        f"{str(source)!r} holds a model of the type {model_type!r}, not {kind!r}: choose "
        + (" or ".join(map(repr, fitting)) if fitting else f"a model of one of {list(KINDS)}")
        + "."
    )
