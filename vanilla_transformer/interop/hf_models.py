"""Models of transformers' own classes: from and to them, in memory and as directories.

`FAMILIES` names the classes. A model is written as the first class that, after its rewrites,
computes every field of the model; if none does, the error lists the fields in the way of the
nearest one.
"""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from vanilla_transformer.interop.checkpoint_files import reason_of
from vanilla_transformer.interop.comparison import Comparison, compare_models
from vanilla_transformer.interop.formats import KINDS, Imported
from vanilla_transformer.interop.funnel import check_agreement, name_of, write_card
from vanilla_transformer.interop.hf_families import FAMILIES
from vanilla_transformer.interop.hf_mapping import (
    Family,
    copy_generation_config,
    export_model,
    find_fields_in_the_way,
    import_model,
)
from vanilla_transformer.interop.tokenizers import load_tokenizer, save_plain_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.tokenizer_sides import unnamed_ids
from vanilla_transformer.weights.exact_rewrites import ModelState, state_of
from vanilla_transformer.weights.match_weights import raise_problems

_FORCED_TOKENS = ("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids", "suppress_tokens")
"""Settings of `generate()` that old configs hold, and that change the outputs."""

# From transformers -------------------------------------------------------------------------------


def read_hf_model(source: str | Path, kind: str) -> Imported:
    """Reads a model of transformers, with its tokenizer: see `interop.formats`."""
    model_type = AutoConfig.from_pretrained(source, trust_remote_code=False).model_type
    if KINDS.get(model_type) != ("m2m100" if kind == "nllb" else kind):
        raise ValueError(f"{str(source)!r} holds a model of the type {model_type!r}, not {kind!r}.")
    family, tokenizer = FAMILIES[model_type], load_tokenizer(source)
    theirs = _load_source(family, source)
    written, _ = PreTrainedConfig.get_config_dict(source)
    notes = tuple(
        f"`{name}` {written[name]} of config.json is left out, as transformers does beside a "
        "generation_config.json without it."
        for name in _FORCED_TOKENS
        if written.get(name) is not None and getattr(theirs.generation_config, name, None) is None
    )
    return Imported(import_model(family, theirs), tokenizer, source_model=theirs, notes=notes)


def from_transformers(source: PreTrainedModel) -> VanillaTransformerForConditionalGeneration:
    """Converts a model of a class in `FAMILIES` in memory, as `import_model` does."""
    if (model_type := source.config.model_type) not in FAMILIES:
        raise ValueError(f"`source` is of the type {model_type!r}: possible is {list(FAMILIES)}.")
    return import_model(FAMILIES[model_type], source)


def _load_source(family: Family, source: str | Path) -> PreTrainedModel:
    """Loads a model of a family in evaluation mode. Code that the files may hold is never run."""
    load: Any = family.model_class.from_pretrained
    try:
        model, info = load(source, output_loading_info=True, weights_only=True)
    except (OSError, ValueError):
        raise
    except Exception as error:  # the unpickler raises errors of any type on bytes of any kind
        raise ValueError(
            f"The weights of {str(source)!r} cannot be read; code in a checkpoint is never run, so "
            f"save the model as safetensors ({reason_of(error)})"
        ) from None
    problems = [f"`{name}` is missing" for name in sorted(info["missing_keys"])]
    problems += [f"`{name}` is left over" for name in sorted(info["unexpected_keys"])]
    raise_problems(f"The weights do not fit a {family.model_class.__name__}", problems)
    loaded: PreTrainedModel = model
    return loaded


# To transformers ---------------------------------------------------------------------------------


def to_transformers(
    model: VanillaTransformerForConditionalGeneration,
    positions: int | None = None,
    kind: str | None = None,
) -> PreTrainedModel:
    """Converts a model, which stays as it is, to the class of transformers that computes the same.

    Args:
        positions: Longest source and target in tokens, for sinusoids, of which the classes store a
            table. None: `max_position_embeddings` of the model, or its longest output if that is
            longer.
        kind: The class, by its name in `KINDS`. None: the first that computes the model.

    Returns:
        A model in evaluation mode, on the CPU, with the type of the model's weights if that holds
        the rewritten ones and the sinusoids exactly, otherwise in float32.
    """
    families = [family for family in FAMILIES.values() if kind in (None, KINDS[family.kind])]
    limited = _with_limit(state_of(model), positions, model.generation_config)
    family, state = _choose_family(families, limited)
    exported = export_model(family, state)
    exported.generation_config = copy_generation_config(model)
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
) -> tuple[Comparison, tuple[str, ...]]:
    """Writes a model and its tokenizer as classes of transformers, and compares both models.

    The model is in float32 afterwards.

    Returns:
        The comparison, and notes for the user on the tokenizer, one sentence each.
    """
    settings = model.generation_config
    if tokenizer is not None and (ids := unnamed_ids(tokenizer, model.lm_head.out_features)):
        settings.suppress_tokens = sorted({*ids, *(settings.suppress_tokens or [])})
    to_transformers(model, positions).save_pretrained(output_dir)
    notes = () if tokenizer is None else save_plain_tokenizer(tokenizer, output_dir)
    load: Any = AutoModelForSeq2SeqLM.from_pretrained
    written = load(output_dir)
    comparison = compare_models(written, model)
    check_agreement(comparison)
    write_card(
        output_dir,
        name,
        title="without code",
        text=f"`vanilla-transformer export --to hf` wrote `{name_of(name)}` as a "
        f"`{type(written).__name__}` of\ntransformers. It computes the same function and generates "
        "with the same settings. It needs neither\nthe package `vanilla_transformer` nor "
        "`trust_remote_code`. Pad sources on the right: most classes\ncount padding on the left as "
        "positions, the original does not.",
        proof=comparison.describe(),
        tag="exported-from-vanilla-transformer",
        notes=notes,
        needs_code=False,
    )
    return comparison, notes


def _choose_family(families: Sequence[Family], state: ModelState) -> tuple[Family, ModelState]:
    """Returns the first class without problems, and the model rewritten for it."""
    tried: list[tuple[bool, list[str], Family]] = []
    for family in families:
        rewritten = reduce(lambda state, rewrite: rewrite(state), family.rewrites, state)
        try:
            config = VanillaTransformerConfig(**rewritten.fields)
            refused, problems = False, find_fields_in_the_way(family, config)
        except ValueError as error:  # it names no field, so this class is never the nearest
            refused, problems = True, [str(error)]
        if not problems:
            return family, rewritten
        tried.append((refused, problems, family))
    _, problems, nearest = min(tried, key=lambda attempt: (attempt[0], len(attempt[1])))
    raise_problems(
        "No class of transformers computes this model", problems,
        f"The nearest is {nearest.model_class.__name__}, with these fields in the way.",
    )  # fmt: skip
    raise AssertionError("the nearest class has problems")


def _with_limit(state: ModelState, positions: int | None, settings: GenerationConfig) -> ModelState:
    """Sets the number of positions that a table of sinusoids holds."""
    scheme = state.fields["position_embedding_type"]
    if positions is None and scheme in ("sinusoidal", "sinusoidal_half"):
        # Our sinusoids have no limit: the table reaches as far as an output by default.
        longest = (settings.max_length or 0, (settings.max_new_tokens or 0) + 1)
        positions = max(state.fields["max_position_embeddings"], *longest)
    if positions is None or scheme == "learned":  # the tables of fairseq's classes grow
        return state
    return state.with_fields(max_position_embeddings=positions)
