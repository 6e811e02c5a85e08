"""Reads models of Marian itself: `model.npz` with `special:model.yml`, and vocabularies.

Marian is not needed. Facts about its models come from Marian 1.12 (`models/transformer.h`,
`layers/generic.h`, `tensors/init.cpp`, `data/default_vocab.cpp`):

- matrices are stored as (inputs, outputs), biases and gains as (1, width); norms have the epsilon
  1e-6, and layers are numbered from 1;
- sine and cosine i have the frequency 10000^(-i / (d_model / 2 - 1)), and the first token is at
  position 0. The `MarianMTModel` of transformers has the paper's frequencies, which are close;
- learned positions (`Wpos`) are shared by both stacks, and embeddings are not scaled then; version
  1.12 does not use them;
- a target begins with a vector of zeros, sources and targets end with `</s>`;
- "gelu" is x · sigmoid(1.702 x) up to version 1.12, and exact afterwards;
- before version 1.10, keys and values of pre-norm layers were not normalised.
"""

import json
import mmap
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig

from vanilla_transformer.data.text_files import existing_file
from vanilla_transformer.interop.checkpoint_files import parse_yaml
from vanilla_transformer.interop.funnel import Imported
from vanilla_transformer.interop.match_weights import (
    SOURCE_TABLE,
    TARGET_TABLE,
    Weights,
    find_unknown_values,
    raise_problems,
)
from vanilla_transformer.interop.sentencepiece_models import UNKNOWN, read_sentencepiece
from vanilla_transformer.interop.vocabularies import (
    align_vocabularies,
    build_with_vocabularies,
    make_tokenizer,
)

OPTIONS = "special:model.yml"
"""The array that holds the options of a model, as the bytes of a text."""

STACKS = ("encoder", "decoder")

KNOWN: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-ffn-activation": ("swish", "relu", "gelu"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "transformer-pool": (False,),
    "right-left": (False,),
    "ulr": (False,),
    "lemma-dim-emb": (0,),
}
"""The values of options that have a counterpart here."""

DECODERS = {
    "rnn": "a recurrent network, such as the SSRU in the students of Firefox and Bergamot",
    "average-attention": "an average of all former tokens (AAN)",
}
"""What the decoders are that are no Transformers, by `transformer-decoder-autoreg`."""

ACTIVATIONS = {"swish": "silu", "relu": "relu", "gelu": "quick_gelu"}

PLACEMENTS = {
    ("", "an"): ("post", "layer_norm"),
    ("", "ar"): ("post", "rms_norm"),
    ("n", "a"): ("pre", "layer_norm"),
    ("r", "a"): ("pre", "rms_norm"),
    ("", "a"): ("none", "layer_norm"),
}
"""Placement and type of norms by `transformer-preprocess` and `-postprocess`, without dropout."""

EPSILON = 1e-6
LAST_VERSION_WITH_QUICK_GELU = (1, 12, 0)


def read_marian(
    source: str | Path,
    vocabularies: Sequence[str | Path] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Imported:
    """Reads a model of Marian: see `interop.formats`.

    Args:
        source: The file of the model, or a directory that holds one.
        vocabularies: Files of the vocabularies: one, or the source's and the target's. None: those
            that the file of options beside the model names, or that lie there.
    """
    path = find_model(Path(source))
    if (options := options_of_binary(path)) is not None:
        kind = options.get("transformer-decoder-autoreg", "unknown")
        raise ValueError(
            f"{str(path)!r} has Marian's binary format, and its decoder is of the kind {kind!r}"
            f"{', ' + DECODERS[kind] if kind in DECODERS else ''}: give the .npz file of a model "
            "whose decoder is a Transformer."
        )
    stored = read_npz(path)
    options = read_options(stored, path)
    raise_problems("The model cannot be converted", list(_find_unknown_options(options)))
    fields = _read_fields(options, stored)
    weights = _read_weights(stored, options, fields)
    files = _find_vocabularies(path) if vocabularies is None else list(map(Path, vocabularies))
    rows = [len(weights[table]) for table in (SOURCE_TABLE, TARGET_TABLE)]
    words = read_vocabulary(files[0], rows[0]), read_vocabulary(files[-1], rows[1])
    settings = {"eos_token": "</s>", "unk_token": "<unk>"}
    aligned = align_vocabularies(*words, settings, zero_start=True)
    model = build_with_vocabularies(weights, fields, aligned, changes)
    _take_search(model.generation_config, next(_read_options_beside(path), {}))
    cut = [file for file in files if file.suffix == ".spm"]
    made, about = make_tokenizer(aligned, path.parent, cut or None)
    notes = [*aligned.notes, *about]
    if options.get("transformer-ffn-activation") == "gelu":
        notes.append(
            f"Its activation is {fields['activation_function']}, as its version of Marian "
            f"({options.get('version')}) computes GELU."
        )
    return Imported(model, made, notes=tuple(notes))


def find_model(source: Path) -> Path:
    """Returns the file of a model, which may be given as its directory."""
    if not source.is_dir():
        return source
    found = [path for path in sorted(source.glob("*.npz")) if ".optimizer." not in path.name]
    if not found:
        raise FileNotFoundError(f"{str(source)!r} holds no model of Marian (*.npz).")
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:5])
        raise ValueError(f"{str(source)!r} holds several models ({names}): give one file.")
    return found[0]


def options_of_binary(path: Path) -> dict[str, str] | None:
    """Returns a few options of a model in Marian's binary format; None: it is something else."""
    if not path.is_file() or path.stat().st_size < 8:
        return None
    with path.open("rb") as file:
        if int.from_bytes(file.read(8), "little") != 1:  # the version of the format
            return None
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if data.find(OPTIONS.encode()) < 0:
        return None
    names = ("type", "transformer-decoder-autoreg", "dec-cell", "enc-depth", "dec-depth", "version")
    found = {name: re.search(rf"(?m)^{name}: (.{{1,80}})$".encode(), data) for name in names}
    return {name: m[1].decode("utf-8", "replace") for name, m in found.items() if m}


def read_options(stored: Mapping[str, torch.Tensor], path: Path) -> dict[str, Any]:
    """Reads the options that a model was trained with."""
    if OPTIONS not in stored or stored[OPTIONS].element_size() != 1:
        raise ValueError(f"{str(path)!r} is no model of Marian: it holds no {OPTIONS!r}.")
    content = stored[OPTIONS].view(torch.uint8).numpy().tobytes().rstrip(b"\0")
    options = parse_yaml(content.decode("utf-8", "replace"), f"{OPTIONS} of {path.name}")
    if not isinstance(options, dict):
        raise ValueError(f"{OPTIONS!r} in {str(path)!r} holds no options.")
    return {str(name): _read_value(value) for name, value in options.items()}


def _read_value(value: Any) -> Any:
    """Returns the number or the truth value that a text stands for."""
    if isinstance(value, list):
        return [_read_value(each) for each in value]
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        return int(value)
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _operations_of(options: Mapping[str, Any], name: str, default: str = "") -> str:
    """Returns the operations of an option without dropout."""
    return str(options.get(f"transformer-{name}", default)).replace("d", "")


def _find_unknown_options(options: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each option that has no counterpart here."""
    decoder = options.get("transformer-decoder-autoreg", "self-attention")
    if decoder != "self-attention":
        cell = f" with `dec-cell` {options.get('dec-cell')!r}" if decoder == "rnn" else ""
        yield (
            f"its decoder is no Transformer: `transformer-decoder-autoreg` is {decoder!r}{cell}, "
            f"{DECODERS.get(decoder, 'which is unknown here')}"
        )
    yield from find_unknown_values(options, KNOWN)
    pair = _operations_of(options, "preprocess"), _operations_of(options, "postprocess", "dan")
    norm = "r" if "r" in "".join(pair) else "n"
    if pair not in PLACEMENTS:
        yield f"`transformer-preprocess` and `-postprocess` are {pair}: no layer here does so"
    if pair[0] and "transformer-postprocess-top" not in options:
        yield (
            "`transformer-preprocess` is 'n' in a version before 1.10, which normalised neither "
            "keys nor values"
        )
    for name in ("postprocess-emb", "postprocess-top"):
        if (value := _operations_of(options, name)) not in ("", norm):
            yield f"`transformer-{name}` is {value!r}: only '' or {norm!r} has a counterpart"
    for name in ("dim-emb", "enc-depth", "dec-depth", "transformer-heads"):
        if not isinstance(options.get(name), int) or options[name] < 1:
            yield f"`{name}` is {options.get(name)!r}, not a number from 1 on"
    tied = options.get("transformer-tied-layers") or []
    if tied and (len(tied) != options.get("dec-depth") or not all(type(n) is int for n in tied)):
        yield f"`transformer-tied-layers` is {tied!r}, not a number for each decoder layer"


def _read_fields(options: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config fields that the options mean; sizes are read from the weights."""
    pair = _operations_of(options, "preprocess"), _operations_of(options, "postprocess", "dan")
    placement, norm_type = PLACEMENTS[pair]
    activation = options.get("transformer-ffn-activation", "swish")
    version = tuple(int(n) for n in re.findall(r"\d+", str(options.get("version", "")))[:3])
    is_exact = activation == "gelu" and version > LAST_VERSION_WITH_QUICK_GELU
    learned = "Wpos" in stored
    return {
        "encoder_attention_heads": options["transformer-heads"],
        "decoder_attention_heads": options["transformer-heads"],
        "activation_function": "gelu" if is_exact else ACTIVATIONS[activation],
        "norm_placement": placement,
        "norm_type": norm_type,
        "layer_norm_eps": EPSILON,
        "normalize_embedding": bool(_operations_of(options, "postprocess-emb")),
        "final_layer_norm": bool(_operations_of(options, "postprocess-top")),
        "position_embedding_type": "learned" if learned else "sinusoidal_fairseq",
        "position_offset": 0,
        "scale_embedding": not learned,
    }


# Weights ------------------------------------------------------------------------------------------


def weight_names(
    layers: Mapping[str, Sequence[int]], fields: Mapping[str, Any], is_tied: bool
) -> dict[str, tuple[str, ...]]:
    """Returns the names of a weight in Marian, by our name; the first that is there counts.

    Args:
        is_tied: Whether the output projection is the embedding of the target.
    """
    names: dict[str, tuple[str, ...]] = {}
    slot = fields["norm_placement"]
    kinds = {"weight": "ln_scale", "bias": "ln_bias"}
    if fields["norm_type"] == "rms_norm":
        kinds = {"weight": "rms_scale"}

    def add_norm(ours: str, marian: str, before: bool) -> None:
        for part, kind in kinds.items():
            names[f"{ours}.{part}"] = (f"{marian}_{kind}{'_pre' if before else ''}",)

    for stack, numbers in layers.items():
        ours = f"model.{stack}"
        if fields["normalize_embedding"]:
            add_norm(f"{ours}.embed_norm", f"{stack}_emb", before=True)
        if fields["final_layer_norm"]:
            add_norm(f"{ours}.final_norm", f"{stack}_top", before=False)
        if fields["position_embedding_type"] == "learned":
            names[f"{ours}.embed_positions.weight"] = ("Wpos",)
        for layer, number in enumerate(numbers):
            inside, marian = f"{ours}.layers.{layer}", f"{stack}_l{number}"
            attentions = {"self": "self_attn", "context": "encoder_attn"}
            for name in ("self", "context")[: 1 if stack == "encoder" else 2]:
                for short, long in zip("qkvo", ("q", "k", "v", "out"), strict=True):
                    place = f"{inside}.{attentions[name]}.{long}_proj"
                    names[f"{place}.weight"] = (f"{marian}_{name}_W{short}",)
                    names[f"{place}.bias"] = (f"{marian}_{name}_b{short}",)
                if slot != "none":
                    norm = f"{inside}.{attentions[name]}_{slot}_norm"
                    add_norm(norm, f"{marian}_{name}_Wo", slot == "pre")
            for number_ in (1, 2):
                names[f"{inside}.feed_forward.fc{number_}.weight"] = (f"{marian}_ffn_W{number_}",)
                names[f"{inside}.feed_forward.fc{number_}.bias"] = (f"{marian}_ffn_b{number_}",)
            if slot != "none":
                add_norm(f"{inside}.feed_forward_{slot}_norm", f"{marian}_ffn_ffn", slot == "pre")
    names[SOURCE_TABLE] = ("encoder_Wemb", "Wemb")
    names[TARGET_TABLE] = ("decoder_Wemb", "Wemb")
    own = ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W")
    names["lm_head.weight"] = names[TARGET_TABLE] if is_tied else own
    names["lm_head.bias"] = ("decoder_ff_logit_out_b",)
    return names


def is_transposed(name: str) -> bool:
    """Returns whether a matrix of Marian is stored as (inputs, outputs)."""
    return re.fullmatch(r".*_W([qkvo12]|)", name) is not None


def _read_weights(
    stored: Mapping[str, torch.Tensor], options: Mapping[str, Any], fields: Mapping[str, Any]
) -> Weights:
    """Returns the weights under our names."""
    tied = options.get("transformer-tied-layers") or range(1, options["dec-depth"] + 1)
    layers = {"encoder": range(1, options["enc-depth"] + 1), "decoder": tied}
    if max(map(len, layers.values())) > len(stored):
        raise ValueError(f"The model has {len(stored)} arrays: too few for its number of layers.")
    is_tied = any(options.get(f"tied-embeddings{end}") is True for end in ("", "-all"))
    weights: Weights = {}
    left, problems = set(stored) - {OPTIONS}, []
    for ours, names in weight_names(layers, fields, is_tied).items():
        name = next((each for each in names if each in stored), None)
        left.discard(name or "")
        if name is None:
            if ours != "lm_head.bias":
                problems.append(f"`{names[0]}` is missing")
            continue
        tensor = stored[name]
        is_matrix = not ours.endswith(("norm.weight", ".bias"))
        if not tensor.is_floating_point() or (is_matrix and tensor.dim() != 2):
            problems.append(f"`{name}` has type {tensor.dtype} and shape {tuple(tensor.shape)}")
        elif is_matrix:
            weights[ours] = tensor.T if is_transposed(name) else tensor
        else:
            weights[ours] = tensor.reshape(-1)
    problems += [f"`{name}` has no counterpart" for name in sorted(left)]
    raise_problems("The weights do not fit the options of the model", problems)
    return weights


# The search ---------------------------------------------------------------------------------------


def _read_options_beside(path: Path) -> Iterator[dict[str, Any]]:
    """Reads the files of options beside a model: `marian-decoder`'s, then those of the training."""
    for name in (f"{path.name}.decoder.yml", "decoder.yml", f"{path.name}.yml"):
        if (file := path.with_name(name)).is_file():
            options = parse_yaml(file.read_text(encoding="utf-8"), name)
            if isinstance(options, dict):
                yield options


def _take_search(settings: GenerationConfig, options: Mapping[str, Any]) -> None:
    """Takes over the beams of `marian-decoder`, and the exponent of the length (`normalize`)."""
    words = {"true": "1", "false": "0"}
    given = [str(options.get(name, "0")) for name in ("beam-size", "normalize")]
    beams, exponent = (words.get(text, text) for text in given)
    is_number = re.fullmatch(r"\d{1,4}", beams) and re.fullmatch(r"\d+(\.\d*)?", exponent)
    if is_number and int(beams) > 1:
        settings.update(num_beams=int(beams), length_penalty=float(exponent), early_stopping=True)


# Vocabularies -------------------------------------------------------------------------------------


def _find_vocabularies(path: Path) -> list[Path]:
    """Returns the files of the vocabularies: one, or the source's and the target's."""
    folder = path.parent
    for options in _read_options_beside(path):
        # Only the names count: the paths are those of the machine that trained the model.
        found = [folder / re.split(r"[/\\]", str(each))[-1] for each in options.get("vocabs") or []]
        if found and all(file.is_file() for file in found):
            return found
    for pattern in ("*vocab*.yml", "*vocab*.yaml", "*vocab*.json", "*.spm"):
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return found
        for sides in (("source", "target"), ("src", "trg")):
            pair = [[file for file in found if side in file.name.split(".")] for side in sides]
            if all(len(each) == 1 for each in pair):
                return [each[0] for each in pair]
    raise FileNotFoundError(
        f"{str(folder)!r} holds no vocabularies that are named by decoder.yml: name them with "
        "--vocabularies, one, or that of the source and that of the target."
    )


def read_vocabulary(path: str | Path, rows: int) -> list[str]:
    """Reads the words of a vocabulary by their ids.

    Args:
        path: A YAML or JSON file of ids by word, a model of SentencePiece (`.spm`), or a text file
            with a word on each line.
        rows: Number of rows of the embedding. Further words have no row, as in Marian.
    """
    path = existing_file(path)
    words = [f"<row{number}>" for number in range(rows)]
    for word, index in _read_ids(path).items():
        if index < rows:
            words[index] = word
    for index, (name, old) in enumerate((("</s>", "eos"), ("<unk>", "UNK"))):
        if name not in words and index < rows and words[index] in ("", old):
            words[index] = name
    if missing := [name for name in ("</s>", "<unk>") if name not in words]:
        raise ValueError(f"The vocabulary {str(path)!r} holds no {' and no '.join(missing)}.")
    return words


def _read_ids(path: Path) -> dict[str, int]:
    if path.suffix == ".spm":
        pieces = read_sentencepiece(path).pieces
        return {"<unk>" if p.type == UNKNOWN else p.piece: n for n, p in enumerate(pieces)}
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix not in (".yml", ".yaml", ".json"):
            return {word: index for index, word in enumerate(text.removesuffix("\n").split("\n"))}
        content = json.loads(text) if path.suffix == ".json" else parse_yaml(text, path.name)
        ids = {str(word): int(index) for word, index in content.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is no vocabulary ({error}): copy it again.") from error
    if min(ids.values(), default=0) < 0:
        raise ValueError(f"{str(path)!r} is no vocabulary: it has negative ids.")
    return ids


# Files of NumPy -----------------------------------------------------------------------------------


LARGEST_RATIO = 100
"""How many times larger than its compressed bytes an array may be."""

_SIGNS_OF_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError),
    *(RuntimeError, ValueError, TypeError, OverflowError, MemoryError),
)
_LOCAL_HEADER = 30  # bytes before the name of a member; they end with two lengths
_SMALL = 1 << 20  # bytes that no ratio is asked of


def read_npz(path: str | Path) -> Mapping[str, torch.Tensor]:
    """Reads the arrays of a file by their names."""
    path = existing_file(path)
    arrays: dict[str, torch.Tensor] = {}
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in arrays or name == member.filename:
                    raise ValueError(f"{member.filename!r} is no array, or is there twice")
                arrays[name] = _read_array(archive, member, data)
    except _SIGNS_OF_DAMAGE as error:
        raise ValueError(
            f"{str(path)!r} is damaged, or no file of NumPy ({' '.join(str(error).split())}): copy "
            "it again."
        ) from error
    return arrays


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, data: Any) -> torch.Tensor:
    """Reads an array; the values of one that is not compressed are a view of the file."""
    if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
        lengths = struct.unpack_from("<HH", data, member.header_offset + _LOCAL_HEADER - 4)
        start, content = member.header_offset + _LOCAL_HEADER + sum(lengths), data
    elif member.file_size > _SMALL + LARGEST_RATIO * member.compress_size:
        raise ValueError(f"{member.filename!r} would have {member.file_size:,} bytes")
    else:
        start, content = 0, bytearray(archive.read(member))
    header = BytesIO(content[start : start + min(member.file_size, 1 << 16)])
    version: Any = np.lib.format.read_magic(header)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{member.filename!r} is of version {version}")
    read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
    shape, is_column_major, dtype = read(header)
    size = prod(shape) * dtype.itemsize
    if dtype.hasobject or dtype.names or min(shape, default=0) < 0:
        raise ValueError(f"{member.filename!r} is no array of numbers")
    if size != member.file_size - header.tell() or start + header.tell() + size > len(content):
        raise ValueError(f"{member.filename!r} of shape {shape} has {member.file_size:,} bytes")
    array = np.ndarray(
        shape, dtype, content, start + header.tell(), order="F" if is_column_major else "C"
    )
    return torch.from_numpy(array if dtype.isnative else array.astype(dtype.newbyteorder("=")))
