r"""Converts checkpoints of fairseq's `transformer` models; fairseq is not needed.

A checkpoint holds weights (`model`) and options: a namespace (`args`, up to version 0.9) or nested
dictionaries (`cfg`, from 0.10 on; some versions stored them as objects of omegaconf). Facts about
the options come from fairseq 0.12.2 (`models/transformer`, `modules/multihead_attention.py`,
`data/dictionary.py`):

- the decoder begins with `</s>`; the ids of `<s>`, `<pad>`, `</s>` and `<unk>` are 0, 1, 2 and 3;
- positions begin at padding + 1, for sinusoids and for learned positions;
- a stack ends with a norm if its `normalize_before` is on, except in checkpoints of the first
  versions, which have a `version` below 2 (encoder) or 3 (decoder).

Dictionaries (`dict.de.txt`) become a tokenizer. It reads the same texts as fairseq: words and
subwords separated by spaces.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from vanilla_transformer.interop.checkpoint_files import read_training_checkpoint
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.interop.vocabularies import align_vocabularies, make_tokenizer
from vanilla_transformer.model.tokenization_vanilla_transformer import SPECIAL_TOKENS
from vanilla_transformer.weights.match_weights import (
    Rules,
    WeightRule,
    build_model,
    find_differences,
    find_unknown_values,
    fit_weights,
    layer_rules,
    raise_problems,
    rename_weights,
    with_defaults,
)

logger = logging.get_logger(__name__)

INERT_CLASSES = (
    r"omegaconf\..*",
    r"collections\.defaultdict",
    r"fairseq\..*",
    r"enum\.\w*Enum",
    r"typing\.\w+",
    r"builtins\.(bool|dict|float|int|list|object|str|tuple)",
)
"""Classes whose objects are in checkpoints beside the weights; their code is never loaded."""

ACTIVATIONS = {
    "relu": "relu",
    "relu_squared": "relu2",
    "gelu": "gelu",
    "gelu_fast": "gelu_new",
    "gelu_accurate": "gelu_new",
    "tanh": "tanh",
    "linear": "linear",
}
"""The functions of `ACT2FN` by their names in fairseq."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("adaptive_input", "no_cross_attention", "cross_self_attention"), (False,)),
    **dict.fromkeys(("scale_attn", "scale_fc", "scale_heads", "scale_resids"), (False,)),
    **dict.fromkeys(("char_inputs", "use_fused_softmax"), (False,)),
    **dict.fromkeys(("base_layers", "quant_noise_pq", "quant_noise_scalar"), (0,)),
    **dict.fromkeys(("encoder_layers_to_keep", "decoder_layers_to_keep"), (None,)),
    **dict.fromkeys(("encoder_xformers_att_config", "decoder_xformers_att_config"), (None,)),
    "adaptive_softmax_cutoff": (None,),
    "activation_fn": tuple(ACTIVATIONS),
}
"""The values of options that have a counterpart here. An option that is empty has the first."""

HEADS = ("encoder_attention_heads", "decoder_attention_heads")
RATES = (
    *("dropout", "attention_dropout", "encoder_layerdrop", "decoder_layerdrop"),
    "label_smoothing",
)
"""Options that a config has by the same names."""

SAME_IN_BOTH = ("embed_dim", "normalize_before", "learned_pos", "final norm")
"""Options of each stack that must be the same in both."""


def read_fairseq(
    source: str | Path, dicts: str | Path | None = None, changes: Mapping[str, Any] | None = None
) -> Imported:
    """Reads a checkpoint of a fairseq `transformer` model: see `interop.formats`.

    Args:
        dicts: Directory of the dictionaries, `dict.SOURCE.txt` and `dict.TARGET.txt`. None: the
            checkpoint's, if they are there.
    """
    checkpoint = read_training_checkpoint(source, INERT_CLASSES)
    weights = checkpoint.get("model")
    if not isinstance(weights, dict) or not all(torch.is_tensor(w) for w in weights.values()):
        raise ValueError(
            f"{str(source)!r} holds no weights of fairseq (`model`): its entries are "
            f"{list(checkpoint)[:8]}."
        )
    options = _read_options(checkpoint)
    raise_problems("The model cannot be converted", _find_unknown_options(options, weights))
    fields = {**_read_fields(options, weights), **(changes or {})}
    rules = _name_rules("pre" if options.get("encoder_normalize_before") else "post")
    config, fitted = fit_weights(rename_weights(weights, rules), fields)
    sizes = (config.vocab_size, int(config.decoder_vocab_size or 0))
    folder = Path(dicts or Path(source).parent)
    tokenizer, notes = _read_tokenizer(folder, options, sizes, bool(dicts))
    return Imported(build_model(config, fitted), tokenizer, notes=notes)


def _read_options(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of the model, the task and the criterion by their flat names."""
    config, arguments = checkpoint.get("cfg"), checkpoint.get("args")
    if isinstance(config, dict) and isinstance(config.get("model"), dict):
        options: dict[str, Any] = {}
        for group in ("criterion", "task", "model"):
            for name, value in (config.get(group) or {}).items():
                is_group = isinstance(value, dict) and name in ("encoder", "decoder", "quant_noise")
                inner = value if is_group else {}
                options |= {f"{name}_{own}": entry for own, entry in inner.items()}
                options |= {} if is_group else {name: value}
        return {name: _resolve_reference(value, config) for name, value in options.items()}
    if isinstance(arguments, dict):
        return dict(arguments)
    raise ValueError(
        "The checkpoint holds no options (`args` or `cfg`), which tell the architecture: convert "
        "its weights with a table instead."
    )


def _resolve_reference(value: Any, config: Mapping[str, Any]) -> Any:
    """Follows a reference such as `${model.decoder.embed_dim}`."""
    match = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
    if match is None:
        return value
    entry: Any = config
    for name in match[1].split("."):
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry


def _find_unknown_options(
    options: Mapping[str, Any], weights: Mapping[str, torch.Tensor]
) -> list[str]:
    """Returns a sentence for each option that has no counterpart here."""
    problems = find_unknown_values(with_defaults(options, NEUTRAL), NEUTRAL)
    architecture = options.get("arch") or options.get("_name") or "transformer"
    if not str(architecture).startswith("transformer"):
        problems.append(f"`arch` is {architecture!r}, not a `transformer`")
    ends = _has_final_norms(options, weights)
    stacks = [
        {name: options.get(f"{stack}_{name}") for name in SAME_IN_BOTH} | {"final norm": end}
        for stack, end in zip(("encoder", "decoder"), ends, strict=True)
    ]
    problems += find_differences(stacks, SAME_IN_BOTH)
    width = options.get("decoder_embed_dim")
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if options.get(name) not in (None, width):
            problems.append(f"`{name}` is {options[name]}, but `decoder_embed_dim` is {width}")
    problems += [f"`{name}` is missing" for name in HEADS if not options.get(name)]
    return problems


def _has_final_norms(
    options: Mapping[str, Any], weights: Mapping[str, torch.Tensor]
) -> tuple[bool, bool]:
    """Returns whether the encoder, and the decoder, end with a norm."""
    versions = [
        float(weights.get(f"{stack}.version", torch.ones(1)).flatten()[0])
        for stack in ("encoder", "decoder")
    ]
    return (
        bool(options.get("encoder_normalize_before")) and versions[0] >= 2,
        bool(options.get("decoder_normalize_before"))
        and versions[1] > 2
        and not options.get("no_decoder_final_norm"),
    )


def _read_fields(options: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Returns the config fields that the options mean; sizes are read from the weights."""
    has_positions = not options.get("no_token_positional_embeddings")
    learned = bool(options.get("encoder_learned_pos"))
    shares_all = bool(options.get("share_all_embeddings"))
    ties = shares_all or bool(options.get("share_decoder_input_output_embed"))
    kind = "learned" if learned else "sinusoidal_fairseq"
    return {
        **{name: options[name] for name in HEADS},
        **{name: options.get(name) or 0.0 for name in RATES},
        "activation_dropout": options.get("activation_dropout")
        or options.get("relu_dropout")
        or 0.0,
        "activation_function": ACTIVATIONS[options.get("activation_fn") or "relu"],
        "norm_placement": "pre" if options.get("encoder_normalize_before") else "post",
        "final_layer_norm": _has_final_norms(options, weights)[0],
        "normalize_embedding": bool(options.get("layernorm_embedding")),
        "scale_embedding": not options.get("no_scale_embedding"),
        "position_embedding_type": kind if has_positions else "none",
        "position_offset": 2 if has_positions else 0,
        "share_encoder_decoder_embeddings": shares_all,
        "tie_word_embeddings": ties,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "unk_token_id": 3,
        "decoder_start_token_id": 2,
    }


def _name_rules(slot: str) -> Rules:
    """Returns the rules for names, also for old ones; norms have the slot "pre" or "post"."""
    layer, here = r"(encoder|decoder)\.layers\.(\d+)\.", r"model.\1.layers.\2."
    fused = tuple(rf"{here}\3.{part}_proj.\4" for part in "qkv")
    return {
        r"(encoder|decoder)\.version": None,
        # Copies for a fast path of version 0.12.2, which fairseq makes anew when it loads.
        r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)": None,
        r"(encoder|decoder)\.embed_positions\.(_float_tensor|weights)": None,
        r"(encoder|decoder)\.embed_(tokens|positions)\.weight": r"model.\1.embed_\2.weight",
        r"decoder\.(?:output_projection\.weight|embed_out)": "lm_head.weight",
        r"(encoder|decoder)\.layer_norm\.(\w+)": r"model.\1.final_norm.\2",
        r"(encoder|decoder)\.layernorm_embedding\.(\w+)": r"model.\1.embed_norm.\2",
        layer + r"(\w+_attn)\.in_proj_(weight|bias)": WeightRule(fused, is_split=True),
        **layer_rules(
            layer,
            {
                r"(\w+_attn)\.([qkv]|out)_proj": r"\3.\4_proj",
                r"(fc[12])": r"feed_forward.\3",
                r"(self|encoder)_attn_layer_norm": rf"\3_attn_{slot}_norm",
                "final_layer_norm": f"feed_forward_{slot}_norm",
            },
            norms=[rf"layer_norms\.{number}" for number in range(3)],
            slot=slot,
        ),
    }


# Dictionaries ------------------------------------------------------------------------------------

_ROLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_source_eos": True}


def _read_tokenizer(
    folder: Path, options: Mapping[str, Any], sizes: tuple[int, int], is_required: bool
) -> tuple[Any, tuple[str, ...]]:
    """Makes a tokenizer of the dictionaries of both languages; None if a file is missing."""
    paths = [folder / name for name in _dictionary_names(options)]
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        if is_required:
            raise FileNotFoundError(f"The dictionaries {missing} do not exist.")
        return None, ()
    added = _language_tokens(options)
    words = [list(dict.fromkeys([*_read_dictionary(path), *added])) for path in paths]
    problems = [
        f"{str(path)!r} gives {len(symbols)} symbols, but the embedding has {size} rows"
        for path, symbols, size in zip(paths, words, sizes, strict=True)
        if len(symbols) > size
    ]
    raise_problems("The dictionaries do not fit the model", problems)
    for path, symbols, size in zip(paths, words, sizes, strict=True):
        if len(symbols) < size:
            logger.warning(
                f"{str(path)!r} gives {len(symbols)} symbols, but the embedding has {size} rows: "
                "the others get made-up names. Check that it is the dictionary of this model."
            )
            symbols += [f"<row{row}>" for row in range(len(symbols), size)]
    return make_tokenizer(align_vocabularies(words[0], words[1], _ROLES))


def _dictionary_names(options: Mapping[str, Any]) -> list[str]:
    """Returns the names of the dictionaries of the source and the target.

    A task of several pairs (`en-de,en-fr`) may have one for all; else the first pair names them.
    """
    if fixed := options.get("fixed_dictionary"):
        return [Path(fixed).name] * 2
    languages: list[Any] = [options.get(f"{side}_lang") for side in ("source", "target")]
    if None in languages and (pairs := options.get("lang_pairs")):
        pairs = pairs.split(",") if isinstance(pairs, str) else pairs
        languages = pairs[0].split("-", 1)
    return [f"dict.{language}.txt" for language in languages]


def _language_tokens(options: Mapping[str, Any]) -> list[str]:
    """Returns the tokens that fairseq's multilingual tasks append to each dictionary."""
    languages = options.get("langs") or []
    if isinstance(languages, str):
        languages = languages.split(",")
    is_mbart = options.get("task") == "translation_from_pretrained_bart"
    is_mbart |= options.get("lang_tok_style") == "mbart"
    if is_mbart:
        return [*(f"[{language}]" for language in languages), *(["<mask>"] if languages else [])]
    return [f"__{language}__" for language in languages]


def _read_dictionary(path: Path) -> list[str]:
    """Reads lines of a symbol and its count; before them stand `<s>`, `<pad>`, `</s>`, `<unk>`.

    A symbol that `#fairseq:overwrite` gives again has its new id from then on, but the special
    tokens keep theirs. A row that has lost its symbol gets a made-up name.
    """
    words = list(SPECIAL_TOKENS)
    ids = {word: index for index, word in enumerate(words)}
    problems = []
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        entry = line.rstrip()
        overwrites = entry.endswith(" #fairseq:overwrite")  # fairseq writes it on purpose
        word, _, count = entry.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not count.isdecimal():
            problems.append(f"line {number} is not a symbol and its count: {line!r}")
        elif word in ids and not overwrites:
            problems.append(f"line {number} repeats {word!r}")
        former = ids.get(word, len(words))
        if former < len(SPECIAL_TOKENS):  # these keep their ids
            word = f"<row{len(words)}>"
        elif former < len(words):
            words[former] = f"<row{former}>"
        ids[word] = len(words)
        words.append(word)
    raise_problems(f"{str(path)!r} is not a dictionary of fairseq", problems[:20])
    return words
