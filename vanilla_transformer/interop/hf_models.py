"""Models of transformers' own classes: from and to them, in memory and as directories.

`FAMILIES` names the classes. A model is written as the first class that, after its rewrites,
computes every field of the model; if none does, the error lists the fields in the way of the
nearest one.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import nn
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
from vanilla_transformer.interop.hf_families import FAMILIES, Family
from vanilla_transformer.interop.tokenizers import load_tokenizer, save_plain_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.tokenizer_sides import unnamed_ids
from vanilla_transformer.weights.exact_rewrites import ModelState, state_of
from vanilla_transformer.weights.match_weights import (
    SHARED_TABLE,
    SOURCE_TABLE,
    Weights,
    build_model,
    fit_weights,
    raise_problems,
    rename_weights,
    sharing_fields,
)

_HEAD_BIAS = "lm_head.bias"
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
    return Imported(from_transformers(theirs), tokenizer, source_model=theirs, notes=notes)


def from_transformers(source: PreTrainedModel) -> VanillaTransformerForConditionalGeneration:
    """Converts a model of a class in `FAMILIES` in memory into one that computes the same.

    It has the type of the source's weights, and a copy of its generation config.
    """
    if (model_type := source.config.model_type) not in FAMILIES:
        raise ValueError(f"`source` is of the type {model_type!r}: possible is {list(FAMILIES)}.")
    family = FAMILIES[model_type]
    renamed = rename_weights(source.state_dict(), family.names)
    # A bias of zeros, and a shared table that no stack may use, are left out.
    weights = {name: w for name, w in renamed.weights.items() if name != SHARED_TABLE}
    bias = weights.pop(_HEAD_BIAS, None)
    if bias is not None and bias.any():
        weights[_HEAD_BIAS] = bias.flatten()
    fields = family.fields_of(source.config) | sharing_fields(weights)
    fitted = fit_weights(replace(renamed, weights=weights), fields)
    # T5 keeps some matrices in float32: this type holds all weights exactly.
    dtypes = {parameter.dtype for parameter in source.parameters()}
    model = build_model(*fitted, reduce(torch.promote_types, dtypes))
    model.generation_config = _copy_generation_config(source)
    return model


def _copy_generation_config(model: PreTrainedModel) -> GenerationConfig:
    """Returns a copy of a model's settings of `generate()`, which its config no longer changes."""
    settings = copy.deepcopy(model.generation_config.to_dict())
    settings.pop("_from_model_config", None)
    return GenerationConfig.from_dict(settings)


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
    exported = family.model_class(family.config_for(VanillaTransformerConfig(**state.fields)))
    weights = _rename_to_theirs(family, exported, state.weights)
    _separate_matrices(exported, weights)
    exported.type(torch.float32).load_state_dict(weights)
    exported.train(False)
    exported.generation_config = _copy_generation_config(model)
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
            refused, problems = False, family.fields_in_the_way(config)
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


def _rename_to_theirs(
    family: Family, written: PreTrainedModel, weights: Mapping[str, torch.Tensor]
) -> Weights:
    """Fills the names of a class with our weights; tables that both compute stay as they are."""
    state_dict = written.state_dict()
    origins = rename_weights(state_dict, family.names).origins
    head = weights["lm_head.weight"]
    stand_ins = {SHARED_TABLE: weights[SOURCE_TABLE], _HEAD_BIAS: head.new_zeros(len(head))}
    available = stand_ins | dict(weights)
    left = weights.keys() - origins.keys() - {SHARED_TABLE}  # its stacks have it by their names
    problems = [f"`{name}` is left over" for name in sorted(left)]
    raise_problems(f"The model cannot be written as {family.model_class.__name__}", problems)
    for name, theirs in origins.items():
        state_dict[theirs] = available[name].reshape(state_dict[theirs].shape)
    return state_dict


def _separate_matrices(written: PreTrainedModel, state_dict: Mapping[str, torch.Tensor]) -> None:
    """Unties matrices of a class that get different values: T5 ties more than it is trained with.

    Loading such a model unties them, too.
    """
    first_names: dict[nn.Parameter, str] = {}
    for name, parameter in written.named_parameters(remove_duplicate=False):
        first = first_names.setdefault(parameter, name)
        if not torch.equal(state_dict[first], state_dict[name]):
            module, _, last = name.rpartition(".")
            setattr(written.get_submodule(module), last, nn.Parameter(parameter.detach().clone()))
