"""Converts a model of another system: read, compare, save with a card.

A reader of `interop.formats.SOURCES` reads the source and matches its weights; all further steps
are the same for every source.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from vanilla_transformer.files.atomic_files import check_output_directory, replaced_directory
from vanilla_transformer.interop.comparison import Comparison, compare_logits, compare_models
from vanilla_transformer.interop.formats import SOURCES, Imported
from vanilla_transformer.interop.tokenizers import save_tokenizer
from vanilla_transformer.model.sharing import current_versions


def convert(
    kind: str, source: str | Path, output_dir: str | Path, overwrite: bool = False, **options: Any
) -> Imported:
    """Converts a model, saves it with its tokenizer and a card, and compares both models.

    A model or a tokenizer that computes something else than the source is an error, after which
    the output directory is as it was.

    Args:
        kind: Name of the source's format: a key of `interop.formats.SOURCES`.
        source: File or directory of the source, or its name on the Hub.

    Returns:
        The model as it was loaded from its directory, in float32, with the comparison.
    """
    paths = [source, *options.values(), *(options.get("vocabularies") or ())]
    read_from = [str(path) for path in paths if isinstance(path, str | Path)]
    check_output_directory(str(output_dir), overwrite, read_from)
    imported = SOURCES[kind].load()(source, **options)
    with replaced_directory(output_dir) as folder:
        imported.model.save_pretrained(folder)
        if imported.tokenizer is not None:
            save_tokenizer(imported.tokenizer, folder)
        # Only one of both models stays in memory.
        imported = replace(imported, model=type(imported.model).from_pretrained(folder))
        imported = compare_with_source(imported)
        auto_class = "AutoModelForSeq2SeqLM" if hasattr(imported.model, "lm_head") else "AutoModel"
        versions = ", ".join(f"{name} {number}" for name, number in current_versions().items())
        write_card(
            folder,
            source,
            title="converted",
            text=f"`vanilla-transformer convert --from {kind}` made this model from "
            f"`{name_of(source)}`. It is a vanilla Transformer "
            '("Attention Is All You Need", Vaswani et al. 2017) with '
            f"{imported.model.num_parameters():,} parameters.",
            auto_class=auto_class,
            proof=imported.outcome,
            notes=[*imported.notes, f"Versions: {versions}."],
            tag=f"converted-from-{kind}",
        )
    return imported


def compare_with_source(imported: Imported) -> Imported:
    """Runs source and model on random input."""
    if imported.source_model is not None:
        compared = compare_models(imported.source_model, imported.model)
    elif imported.source_logits is None:
        outcome = "The source was not run: the model is not compared with it."
        return replace(imported, outcome=outcome)
    else:
        try:
            compared = compare_logits(imported.model, imported.library, imported.source_logits)
        except Exception as error:  # of the source's library, which may be of another version
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            outcome = f"{imported.library} could not run the source ({reason})."
            return replace(imported, outcome=outcome)
    check_agreement(compared)
    return replace(imported, comparison=compared, outcome=compared.describe())


def check_agreement(compared: Comparison) -> None:
    """Raises an error if a model computes something else than its source."""
    if not compared.agrees:
        raise ValueError(
            f"The model differs from its source. {compared.describe()} Check the options that the "
            "weights do not show, such as the number of heads, the positions and the placement of "
            "norms."
        )


def name_of(source: str | Path) -> str:
    """Returns the name of a model on the Hub, or the last part of a path."""
    return Path(source).resolve().name if Path(source).exists() else str(source)


def write_card(
    folder: str | Path,
    source: str | Path,
    *,
    title: str,
    text: str,
    proof: str,
    tag: str,
    notes: Sequence[str] = (),
    auto_class: str = "AutoModelForSeq2SeqLM",
    needs_code: bool = True,
) -> None:
    """Writes README.md of a converted or exported model, with a tag of the conversion."""
    data = ModelCardData(
        library_name="transformers",
        base_model=None if Path(source).exists() else str(source),
        tags=["vanilla-transformer", "encoder-decoder", tag],
    )
    listed = "".join(f"- {note}\n" for note in notes)
    trust = ", trust_remote_code=True" if needs_code else ""
    content = f"""---
{data.to_yaml()}
---

# {name_of(source)}, {title}

{text}

```python
from transformers import {auto_class}, AutoTokenizer

path = "{Path(folder).name}"
model = {auto_class}.from_pretrained(path{trust})
tokenizer = AutoTokenizer.from_pretrained(path{trust})
```

## Proof

{proof}

{listed}"""
    ModelCard(content).save(Path(folder) / "README.md")
