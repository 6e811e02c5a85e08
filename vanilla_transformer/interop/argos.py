"""Reads and writes packages of Argos Translate (`.argosmodel`), which LibreTranslate installs too.

A package is a zip file of one folder. Facts about it come from Argos Translate 1.11:

    metadata.json          languages: from_code, from_name, to_code, to_name; perhaps target_prefix
    model/                 an encoder-decoder of CTranslate2; pieces are all that it is given, so
                           that config.json tells whether sources get `</s>`
    sentencepiece.model    cuts sources and joins outputs; or bpe.model, after Moses' tokenizer
    stanza/, minisbd/      cut texts into sentences; they are not needed here
    target.spm             cuts targets, if that is another model: written and read here alone
"""

import json
import random
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.files.file_contents import content_digest, read_object
from vanilla_transformer.interop.ctranslate2_reader import read_ctranslate2
from vanilla_transformer.interop.formats import Imported
from vanilla_transformer.interop.tokenizers import PROBES
from vanilla_transformer.interop.vocabularies import pieces_of
from vanilla_transformer.tokenizer_sides import ids_of_target_tokens, tokens_of_ids, vocabulary_of

_NEEDED = re.compile(r"metadata\.json|(sentencepiece|bpe)\.model|target\.spm|model/\w[\w.-]*")
"""Expression for the files of a package that are read; none of these leads out of a folder."""


def read_argos(source: str | Path, changes: Mapping[str, Any] | None = None) -> Imported:
    """Reads a package of Argos Translate: see `interop.formats`."""
    folder = TemporaryDirectory()
    metadata = unpack(source, Path(folder.name))
    pieces, engine = Path(folder.name, "sentencepiece.model"), Path(folder.name, "model")
    settings = read_object(engine / "config.json") if (engine / "config.json").is_file() else {}
    ends = bool(settings.get("add_source_eos"))
    cut = [pieces] if pieces.is_file() else []
    if cut and (target := Path(folder.name, "target.spm")).is_file():
        cut.append(target)
    imported = read_ctranslate2(engine, cut or None, ends, changes)
    names = [
        metadata.get(f"{side}_name") or metadata.get(f"{side}_code") for side in ("from", "to")
    ]
    notes = [
        f"It translates from {names[0]} to {names[1]}, one sentence at a time.",
        *imported.notes,
    ]
    if not pieces.is_file():
        notes.append("Argos Translate cuts its texts with the tokenizer of Moses and bpe.model.")
    if prefix := metadata.get("target_prefix"):
        first = ids_of_target_tokens(imported.tokenizer, [prefix])[0]
        imported.model.generation_config.forced_bos_token_id = first
        notes.append(f"A target begins with {prefix}.")
    return replace(imported, notes=tuple(notes), keeps=folder)


def unpack(source: str | Path, folder: Path) -> dict[str, Any]:
    """Writes the files of a package that are read into a folder; returns its metadata."""
    damages = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
    try:
        with zipfile.ZipFile(source) as archive:
            for member in archive.namelist():
                name = member.partition("/")[2]
                if _NEEDED.fullmatch(name):
                    (folder / name).parent.mkdir(exist_ok=True)
                    with archive.open(member) as packed, (folder / name).open("wb") as file:
                        copyfileobj(packed, file)
    except damages as error:
        raise ValueError(
            f"{str(source)!r} is no package of Argos Translate, or is damaged ({error}): copy it "
            "again."
        ) from error
    for name in ("metadata.json", "model/model.bin"):
        if not (folder / name).is_file():
            raise ValueError(f"{str(source)!r} is no package of Argos Translate: no {name} in it.")
    return read_object(folder / "metadata.json")


# Export -------------------------------------------------------------------------------------------

ARGOS_VERSION = "1.11"

_TEXTS, _TOKENS = 200, 12  # random texts that must be cut alike, and their length
_TAG = re.compile(r"<.*>|>>.*<<|__.*__|.*_.*")  # Argos Translate cannot write these


def export_to_argos(
    model: Any,
    tokenizer: Any,
    path: str | Path,
    source: str | Path,
    languages: Sequence[tuple[str, str]],
    quantization: str = "int8",
    positions: int | None = None,
    sentencepiece: str | Path | None = None,
) -> tuple[str, ...]:
    """Writes a model and its tokenizer as a package of Argos Translate.

    Args:
        source: Directory of the model, which may hold models of SentencePiece.
        languages: Code and name of the language of sources, and of the language of targets.
        sentencepiece: As `supplied` of `pieces_of`.

    Returns:
        Notes for the user, one sentence each.
    """
    from vanilla_transformer.weights.ctranslate2 import convert_to_ctranslate2

    codes = [code for code, _ in languages]
    try:
        pieces, note = pieces_of(tokenizer, source, sentencepiece)
    except ValueError as error:
        raise ValueError(
            f"A package of Argos Translate needs a model of SentencePiece, but {error}: name its "
            "file with --sentencepiece."
        ) from error
    first, last = _check_pieces(pieces[0], tokenizer)
    metadata = {
        "package_version": "1.0",
        "argos_version": ARGOS_VERSION,
        **dict(zip(("from_code", "from_name"), languages[0], strict=True)),
        **dict(zip(("to_code", "to_name"), languages[1], strict=True)),
    }
    if (prefix := model.generation_config.forced_bos_token_id) is not None:
        metadata["target_prefix"] = tokens_of_ids(tokenizer, [prefix], "target")[0]
    readme = (
        f"# {languages[0][1]} to {languages[1][1]}\n\n`vanilla-transformer export --to argos` made "
        f"this package from `{Path(source).name}`, a vanilla Transformer with "
        f"{model.num_parameters():,} parameters. Its weights are in {quantization}.\n"
    )
    with TemporaryDirectory() as name:
        folder = Path(name)
        convert_to_ctranslate2(model, tokenizer, folder / "model", quantization, positions)
        config = folder / "model" / "config.json"
        settings = {**read_object(config), "add_source_bos": first, "add_source_eos": last}
        config.write_text(json.dumps(settings, indent=2), encoding="utf-8")
        for file_name, content in zip(("sentencepiece.model", "target.spm"), pieces, strict=False):
            (folder / file_name).write_bytes(content)
        (folder / "metadata.json").write_text(json.dumps(metadata, indent=2), encoding="utf-8")
        (folder / "README.md").write_text(readme, encoding="utf-8")
        # Argos Translate unpacks a package over one of the same name, and keeps its other files.
        digest = content_digest(folder / "model" / "model.bin")[:8]
        root = PurePosixPath(f"translate-{codes[0]}_{codes[1]}-1_0-{digest}")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(each for each in folder.rglob("*") if each.is_file()):
                archive.write(file, str(root / file.relative_to(folder).as_posix()))
    return (
        f"SentencePiece cuts {_TEXTS + len(PROBES)} texts as the tokenizer does, and joins "
        f"{_TEXTS} outputs as it does.",
        *filter(None, [note]),
    )


def _check_pieces(pieces: bytes, tokenizer: Any) -> tuple[bool, bool]:
    """Checks that SentencePiece cuts sources and joins targets as the tokenizer does.

    Returns whether the tokenizer begins, and ends, a source with a special token.
    """
    with optional_packages():
        import sentencepiece
    processor: Any = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    rng, unknown = random.Random(0), tokenizer.unk_token_id
    table, outputs = vocabulary_of(tokenizer, "source"), vocabulary_of(tokenizer, "target")
    usable, joined = (sorted(t for t in v if not _TAG.fullmatch(t)) for v in (table, outputs))
    drawn = ["".join(rng.choices(usable, k=_TOKENS)).replace("▁", " ") for _ in range(_TEXTS)]
    around = tokenizer("a")["input_ids"]
    first = around[0] == tokenizer.bos_token_id
    last = around[-1] == tokenizer.eos_token_id
    for text in (" ".join(normalize("NFC", each).split()) for each in (*PROBES, *drawn)):
        cut = [table.get(piece, unknown) for piece in processor.encode(text, out_type=str)]
        ids_of_pieces = [*[tokenizer.bos_token_id] * first, *cut, *[tokenizer.eos_token_id] * last]
        expected = tokenizer(text)["input_ids"]
        if _without_repeated(unknown, ids_of_pieces) != _without_repeated(unknown, expected):
            cuts = (
                tokens_of_ids(tokenizer, ids[:6], "source") for ids in (ids_of_pieces, expected)
            )
            raise ValueError(
                f"SentencePiece cuts {text[:40]!r} into {' '.join(next(cuts))} and so on, but the "
                f"tokenizer into {' '.join(next(cuts))}: Argos Translate cannot do so. Name the "
                "right file with --sentencepiece, or use another format."
            )
    for tokens in (rng.choices(joined, k=_TOKENS) for _ in range(_TEXTS)):
        text = processor.decode_pieces(tokens).replace("▁", " ")
        options = {"side": "target"} if hasattr(tokenizer, "separate_vocabularies") else {}
        expected = tokenizer.decode([outputs[token] for token in tokens], **options)
        if text.split() != expected.split():
            raise ValueError(
                f"SentencePiece joins {tokens} to {text!r}, but the tokenizer to {expected!r}: "
                "Argos Translate would write other texts than the model."
            )
    return first, last


def _without_repeated(token: int, ids: Sequence[int]) -> list[int]:
    """Returns ids with one token for several in a row."""
    return [index for n, index in enumerate(ids) if index != token or ids[n - 1 : n] != [token]]
