"""What a converter between a class of transformers and this package needs to know, and one engine.

A `Family` describes a class: which of its options are fields here, which rules turn names of its
weights into names here, and what it cannot express. `import_model` and `export_model` do the work
for every family. A new family is one file with a `Family`, beside `marian` and `t5`:

1. `options` pairs our fields with its options of the same meaning.
2. `read_fields` gives the fields that follow from its other options, or that it fixes.
3. `write_options` is the inverse of `read_fields`.
4. `names` are rules for the names of weights, as `interop.renaming` takes them. The same rules
   serve both directions. None instead of a name drops a table that both sides compute.

Every option that none of these mentions stops a conversion, so that nothing is lost in silence.
"""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from vanilla_transformer.interop.qkv import split_self_attention
from vanilla_transformer.interop.renaming import Rules, Weights, rename_weights
from vanilla_transformer.model.configuration_vanilla_transformer import (
    PROBABILITIES,
    VanillaTransformerConfig,
)
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

NOT_IN_THE_WAY = {
    *PROBABILITIES,
    "alignment_heads",
    "classifier_pooling",
    "fused_qkv",
    "initializer",
    "is_encoder_decoder",
    "lm_head_bias",
    "share_encoder_decoder_embeddings",
    "tie_word_embeddings",
    "use_cache",
}
"""Fields that do not hinder an export: they matter in training alone, or their weights are copied
or split."""

_SHARED_TABLE = "model.shared.weight"
_HEAD_BIAS = "lm_head.bias"


@dataclass(frozen=True)
class Family:
    """A class of transformers that computes what a config here can express.

    Attributes:
        kind: Name of the family on the command line.
        model_class: The class, with an output projection.
        config_class: The class of its config.
        options: Its options by name of our field, where both mean the same.
        read_fields: Computes our other fields from its config.
        write_options: Computes its other options from our config.
        names: Rules that turn names of its weights into ours.
        ignored: Its options that do not change what a trained model computes.
        fixed: What checkpoints may still say about options that the class ignores, with the values
            that it computes.
    """

    kind: str
    model_class: type[PreTrainedModel]
    config_class: type[PreTrainedConfig]
    options: Mapping[str, str]
    read_fields: Callable[[Any], dict[str, Any]]
    write_options: Callable[[VanillaTransformerConfig], dict[str, Any]]
    names: Rules
    ignored: Collection[str] = ()
    fixed: Mapping[str, Any] | None = None

    def fields_of(self, config: PreTrainedConfig) -> dict[str, Any]:
        """Returns our fields for a config of this class, without those that the weights tell."""
        same = {ours: getattr(config, theirs, None) for ours, theirs in self.options.items()}
        return same | self.read_fields(config)


def import_model(
    family: Family, source: PreTrainedModel
) -> VanillaTransformerForConditionalGeneration:
    """Converts a model of a family into a model of this package that computes the same.

    Args:
        family: The family.
        source: A model of `family.model_class`. It does not change.

    Returns:
        A model in evaluation mode, with the type of the source's weights and with a copy of its
        generation config.

    Raises:
        ValueError: If an option has no field here, or a weight is missing, left over or of another
            shape. One error lists all of them.
    """
    raise_problems(family, _find_option_problems(family, source.config))
    weights, problems = _rename_to_ours(family, source)
    fields = family.fields_of(source.config) | _fields_that_weights_tell(weights)
    try:
        config = VanillaTransformerConfig(**fields)
    except ValueError as error:
        raise_problems(family, [*problems, str(error)])
    problems += _find_comparisons_of_two_vocabularies(source, config)
    with no_init_weights():
        model = VanillaTransformerForConditionalGeneration(config)
    model.tie_weights()  # without initial values, the constructor does not
    weights = _with_live_parts(weights, config)
    problems += find_misfits(model.state_dict(), weights)
    raise_problems(family, problems + _find_changed_tables(family, source, model))
    model.type(_widest_dtype(source)).load_state_dict(weights)
    model.generation_config = copy_generation_config(source)
    model.train(False)
    return model


def export_model(
    family: Family, model: VanillaTransformerForConditionalGeneration
) -> PreTrainedModel:
    """Converts a model of this package into a model of a family: the inverse of `import_model`.

    Args:
        family: The family.
        model: The model. It does not change.

    Returns:
        A model of `family.model_class` in evaluation mode.

    Raises:
        ValueError: If the family cannot compute what the config says. One error lists the fields
            that stand in the way.
    """
    ours = model.config
    config = _write_config(family, ours)
    problems = find_fields_in_the_way(family, ours)
    raise_problems(family, problems, direction="written as")
    source = family.model_class(config)
    weights = model.state_dict()
    if ours.fused_qkv:
        heads = ours.encoder_attention_heads
        weights = split_self_attention(weights, heads * ours.head_dim_with(heads))
    written, problems = _rename_to_theirs(family, source, weights)
    raise_problems(family, problems, direction="written as")
    _separate_matrices(source, written)
    source.type(model.dtype).load_state_dict(written)
    source.generation_config = copy_generation_config(model)
    source.train(False)
    return source


def _find_comparisons_of_two_vocabularies(
    source: PreTrainedModel, config: VanillaTransformerConfig
) -> list[str]:
    """Lists settings that compare ids of source and target, which untied matrices tell apart."""
    if config.share_encoder_decoder_embeddings:
        return []
    names = ("encoder_no_repeat_ngram_size", "encoder_repetition_penalty")
    named = ((name, getattr(source.generation_config, name, None)) for name in names)
    return [
        f"`{name}` is {value!r} in the generation config, but separate embeddings stand for two "
        "vocabularies here: set it to None in the source"
        for name, value in named
        if value and value != 1
    ]


def raise_problems(
    family: Family, problems: Sequence[str], direction: str = "converted from"
) -> None:
    """Raises one error that lists all problems, if there are any."""
    if problems:
        listed = "".join(f"\n- {problem}" for problem in problems)
        raise ValueError(
            f"The model cannot be {direction} {family.model_class.__name__}: {len(problems)} "
            f"problem(s).{listed}"
        )


def find_misfits(
    expected: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]
) -> list[str]:
    """Lists weights that are missing, left over or of another shape, one sentence each."""
    problems = [f"`{name}` is missing" for name in expected.keys() - found.keys()]
    problems += [f"`{name}` is left over" for name in found.keys() - expected.keys()]
    for name in expected.keys() & found.keys():
        needed, given = tuple(expected[name].shape), tuple(found[name].shape)
        if needed != given:
            problems.append(f"`{name}` has the shape {given}, but must have {needed}")
    return sorted(problems)


def find_fields_in_the_way(family: Family, ours: VanillaTransformerConfig) -> list[str]:
    """Lists the fields whose value is lost when our config becomes one of a family.

    Args:
        family: The family.
        ours: The config.

    Returns:
        One sentence for each field, sorted.
    """
    back = VanillaTransformerConfig(**family.fields_of(_write_config(family, ours)))
    wanted, found = _fields_with_effect(ours), _fields_with_effect(back)
    return [
        f"`{name}` is {wanted[name]!r}, but {family.kind} computes {found[name]!r}"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name] != found[name]
    ]


def copy_generation_config(model: PreTrainedModel) -> GenerationConfig:
    """Returns a copy of what `generate()` of a model uses, which its config no longer changes."""
    settings = copy.deepcopy(model.generation_config.to_dict())
    settings.pop("_from_model_config", None)
    return GenerationConfig.from_dict(settings)


def _find_option_problems(family: Family, config: PreTrainedConfig) -> list[str]:
    """Lists options that have no field here, and those that the class itself ignores."""
    name = family.model_class.__name__
    known = {*family.options.values(), *family.ignored, *(family.fixed or {})}
    unknown = sorted(family.config_class.__annotations__.keys() - known)
    problems = [f"`{option}` of {name} has no field here" for option in unknown]
    for option, value in (family.fixed or {}).items():
        found = getattr(config, option, value)
        if found != value:
            problems.append(
                f"`{option}` is {found!r}, but {name} ignores it and computes {value!r}: if this "
                "class trained the model, remove the option from its config"
            )
    if getattr(config, "quantization_config", None) is not None:
        problems.append("the weights are quantised: load them without `quantization_config`")
    return problems


def _rename_to_ours(family: Family, source: PreTrainedModel) -> tuple[Weights, list[str]]:
    renamed = rename_weights(source.state_dict(), [family.names])
    weights = dict(renamed.weights)
    if _HEAD_BIAS in weights:
        weights[_HEAD_BIAS] = weights[_HEAD_BIAS].flatten()
    return weights, list(renamed.problems)


def _find_changed_tables(
    family: Family, source: PreTrainedModel, model: VanillaTransformerForConditionalGeneration
) -> list[str]:
    """Lists sinusoids of a source that are not those which our model computes."""
    weights = source.state_dict()
    kept = rename_weights(weights, [family.names]).origins.values()
    scheme: Any = model.model.encoder.embed_positions
    problems = []
    for name in sorted(weights.keys() - set(kept)):
        table = weights[name].float()
        rows = torch.arange(len(table))[None] - getattr(scheme, "offset", 0)
        computed = scheme(rows, torch.float32).embedding[0]
        used = table.any(dim=1)  # fairseq's row of the padding position is zero
        if not torch.allclose(table[used], computed[used], rtol=0, atol=2e-3):
            problems.append(f"`{name}` is not the table of sinusoids that the class computes")
    return problems


def _fields_that_weights_tell(weights: Weights) -> dict[str, bool]:
    """Reads from the weights which embeddings are one matrix, and whether there is a bias."""
    source, target, head = (
        weights.get(f"{name}.weight")
        for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    )
    bias = weights.get(_HEAD_BIAS)
    return {
        "share_encoder_decoder_embeddings": _is_same(source, target),
        "tie_word_embeddings": _is_same(head, target),
        "lm_head_bias": bias is not None and bool(bias.any()),
    }


def _widest_dtype(model: PreTrainedModel) -> torch.dtype:
    """Returns a type that holds all weights exactly: T5 keeps some matrices in float32."""
    return reduce(torch.promote_types, {parameter.dtype for parameter in model.parameters()})


def _is_same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Returns whether two tensors are views of the same values in memory."""
    return one is not None and other is not None and one.data_ptr() == other.data_ptr()


def _with_live_parts(weights: Weights, config: VanillaTransformerConfig) -> Weights:
    """Removes a bias of zeros, and a shared table that no stack uses; names one that both use."""
    live = dict(weights)
    if not config.lm_head_bias:
        live.pop(_HEAD_BIAS, None)
    if config.share_encoder_decoder_embeddings:
        live[_SHARED_TABLE] = weights["model.encoder.embed_tokens.weight"]
    else:
        live.pop(_SHARED_TABLE, None)
    return live


def _rename_to_theirs(
    family: Family, source: PreTrainedModel, weights: Mapping[str, torch.Tensor]
) -> tuple[Weights, list[str]]:
    """Fills the names of a source with our weights; tables that both compute stay as they are."""
    written = source.state_dict()
    origins = rename_weights(written, [family.names]).origins
    stand_ins = {
        _SHARED_TABLE: weights["model.encoder.embed_tokens.weight"],
        _HEAD_BIAS: weights["lm_head.weight"].new_zeros(len(weights["lm_head.weight"])),
    }
    available = stand_ins | dict(weights)
    problems = [f"`{name}` is missing" for name in origins if name not in available]
    left = weights.keys() - origins.keys() - {_SHARED_TABLE}  # its stacks have it by their names
    problems += [f"`{name}` is left over" for name in sorted(left)]
    for name, theirs in origins.items():
        if name in available:
            value, shape = available[name], written[theirs].shape
            if value.numel() != shape.numel():
                problems.append(f"`{name}` has the shape {tuple(value.shape)}, not {tuple(shape)}")
            else:
                written[theirs] = value.reshape(shape)
    return written, problems


def _separate_matrices(source: PreTrainedModel, written: Mapping[str, torch.Tensor]) -> None:
    """Unties matrices of a source that get different values: T5 ties more than it is trained with.

    Loading such a model unties them, too.
    """
    first_names: dict[nn.Parameter, str] = {}
    for name, parameter in source.named_parameters(remove_duplicate=False):
        first = first_names.setdefault(parameter, name)
        if not torch.equal(written[first], written[name]):
            module, _, leaf = name.rpartition(".")
            setattr(source.get_submodule(module), leaf, nn.Parameter(parameter.detach().clone()))


def _write_config(family: Family, ours: VanillaTransformerConfig) -> PreTrainedConfig:
    """Returns the config of a family that says what ours says, as far as it can."""
    same = {theirs: getattr(ours, name, None) for name, theirs in family.options.items()}
    options: dict[str, Any] = same | family.write_options(ours)
    return family.config_class(**copy.deepcopy(options))


def _fields_with_effect(config: VanillaTransformerConfig) -> dict[str, Any]:
    """Returns the fields that change what a model computes; None becomes what it stands for."""
    names = set(VanillaTransformerConfig.__annotations__) - NOT_IN_THE_WAY
    if config.position_embedding_type not in ("learned", "rope"):
        names -= {"max_position_embeddings"}
    if config.position_embedding_type != "relative":
        names -= {"relative_attention_num_buckets", "relative_attention_max_distance"}
    fields = {name: getattr(config, name, None) for name in names}
    for stack in ("encoder", "decoder"):
        if config.residual_scale_of(stack) == config.residual_scale:
            fields[f"{stack}_residual_scale"] = None
    widths = {
        config.head_dim_with(getattr(config, f"{stack}_attention_heads"))
        for stack in ("encoder", "decoder")
    }
    fields["head_dim"] = sorted(widths)
    if len(widths) == 1:
        fields["attention_scale"] = config.attention_scale or widths.pop() ** -0.5
    return fields
