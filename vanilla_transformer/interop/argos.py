"""Converts packages of Argos Translate (`.argosmodel`), which LibreTranslate installs too.

A package is a zip file of one folder. Facts about it come from Argos Translate 1.11:

    metadata.json          languages: from_code, from_name, to_code, to_name; perhaps target_prefix
    model/                 an encoder-decoder of CTranslate2, whose sources have no `</s>`
    sentencepiece.model    cuts texts into pieces; or bpe.model, after the tokenizer of Moses
    stanza/, minisbd/      cut texts into sentences; they are not needed here
"""

import json
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import torch

from vanilla_transformer.interop.ctranslate2_reader import read_ctranslate2
from vanilla_transformer.interop.funnel import Imported
from vanilla_transformer.interop.probe import SourceLogits

_NEEDED = re.compile(r"metadata\.json|sentencepiece\.model|bpe\.model|model/[\w.-]+")
"""Expression for the files of a package that are read."""

_LARGEST_RATIO = 100
"""How many times larger than the package its files may be; weights shrink by a half at most."""

_SMALL = 1 << 20  # bytes that no ratio is asked of


def read_argos(source: str | Path, changes: Mapping[str, Any] | None = None) -> Imported:
    """Reads a package of Argos Translate: see `interop.formats`.

    Args:
        source: The package, a file that ends with `.argosmodel`.
        changes: Config fields that differ from the model's.
    """
    folder = TemporaryDirectory()  # lives as long as what computes the logits of the source
    with opened_package(source) as package:
        for name, member in package.files.items():
            path = Path(folder.name, name)
            path.parent.mkdir(exist_ok=True)
            package.extract(member, path)
    metadata = read_metadata(Path(folder.name, "metadata.json"), source)
    pieces = Path(folder.name, "sentencepiece.model")
    imported = read_ctranslate2(
        Path(folder.name, "model"), pieces if pieces.is_file() else None, False, changes
    )
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
        first = imported.tokenizer.convert_tokens_to_ids(prefix)
        imported.model.generation_config.forced_bos_token_id = first
        notes.append(f"A target begins with {prefix}.")
    logits = imported.source_logits
    if logits is not None:
        logits = _with_folder(logits, folder)
    return replace(imported, source_logits=logits, notes=tuple(notes))


def _with_folder(logits: SourceLogits, folder: "TemporaryDirectory[str]") -> SourceLogits:
    """Keeps a folder until its last use."""

    def compute(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        assert Path(folder.name).is_dir()
        return logits(inputs)

    return compute


class Package:
    """An opened package.

    Attributes:
        files: The files that are read, by their names in the folder of the package.
    """

    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self.archive, self.path = archive, path
        self.files: dict[str, zipfile.ZipInfo] = {}
        members = [member for member in archive.infolist() if not member.is_dir()]
        for member in members:
            place = PurePosixPath(member.filename)
            is_link = stat.S_ISLNK(member.external_attr >> 16)
            if place.is_absolute() or ".." in place.parts or "\\" in member.filename or is_link:
                raise self.error(f"it holds {member.filename!r}, which leads out of its folder")
        roots = [
            PurePosixPath(m.filename).parent for m in members if _name_of(m) == "metadata.json"
        ]
        roots.sort(key=lambda root: len(root.parts))
        if not roots or len(roots[0].parts) > 1:
            raise self.error("it holds no metadata.json")
        for member in members:
            place = PurePosixPath(member.filename)
            if place.is_relative_to(roots[0]):
                name = str(place.relative_to(roots[0]))
                if _NEEDED.fullmatch(name):
                    self.files[name] = member
        if "model/model.bin" not in self.files:
            raise self.error("it holds no model of CTranslate2 (model/model.bin)")
        size = sum(member.file_size for member in self.files.values())
        if size > _SMALL + _LARGEST_RATIO * path.stat().st_size:
            raise self.error(f"its files would have {size:,} bytes")

    def extract(self, member: zipfile.ZipInfo, target: Path) -> None:
        """Writes a file."""
        with self.archive.open(member) as packed, target.open("wb") as file:
            copyfileobj(packed, file)

    def error(self, problem: str) -> ValueError:
        """Returns the error for a file that is no package."""
        return ValueError(f"{str(self.path)!r} is no package of Argos Translate: {problem}.")


def _name_of(member: zipfile.ZipInfo) -> str:
    return PurePosixPath(member.filename).name


@contextmanager
def opened_package(path: str | Path) -> Iterator[Package]:
    """Opens a package, and checks what it holds.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is no package, is damaged, or holds files that lead out of it or that are
            far larger than the package.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"The package {str(path)!r} does not exist as a file.")
    try:
        with zipfile.ZipFile(path) as archive:
            yield Package(archive, path)
    # A damaged file raises errors of these types when it is opened, and when a member is read.
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(
            f"{str(path)!r} is no package of Argos Translate, or is damaged ({error}): copy it "
            "again."
        ) from error
    except Exception as error:  # zlib.error, which is a plain exception
        if type(error).__module__ != "zlib":
            raise
        raise ValueError(f"{str(path)!r} is damaged ({error}): copy it again.") from error


def read_metadata(path: Path, source: str | Path) -> dict[str, Any]:
    """Reads what a package says about itself.

    Raises:
        ValueError: If it is damaged, or if the package does not translate.
    """
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"metadata.json in {str(source)!r} is damaged ({error}).") from error
    kind = metadata.get("type", "translate") if isinstance(metadata, dict) else "nothing"
    if kind != "translate":
        raise ValueError(f"{str(source)!r} is of the type {kind!r}: only 'translate' is converted.")
    return dict(metadata)
