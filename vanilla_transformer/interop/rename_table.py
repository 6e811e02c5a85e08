r"""Converts a model of your own with a table that renames its weights.

The table is a YAML file, which `docs/converting.md` describes:

    config: {encoder_attention_heads: 2, decoder_attention_heads: 2, pad_token_id: 1, ...}
    zeros: ['.*_attn\.._proj\.bias']
    weights:
      'src_embed\.weight': model.encoder.embed_tokens.weight
      'mask': null
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vanilla_transformer.interop.checkpoint_files import read_state_dict, read_yaml
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.weights.match_weights import (
    Rules,
    Target,
    WeightRule,
    build_model,
    check_hidden_fields,
    fit_weights,
    raise_problems,
    rename_weights,
)

_OPTIONS = {"transpose", "offset", "heads", "stack"}
"""Keys that may stand beside the new names of a weight."""


@dataclass(frozen=True)
class RenameTable:
    """A table for one model: see the module's docstring.

    Attributes:
        zeros: Expressions for names of this package whose weights are zero in the source.
    """

    rules: Rules
    config: Mapping[str, Any]
    zeros: tuple[str, ...] = ()


def read_with_table(
    source: str | Path,
    table: str | Path,
    key: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Imported:
    """Reads a file of weights with a table: see `interop.formats`."""
    read = read_table(table)
    fields = {**read.config, **(changes or {})}
    check_hidden_fields(fields, f"Add them to `config` in {str(table)!r}.")
    renamed = rename_weights(read_state_dict(source, key), read.rules)
    return Imported(build_model(*fit_weights(renamed, fields, read.zeros)))


def read_table(path: str | Path) -> RenameTable:
    """Reads a table from a YAML file; one error lists all its problems."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not isinstance(content.get("weights"), dict):
        raise ValueError(
            f"{str(path)!r} must hold `weights`, a mapping from regular expressions to names."
        )
    unknown = sorted(content.keys() - {"config", "zeros", "weights"})
    problems = [f"`{name}` is not known: choose `config`, `zeros` or `weights`" for name in unknown]
    rules: dict[str, Target] = {}
    for expression, value in content["weights"].items():
        try:
            rules[str(expression)] = _make_rule(value)
        except ValueError as error:
            problems.append(f"`{expression}`: {error}")
    raise_problems(f"The table {str(path)!r} is wrong", problems)
    return RenameTable(rules, content.get("config") or {}, tuple(content.get("zeros") or ()))


def _make_rule(value: Any) -> Target:
    """Makes a rule for weights; the error tells its mistake."""
    if value is None or isinstance(value, str):
        return value
    known = ("to", "copy", "split") if isinstance(value, dict) else ()
    targets = [name for name in known if name in value]
    if len(targets) != 1:
        raise ValueError("give a name, null, or a mapping with one of `to`, `copy` and `split`")
    options = dict(value)
    names = options.pop(targets[0])
    names = [names] if targets == ["to"] else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"`{targets[0]}` must hold names, not {names!r}")
    if unknown := options.keys() - _OPTIONS:
        raise ValueError(f"`{min(unknown)}` is not known: choose from {sorted(_OPTIONS)}")
    for name, beside in (("heads", "split"), ("stack", "to")):
        if name in options and targets != [beside]:
            raise ValueError(f"`{name}` works beside `{beside}` only")
    return WeightRule(tuple(names), is_split=targets == ["split"], **options)
