r"""Distils an ensemble of pronunciation models into one model, with words outside the dictionary.

    python scripts/experiments/distil_pronunciations.py --teachers runs/first runs/second \
        --words words.txt --output-dir runs/distilled --recipe cmudict-full

The teachers pronounce words that the CMU Pronouncing Dictionary does not have. One model then
learns from the training words of the dictionary and from these pronunciations. Sun et al. 2019
(https://arxiv.org/abs/1904.03446) did so with the probabilities of each token; here, the student
learns the teachers' outputs. Words of the validation and test splits are left out. The
pronunciations are kept in a file beside the output directory, and a second call reads them. A
training that was stopped goes on if its words and their pronunciations are the same.

`--words` names a file with one word per line, the most frequent first. Without it, the words are
those of the package wordfreq (`pip install wordfreq`). Other arguments go to the training.
"""

import argparse
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, concatenate_datasets
from demo import TASKS, train_model
from pronunciations import load_cmudict, read_cmudict

from vanilla_transformer.data.file_contents import content_digest, text_digest
from vanilla_transformer.data.text_files import read_lines
from vanilla_transformer.inference.translator import Translator

_WORD = re.compile(r"[a-z][a-z']{1,19}")
_LABELS = "labels.jsonl"
_USED = "used-labels.json"
_TEACHER_FILES = ("*.safetensors", "*tokenizer*.json", "config.json", "generation_config.json")


def main(argv: Sequence[str] | None = None) -> None:
    """Labels the words, unless this was done before, and trains.

    Args:
        argv: Arguments. None: those of the process.

    Raises:
        ValueError: If the labels were made with other options, or if the output directory holds a
            training on other words.
    """
    options, overrides = parse_options(argv)
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    labels = folder.parent / f"{folder.name}-{_LABELS}"
    words = list(itertools.islice(new_words(read_words(options.words)), options.count))
    if not labels.is_file():
        write_labels(labels, words, options.teachers, options.num_beams)
    rows = read_labels(labels, words, options.teachers, options.num_beams)
    kept = [row for row in rows if row["target"] and row["score"] >= options.least_score]
    print(f"{len(kept):,} of {len(rows):,} words of the teachers, from {labels}.")
    check_used_labels(folder, kept, options.least_score)

    def load() -> DatasetDict:
        data = load_cmudict()
        columns = {name: [row[name] for row in kept] for name in ("source", "target")}
        data["train"] = concatenate_datasets([data["train"], Dataset.from_dict(columns)])
        return data

    task = replace(TASKS["pronunciation"], load=load)
    words_given = sys.argv[1:] if argv is None else argv
    command = ["python", "scripts/experiments/distil_pronunciations.py", *words_given]
    train_model(task, options.recipe, folder, overrides, overwrite=False, command=command)


def parse_options(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options of this program, and the arguments for the training.

    Raises:
        SystemExit: If there is no list of words.
    """
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--teachers", nargs="+", required=True, metavar="DIR", help="one or more saved models")
    add("--output-dir", required=True, metavar="DIR", help="directory of the model")
    add("--words", metavar="FILE", help="words, one per line (default: those of wordfreq)")
    add("--count", type=int, default=150_000, help="words to pronounce, the first ones")
    add("--num-beams", type=int, default=4, help="width of the teachers' beam")
    add(
        "--least-score",
        type=float,
        default=float("-inf"),
        help="leave out pronunciations with a lower score: the mean log-probability of a token",
    )
    add("--recipe", default="cmudict-full", help="recipe in scripts/recipes")
    options, overrides = parser.parse_known_args(argv)
    if options.words is None and find_spec("wordfreq") is None:
        parser.error("give --words FILE, or pip install wordfreq")
    return options, overrides


def read_words(path: str | None) -> Iterable[str]:
    """Reads a list of words.

    Args:
        path: A file with one word per line. None: the list of wordfreq.

    Returns:
        The words, in the order of the list.
    """
    if path is not None:
        return read_lines(path)
    words: Iterable[str] = import_module("wordfreq").iter_wordlist("en", wordlist="large")
    return words


def new_words(words: Iterable[str]) -> Iterator[str]:
    """Yields words of 2 to 20 Latin letters that the dictionary does not have, each once."""
    seen = set(read_cmudict())
    for word in words:
        word = word.strip().lower()
        if _WORD.fullmatch(word) and word not in seen:
            seen.add(word)
            yield word


def write_labels(path: Path, words: Sequence[str], teachers: list[str], num_beams: int) -> None:
    """Writes the options, and then the teachers' pronunciation of each word and its score.

    Args:
        path: File to write; it is written under another name first.
        words: Words to pronounce.
        teachers: Directories of the models.
        num_beams: Width of the beam.
    """
    translator = Translator.from_pretrained(teachers)
    found = translator.translate(
        iter(words), num_beams=num_beams, return_scores=True, progress=True
    )
    unfinished = path.with_suffix(".part")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(json.dumps(_label_settings(teachers, num_beams)) + "\n")
        for word, translation in zip(words, found, strict=True):
            row = {"source": word, "target": translation.text, "score": translation.score}
            file.write(json.dumps(row) + "\n")
    unfinished.replace(path)


def read_labels(
    path: Path, words: Sequence[str], teachers: list[str], num_beams: int
) -> list[dict[str, Any]]:
    """Reads what `write_labels` wrote.

    Raises:
        ValueError: If it was written for other words, teachers or options.
    """
    settings, *rows = (json.loads(line) for line in read_lines(path))
    same_words = [row["source"] for row in rows] == list(words)
    if settings != _label_settings(teachers, num_beams) or not same_words:
        raise ValueError(
            f"{path} was made with other options, words or teachers, or before it recorded the "
            "teachers' files: delete it, or choose another --output-dir."
        )
    return rows


def _label_settings(teachers: list[str], num_beams: int) -> dict[str, Any]:
    """Returns what decides the labels of given words; a name on the Hub has no digests."""
    digests = [
        {
            file.name: content_digest(file)
            for pattern in _TEACHER_FILES
            for file in sorted(Path(teacher).glob(pattern))
        }
        for teacher in teachers
    ]
    return {"teachers": teachers, "num_beams": num_beams, "digests": digests}


def check_used_labels(folder: Path, rows: list[dict[str, Any]], least_score: float) -> None:
    """Records the words and labels of a training, and makes sure that it goes on with the same.

    Args:
        folder: The output directory. The record is a file beside it.
        rows: The words that the training adds, with their labels.
        least_score: Lowest score of a label.

    Raises:
        ValueError: If the directory holds a training on other words or labels.
    """
    record = folder.parent / f"{folder.name}-{_USED}"
    digest = text_digest(json.dumps(rows))
    used = {"least_score": str(least_score), "words": len(rows), "digest": digest}
    if any(folder.iterdir()):
        if not record.is_file():
            print(f"{folder} does not record its words: they are taken to be the same.")
        elif (known := json.loads(record.read_text(encoding="utf-8"))) != used:
            raise ValueError(
                f"{folder} holds a training on {known['words']:,} words of the teachers, with "
                f"--least-score {known['least_score']}; now there are {len(rows):,} words or other "
                "labels: give the same options, delete the directory, or choose another one."
            )
    record.write_text(json.dumps(used), encoding="utf-8")


if __name__ == "__main__":
    main()
