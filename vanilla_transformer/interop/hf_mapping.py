"""Converts models between a class of transformers and this package, in both directions.

A `Family` describes a class; `import_model` and `export_model` do the work for all of them. A new
one is one more `Family` in `hf_families.py`.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.weights.exact_rewrites import ModelState, Rewrite, fields_with_effect
from vanilla_transformer.weights.match_weights import (
    SHARED_TABLE,
    SOURCE_TABLE,
    Rules,
    Weights,
    build_model,
    fit_weights,
    raise_problems,
    rename_weights,
    sharing_fields,
)

_HEAD_BIAS = "lm_head.bias"


@dataclass(frozen=True)
class Family:
    """A class of transformers whose models a config here can express.

    Attributes:
        options: Its options by name of our field, where both mean the same.
        read_fields: Computes the fields that follow from its other options, or that it fixes.
        write_options: The inverse of `read_fields`.
        names: Rules for the names of weights, in both directions. A rule with `sinusoids` drops a
            table that both sides compute.
        rewrites: Rewrites that turn more models into ones that the class computes.
        limits: Returns the values of our fields that the class computes instead of ours, where its
            config does not show it.
    """

    model_class: type[PreTrainedModel]
    options: Mapping[str, str]
    read_fields: Callable[[Any], dict[str, Any]]
    write_options: Callable[[VanillaTransformerConfig], dict[str, Any]]
    names: Rules
    rewrites: tuple[Rewrite, ...]
    limits: Callable[[VanillaTransformerConfig], dict[str, Any]] = lambda ours: {}

    @property
    def config_class(self) -> type[PreTrainedConfig]:
        """Class of its config."""
        return cast(type[PreTrainedConfig], self.model_class.config_class)

    @property
    def kind(self) -> str:
        """The `model_type` of its config."""
        return self.config_class.model_type

    def fields_of(self, config: PreTrainedConfig) -> dict[str, Any]:
        """Returns our fields for a config of this class, but for fields that the weights show."""
        same = {ours: getattr(config, theirs, None) for ours, theirs in self.options.items()}
        return same | self.read_fields(config)

    def config_for(self, ours: VanillaTransformerConfig) -> PreTrainedConfig:
        """Returns the config of the class with the same meaning as ours, as far as it can."""
        same = {theirs: getattr(ours, name, None) for name, theirs in self.options.items()}
        options: dict[str, Any] = copy.deepcopy(same | self.write_options(ours))
        return self.config_class(**options)


def copy_generation_config(model: PreTrainedModel) -> GenerationConfig:
    """Returns a copy of a model's settings of `generate()`, which its config no longer changes."""
    settings = copy.deepcopy(model.generation_config.to_dict())
    settings.pop("_from_model_config", None)
    return GenerationConfig.from_dict(settings)


# From transformers -------------------------------------------------------------------------------


def import_model(
    family: Family, source: PreTrainedModel
) -> VanillaTransformerForConditionalGeneration:
    """Converts a model of a family into a model of this package that computes the same.

    It has the type of the source's weights, and a copy of its generation config.
    """
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
    model.generation_config = copy_generation_config(source)
    return model


# To transformers ---------------------------------------------------------------------------------


def export_model(family: Family, state: ModelState) -> PreTrainedModel:
    """Makes a model of a family out of fields and weights: as `import_model`, reversed."""
    written = family.model_class(family.config_for(VanillaTransformerConfig(**state.fields)))
    state_dict = _rename_to_theirs(family, written, state.weights)
    _separate_matrices(written, state_dict)
    written.load_state_dict(state_dict)
    written.train(False)
    return written


def find_fields_in_the_way(family: Family, ours: VanillaTransformerConfig) -> list[str]:
    """Lists the fields whose value is lost when our config becomes one of a family.

    A class may refuse the sizes, such as a width that its heads do not divide: a ValueError.
    """
    try:
        back = VanillaTransformerConfig(**family.fields_of(family.config_for(ours)))
    except Exception as error:  # classes of transformers raise errors of several types
        reason = " ".join(str(error).split())
        raise ValueError(f"{family.model_class.__name__} refuses the config: {reason}") from error
    # Fields that survive the way there and back are computed by the class.
    back.lm_head_bias = ours.lm_head_bias  # the weights show it
    wanted, computed = fields_with_effect(ours), fields_with_effect(back) | family.limits(ours)
    return [
        f"`{name}` is {wanted[name]!r}, but {family.kind} computes {computed[name]!r}"
        for name in sorted(wanted.keys() & computed.keys())
        if wanted[name] != computed[name]
    ]


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
