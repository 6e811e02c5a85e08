"""Converts directories of CTranslate2 back into models; CTranslate2 is not needed.

A directory holds `model.bin` with weights and attributes, `config.json`, and the vocabularies.
`start_from_zero_embedding` stands for a start token whose embedding is zero, as in Marian.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.interop.vocabularies import (
    Vocabularies,
    align_vocabularies,
    build_with_vocabularies,
    make_tokenizer,
)
from vanilla_transformer.weights.ctranslate2_variables import read_model
from vanilla_transformer.weights.match_weights import RenamedWeights
from vanilla_transformer.weights.model_bin import ModelBin, read_model_bin


def read_ctranslate2(
    source: str | Path,
    tokenizer: str | Path | Sequence[Path] | None = None,
    source_eos: bool | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Imported:
    """Reads a directory of CTranslate2: see `interop.formats`.

    Args:
        tokenizer: SentencePiece model, or one for the source and one for the target; directory that
            holds one or two of them or a tokenizer of transformers, or name on the Hub. None: the
            files of the directory, or else words and subwords between spaces.
        source_eos: Whether the tokenizer ends sources with the end token. None: as
            `interop.vocabularies` concludes from the config and the padding token.
    """
    folder = Path(source)
    file = read_model_bin(folder / "model.bin")
    if file.specification != "TransformerSpec":
        raise ValueError(
            f"{str(folder)!r} holds a model of the kind {file.specification!r}: only "
            "encoder-decoders ('TransformerSpec') can be converted."
        )
    settings = read_settings(folder, file)
    fields, weights, is_rounded = read_model(file, settings)
    zero_start = bool(file.integer("decoder/start_from_zero_embedding", 0))
    words = read_vocabularies(folder)
    vocabularies = align_vocabularies(*words, settings, zero_start)
    renamed = RenamedWeights(weights, {name: name for name in weights})
    zeros = [r".*\.(\w+_proj|fc1|fc2|gate)\.bias"]  # some layers have no biases, others have
    model = build_with_vocabularies(renamed, fields, vocabularies, changes, zeros)
    built, about = make_tokenizer(vocabularies, folder, tokenizer, source_eos)
    notes = [*vocabularies.notes, *about]
    if vocabularies.start is None:
        notes.append(
            "A target begins with a token that the user of CTranslate2 gives, such as its language:"
            " set `decoder_start_token_id` or `forced_bos_token_id`."
        )
    if is_rounded:
        notes.append("Its sinusoids are exact here; the file holds them in 16 bits.")
    repeats = any(len(set(tokens)) < len(tokens) for tokens in words)
    adds_sources = vocabularies.orders[0].count(None) > 1  # more than one for padding
    differs = file.version < 6 or is_rounded or repeats or adds_sources
    logits = None
    if not differs and find_spec("ctranslate2"):
        logits = partial(_logits_of_ctranslate2, folder, settings, set(words[1]), vocabularies)
    return Imported(model, built, library="CTranslate2", source_logits=logits, notes=tuple(notes))


def read_settings(folder: Path, file: ModelBin) -> dict[str, Any]:
    """Reads the special tokens and the epsilon; version 5 stores them as attributes."""
    defaults = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    if (folder / "config.json").is_file():
        return {**defaults, "decoder_start_token": "<s>", **read_object(folder / "config.json")}
    start = defaults["bos_token" if file.integer("with_target_bos", 1) else "eos_token"]
    user_chooses_start = file.integer("user_decoder_start_tokens", 0)
    return {
        **defaults,
        "add_source_bos": bool(file.integer("with_source_bos", 0)),
        "add_source_eos": bool(file.integer("with_source_eos", 0)),
        "decoder_start_token": None if user_chooses_start else start,
    }


def read_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """Reads the tokens of the source and of the target, in the order of their ids."""
    is_shared = any(folder.glob("shared_vocabulary.*"))
    sides = ("shared",) if is_shared else ("source", "target")
    words = [_read_vocabulary(folder / f"{side}_vocabulary.json") for side in sides]
    return words[0], words[-1]


def _read_vocabulary(path: Path) -> list[str]:
    """Reads a vocabulary, which old versions store as a text."""
    if not path.is_file():
        text = path.with_suffix(".txt").read_text(encoding="utf-8")
        return text.removesuffix("\n").split("\n")
    try:
        words: list[str] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no vocabulary ({error}): copy it again.") from error
    return words


# The source, run by its own engine ----------------------------------------------------------------


def _logits_of_ctranslate2(
    folder: Path,
    settings: Mapping[str, Any],
    known: Collection[str],
    vocabularies: Vocabularies,
    inputs: Mapping[str, torch.Tensor],
) -> torch.Tensor:
    """Computes logits with CTranslate2; the targets are forced as prefixes.

    Rows that were added to the vocabulary have no logits there; they get the bias that they have
    here. A start token that was added stands for a zero embedding, which any token gets.
    """
    import ctranslate2

    source, target = vocabularies.source, vocabularies.target
    rows = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    targets = [[target[index] for index in ids] for ids in inputs["decoder_input_ids"].tolist()]
    end = str(settings["eos_token"])
    plain = {"add_source_bos": False, "add_source_eos": False, "decoder_start_token": None}
    files: dict[str, Any] = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    files["config.json"] = json.dumps({**settings, **plain}).encode()  # it adds no tokens
    options = {"device": "cpu", "intra_threads": 1, "compute_type": "float32"}
    translator = ctranslate2.Translator(str(folder), files=files, **options)
    results = translator.translate_batch(
        [[source[index] for index in ids[mask.bool()].tolist()] for ids, mask in rows],
        target_prefix=[[word if word in known else end for word in words] for words in targets],
        beam_size=1,
        max_decoding_length=inputs["decoder_input_ids"].shape[1],
        min_decoding_length=0,
        return_logits_vocab=True,
    )
    logits = np.stack([[np.array(step).ravel() for step in each.logits[0]] for each in results])
    return vocabularies.spread_logits(torch.from_numpy(logits))
