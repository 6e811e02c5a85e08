"""RoPE scaling: the legal types, the parameters that each one takes, and their checks.

The names are those of transformers' `RopeParameters`; `transformers.modeling_rope_utils` defines
what each type computes.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from transformers.utils import logging

logger = logging.get_logger(__name__)


class RopeType(NamedTuple):
    """The parameters of one `rope_type`, apart from those that every type has.

    Attributes:
        required: Parameters that must be given.
        optional: Parameters that may be given.
        has_trained_length: Whether the type uses `original_max_position_embeddings`.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    has_trained_length: bool = False


ROPE_TYPES: dict[str, RopeType] = {
    "default": RopeType(),
    "linear": RopeType(required=("factor",)),
    "dynamic": RopeType(required=("factor",)),
    "yarn": RopeType(
        required=("factor",),
        optional=(
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        ),
        has_trained_length=True,
    ),
    "longrope": RopeType(
        required=("short_factor", "long_factor"),
        optional=("attention_factor", "factor"),
        has_trained_length=True,
    ),
    "llama3": RopeType(
        required=("factor", "low_freq_factor", "high_freq_factor"), has_trained_length=True
    ),
    "proportional": RopeType(optional=("factor",)),
}
TRAINED_LENGTH = "original_max_position_embeddings"
"""A parameter that some types use; for the others, a warning says that it has no effect."""

COMMON_PARAMETERS = ("rope_type", "rope_theta", "partial_rotary_factor")
LOWER_BOUNDS = {  # each number must be above its bound
    **dict.fromkeys(("rope_theta", TRAINED_LENGTH), 1),
    **dict.fromkeys(("partial_rotary_factor", "factor", "attention_factor"), 0),
    **dict.fromkeys(("low_freq_factor", "high_freq_factor", "beta_slow", "beta_fast"), 0),
    **dict.fromkeys(("mscale", "mscale_all_dim"), 0),
}
FACTOR_LISTS = ("short_factor", "long_factor")


def with_rope_defaults(
    parameters: Mapping[str, Any] | None, max_position_embeddings: int
) -> dict[str, Any]:
    """Returns a copy of RoPE parameters with the missing defaults filled in.

    Args:
        parameters: The given parameters. None: plain RoPE.
        max_position_embeddings: Trained length in tokens, for the types that use one.

    Returns:
        The parameters; nothing has been checked yet.
    """
    complete = {"rope_type": "default", "rope_theta": 10000.0, **(parameters or {})}
    scaled = [name for name, kind in ROPE_TYPES.items() if kind.has_trained_length]
    if complete["rope_type"] in scaled:
        complete.setdefault(TRAINED_LENGTH, max_position_embeddings)
    return complete


def check_rope_parameters(parameters: Mapping[str, Any]) -> None:
    """Checks the names and values of RoPE parameters.

    Warns, once, of a trained length that the type does not use.

    Args:
        parameters: Complete parameters, as `with_rope_defaults` returns them.

    Raises:
        ValueError: If the type is unknown, a parameter is unknown, missing, of the wrong type or
            out of range.
    """
    if problem := _find_name_problem(parameters) or _find_value_problem(parameters):
        raise ValueError(f"`rope_parameters` {parameters!r} {problem}.")
    name = parameters["rope_type"]
    if TRAINED_LENGTH in parameters and not ROPE_TYPES[name].has_trained_length:
        logger.warning_once(
            f"`{TRAINED_LENGTH}` ({parameters[TRAINED_LENGTH]}) in `rope_parameters` has no effect "
            f"with `rope_type` {name!r}: leave it out, or choose a type that uses it."
        )


def _find_name_problem(parameters: Mapping[str, Any]) -> str | None:
    """Describes an unknown type, or unknown or missing parameters."""
    name = parameters["rope_type"]
    if not isinstance(name, str) or name not in ROPE_TYPES:
        return f"has an unknown `rope_type`: choose one of {sorted(ROPE_TYPES)}"
    kind = ROPE_TYPES[name]
    legal = {*COMMON_PARAMETERS, *kind.required, *kind.optional, TRAINED_LENGTH}
    if unknown := [key for key in parameters if key not in legal]:
        return f"has unknown keys for {name!r}, {unknown}: choose from {sorted(legal)}"
    if missing := set(kind.required) - parameters.keys():
        return f"must have {sorted(missing)} for `rope_type` {name!r}"
    return None


def _find_value_problem(parameters: Mapping[str, Any]) -> str | None:
    """Describes a value of the wrong type or out of its range."""
    for name, value in parameters.items():
        if name in LOWER_BOUNDS and not _is_finite_above(LOWER_BOUNDS[name], value):
            return f"must have a finite number above {LOWER_BOUNDS[name]} for `{name}`"
        if name in FACTOR_LISTS and not (
            isinstance(value, list) and all(_is_finite_above(0, number) for number in value)
        ):
            return f"must have a list of finite numbers above 0 for `{name}`"
    if parameters.get("factor", 1) < 1:
        return "must have a number of at least 1 for `factor`"
    if parameters.get("partial_rotary_factor", 1) > 1:
        return "must have a number up to 1 for `partial_rotary_factor`"
    if not isinstance(parameters.get("truncate", True), bool):
        return "must have True or False for `truncate`"
    for low, high, low_default, high_default in (
        ("low_freq_factor", "high_freq_factor", 1, 2),
        ("beta_slow", "beta_fast", 1, 32),
    ):
        if not parameters.get(low, low_default) < parameters.get(high, high_default):
            return (
                f"must have a smaller number for `{low}` than for `{high}` "
                f"({high_default} by default)"
            )
    return None


def _is_finite_above(bound: float, value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return bound < value < math.inf


def check_rope_fits_heads(
    parameters: Mapping[str, Any], d_model: int, heads_field: str, num_heads: int, head_dim: int
) -> None:
    """Checks that RoPE can rotate the heads of one stack.

    Args:
        parameters: Checked parameters.
        d_model: Width of the model.
        heads_field: Name of the config field with the number of heads, for the error message.
        num_heads: Number of heads of the stack.
        head_dim: Width of a head of the stack.

    Raises:
        ValueError: If the number of rotated dimensions of a head is odd or too small, or differs
            from the number of factors of "longrope".
    """
    rotated_dim = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
    smallest = 4 if parameters["rope_type"] == "dynamic" else 2
    if rotated_dim % 2 or rotated_dim < smallest:
        raise ValueError(
            f"`position_embedding_type` 'rope' would rotate {rotated_dim} of the {head_dim} "
            f"dimensions of a head, but needs an even number of at least {smallest}: change "
            f"`d_model` ({d_model}), `{heads_field}` ({num_heads}) or `partial_rotary_factor`."
        )
    for name in FACTOR_LISTS:
        count = len(parameters[name]) if name in parameters else rotated_dim // 2
        if count != rotated_dim // 2:
            raise ValueError(
                f"`rope_parameters` has {count} numbers in `{name}`, but must have "
                f"{rotated_dim // 2}: one for each pair of dimensions of a head, with `d_model` "
                f"({d_model}) and `{heads_field}` ({num_heads})."
            )
