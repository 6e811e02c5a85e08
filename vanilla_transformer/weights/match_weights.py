r"""Gives the weights of a source the names of this package, and fits them to a config.

A rule is a regular expression for a whole name, and a treatment of the weights that match it:

- a name, which may refer to groups of the expression, as in `re.sub` (`\1`);
- None: the weight is not needed;
- an `WeightRule`, which also copies, cuts, transposes or joins weights.

The first rule that matches counts. A name that matches no rule stays as it is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.initialization import no_init_weights

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.weights.sinusoids import holds_sinusoids

SUBLAYERS = {
    "encoder": ("self_attn", "feed_forward"),
    "decoder": ("self_attn", "encoder_attn", "feed_forward"),
}
"""The sublayers of each stack, in the order of their computation."""

STACKS = tuple(SUBLAYERS)
LETTERS = ("q", "k", "v", "out")
"""Our projections of attention: queries, keys, values and output."""

SOURCE_TABLE = "model.encoder.embed_tokens.weight"
TARGET_TABLE = "model.decoder.embed_tokens.weight"
SHARED_TABLE = "model.shared.weight"
TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "encoder": {"vocab_size": (SOURCE_TABLE, SHARED_TABLE)},
    "decoder": {"decoder_vocab_size": (TARGET_TABLE, SHARED_TABLE, "lm_head.weight")},
}
"""The matrices that show the size of each stack's vocabulary, the first that is there."""

HIDDEN_FIELDS = (
    "encoder_attention_heads",
    "decoder_attention_heads",
    "pad_token_id",
    "eos_token_id",
    "decoder_start_token_id",
)
"""Fields that no weight shows, and whose defaults would be wrong silently."""

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class WeightRule:
    """A treatment of weights that does not only give them another name.

    Attributes:
        names: New names; none: the weight is dropped.
        is_split: Whether each name gets an equal part of the rows, rather than the whole weight.
        transpose: Whether the two axes of a matrix are exchanged.
        offset: Number of first rows to leave out.
        heads: Number of heads, if the rows to split lie head by head.
        stack: Group of the expression that numbers the parts of one new weight.
        sinusoids: A `position_embedding_type`. The weight must be its table, which the model
            computes.
    """

    names: tuple[str, ...] = ()
    is_split: bool = False
    transpose: bool = False
    offset: int = 0
    heads: int | None = None
    stack: int | None = None
    sinusoids: str | None = None


Target = str | WeightRule | None
Rules = Mapping[str, Target]
"""Treatments of weights, by regular expression for their names."""


@dataclass(frozen=True)
class RenamedWeights:
    """Weights under their new names.

    Attributes:
        origins: Old name by new name.
    """

    weights: Mapping[str, torch.Tensor]
    origins: Mapping[str, str]
    problems: tuple[str, ...] = ()


def layer_rules(
    layer: str, modules: Mapping[str, str], norms: Sequence[str] = (), slot: str = "pre"
) -> Rules:
    """Returns the rules for the modules in layers, whose weights are `...weight` and `...bias`.

    Args:
        layer: Expression for the text before the names: group 1 is "(encoder|decoder)", and group 2
            the number.
        modules: Our module in a layer by expression for theirs, whose groups begin with 3.
        norms: Expressions for norms that are numbered, in their order: the second one belongs to
            another sublayer in the encoder than in the decoder.
        slot: The slot of these norms, "pre" or "post".
    """
    named = [("encoder|decoder", theirs, ours) for theirs, ours in modules.items()]
    for stack, sublayers in SUBLAYERS.items():
        named += [
            (stack, norm, f"{name}_{slot}_norm")
            for norm, name in zip(norms, sublayers, strict=False)
        ]
    return {
        rf"{layer.replace('encoder|decoder', stack)}{theirs}\.(?P<end>\w+)": (
            rf"model.\1.layers.\2.{ours}.\g<end>"
        )
        for stack, theirs, ours in named
    }


def attention_names(own: str, cross: str, projections: Sequence[str]) -> dict[str, str]:
    """Returns our projections of attention by expressions for theirs.

    Args:
        own, cross: Expressions for self-attention and for cross-attention.
        projections: Expressions for their projections of queries, keys, values and output.
    """
    return {
        rf"{theirs}\.{projection}": f"{ours}.{letter}_proj"
        for theirs, ours in ((own, "self_attn"), (cross, "encoder_attn"))
        for projection, letter in zip(projections, LETTERS, strict=True)
    }


def raise_problems(summary: str, problems: Sequence[str], remedy: str = "") -> None:
    """Raises one error that lists all problems, if there are any: sentences without a full stop."""
    if problems:
        listed = "".join(f"\n- {problem}" for problem in problems)
        raise ValueError(f"{summary}: {len(problems)} problem(s). {remedy}".rstrip() + listed)


def find_unknown_values(
    options: Mapping[str, Any], known: Mapping[str, Sequence[Any]], prefix: str = ""
) -> list[str]:
    """Returns a sentence for each option of a source that has no counterpart here."""
    return [
        f"`{prefix}{name}` is {options[name]!r}: only {' or '.join(map(repr, values))} has a "
        "counterpart"
        for name, values in known.items()
        if name in options and options[name] not in values
    ]


def with_defaults(options: Mapping[str, Any], known: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Returns options of which empty ones have the first value that is known."""
    return {name: value or known.get(name, [value])[0] for name, value in options.items()}


def find_differences(stacks: Sequence[Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Returns a sentence for each option that must be the same in both stacks, and is not."""
    encoder, decoder = stacks
    return [
        f"`{name}` is {encoder.get(name)!r} in the encoder and {decoder.get(name)!r} in the decoder"
        for name in names
        if encoder.get(name) != decoder.get(name)
    ]


def check_hidden_fields(fields: Mapping[str, Any], remedy: str) -> None:
    """Raises an error if fields that no weight shows are not given."""
    missing = [f"`{name}` is missing" for name in HIDDEN_FIELDS if name not in fields]
    raise_problems("Fields that no weight shows are not given", missing, remedy)


NORM_SPELLINGS: Rules = {
    r"(.*norm.*)\.(?:a_2|gain|gamma)": r"\1.weight",
    r"(.*norm.*)\.(?:b_2|beta)": r"\1.bias",
}
"""Rules for the parameters of norms, as the first OpenNMT-py and tutorials name them."""


# Renaming ----------------------------------------------------------------------------------------


def rename_weights(state_dict: Mapping[str, torch.Tensor], *rule_sets: Rules) -> RenamedWeights:
    """Applies sets of rules to weights, one set after another.

    Two weights that get the same name are a problem.
    """
    renamed = RenamedWeights(state_dict, {name: name for name in state_dict})
    for rules in rule_sets:
        renamed = _apply_rules(renamed, rules)
    return renamed


def _apply_rules(before: RenamedWeights, rules: Rules) -> RenamedWeights:
    compiled = [_compile_rule(*rule) for rule in rules.items()]
    weights: Weights = {}
    origins: dict[str, str] = {}
    parts: dict[str, dict[int, torch.Tensor]] = {}
    problems = list(before.problems)
    for name, tensor in before.weights.items():
        old = before.origins[name]
        matches = ((match, rule) for p, rule in compiled if (match := p.fullmatch(name)))
        match, rule = next(matches, (None, WeightRule()))
        try:
            moved = [(name, tensor)] if match is None else _apply_rule(rule, match, tensor)
            number = None if match is None or rule.stack is None else int(match[rule.stack])
        except ValueError as error:
            problems.append(f"`{old}`: {error}")
            continue
        for new, value in moved:
            # A whole weight goes to its name, a part of one to the number that the rule reads.
            taken: dict[Any, Any] = weights if number is None else parts.setdefault(new, {})
            slot = new if number is None else number
            if slot in taken:
                problems.append(f"`{old}` and `{origins[new]}` both become `{new}`")
            taken[slot], origins[new] = value, old
    for new, numbered in parts.items():
        if new in weights:
            problems.append(f"`{new}` gets a whole weight and parts of one")
        try:
            weights[new] = torch.cat([numbered[number] for number in sorted(numbered)])
        except RuntimeError as error:
            problems.append(f"the parts of `{new}` cannot be joined: {error}")
    return RenamedWeights(weights, origins, tuple(problems))


def _compile_rule(expression: str, target: str | WeightRule | None) -> tuple[Any, WeightRule]:
    rule = (
        target
        if isinstance(target, WeightRule)
        else WeightRule(() if target is None else (target,))
    )
    try:
        pattern = re.compile(expression)
        for name in rule.names:
            re.sub(f"(?:{expression})|", name, "")  # checks the groups of the name
        if rule.stack is not None and not 1 <= rule.stack <= pattern.groups:
            raise ValueError(f"`stack` is {rule.stack}, but it has {pattern.groups} groups")
    except (re.error, TypeError, IndexError, ValueError) as error:
        raise ValueError(
            f"The rule {expression!r}: {list(rule.names)} is not a regular expression with names "
            f"({error}): write it in the syntax of Python's `re`."
        ) from error
    return pattern, rule


def _apply_rule(
    rule: WeightRule, match: Any, tensor: torch.Tensor
) -> list[tuple[str, torch.Tensor]]:
    """Returns the new names of one weight, each with its values."""
    if rule.sinusoids is not None and not holds_sinusoids(tensor, rule.sinusoids):
        raise ValueError(f"it does not hold the positions `{rule.sinusoids}`")
    names = [match.expand(name) for name in rule.names]
    if rule.transpose and tensor.dim() == 2:
        tensor = tensor.T
    if rule.offset:
        tensor = tensor[rule.offset :]
    if not rule.is_split:
        return [(name, tensor) for name in names]
    heads, count = rule.heads or 1, len(names)
    if tensor.dim() == 0 or len(tensor) % (heads * count):
        raise ValueError(f"{tuple(tensor.shape)} cannot be split into {heads * count} equal parts")
    by_head = tensor.unflatten(0, (heads, count, -1))  # (heads, parts, rows of each, ...)
    return list(zip(names, (part.flatten(0, 1) for part in by_head.unbind(1)), strict=True))


# Fitting -----------------------------------------------------------------------------------------


def fit_weights(
    renamed: RenamedWeights,
    fields: Mapping[str, Any],
    zeros: Sequence[str] = (),
    stacks: Sequence[str] = STACKS,
    remedy: str = "",
) -> tuple[VanillaTransformerConfig, Weights]:
    """Makes the config, and checks that the weights are all that it asks for.

    Args:
        renamed: Weights under the names of this package. Of weights that the config ties, one name
            is enough.
        fields: Fields of the config. Sizes that it does not name are read from the weights.
        zeros: Expressions for names whose missing weights are zero.
        stacks: The stacks that the source has. The layers of an encoder alone are converted without
            an embedding.
        remedy: A sentence that says how to proceed if the weights do not fit.
    """
    sizes = _read_sizes(renamed, fields, stacks, remedy)
    config = VanillaTransformerConfig(**{**sizes, **fields})
    with torch.device("meta"):  # shapes only: no memory, no initial values
        model = VanillaTransformerForConditionalGeneration(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    tied: Mapping[str, str] = model._tied_weights_keys
    if "decoder" not in stacks:
        inside = ("model.encoder.layers.", "model.encoder.final_norm.")
        shapes, tied = {n: shape for n, shape in shapes.items() if n.startswith(inside)}, {}
    groups = {name: [name] for name in shapes if name not in tied}  # the names of each matrix
    for target, source in tied.items():
        groups[source].append(target)
    weights, problems = {**renamed.weights}, [*renamed.problems]
    patterns = [_compile_rule(expression, None)[0] for expression in zeros]
    for source, names in groups.items():
        present = [name for name in names if name in weights]
        if not present:  # only a weight of its own may be zero
            if names == [source] and any(pattern.fullmatch(source) for pattern in patterns):
                weights[source] = torch.zeros(shapes[source])
            continue
        first, *others = present
        problems += [
            f"`{renamed.origins[name]}` and `{renamed.origins[first]}` differ, but the config ties "
            "them"
            for name in others
            if not torch.equal(weights[name], weights[first])
        ]
        weights |= {name: weights[first] for name in names if name not in present}
    problems += _find_misfits(shapes, weights, renamed.origins)
    raise_problems("The weights do not fit the config", problems, remedy)
    return config, weights


def _read_sizes(
    renamed: RenamedWeights, fields: Mapping[str, Any], stacks: Sequence[str], remedy: str
) -> dict[str, Any]:
    """Reads the fields that the weights show; an encoder alone has no embedding."""
    sizes: dict[str, Any] = {}
    lost = []
    for stack in stacks:
        sizes[f"{stack}_layers"] = 1 + max(layers_of(renamed.weights, stack), default=0)
        inner = f"model.{stack}.layers.0.feed_forward.fc1.weight"
        tables = TABLES[stack] if "decoder" in stacks else {}
        for field, names in {f"{stack}_ffn_dim": (inner,), **tables}.items():
            matrix = _find_matrix(renamed, names)
            if matrix is None:
                lost.append(names[0])
            else:
                sizes[field], sizes["d_model"] = matrix.shape
    table = _find_matrix(renamed, ("model.encoder.embed_positions.weight",))
    # The table of relative positions has a row for each distance instead.
    if table is not None and fields.get("position_embedding_type") == "learned":
        sizes["max_position_embeddings"] = len(table) - fields.get("position_offset", 0)
    if lost:
        known = ("model.", "lm_head.")
        unknown = [old for new, old in renamed.origins.items() if not new.startswith(known)]
        problems = [*renamed.problems, *(f"`{name}` is not known" for name in unknown)]
        problems += [f"`{name}`, a matrix that tells sizes, is missing" for name in lost]
        raise_problems("The weights show no sizes", problems, remedy)
    return sizes


def layers_of(weights: Mapping[str, torch.Tensor], stack: str) -> set[int]:
    """Returns the numbers of the layers of a stack."""
    matches = (re.match(rf"model\.{stack}\.layers\.(\d+)\.", name) for name in weights)
    return {int(match[1]) for match in matches if match}


def _find_matrix(renamed: RenamedWeights, names: Sequence[str]) -> torch.Tensor | None:
    present = (renamed.weights[name] for name in names if name in renamed.weights)
    return next((tensor for tensor in present if tensor.dim() == 2), None)


def _find_misfits(
    shapes: Mapping[str, tuple[int, ...]], weights: Weights, origins: Mapping[str, str]
) -> Iterator[str]:
    """Yields a sentence for each weight that is left over, missing or of another shape."""
    for name, tensor in weights.items():
        origin, shape = origins.get(name, name), tuple(tensor.shape)
        if name not in shapes:
            yield f"`{origin}` is not known"
        elif shape != shapes[name]:
            yield f"`{origin}` has shape {shape}, but `{name}` has {shapes[name]}"
    for name in sorted(shapes.keys() - weights.keys()):
        yield f"`{name}` is missing"


def sharing_fields(weights: Mapping[str, torch.Tensor]) -> dict[str, bool]:
    """Returns which tables are equal, and whether the logits have a bias, as fields of a config."""

    def are_equal(first: str, second: str) -> bool:
        both = first in weights and second in weights
        return both and torch.equal(weights[first], weights[second])

    return {
        "lm_head_bias": "lm_head.bias" in weights,
        "share_encoder_decoder_embeddings": are_equal(SOURCE_TABLE, TARGET_TABLE),
        "tie_word_embeddings": are_equal(TARGET_TABLE, "lm_head.weight"),
    }


def fields_of_parts(weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Returns which norms, biases and gates there are, as fields of a config."""

    def has(*ends: str) -> bool:
        return any(name.endswith(ends) for name in weights)

    return {
        "final_layer_norm": has("encoder.final_norm.weight"),
        "normalize_embedding": has("encoder.embed_norm.weight"),
        "qk_norm": "self" if has("self_attn.q_norm.weight") else "none",
        "gated_ffn": has(".gate.weight"),
        "attention_bias": has("_proj.bias"),
        "ffn_bias": has(".fc1.bias", ".fc2.bias", ".gate.bias"),
    }


def build_model(
    config: VanillaTransformerConfig,
    weights: Mapping[str, torch.Tensor],
    dtype: torch.dtype = torch.float32,
) -> VanillaTransformerForConditionalGeneration:
    """Builds a model with given weights, in evaluation mode."""
    with no_init_weights():
        model = VanillaTransformerForConditionalGeneration(config)
    model.tie_weights()  # without initial values, the constructor does not
    model.type(dtype).load_state_dict(weights)
    model.train(False)
    return model
