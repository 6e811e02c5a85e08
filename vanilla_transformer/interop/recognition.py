"""Recognises the kind of model in a file or directory, without making a model of it."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.interop.formats import KINDS
from vanilla_transformer.names import MODEL_TYPE

ENTRIES = (
    ("opennmt-py", {"opt", "vocab"}),
    ("fairseq", {"model", "cfg"}),
    ("fairseq", {"model", "args"}),
)
"""Kinds, with the entries that only their checkpoints have."""

NAMES_OF_WEIGHTS = {
    r"(module\.)?(encoder\.layers\.0\.self_attention\.fc_q|src_embed\.0\.lut)\.weight": (
        "tutorials",
    ),
    r".*encoder\.layers\.0\.self_attn\.in_proj_weight": ("torch",),
    r"(.*\.)?encoder\.layers\.0\.self_attention\.q\.weight": ("system-a", "system-d", "system-e"),
    r"layers\.0\.self_attention\.qkv\.weight": ("system-b",),
    r"encoder\.layers\.0\.self_attention\.qkv\.weight": ("system-c",),
}
"""Kinds by expression for the name of a weight that only they have."""


@dataclass(frozen=True)
class Recognised:
    """The kind of model in a file or directory, and facts about it.

    Attributes:
        kinds: Names in `interop.formats.SOURCES`, or `MODEL_TYPE`; several, if nothing tells which.
    """

    kinds: tuple[str, ...]
    facts: Mapping[str, str]

    def __str__(self) -> str:
        """The kinds and the facts, one per line."""
        rows = {"kind": " or ".join(self.kinds) or "unknown", **self.facts}
        width = max(map(len, rows)) + 2
        return "\n".join(f"{name:<{width}}{value}" for name, value in rows.items())


def recognise(path: str | Path) -> Recognised:
    """Looks at a file or directory."""
    path = Path(path)
    for pattern, look_at in FORMATS.items():
        files = sorted(path.glob(pattern)) if path.is_dir() else [path]
        if files and files[0].match(pattern):
            return look_at(files[0])
    if path.is_file():
        return _look_at_checkpoint(path)
    return Recognised((), {"holds": ", ".join(sorted(p.name for p in path.iterdir())[:8])})


def recognised_kind(path: str | Path) -> str:
    """Returns the kind of a source, if there is only one."""
    kinds = recognise(path).kinds
    if len(kinds) == 1 and kinds[0] != MODEL_TYPE:
        return kinds[0]
    if kinds == (MODEL_TYPE,):
        problem = "is a model of this package, which needs no conversion"
    elif kinds:
        problem = f"may be {' or '.join(kinds)}: name it with --from"
    else:
        problem = "is of no kind that is known by its files: name it with --from"
    raise ValueError(f"{str(path)!r} {problem}.")


# Formats ------------------------------------------------------------------------------------------


def _look_at_argos(path: Path) -> Recognised:
    from vanilla_transformer.interop.argos import unpack

    with TemporaryDirectory() as folder:
        metadata = unpack(path, Path(folder))
        inside = _look_at_ctranslate2(Path(folder, "model", "model.bin"))
    languages = f"{metadata.get('from_code')} to {metadata.get('to_code')}"
    return Recognised(("argos",), {"languages": languages, **inside.facts})


def _look_at_ctranslate2(path: Path) -> Recognised:
    from vanilla_transformer.weights.model_bin import read_model_bin

    file = read_model_bin(path)
    kinds = ("ctranslate2",) if file.specification == "TransformerSpec" else ()
    names = {variable: name for name, variable in file.variables.items()}  # aliases count once
    facts = _facts_of({name: variable for variable, name in names.items() if variable.shape})
    return Recognised(kinds, {"specification": file.specification, **facts})


def _look_at_config(path: Path) -> Recognised:
    """Looks at a directory of transformers, of this package or of Eole."""
    from vanilla_transformer.interop.checkpoint_files import read_state_dict

    config = read_object(path)
    shards = [read_state_dict(file) for file in sorted(path.parent.glob("*.safetensors"))]
    facts = _facts_of({name: weight for shard in shards for name, weight in shard.items()})
    if isinstance(config.get("model"), dict):
        return Recognised(("eole",), facts)
    model_type = str(config.get("model_type"))
    kind = {MODEL_TYPE: MODEL_TYPE, **KINDS}.get(model_type)
    has_weights = shards or any(path.parent.glob("*.bin"))  # unlike an export to ONNX
    return Recognised((kind,) if kind and has_weights else (), {"model_type": model_type, **facts})


def _look_at_marian(path: Path) -> Recognised:
    from vanilla_transformer.interop.marian_npz import OPTIONS, read_npz, read_options

    stored = read_npz(path)
    read_options(stored, path)  # its error: no model of Marian
    del stored[OPTIONS]
    return Recognised(("marian-npz",), _facts_of(stored))


def _look_at_checkpoint(path: Path) -> Recognised:
    """Looks at a file of torch or safetensors, whose weights stay on the disk."""
    from vanilla_transformer.interop.checkpoint_files import read_training_checkpoint
    from vanilla_transformer.interop.fairseq import INERT_CLASSES

    content = read_training_checkpoint(path, INERT_CLASSES)
    held = (content.get(name) for name in ("model", "model_state_dict", "state_dict"))
    entry = next((value for value in held if isinstance(value, dict)), content)
    weights = {name: value for name, value in entry.items() if hasattr(value, "dtype")}
    kinds: list[tuple[str, ...]] = [
        (kind,) for kind, names in ENTRIES if all(map(content.get, names))
    ]
    kinds += [
        names
        for expression, names in NAMES_OF_WEIGHTS.items()
        if any(re.fullmatch(expression, name) for name in weights)
    ]
    kinds += [("table",)] if weights else [()]
    return Recognised(kinds[0], {"entries": ", ".join(list(content)[:12]), **_facts_of(weights)})


FORMATS: dict[str, Callable[[Path], Recognised]] = {
    "*.argosmodel": _look_at_argos,
    "model.bin": _look_at_ctranslate2,
    "config.json": _look_at_config,
    "*.npz": _look_at_marian,
}
"""Functions that look at a file, by its name or that of a file in a directory: the first counts."""


def _facts_of(weights: Mapping[str, Any]) -> dict[str, str]:
    """Returns the largest weights with their shapes, and the count of numbers by type."""
    counts: Counter[str] = Counter()
    for weight in weights.values():
        counts[str(weight.dtype).removeprefix("torch.")] += prod(weight.shape)
    largest = sorted(weights.items(), key=lambda item: -prod(item[1].shape))[:4]
    shapes = ", ".join(f"{name} {tuple(weight.shape)}" for name, weight in largest)
    numbers = ", ".join(f"{n:,} {kind}" for kind, n in counts.most_common())
    return {"largest weights": shapes, "numbers": numbers or "none"}
