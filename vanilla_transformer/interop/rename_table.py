r"""Converts a model of your own with a table that renames its weights.

The table is a YAML file, which `docs/converting.md` describes:

    config: {encoder_attention_heads: 2, decoder_attention_heads: 2, pad_token_id: 1, ...}
    zeros: ['.*_attn\.._proj\.bias']
    weights:
      'src_embed\.weight': model.encoder.embed_tokens.weight
      'mask': null
    compare: module:function

The function is the user's own, in a file beside the table or in an installed package. It runs only
if the user asks for it, once, as `function(path, input_ids, attention_mask, decoder_input_ids)`,
with the path of the weights, ids of shape (batch, source_len) and (batch, target_len), and 1 in the
mask for a real token of the source. It returns the logits, of shape (batch, target_len, vocab).
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.interop.checkpoint_files import read_state_dict, read_yaml
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.interop.match_weights import (
    Rules,
    Target,
    WeightRule,
    build_model,
    check_hidden_fields,
    fit_weights,
    raise_problems,
    rename_weights,
)
from vanilla_transformer.interop.probe import probe_inputs

_OPTIONS = {"transpose", "offset", "heads", "stack"}
"""What may stand beside the new names of a weight."""


@dataclass(frozen=True)
class RenameTable:
    """A table for one model: see the module's docstring.

    Attributes:
        zeros: Expressions for names of this package whose weights are zero in the source.
        compare: Module and name of the function that runs the source: "module:name". None: none.
    """

    rules: Rules
    config: Mapping[str, Any]
    zeros: tuple[str, ...] = ()
    compare: str | None = None


def read_with_table(
    source: str | Path,
    table: str | Path,
    key: str | None = None,
    changes: Mapping[str, Any] | None = None,
    run_code: bool = False,
) -> Imported:
    """Reads a file of weights with a table: see `interop.formats`.

    Args:
        run_code: Whether to run the function that the table names, and to compare its logits.
    """
    read = read_table(table)
    if run_code and read.compare is None:
        raise ValueError(
            f"There is no code to run: name your function in {str(table)!r}, as in "
            "`compare: module:function`, or leave out --run-code."
        )
    fields = {**read.config, **(changes or {})}
    check_hidden_fields(fields, f"Add them to `config` in {str(table)!r}.")
    renamed = rename_weights(read_state_dict(source, key), read.rules)
    model = build_model(*fit_weights(renamed, fields, read.zeros))
    if read.compare is None:
        return Imported(model)
    if not run_code:
        hint = f"--run-code runs `{read.compare}`, and compares the logits."
        return Imported(model, notes=(hint,))
    logits = _run_source(read.compare, Path(table).resolve().parent, source, model.config)
    return Imported(
        model, library=f"the source, run by `{read.compare}`,", source_logits=lambda _: logits
    )


def _run_source(name: str, folder: Path, source: str | Path, config: Any) -> torch.Tensor:
    """Runs the user's own function on the inputs of the probe."""
    module, function = name.split(":")
    inputs = probe_inputs(config)
    shape = (*inputs["decoder_input_ids"].shape, config.decoder_vocab_size or config.vocab_size)
    sys.path.insert(0, str(folder))
    try:
        run = getattr(import_module(module), function)
        with torch.no_grad():
            logits: torch.Tensor = run(Path(source), **{n: t.clone() for n, t in inputs.items()})
    finally:
        sys.path.remove(str(folder))
    if logits.shape != shape:
        raise ValueError(
            f"`{name}` must return logits of shape {shape} (batch, target_len, vocab), not "
            f"{tuple(logits.shape)}."
        )
    return logits.cpu()


def read_table(path: str | Path) -> RenameTable:
    """Reads a table from a YAML file; one error lists all its problems."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not isinstance(content.get("weights"), dict):
        raise ValueError(
            f"{str(path)!r} must hold `weights`, a mapping from regular expressions to names."
        )
    problems = list(_check_entries(content))
    rules: dict[str, Target] = {}
    for expression, value in content["weights"].items():
        try:
            rules[str(expression)] = _make_rule(value)
        except ValueError as error:
            problems.append(f"`{expression}`: {error}")
    raise_problems(f"The table {str(path)!r} is wrong", problems)
    zeros = tuple(content.get("zeros") or ())
    return RenameTable(rules, content.get("config") or {}, zeros, content.get("compare"))


def _check_entries(content: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each entry beside the weights that has a wrong form."""
    for name in content.keys() - {"config", "zeros", "weights", "compare"}:
        yield f"`{name}` is not known: choose from `config`, `zeros`, `weights` and `compare`"
    compare = content.get("compare")
    if compare is not None and not re.fullmatch(r"[\w.]+:\w+", str(compare)):
        yield f"`compare` must be of the form module:function, not {compare!r}"
    if not isinstance(content.get("config") or {}, dict):
        yield "`config` must be a mapping from fields to values"
    if not isinstance(content.get("zeros") or [], list):
        yield "`zeros` must be a list of regular expressions"


def _make_rule(value: Any) -> Target:
    """Makes a rule for weights; the error tells what is wrong with it."""
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
