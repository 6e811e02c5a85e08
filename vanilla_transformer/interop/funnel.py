"""Converts a model of another system: read, compare, save with a probe and a card.

A reader of `interop.formats.SOURCES` reads the source and matches its weights; what follows is the
same for every source.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from transformers import PreTrainedModel

from vanilla_transformer.data.atomic_files import replaced_directory
from vanilla_transformer.interop.formats import SOURCES
from vanilla_transformer.interop.probe import (
    OWN_SOURCE,
    Comparison,
    SourceLogits,
    compare_logits,
    compare_models,
    store_probe,
)
from vanilla_transformer.interop.tokenizers import save_tokenizer
from vanilla_transformer.model.sharing import current_versions


@dataclass(frozen=True)
class Imported:
    """A model that was read from another system.

    Attributes:
        tokenizer: Its tokenizer. None: the source has none.
        library: Name and version of the library that `source_logits` runs.
        source_logits: Computes the logits of the source. None: its library cannot run.
        source_model: The source, if it is a model of transformers: its greedy output is compared.
        notes: Sentences for the model card and the user.
        comparison: How far the saved model is from its source. None: not saved, or not compared.
        outcome: A sentence on the comparison, once the model is saved. Before: why the source does
            not run; empty: it does, or nothing more is to be said.
    """

    model: Any
    tokenizer: Any = None
    library: str = ""
    source_logits: SourceLogits | None = None
    source_model: PreTrainedModel | None = None
    notes: tuple[str, ...] = field(default=())
    comparison: Comparison | None = None
    outcome: str = ""


def convert(
    kind: str, source: str | Path, output_dir: str | Path, overwrite: bool = False, **options: Any
) -> Imported:
    """Converts a model, saves it with its tokenizer, a probe and a card, and compares both models.

    Args:
        kind: Name of the source's format: a key of `interop.formats.SOURCES`.
        source: File or directory of the source, or its name on the Hub.
        output_dir: Directory of the new model. After an error it is as it was.
        overwrite: Whether the new model may replace what is in that directory.
        **options: Options of the format.

    Returns:
        The model as it was loaded from its directory, in float32, with the comparison.

    Raises:
        OSError: If there is no such source.
        ModuleNotFoundError: If a package is missing that the tokenizer needs.
        ValueError: If the directory is not empty, if the source is of another kind, if its weights
            do not fit, or if it has an option that no config here expresses. One error lists all of
            them. Also if the new model or its tokenizer computes something else than the source.
    """
    if kind not in SOURCES:
        raise ValueError(f"There is no `kind` {kind!r}: choose one of {list(SOURCES)}.")
    output = Path(output_dir)
    if not overwrite and output.exists() and (output.is_file() or any(output.iterdir())):
        raise ValueError(f"`output_dir` {str(output)!r} is not empty: choose another directory.")
    imported = SOURCES[kind].load()(source, **options)
    with replaced_directory(output) as unfinished:
        imported = save_imported(imported, unfinished)  # only one of both models stays in memory
        return prove_imported(imported, kind, source, unfinished)


def save_imported(imported: Imported, folder: str | Path) -> Imported:
    """Saves a model with its tokenizer.

    Raises:
        ValueError: If the saved tokenizer differs from that of the source.
    """
    imported.model.save_pretrained(folder)
    if imported.tokenizer is not None:
        save_tokenizer(imported.tokenizer, folder)
    return replace(imported, model=type(imported.model).from_pretrained(folder))


def prove_imported(
    imported: Imported, kind: str, source: str | Path, folder: str | Path
) -> Imported:
    """Compares a saved model with its source, and writes a probe and a card.

    Args:
        source: What was converted. The card names the last part of a path only.

    Raises:
        ValueError: If the source and what was saved compute different logits.
    """
    imported = compare_with_source(imported)
    compared = imported.comparison
    store_probe(
        imported.model,
        folder,
        None if compared is None else compared.expected,
        OWN_SOURCE if compared is None else compared.library,
    )
    is_path = Path(source).exists()
    name = Path(source).resolve().name if is_path else str(source)
    auto_class = "AutoModelForSeq2SeqLM" if hasattr(imported.model, "lm_head") else "AutoModel"
    versions = ", ".join(f"{name} {number}" for name, number in current_versions().items())
    write_card(
        folder,
        title=f"{name}, converted",
        text=f"`vanilla-transformer convert --from {kind}` made this model from `{name}`. It is a "
        'vanilla Transformer ("Attention Is All You Need", Vaswani et al. 2017) with '
        f"{imported.model.num_parameters():,} parameters.",
        load=f"""\
from transformers import {auto_class}, AutoTokenizer

path = "{Path(folder).name}"
model = {auto_class}.from_pretrained(path, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=True)""",
        proof=f"{imported.outcome} `vanilla-transformer verify` computes the stored probe again.",
        notes=[*imported.notes, f"Versions: {versions}."],
        base_model=None if is_path else name,
        tag=f"converted-from-{kind}",
    )
    return imported


def compare_with_source(imported: Imported) -> Imported:
    """Runs source and model on random input.

    Raises:
        ValueError: If the logits differ.
    """
    if imported.source_model is not None:
        compared = compare_models(imported.source_model, imported.model)
    elif imported.source_logits is None:
        outcome = "The source was not run: the model is not compared with it."
        return replace(imported, outcome=imported.outcome or outcome)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the source's library, about its own ways
            try:
                compared = compare_logits(imported.model, imported.library, imported.source_logits)
            except Exception as error:  # of the source's library, which may be of another version
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                outcome = f"{imported.library} could not run the source ({reason})."
                return replace(imported, outcome=outcome)
    check_agreement(compared)
    return replace(imported, comparison=compared, outcome=compared.describe())


def check_agreement(compared: Comparison) -> None:
    """Raises an error if a model computes something else than its source.

    Raises:
        ValueError: If the logits or the outputs differ.
    """
    if not compared.agrees:
        raise ValueError(
            f"The model differs from its source. {compared.describe()} Check the options that the "
            "weights do not show, such as the number of heads, the positions and the placement of "
            "norms."
        )


def write_card(
    output_dir: str | Path,
    *,
    title: str,
    text: str,
    load: str,
    proof: str,
    notes: Sequence[str] = (),
    base_model: str | None = None,
    tag: str,
) -> None:
    """Writes README.md of a converted or exported model.

    Args:
        text: Where the model comes from.
        load: Lines of Python that load it.
        proof: How far it is from its source.
        notes: Sentences on what a user must know.
        base_model: Name of the source on the Hub. None: it is not there.
        tag: Tag of the conversion, beside "vanilla-transformer" and "encoder-decoder".
    """
    data = ModelCardData(
        library_name="transformers",
        base_model=base_model,
        tags=["vanilla-transformer", "encoder-decoder", tag],
    )
    listed = "".join(f"- {note}\n" for note in notes)
    content = f"""---
{data.to_yaml()}
---

# {title}

{text}

```python
{load}
```

## Proof

{proof}

{listed}"""
    ModelCard(content).save(Path(output_dir) / "README.md")
