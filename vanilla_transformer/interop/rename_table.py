r"""Converts a model of your own with a table that renames its weights.

The table is a YAML file of about ten lines:

    config: {encoder_attention_heads: 2, decoder_attention_heads: 2, pad_token_id: 1, ...}
    zeros: ['.*_attn\.._proj\.bias']
    weights:
      'src_embed\.weight': model.encoder.embed_tokens.weight
      'enc\.(\d+)\.qkv\.(\w+)':
        split: ['model.encoder.layers.\1.self_attn.q_proj.\2', ...k_proj..., ...v_proj...]
      'mask': null

`config` holds fields of the config. The sizes are read from the weights if it does not name them.
`zeros` lists expressions for weights that the source does not have and that are zero there: a bias,
for example. `weights` maps expressions for whole names of the source to one of these:

- a name of this package, or null for a weight that is not needed;
- a mapping with one of `to` (a name), `copy` (several names for the same weight) or `split` (names
  for equal parts of the rows), and with any of

  - `transpose: true`, if the source stores matrices as (inputs, outputs);
  - `offset: N`, if the first N rows have no place here, as in position tables that begin at N;
  - `heads: N`, beside `split`, if the rows lie head by head: [q_0, k_0, v_0, q_1, ...];
  - `stack: G`, beside `to`, if several weights become one: they are joined along the rows in the
    order of the numbers that group G of the expression matches.

New names may refer to groups of the expression (`\1`), as in `re.sub`. The first expression that
matches counts. A name that matches none must be a name of this package already.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from vanilla_transformer.interop.checkpoint_files import read_state_dict
from vanilla_transformer.interop.fitting import fit_weights, raise_problems
from vanilla_transformer.interop.imported import Imported, build_model
from vanilla_transformer.interop.qkv import from_per_head
from vanilla_transformer.interop.renaming import RenamedWeights, Weights

MUST_BE_GIVEN = (
    "encoder_attention_heads",
    "decoder_attention_heads",
    "pad_token_id",
    "eos_token_id",
    "decoder_start_token_id",
)
"""Fields that no weight shows, and whose defaults would be wrong without a word."""


@dataclass(frozen=True)
class Rule:
    """Says what becomes of the weights whose names match an expression.

    Attributes:
        pattern: Regular expression for a whole name.
        names: New names; none: the weight is dropped.
        is_split: Whether each name gets an equal part of the rows, rather than the whole weight.
        transpose: Whether the two axes of a matrix are exchanged.
        offset: Number of first rows to leave out.
        heads: Number of heads, if the rows to split lie head by head.
        stack: Group of the expression that numbers the parts of one new weight.
    """

    pattern: str
    names: tuple[str, ...] = ()
    is_split: bool = False
    transpose: bool = False
    offset: int = 0
    heads: int | None = None
    stack: int | None = None


@dataclass(frozen=True)
class RenameTable:
    """A table for one model: see the module's docstring.

    Attributes:
        rules: Rules for names, in their order.
        config: Fields of the config.
        zeros: Expressions for names of this package whose weights are zero in the source.
    """

    rules: tuple[Rule, ...]
    config: Mapping[str, Any]
    zeros: tuple[str, ...] = ()


def import_table(
    source: str | Path,
    table: str | Path,
    key: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Imported:
    """Converts a file of weights with a table.

    Args:
        source: File of weights, as `read_state_dict` takes it.
        table: YAML file: see the module's docstring.
        key: Entry of the file that holds the weights.
        changes: Config fields that differ from the table's.

    Returns:
        The model.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is broken, or if the weights and the table do not fit: one error lists
            all that is missing, left over or of another shape.
    """
    read = read_table(table)
    given = {**read.config, **(changes or {})}
    forgotten = [name for name in MUST_BE_GIVEN if name not in given]
    if forgotten:
        raise ValueError(
            f"`config` in {str(table)!r} lacks {forgotten}, which no weight shows: add them there."
        )
    config, weights = convert_with_table(replace(read, config=given), read_state_dict(source, key))
    return Imported(build_model(config, weights), kind="table", source=str(source))


def convert_with_table(
    table: RenameTable, state_dict: Mapping[str, torch.Tensor]
) -> tuple[Any, Weights]:
    """Converts weights with a table.

    Args:
        table: The table.
        state_dict: Names and weights of the source.

    Returns:
        The config, and weights for a `VanillaTransformerForConditionalGeneration`.

    Raises:
        ValueError: If a rule is no regular expression with names, or as `fit_weights`.
    """
    return fit_weights(apply_rules(table.rules, state_dict), table.config, table.zeros)


def apply_rules(rules: Sequence[Rule], state_dict: Mapping[str, torch.Tensor]) -> RenamedWeights:
    """Renames, cuts and joins weights.

    Args:
        rules: The rules. The first that matches a name counts.
        state_dict: Names and weights of the source.

    Returns:
        The weights under their new names, and what went wrong.

    Raises:
        ValueError: If a rule is no regular expression with names.
    """
    compiled = [(_compile_rule(rule), rule) for rule in rules]
    weights: Weights = {}
    origins: dict[str, str] = {}
    parts: dict[str, dict[int, torch.Tensor]] = {}
    problems = []
    for old, tensor in state_dict.items():
        found = ((match, rule) for pattern, rule in compiled if (match := pattern.fullmatch(old)))
        match, rule = next(found, (None, Rule(old)))
        try:
            moved = [(old, tensor)] if match is None else _apply_rule(rule, match, tensor)
        except ValueError as error:
            problems.append(f"`{old}`: {error}")
            continue
        for new, value in moved:
            taken: dict[Any, Any] = weights
            place: Any = new
            if match is not None and rule.stack is not None:
                taken, place = parts.setdefault(new, {}), int(match[rule.stack])
            if place in taken:
                problems.append(f"`{old}` and `{origins[new]}` both become `{new}`")
            taken[place], origins[new] = value, old
    for new, numbered in parts.items():
        if new in weights:
            problems.append(f"`{new}` gets a whole weight and parts of one")
        try:
            weights[new] = torch.cat([numbered[number] for number in sorted(numbered)])
        except RuntimeError as error:
            problems.append(f"the parts of `{new}` cannot be joined: {error}")
    return RenamedWeights(weights, origins, tuple(problems))


def _compile_rule(rule: Rule) -> re.Pattern[str]:
    try:
        pattern = re.compile(rule.pattern)
        for name in rule.names:
            re.sub(f"(?:{rule.pattern})|", name, "")  # checks the groups of the name
        if rule.stack is not None and not 1 <= rule.stack <= pattern.groups:
            raise ValueError(f"`stack` is {rule.stack}, but it has {pattern.groups} groups")
    except (re.error, TypeError, IndexError, ValueError) as error:
        raise ValueError(
            f"The rule {rule.pattern!r}: {list(rule.names)} is not a regular expression with names "
            f"({error}): write it in the syntax of Python's `re`."
        ) from error
    return pattern


def _apply_rule(
    rule: Rule, match: re.Match[str], tensor: torch.Tensor
) -> list[tuple[str, torch.Tensor]]:
    """Returns the new names of one weight, each with its values."""
    names = [match.expand(name) for name in rule.names]
    if rule.stack is not None and not match[rule.stack].isdecimal():
        raise ValueError(f"`stack` needs a number in group {rule.stack}: {match[rule.stack]!r}")
    if rule.transpose and tensor.dim() == 2:
        tensor = tensor.T
    if rule.offset:
        if tensor.dim() == 0 or len(tensor) <= rule.offset:
            raise ValueError(f"`offset` ({rule.offset}) leaves no row of {tuple(tensor.shape)}")
        tensor = tensor[rule.offset :]
    if not rule.is_split:
        return [(name, tensor) for name in names]
    if rule.heads is not None:
        return list(zip(names, from_per_head(tensor, rule.heads, len(names)), strict=True))
    if tensor.dim() == 0 or len(tensor) % len(names):
        raise ValueError(f"{tuple(tensor.shape)} cannot be split into {len(names)} equal parts")
    return list(zip(names, tensor.chunk(len(names)), strict=True))


# Reading -----------------------------------------------------------------------------------------


def read_table(path: str | Path) -> RenameTable:
    """Reads a table from a YAML file.

    Args:
        path: The file: see the module's docstring.

    Returns:
        The table.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is not YAML, or not a table. One error lists all problems.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"The table {str(path)!r} does not exist.")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{str(path)!r} is not valid YAML: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("weights"), dict):
        raise ValueError(
            f"{str(path)!r} must hold `weights`, a mapping from regular expressions to names."
        )
    raise_problems(f"The table {str(path)!r} is wrong", list(_check_table(content)))
    rules = tuple(_make_rule(pattern, value) for pattern, value in content["weights"].items())
    return RenameTable(rules, content.get("config") or {}, tuple(content.get("zeros") or ()))


def _check_table(content: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each entry of a wrong form."""
    for name in content.keys() - {"config", "zeros", "weights"}:
        yield f"`{name}` is not known: choose from `config`, `zeros` and `weights`"
    if not isinstance(content.get("config") or {}, dict):
        yield "`config` must be a mapping from fields to values"
    zeros = content.get("zeros") or []
    if not isinstance(zeros, list) or not all(isinstance(name, str) for name in zeros):
        yield "`zeros` must be a list of regular expressions"
    for pattern, value in content["weights"].items():
        if not isinstance(pattern, str):
            yield f"`{pattern}` must be a regular expression: put it into quotes"
        elif isinstance(value, dict):
            yield from (f"`{pattern}`: {problem}" for problem in _check_rule(value))
        elif value is not None and not isinstance(value, str):
            yield f"`{pattern}` must lead to a name, null or a mapping, not {value!r}"


def _check_rule(value: Mapping[str, Any]) -> Iterator[str]:
    targets = [name for name in ("to", "copy", "split") if name in value]
    options = {field.name for field in fields(Rule)} - {"pattern", "names", "is_split"}
    for name in value.keys() - options - {"to", "copy", "split"}:
        yield f"`{name}` is not known"
    if len(targets) != 1:
        yield "it needs one of `to`, `copy` and `split`"
        return
    names = value[targets[0]]
    if targets == ["to"] and not isinstance(names, str):
        yield f"`to` must be a name, not {names!r}"
    elif targets != ["to"] and not (
        isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    ):
        yield f"`{targets[0]}` must be a list of names, not {names!r}"
    if not isinstance(value.get("transpose", False), bool):
        yield f"`transpose` must be true or false, not {value['transpose']!r}"
    for option, smallest in (("offset", 0), ("heads", 1), ("stack", 1)):
        number = value.get(option, smallest)
        if isinstance(number, bool) or not isinstance(number, int) or number < smallest:
            yield f"`{option}` must be a whole number from {smallest}, not {number!r}"
    for option, needed in (("heads", "split"), ("stack", "to")):
        if option in value and needed not in targets:
            yield f"`{option}` works beside `{needed}` only"


def _make_rule(pattern: str, value: Any) -> Rule:
    if value is None or isinstance(value, str):
        return Rule(pattern, () if value is None else (value,))
    options = {name: value[name] for name in value.keys() - {"to", "copy", "split"}}
    names = [value["to"]] if "to" in value else value.get("copy") or value["split"]
    return Rule(pattern, tuple(names), is_split="split" in value, **options)
