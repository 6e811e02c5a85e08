"""Says what kind of model a file or directory holds, without making a model of it."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.interop.formats import KINDS
from vanilla_transformer.names import MODEL_TYPE

OWN = "vanilla_transformer"
"""The kind of a model that this package saved: nothing needs to be converted."""

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

_FIELDS = ("d_model", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers",
           "encoder_attention_heads", "decoder_attention_heads", "num_heads", "vocab_size",
           "decoder_vocab_size", "position_embedding_type", "norm_placement")  # fmt: skip
_OPTIONS_OF_MARIAN = ("type", "transformer-decoder-autoreg", "enc-depth", "dec-depth",
                      "transformer-heads", "transformer-ffn-activation", "version")  # fmt: skip


@dataclass(frozen=True)
class Recognised:
    """What a file or directory holds.

    Attributes:
        kinds: Names in `interop.formats.SOURCES`, or `OWN`; several, if nothing tells which.
    """

    kinds: tuple[str, ...]
    facts: Mapping[str, str]

    def __str__(self) -> str:
        """The kinds and the facts, one per line."""
        rows = {"kind": " or ".join(self.kinds) or "unknown", **self.facts}
        width = max(map(len, rows)) + 2
        return "\n".join(f"{name:<{width}}{value}" for name, value in rows.items())


def recognise(path: str | Path) -> Recognised:
    """Looks at a file or directory.

    Raises:
        FileNotFoundError: If it does not exist.
        ValueError: If it is damaged.
    """
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
    if len(kinds) == 1 and kinds[0] != OWN:
        return kinds[0]
    if kinds == (OWN,):
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
    from vanilla_transformer.interop.ctranslate2_variables import StoredVariables
    from vanilla_transformer.interop.model_bin import read_model_bin

    file = read_model_bin(path)
    facts = {"specification": f"{file.specification}, revision {file.revision}"}
    for stack in ("encoder", "decoder"):
        names = [m[1] for n in file.variables if (m := re.match(rf"{stack}/layer_(\d+)/", n))]
        heads = StoredVariables(file).number(f"{stack}/num_heads", 8)
        facts[stack] = f"{len(set(names))} layers, {heads:.0f} heads"
    tables = (v for n, v in file.variables.items() if re.search(r"/embeddings(_0)?/weight$", n))
    facts["embeddings"] = ", ".join(str(table.shape) for table in tables)
    if (config := path.with_name("config.json")).is_file():
        tokens = {n: v for n, v in read_object(config).items() if n.endswith("_token")}
        facts["tokens"] = ", ".join(f"{name}={value!r}" for name, value in tokens.items())
    kinds = ("ctranslate2",) if file.specification == "TransformerSpec" else ()
    aliases_once = set(file.variables.values())
    return Recognised(kinds, facts | _count_numbers(v for v in aliases_once if v.shape))


def _look_at_config(path: Path) -> Recognised:
    """Looks at a directory of transformers, of this package or of Eole."""
    from vanilla_transformer.interop.checkpoint_files import read_state_dict

    config = read_object(path)
    shards = [read_state_dict(file) for file in sorted(path.parent.glob("*.safetensors"))]
    numbers = _count_numbers(weight for shard in shards for weight in shard.values())
    if isinstance(config.get("model"), dict):
        options = {name: str(value) for name, value in config["model"].items()
                   if isinstance(value, str | int | float)}  # fmt: skip
        return Recognised(("eole",), options | numbers)
    kind = {MODEL_TYPE: OWN, **KINDS}.get(str(config.get("model_type")))
    has_weights = shards or any(path.parent.glob("*.bin"))  # unlike an export to ONNX
    fields = ("model_type", *_FIELDS)
    facts = {name: str(config[name]) for name in fields if config.get(name) is not None}
    return Recognised((kind,) if kind and has_weights else (), facts | numbers)


def _look_at_marian(path: Path) -> Recognised:
    from vanilla_transformer.interop.marian_npz import OPTIONS, read_npz, read_options

    stored = read_npz(path)
    options = read_options(stored, path)
    facts = {name: str(options[name]) for name in _OPTIONS_OF_MARIAN if name in options}
    facts |= {n: str(tuple(array.shape)) for n, array in stored.items() if n.endswith("Wemb")}
    del stored[OPTIONS]
    return Recognised(("marian-npz",), facts | _count_numbers(stored.values()))


def _look_at_checkpoint(path: Path) -> Recognised:
    """Looks at a file of torch or safetensors, whose weights stay on the disk."""
    from vanilla_transformer.interop.checkpoint_files import read_training_checkpoint
    from vanilla_transformer.interop.fairseq import INERT_CLASSES

    content = read_training_checkpoint(path, INERT_CLASSES)
    held = (content.get(name) for name in ("model", "model_state_dict", "state_dict"))
    entry = next((value for value in held if isinstance(value, dict)), content)
    weights = {name: value for name, value in entry.items() if hasattr(value, "dtype")}
    kinds: tuple[str, ...] = next(
        ((kind,) for kind, names in ENTRIES if all(map(content.get, names))), ()
    )
    for expression, names in NAMES_OF_WEIGHTS.items():
        if not kinds and any(re.fullmatch(expression, name) for name in weights):
            kinds = names
    if weights and not kinds:
        kinds = ("table",)
    shapes = [f"{name} {tuple(weight.shape)}" for name, weight in list(weights.items())[:4]]
    facts = {"entries": ", ".join(list(content)[:12]), "first weights": ", ".join(shapes)}
    return Recognised(kinds, facts | _count_numbers(weights.values()))


FORMATS: dict[str, Callable[[Path], Recognised]] = {
    "*.argosmodel": _look_at_argos,
    "model.bin": _look_at_ctranslate2,
    "config.json": _look_at_config,
    "*.npz": _look_at_marian,
}
"""What looks at a file, by its name, or by the name of a file in a directory: the first counts."""


def _count_numbers(weights: Iterable[Any]) -> dict[str, str]:
    """Returns how many numbers of each type weights have."""
    counts: Counter[str] = Counter()
    for weight in weights:
        counts[str(weight.dtype).removeprefix("torch.")] += prod(weight.shape)
    return {"numbers": ", ".join(f"{n:,} {kind}" for kind, n in counts.most_common()) or "none"}
