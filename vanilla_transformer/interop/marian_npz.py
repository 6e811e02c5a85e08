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
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from vanilla_transformer.interop.checkpoint_files import parse_yaml
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.interop.sentencepiece_models import UNKNOWN, read_sentencepiece
from vanilla_transformer.interop.vocabularies import (
    align_vocabularies,
    build_with_vocabularies,
    check_tables,
    make_tokenizer,
)
from vanilla_transformer.weights.match_weights import (
    SOURCE_TABLE,
    STACKS,
    TARGET_TABLE,
    RenamedWeights,
    Rules,
    WeightRule,
    find_unknown_values,
    layers_of,
    raise_problems,
    rename_weights,
)

OPTIONS = "special:model.yml"
"""The array that holds the options of a model, as the bytes of a text."""

KNOWN: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
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

ACTIVATIONS = {"swish": "silu", "relu": "relu", "gelu": "quick_gelu"}

PLACEMENTS = {
    ("", "an"): ("post", "layer_norm"),
    ("", "ar"): ("post", "rms_norm"),
    ("n", "a"): ("pre", "layer_norm"),
    ("r", "a"): ("pre", "rms_norm"),
    ("", "a"): ("none", "layer_norm"),
}
"""Placement and type of norms by `transformer-preprocess` and `-postprocess`, without dropout."""

_STAND_INS = {
    sign: 0x10F000 + number
    for number, sign in enumerate([*range(0x7F, 0xA0), 0x2028, 0x2029, 0xFFFE, 0xFFFF])
}
"""Letters of YAML 1.2, which Marian writes, that PyYAML refuses or ends a line at."""

LAST_VERSION_WITH_QUICK_GELU = (1, 12, 0)


def read_marian(
    source: str | Path,
    vocabularies: Sequence[str | Path] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Imported:
    """Reads a model of Marian: see `interop.formats`.

    Args:
        vocabularies: Files of the vocabularies: one, or the source's and the target's. None: the
            files that the options beside the model name, or that lie there.
    """
    path = find_model(Path(source))
    stored = read_npz(path)
    options = read_options(stored, path)
    renamed = _rename_arrays(stored, options)
    problems = [*_find_unknown_options(options, renamed.weights), *renamed.problems]
    raise_problems("The model cannot be converted", problems)
    check_tables(renamed)
    fields = _read_fields(options, stored)
    files = _find_vocabularies(path) if vocabularies is None else list(map(Path, vocabularies))
    rows = [len(renamed.weights[table]) for table in (SOURCE_TABLE, TARGET_TABLE)]
    words = read_vocabulary(files[0], rows[0]), read_vocabulary(files[-1], rows[1])
    settings = {"eos_token": "</s>", "unk_token": "<unk>"}
    aligned = align_vocabularies(*words, settings, zero_start=True)  # Marian begins with zeros
    model = build_with_vocabularies(renamed, fields, aligned, changes)
    beside = next(_read_options_beside(path), {})  # of `marian-decoder`, or of the training
    beams, exponent = beside.get("beam-size", 0), beside.get("normalize", 0)
    if isinstance(beams, int) and beams > 1 and isinstance(exponent, int | float):
        search = {"num_beams": beams, "length_penalty": float(exponent), "early_stopping": True}
        model.generation_config.update(**search)
    cut = [file for file in files if file.suffix == ".spm"]  # models of SentencePiece cut texts
    tokenizer, about = make_tokenizer(aligned, path.parent, cut or None)
    notes = [*aligned.notes, *about]
    if options.get("transformer-ffn-activation") == "gelu":
        notes.append(
            f"Its activation is {fields['activation_function']}, as its version of Marian "
            f"({options.get('version')}) computes GELU."
        )
    return Imported(model, tokenizer, notes=tuple(notes))


def find_model(source: Path) -> Path:
    """Returns the file of a model, which may be given as its directory."""
    if not source.is_dir():
        return source
    files = [path for path in sorted(source.glob("*.npz")) if ".optimizer." not in path.name]
    if not files:
        raise FileNotFoundError(f"{str(source)!r} holds no model of Marian (*.npz).")
    if len(files) > 1:
        names = ", ".join(path.name for path in files[:5])
        raise ValueError(f"{str(source)!r} holds several models ({names}): give one file.")
    return files[0]


def read_npz(path: str | Path) -> dict[str, torch.Tensor]:
    """Reads the arrays of a file by their names."""
    path = Path(path)
    try:
        arrays = np.load(path, allow_pickle=False)
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged file raises errors of many types
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{str(path)!r} is damaged, or no file of NumPy ({reason}): copy it again."
        ) from error


def read_options(stored: Mapping[str, torch.Tensor], path: Path) -> dict[str, Any]:
    """Reads the options that a model was trained with."""
    if OPTIONS not in stored:
        raise ValueError(f"{str(path)!r} is no model of Marian: it holds no {OPTIONS!r}.")
    content = stored[OPTIONS].numpy().tobytes().rstrip(b"\0")
    options = parse_yaml(content, f"{OPTIONS} of {path.name}", yaml.SafeLoader)
    if not isinstance(options, dict):
        raise ValueError(f"{OPTIONS!r} in {str(path)!r} holds no options.")
    return options


def _operations_of(options: Mapping[str, Any], name: str, default: str = "") -> str:
    """Returns the operations of an option without dropout."""
    return str(options.get(f"transformer-{name}", default)).replace("d", "")


def _find_unknown_options(
    options: Mapping[str, Any], weights: Mapping[str, torch.Tensor]
) -> Iterator[str]:
    """Yields a sentence for each option that has no counterpart here, or other weights."""
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
    for stack in STACKS:
        depth, layers = options.get(f"{stack[:3]}-depth"), len(layers_of(weights, stack))
        if depth != layers:
            yield f"`{stack[:3]}-depth` is {depth!r}, but the file has {layers} layers"
    if not isinstance(options.get("transformer-heads"), int):
        yield f"`transformer-heads` is {options.get('transformer-heads')!r}, not a number"


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
        "layer_norm_eps": 1e-6,  # no option of Marian
        "normalize_embedding": bool(_operations_of(options, "postprocess-emb")),
        "final_layer_norm": bool(_operations_of(options, "postprocess-top")),
        "position_embedding_type": "learned" if learned else "sinusoidal_fairseq",
        "position_offset": 0,
        "scale_embedding": not learned,
    }


# Weights ------------------------------------------------------------------------------------------


def _rename_arrays(
    stored: Mapping[str, torch.Tensor], options: Mapping[str, Any]
) -> RenamedWeights:
    """Gives the arrays our names, layers that share theirs among them."""
    tied = dict(enumerate(options.get("transformer-tied-layers") or ()))
    origins: dict[str, str] = {}  # by names whose layers are numbered from 0
    for name in stored:
        match = re.fullmatch(r"(encoder|decoder)_l(\d+)_(\w+)", name)
        if match is None:
            origins[name] = name
            continue
        numbers = [int(match[2]) - 1]
        if tied and match[1] == "decoder":
            numbers = [layer for layer, number in tied.items() if number == int(match[2])]
        origins |= {f"{match[1]}_l{number}_{match[3]}": name for number in numbers}
    del origins[OPTIONS]
    ties_output = any(options.get(f"tied-embeddings{end}") is True for end in ("", "-all"))
    renamed = rename_weights(
        {name: stored[old] for name, old in origins.items()}, _name_rules(ties_output)
    )
    weights = {  # gains and biases are stored as (1, width)
        name: array.flatten() if name.endswith(("norm.weight", ".bias")) else array
        for name, array in renamed.weights.items()
    }
    return RenamedWeights(
        weights, {new: origins[name] for new, name in renamed.origins.items()}, renamed.problems
    )


def _name_rules(ties_output: bool) -> Rules:
    """Returns the rules for names; the output projection may be the embedding of the target."""
    layer, here = r"(encoder|decoder)_l(\d+)_", r"model.\1.layers.\2."
    matrices = {f"{layer}ffn_W([12])": r"feed_forward.fc\3"}
    norms = {
        r"(encoder|decoder)_emb": r"model.\1.embed_norm",
        r"(encoder|decoder)_top": r"model.\1.final_norm",
        f"{layer}ffn_ffn": f"{here}feed_forward_SLOT_norm",
    }
    for theirs, ours in (("self", "self_attn"), ("context", "encoder_attn")):
        matrices[f"{layer}{theirs}_W([qkv])"] = rf"{ours}.\3_proj"
        matrices[f"{layer}{theirs}_W(o)"] = f"{ours}.out_proj"
        norms[f"{layer}{theirs}_Wo"] = f"{here}{ours}_SLOT_norm"
    rules: dict[str, str | WeightRule | None] = {}
    for theirs, ours in matrices.items():
        rules[theirs] = WeightRule((f"{here}{ours}.weight",), transpose=True)
        rules[theirs.replace("W", "b")] = f"{here}{ours}.bias"
    for theirs, ours in norms.items():
        for suffix, slot in (("_pre", "pre"), ("", "post")):
            norm = ours.replace("SLOT", slot)
            rules[f"{theirs}_(?:ln|rms)_scale{suffix}"] = f"{norm}.weight"
            rules[f"{theirs}_ln_bias{suffix}"] = f"{norm}.bias"
    target = (TARGET_TABLE, "lm_head.weight") if ties_output else (TARGET_TABLE,)
    return {
        **rules,
        "Wpos": WeightRule(
            tuple(f"model.{s}.embed_positions.weight" for s in ("encoder", "decoder"))
        ),
        "Wemb": WeightRule((SOURCE_TABLE, *target)),
        "encoder_Wemb": SOURCE_TABLE,
        "decoder_Wemb": WeightRule(target),
        "decoder_ff_logit_out_Wt": "lm_head.weight",
        "decoder_ff_logit_out_W": WeightRule(("lm_head.weight",), transpose=True),
        "decoder_ff_logit_out_b": "lm_head.bias",
    }


def _read_options_beside(path: Path) -> Iterator[dict[str, Any]]:
    """Reads the files of options beside a model: of `marian-decoder`, then of the training."""
    for name in (f"{path.name}.decoder.yml", "decoder.yml", f"{path.name}.yml"):
        if (file := path.with_name(name)).is_file():
            options = parse_yaml(file.read_bytes(), name, yaml.SafeLoader)
            if isinstance(options, dict):
                yield options


# Vocabularies -------------------------------------------------------------------------------------


def _find_vocabularies(path: Path) -> list[Path]:
    """Returns the files of the vocabularies: one, or the source's and the target's."""
    folder = path.parent
    for options in _read_options_beside(path):
        # Only the names count: the paths are of the machine that trained the model.
        files = [folder / re.split(r"[/\\]", str(each))[-1] for each in options.get("vocabs") or []]
        if files and all(file.is_file() for file in files):
            return files
    for pattern in ("*vocab*.yml", "*vocab*.yaml", "*vocab*.json", "*.spm"):
        files = sorted(folder.glob(pattern))
        if len(files) == 1:
            return files
        for sides in (("source", "target"), ("src", "trg")):
            pair = [[file for file in files if side in file.name.split(".")] for side in sides]
            if all(len(each) == 1 for each in pair):
                return [each[0] for each in pair]
    raise FileNotFoundError(
        f"{str(folder)!r} holds no vocabularies that are named by decoder.yml: name them with "
        "--vocabularies, one, or the source's and the target's."
    )


def read_vocabulary(path: str | Path, rows: int) -> list[str]:
    """Reads the words of a vocabulary by their ids.

    Args:
        path: A YAML or JSON file of ids by word, a model of SentencePiece (`.spm`), or a text file
            with a word on each line.
        rows: Number of rows of the embedding. Further words have no row, as in Marian.
    """
    path = Path(path)
    words = [f"<row{number}>" for number in range(rows)]
    for word, index in _read_ids(path).items():
        if index < rows:  # Marian cuts vocabularies to the size of its table
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
        text = path.read_bytes().decode()
        if path.suffix not in (".yml", ".yaml", ".json"):
            lines = text.removesuffix("\n").split("\n")
            return {line.removesuffix("\r"): index for index, line in enumerate(lines)}
        if path.suffix == ".json":
            content = json.loads(text)
        else:
            content = parse_yaml(text.translate(_STAND_INS), path.name)
        back = {stand_in: sign for sign, stand_in in _STAND_INS.items()}
        return {str(word).translate(back): int(index) for word, index in content.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is no vocabulary ({error}): copy it again.") from error
