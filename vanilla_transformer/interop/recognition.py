"""Says what kind of model a file or directory holds, without making a model of it."""

import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.names import MODEL_TYPE

OWN = "vanilla_transformer"
"""The kind of a model that this package saved: nothing needs to be converted."""

GRAPHS = "onnx"
"""The kind of an export to ONNX, which nothing here turns back into a model."""

MODEL_TYPES = {
    **{name: name for name in ("marian", "pegasus", "bart", "mbart", "blenderbot", "fsmt", "t5")},
    "m2m_100": "m2m100",
    "mt5": "t5",
    MODEL_TYPE: OWN,
}
"""Kinds by the `model_type` of a config of transformers."""

_NAMES_OF_WEIGHTS = {
    "tutorials": r"(module\.)?(encoder\.layers\.0\.self_attention\.fc_q|src_embed\.0\.lut)\.weight",
    "torch": r".*encoder\.layers\.0\.self_attn\.in_proj_weight",
    "system-a, system-d or system-e": r"(.*\.)?encoder\.layers\.0\.self_attention\.q\.weight",
    "system-b": r"layers\.0\.self_attention\.qkv\.weight",
    "system-c": r"encoder\.layers\.0\.self_attention\.qkv\.weight",
}
"""Kinds, or several, by expression for the name of a weight that only they have."""

_FIELDS = ("d_model", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers",
           "encoder_attention_heads", "decoder_attention_heads", "num_heads", "vocab_size",
           "decoder_vocab_size", "position_embedding_type", "norm_placement")  # fmt: skip


@dataclass(frozen=True)
class Recognised:
    """What a file or directory holds.

    Attributes:
        kinds: Names in `interop.formats.SOURCES`, `OWN` or `GRAPHS`; several, if nothing tells
            which.
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
    if not path.exists():
        raise FileNotFoundError(f"{str(path)!r} does not exist.")
    if path.is_file():
        if path.name == "model.bin":
            return _look_at_ctranslate2(path.parent)
        if _is_package(path):
            return _look_at_argos(path)
        return (
            _look_at_marian(path) if path.suffix in (".npz", ".bin") else _look_at_checkpoint(path)
        )
    if (path / "model.bin").is_file():
        return _look_at_ctranslate2(path)
    if not (path / "config.json").is_file() and any(path.glob("*.npz")):
        return _look_at_marian(path)
    if not (path / "config.json").is_file():
        return Recognised((), {"holds": ", ".join(sorted(p.name for p in path.iterdir())[:8])})
    config = read_object(path / "config.json")
    if isinstance(config.get("model"), dict) and (path / "vocab.json").is_file():
        stacks = {name: str(value) for name, value in config["model"].items()
                  if isinstance(value, str | int | float)}  # fmt: skip
        return Recognised(("eole",), {**stacks, **_count_by_type(_read_headers(path))})
    kind = MODEL_TYPES.get(str(config.get("model_type")))
    fields = {name: str(config[name]) for name in _FIELDS if config.get(name) is not None}
    facts = {"model_type": str(config.get("model_type")), **fields}
    graphs = [file.name for file in sorted((path / "onnx").glob("*.onnx"))]
    if graphs and not any(chain(path.glob("*.safetensors"), path.glob("*.bin"))):
        return Recognised((GRAPHS,), {**facts, "graphs": ", ".join(graphs)})
    facts |= _count_by_type(_read_headers(path))
    return Recognised(() if kind is None else (kind,), facts)


def recognised_kind(path: str | Path) -> str:
    """Returns the kind of a source, if there is only one."""
    kinds = recognise(path).kinds
    if len(kinds) == 1 and kinds[0] not in (OWN, GRAPHS):
        return kinds[0]
    if kinds == (GRAPHS,):
        problem = "holds graphs of ONNX, which cannot be converted: use the model that was exported"
    elif kinds == (OWN,):
        problem = "is a model of this package, which needs no conversion"
    elif kinds:
        problem = f"may be {' or '.join(kinds)}: name it with --from"
    else:
        problem = "is of no kind that is known by its files: name it with --from"
    raise ValueError(f"{str(path)!r} {problem}.")


# Kinds --------------------------------------------------------------------------------------------


def _is_package(path: Path) -> bool:
    """Returns whether a file is a package of Argos Translate."""
    if path.suffix == ".argosmodel":
        return True
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("model/model.bin") for name in archive.namelist())
    except zipfile.BadZipFile:
        return False


def _look_at_ctranslate2(folder: Path) -> Recognised:
    from vanilla_transformer.interop.model_bin import read_model_bin

    file = read_model_bin(folder / "model.bin")
    variables = file.variables
    facts = {"specification": f"{file.specification}, revision {file.revision}, "
             f"file version {file.version}"}  # fmt: skip
    for stack in ("encoder", "decoder"):
        names = [m[1] for n in variables if (m := re.match(rf"{stack}/layer_(\d+)/", n))]
        heads = f"{stack}/num_heads" if f"{stack}/num_heads" in variables else "num_heads"
        if names and heads in variables:
            count = int(file.tensor(heads).flatten()[0])
            facts[stack] = f"{len(set(names))} layers, {count} heads"
    tables = ("encoder/embeddings_0/weight", "encoder/embeddings/weight",
              "decoder/embeddings/weight")  # fmt: skip
    shapes = [variables[name].shape for name in tables if name in variables]
    facts["embeddings"] = ", ".join(str(tuple(shape)) for shape in shapes)
    positions = ("position_encodings/encodings", "relative_attention_bias", "rotary_dim",
                 "relative_position_keys")  # fmt: skip
    found = [n for n in variables if n.endswith(positions) and n.startswith("encoder/")]
    facts["positions"] = (
        f"{found[0].rpartition('/')[2]} {variables[found[0]].shape}" if found else "not stored"
    )
    config = folder / "config.json"
    if config.is_file():
        stored = read_object(config)
        tokens = [name for name in stored if name.endswith("_token") or name.startswith("add_")]
        facts["tokens"] = ", ".join(f"{name}={stored[name]!r}" for name in tokens)
    others = sorted(p.name for p in folder.iterdir() if p.name not in ("model.bin", "config.json"))
    facts["beside it"] = ", ".join(others)
    distinct = {each.start: each for each in variables.values()}.values()
    weights = (each for each in distinct if each.shape)
    facts |= _count_by_type((str(each.dtype), each.shape) for each in weights)
    is_known = file.specification == "TransformerSpec"
    return Recognised(("ctranslate2",) if is_known else (), facts)


def _look_at_argos(path: Path) -> Recognised:
    from vanilla_transformer.interop.argos import opened_package, read_metadata

    with TemporaryDirectory() as name, opened_package(path) as package:
        folder = Path(name)
        package.extract(folder)
        metadata = read_metadata(folder / "metadata.json", path)
        inside = _look_at_ctranslate2(folder / "model").facts
        cut = [each for each in package.files if each in ("sentencepiece.model", "bpe.model")]
    languages = {
        "languages": f"{metadata.get('from_code')} to {metadata.get('to_code')}",
        "package": f"version {metadata.get('package_version')}",
        "tokenizer": ", ".join(cut) or "none",
    }
    return Recognised(("argos",), {**languages, **inside})


def _look_at_marian(path: Path) -> Recognised:
    """Looks at a file of NumPy, or a directory that holds one; its arrays stay on the disk."""
    from vanilla_transformer.interop.marian_npz import (
        OPTIONS,
        find_model,
        options_of_binary,
        read_npz,
        read_options,
    )

    path = find_model(path)
    if path.suffix == ".bin":
        found = options_of_binary(path)
        format_ = {"format": "Marian's binary format, for its own decoder alone"}
        return _look_at_checkpoint(path) if found is None else Recognised((), format_ | found)
    stored = read_npz(path)
    shapes = {name: (str(each.dtype), tuple(each.shape)) for name, each in stored.items()}
    if OPTIONS not in stored:
        return _look_at_weights(shapes, {})
    options = read_options(stored, path)
    tables = {name: str(shape) for name, (_, shape) in shapes.items() if name.endswith("Wemb")}
    named = ("type", "transformer-decoder-autoreg", "dec-cell", "enc-depth", "dec-depth",
             "transformer-heads", "transformer-ffn-activation", "transformer-preprocess",
             "transformer-postprocess", "version")  # fmt: skip
    facts = {"file": path.name, **{n: str(options[n]) for n in named if n in options}, **tables}
    del shapes[OPTIONS]
    return Recognised(("marian-npz",), {**facts, **_count_by_type(shapes.values())})


def _look_at_checkpoint(path: Path) -> Recognised:
    """Looks at a file of torch or safetensors, whose weights stay on the disk."""
    if path.suffix == ".safetensors":
        return _look_at_weights(_read_header(path), {})
    from vanilla_transformer.interop.checkpoint_files import read_training_checkpoint
    from vanilla_transformer.interop.fairseq import INERT_CLASSES

    content = read_training_checkpoint(path, INERT_CLASSES)
    facts = {"entries": ", ".join(list(content)[:12])}
    weights = content
    for entry in ("model", "model_state_dict", "state_dict"):
        if isinstance(content.get(entry), dict):
            weights = content[entry]
            break
    shapes = {
        name: (str(value.dtype), tuple(value.shape))
        for name, value in weights.items()
        if hasattr(value, "dtype") and hasattr(value, "shape")
    }
    if {"opt", "vocab"} <= content.keys():
        return Recognised(("opennmt-py",), {**facts, **_count_by_type(shapes.values())})
    options = content.get("cfg") or content.get("args")
    if options and "model" in content:
        named = options.get("model", options) if isinstance(options, dict) else {}
        arch = {"architecture": str(named.get("arch", named.get("_name", "")))}
        return Recognised(("fairseq",), {**arch, **facts, **_count_by_type(shapes.values())})
    return _look_at_weights(shapes, facts)


def _look_at_weights(
    shapes: Mapping[str, tuple[str, tuple[int, ...]]], facts: Mapping[str, str]
) -> Recognised:
    """Looks at names and shapes of a state dict."""
    kinds = [
        kind
        for names, expression in _NAMES_OF_WEIGHTS.items()
        if any(re.fullmatch(expression, name) for name in shapes)
        for kind in re.split(", | or ", names)
    ]
    if shapes and not kinds:
        kinds = ["table"]
    first = {"first weights": ", ".join(f"{n} {s[1]}" for n, s in list(shapes.items())[:4])}
    return Recognised(tuple(kinds), {**facts, **first, **_count_by_type(shapes.values())})


# Weights ------------------------------------------------------------------------------------------


def _read_headers(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields type and shape of each weight in the safetensors files of a directory."""
    for path in sorted(folder.glob("*.safetensors")):
        yield from _read_header(path).values()


def _read_header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Reads types and shapes of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {n: (s.get_dtype(), tuple(s.get_shape())) for n, s in slices.items()}
    except SafetensorError as error:
        raise ValueError(f"{str(path)!r} is damaged ({error}): copy it again.") from error


def _count_by_type(weights: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, str]:
    """Returns how many numbers of each type there are, for types and shapes."""
    counts: Counter[str] = Counter()
    for kind, shape in weights:
        counts[kind.removeprefix("torch.")] += prod(shape)
    return {"numbers": ", ".join(f"{n:,} {kind}" for kind, n in counts.most_common()) or "none"}
