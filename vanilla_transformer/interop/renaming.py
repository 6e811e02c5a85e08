r"""Renames the weights of a state dict by rules.

A rule is a regular expression that must match a whole name, and the new name. The new name may
refer to groups of the expression, as in `re.sub` (`\1`). None instead of a new name drops the
weight. The first rule that matches counts; a name that matches no rule stays as it is.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

Rules = Mapping[str, str | None]
"""New names by regular expression."""

Weights = dict[str, torch.Tensor]
"""Weights by name."""


@dataclass(frozen=True)
class RenamedWeights:
    """Weights under their new names.

    Attributes:
        weights: Weights by new name.
        origins: Old name by new name.
        problems: What went wrong, one sentence for each problem.
    """

    weights: Mapping[str, torch.Tensor]
    origins: Mapping[str, str]
    problems: tuple[str, ...] = ()


def rename_weights(
    state_dict: Mapping[str, torch.Tensor], rule_sets: Iterable[Rules]
) -> RenamedWeights:
    """Applies sets of rules to the names of weights, one set after another.

    Args:
        state_dict: Names and weights.
        rule_sets: Sets of rules. The first matching rule of each set is applied.

    Returns:
        The renamed weights. Two weights that get the same name are a problem.

    Raises:
        ValueError: If a rule is not a regular expression with a name.
    """
    compiled = [_compile_rules(rules) for rules in rule_sets]
    weights: Weights = {}
    origins: dict[str, str] = {}
    problems = []
    for old, tensor in state_dict.items():
        new: str | None = old
        for rules in compiled:
            new = None if new is None else _apply_first_match(rules, new)
        if new is None:
            continue
        if new in weights:
            problems.append(f"`{old}` and `{origins[new]}` both become `{new}`")
        weights[new], origins[new] = tensor, old
    return RenamedWeights(weights, origins, tuple(problems))


def _compile_rules(rules: Rules) -> list[tuple[re.Pattern[str], str | None]]:
    compiled = []
    for expression, template in rules.items():
        try:
            pattern = re.compile(expression)
            re.sub(f"(?:{expression})|", template or "", "")  # checks the groups of the template
        except (re.error, TypeError, IndexError) as error:
            raise ValueError(
                f"The rule {expression!r}: {template!r} in `renames` is not a regular expression "
                f"with a name ({error}): write it in the syntax of Python's `re`."
            ) from error
        compiled.append((pattern, template))
    return compiled


def _apply_first_match(rules: list[tuple[re.Pattern[str], str | None]], name: str) -> str | None:
    for pattern, template in rules:
        if match := pattern.fullmatch(name):
            return None if template is None else match.expand(template)
    return name
