"""Writes a model as a class of transformers itself, which needs neither this package nor its code.

`EXITS` names the classes. Each has the rewrites that turn more models into ones that the class
computes. The first class that then computes every field of a model is chosen; if none does, the
error lists the fields in the way of the nearest one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, ModelCardData
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from vanilla_transformer.interop import exact_rewrites as rewrites
from vanilla_transformer.interop.bart import BART
from vanilla_transformer.interop.blenderbot import BLENDERBOT
from vanilla_transformer.interop.comparison import LENGTHS, Comparison, compare_models
from vanilla_transformer.interop.exact_rewrites import Draft, Rewrite, build_model, draft_of
from vanilla_transformer.interop.families import (
    Family,
    copy_generation_config,
    export_model,
    find_fields_in_the_way,
)
from vanilla_transformer.interop.fsmt import FSMT
from vanilla_transformer.interop.hf_tokenizer import save_plain_tokenizer
from vanilla_transformer.interop.m2m100 import M2M100
from vanilla_transformer.interop.marian import MARIAN
from vanilla_transformer.interop.mbart import MBART
from vanilla_transformer.interop.pegasus import PEGASUS
from vanilla_transformer.interop.t5 import T5
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)


@dataclass(frozen=True)
class Exit:
    """A class of transformers that a model can leave for.

    Attributes:
        family: The class, and how its options and weights are named.
        rewrites: What is rewritten before, in this order.
        output_bias: Whether the class has a bias on the logits.
        counts_tokens: Whether it computes positions from the ids, so that a padding token among
            the decoder's tokens has none.
        counts_padding: Whether padding on the left takes positions; in our models it does not.
        deep_decoder: Whether the class can keep a cache if its decoder has more layers than its
            encoder.
    """

    family: Family
    rewrites: tuple[Rewrite, ...]
    output_bias: bool = True
    counts_tokens: bool = False
    counts_padding: bool = True
    deep_decoder: bool = True


_ANY_CLASS = (
    rewrites.repeat_key_value_heads,
    rewrites.fold_residual_scale,
    rewrites.drop_zero_output_bias,
)
_LIKE_BART = (
    *_ANY_CLASS,
    rewrites.fold_attention_scale(None),
    rewrites.fold_logit_scale,
    rewrites.add_zero_biases,
)
_LIKE_T5 = (
    *_ANY_CLASS,
    rewrites.fold_attention_scale(1.0),
    rewrites.fold_embedding_scale,
    rewrites.drop_zero_biases,
    rewrites.add_zero_relative_biases,
    rewrites.leave_end_to_generation,
)
EXITS = (
    Exit(MARIAN, (*_LIKE_BART, rewrites.split_waves)),
    Exit(PEGASUS, (*_LIKE_BART, rewrites.split_waves)),
    Exit(FSMT, _LIKE_BART, output_bias=False, counts_tokens=True, counts_padding=False),
    Exit(M2M100, _LIKE_BART, output_bias=False, counts_tokens=True, counts_padding=False),
    Exit(BART, (*_LIKE_BART, rewrites.tabulate_positions(2))),
    Exit(MBART, (*_LIKE_BART, rewrites.tabulate_positions(2))),
    Exit(BLENDERBOT, (*_LIKE_BART, rewrites.tabulate_positions(0))),
    Exit(T5, _LIKE_T5, output_bias=False, counts_padding=False, deep_decoder=False),
)
"""The classes, in the order in which they are tried."""


_PADDING = """Pad sources on the right: this class counts padding on the left as positions, the
original does not."""


@dataclass(frozen=True)
class ExportedModel:
    """A model that was written as a class of transformers.

    Attributes:
        class_name: Name of the class.
        comparison: How far it is from its source.
        tokenizer_notes: What a user must know about the tokenizer, one sentence each.
    """

    class_name: str
    comparison: Comparison
    tokenizer_notes: tuple[str, ...]


def to_transformers(
    model: VanillaTransformerForConditionalGeneration, positions: int | None = None
) -> PreTrainedModel:
    """Converts a model into the class of transformers that computes the same.

    Args:
        model: The model. It does not change.
        positions: Longest source and target in tokens, for sinusoids, of which the classes store a
            table. None: `max_position_embeddings` of the model.

    Returns:
        A model in evaluation mode, on the CPU, with the type of the model's weights if that holds
        the rewritten ones and the sinusoids exactly, otherwise in float32.

    Raises:
        ValueError: If no class computes the model, with the fields in the way of the nearest one;
            or if `positions` is too small, or is given for learned positions.
    """
    chosen, draft = _choose_exit(_with_limit(draft_of(model), positions))
    rewritten = build_model(draft)
    rewritten.generation_config = copy_generation_config(model)
    exported = export_model(chosen.family, rewritten)
    values = [*exported.parameters(), *exported.buffers()]
    if all(torch.equal(value.to(model.dtype).to(value), value) for value in values):
        exported.type(model.dtype)
    return exported


def export_to_transformers(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: Any,
    output_dir: str | Path,
    name: str,
    positions: int | None = None,
) -> ExportedModel:
    """Writes a model and its tokenizer as classes of transformers, and compares both models.

    Args:
        model: The model. It is in float32 afterwards.
        tokenizer: Its tokenizer. None: it has none.
        output_dir: Directory to write.
        name: Name of the model, for the card.
        positions: As in `to_transformers`.

    Returns:
        What was written, and the comparison.

    Raises:
        ValueError: As `to_transformers`, or if what was written computes something else.
    """
    to_transformers(model, positions).save_pretrained(output_dir)
    notes = () if tokenizer is None else save_plain_tokenizer(tokenizer, output_dir)
    load: Any = AutoModelForSeq2SeqLM.from_pretrained
    comparison = compare_models(load(output_dir), model)
    if not comparison.agrees:
        raise ValueError(f"The exported model differs from {name!r}. {comparison.describe()}")
    write_card(name, output_dir, comparison, notes)
    return ExportedModel(comparison.source_class, comparison, notes)


def find_problems(exit_: Exit, draft: Draft) -> list[str]:
    """Lists what hinders a class from computing a rewritten model, one sentence each.

    Args:
        exit_: The class.
        draft: The model, rewritten for the class.

    Returns:
        The sentences, sorted.
    """
    fields, kind = draft.fields, exit_.family.kind
    problems = []
    if fields["lm_head_bias"] and not exit_.output_bias:
        problems.append(f"`lm_head_bias` is True, but {kind} computes False")
    if any(".feed_forward.activation." in name for name in draft.weights):
        activation = fields["activation_function"]
        problems.append(f"`activation_function` is {activation!r}, which has trained weights")
    layers = fields["encoder_layers"], fields["decoder_layers"]
    if layers[0] < layers[1] and not exit_.deep_decoder:
        problems.append(
            f"`decoder_layers` is {layers[1]}, but {kind} keeps a cache only up to the number of "
            f"`encoder_layers`, {layers[0]}"
        )
    if exit_.counts_tokens:
        pad, start = fields["pad_token_id"], fields["decoder_start_token_id"]
        if pad is None:
            return [*problems, f"`pad_token_id` is None, but {kind} counts positions from it"]
        if pad == start:
            problems.append(
                f"`decoder_start_token_id` is {start}, the padding token, whose position {kind} "
                "does not count"
            )
    config = VanillaTransformerConfig(**fields)
    return sorted([*problems, *find_fields_in_the_way(exit_.family, config)])


def write_card(
    name: str, output_dir: str | Path, comparison: Comparison, notes: tuple[str, ...] = ()
) -> None:
    """Writes README.md: which model this was, its class, and the comparison.

    Args:
        name: Name of the model. The card names the last part of a directory only.
        output_dir: Directory of the exported model.
        comparison: How far it is from its source.
        notes: Sentences on the tokenizer.
    """
    is_directory = Path(name).is_dir()
    title = Path(name).resolve().name if is_directory else name
    data = ModelCardData(
        library_name="transformers",
        base_model=None if is_directory else title,
        tags=["encoder-decoder", "exported-from-vanilla-transformer"],
    )
    listed = "".join(f"\n- {note}" for note in notes)
    warned = {one.family.model_class.__name__ for one in EXITS if one.counts_padding}
    padding = f"\n{_PADDING}" if comparison.source_class in warned else ""
    tokenizer = f"\n## Tokenizer\n{listed}\n" if notes else ""
    text = f"""---
{data.to_yaml()}
---

# {title}, without code

`vanilla-transformer export --to hf` wrote `{title}` as a `{comparison.source_class}` of
transformers. It computes the same function and generates with the same settings. It needs neither
the package `vanilla_transformer` nor `trust_remote_code`.{padding}

```python
from transformers import AutoModelForSeq2SeqLM

model = AutoModelForSeq2SeqLM.from_pretrained("{Path(output_dir).name}")
```
{tokenizer}
## Proof

{comparison.describe()}
"""
    ModelCard(text).save(Path(output_dir) / "README.md")


def _choose_exit(draft: Draft) -> tuple[Exit, Draft]:
    """Returns the first class without problems, and the model rewritten for it."""
    found: list[tuple[Exit, list[str]]] = []
    for exit_ in EXITS:
        rewritten = draft
        for rewrite in exit_.rewrites:
            rewritten = rewrite(rewritten)
        if not (problems := find_problems(exit_, rewritten)):
            return exit_, rewritten
        found.append((exit_, problems))
    nearest, problems = min(found, key=lambda pair: len(pair[1]))
    listed = "".join(f"\n- {problem}" for problem in problems)
    raise ValueError(
        "No class of transformers computes this model. The nearest is "
        f"{nearest.family.model_class.__name__}, and {len(problems)} field(s) stand in the way:"
        f"{listed}"
    )


def _with_limit(draft: Draft, positions: int | None) -> Draft:
    """Sets the number of positions that a table of sinusoids holds."""
    if positions is None:
        return draft
    if draft.fields["position_embedding_type"] == "learned":
        raise ValueError(
            f"`positions` is {positions}, but learned positions are as many as "
            "`max_position_embeddings` says: leave it out."
        )
    if positions < max(LENGTHS):
        raise ValueError(
            f"`positions` is {positions}: give at least {max(LENGTHS)}, the length of the input on "
            "which both models are compared."
        )
    return draft.with_fields(max_position_embeddings=positions)
