"""Learns English pronunciation from the CMU Pronouncing Dictionary, and pronounces your words.

It trains a model from scratch for some minutes, or reuses the trained one, and shows results on
held-out words.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from datasets import DatasetDict
from pronunciations import load_cmudict
from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.model.evaluation import evaluation_mode
from vanilla_transformer.run.arguments import RunArguments, parse_arguments
from vanilla_transformer.run.training_run import run, show_messages

REPOSITORY = Path(__file__).resolve().parents[2]


RECIPE, LONGER_RECIPE, FULL_RECIPE = "cmudict-demo", "cmudict-longer", "cmudict-full"
WORDS = ("transformer", "attention", "vanilla", "pronounceable")
WATCHED = ("translation", "thoughtful", "playwright")
"""Words of the test split, which are pronounced during the training."""
SECONDS_BETWEEN_WORDS = 60.0

MINUTES = 7.0
"""Default length of a training, with its scores."""


class PronounceWords(TrainerCallback):
    """Pronounces some words every so many seconds, so that one sees the model learn.

    The training is the same with and without it.
    """

    def __init__(self, words: Sequence[str], seconds: float) -> None:
        self.words, self.seconds = list(words), seconds
        self._begin = self._shown = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Starts the clock; called by Trainer."""
        self._begin = self._shown = time.monotonic()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        processing_class: Any = None,
        **kwargs: Any,
    ) -> None:
        """Shows the words if it is time; called by Trainer."""
        now = time.monotonic()
        if now - self._shown < self.seconds or not state.is_world_process_zero:
            return
        self._shown = now
        inputs = processing_class(self.words, padding=True, return_tensors="pt").to(model.device)
        with evaluation_mode(model):
            outputs = model.generate(**inputs)
        answers = processing_class.batch_decode(outputs, skip_special_tokens=True)
        pairs = zip(self.words, answers, strict=True)
        said = " | ".join(f"{word}: {answer}" for word, answer in pairs)
        minutes, steps = (now - self._begin) / 60, f"{state.global_step:,} of {state.max_steps:,}"
        tqdm.write(f"{minutes:4.1f} min, step {steps}: {said}")  # print would break a bar


def main(argv: Sequence[str] | None = None) -> None:
    """Trains or reuses a model, then shows ten held-out words, the user's words and the scores."""
    options, overrides = _parse_options(argv)
    logging.set_verbosity_warning()
    name = FULL_RECIPE if options.full else LONGER_RECIPE if options.longer else RECIPE
    folder = Path(options.output_dir or os.path.relpath(REPOSITORY / "runs" / name))
    trained = not options.retrain and _is_trained(folder)
    if trained:
        print(f"{folder} holds a trained model (to train again, add --retrain).")
    else:
        command = ["bash", "scripts/demo.sh", *(sys.argv[1:] if argv is None else argv)]
        train_model(
            name,
            folder,
            overrides,
            overwrite=options.retrain,
            command=command,
            minutes=options.minutes,
        )
    _show_held_out_words(folder)
    _pronounce_in_new_process(folder, options.words or WORDS)
    figures = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    print("\nErrors in percent of the words and of the phonemes, for words that it has not seen:")
    print(f"mismatch {figures['test_mismatch']:.1f} PER {figures['test_per']:.1f}")
    if name == RECIPE:
        epochs = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["epoch"]
        print(
            f"{epochs:.1f} of 4 epochs fitted into the time; a free machine reaches a mismatch of "
            "about 28 with all of them."
        )
    print(f"\n{_next_steps(folder, WORDS[0])}")


def _parse_options(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options of the demo, and the arguments for the training."""
    parser = argparse.ArgumentParser(
        prog="bash scripts/demo.sh",
        description=__doc__,
        epilog="Other arguments go to the training, e.g. --num-train-epochs 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--words", nargs="+", help="words to pronounce")
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        help="minutes of the training, unless --max_steps is given (default: %(default)g)",
    )
    length.add_argument("--longer", action="store_true", help="train 4 epochs of a wider model")
    length.add_argument("--full", action="store_true", help="train a large model, for a GPU")
    add("--retrain", action="store_true", help="train again, even if there is a trained model")
    add("--output-dir", "--output_dir", help="directory of the model (default: runs/<recipe>)")
    return parser.parse_known_args(argv)


def _is_trained(folder: Path) -> bool:
    """Returns whether a directory holds the model of a finished run."""
    try:
        figures = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "test_mismatch" in figures and (folder / "model.safetensors").is_file()


def train_model(
    recipe: str,
    folder: Path,
    overrides: Sequence[str],
    *,
    overwrite: bool,
    command: Sequence[str],
    minutes: float = MINUTES,
) -> None:
    """Trains a model by a recipe.

    That of the demo takes some minutes, unless the arguments say how many steps.

    Args:
        overrides: Arguments that replace those of the recipe.
        overwrite: Whether a model in the directory is replaced. False: the run resumes from the
            last checkpoint in the directory, if it has one.
        command: Words of the command on the model card.
        minutes: Minutes of training.
    """
    path = REPOSITORY / "scripts" / "recipes" / f"{recipe}.yaml"
    ends = any(word.startswith(("--max_steps", "--max-steps")) for word in overrides)
    length = ["--minutes", f"{minutes:g}"] if recipe == RECIPE and not ends else []
    start = "--overwrite" if overwrite else "--resume_from_checkpoint"
    place = ["--output_dir", str(folder), start, "True"]
    arguments = parse_arguments([str(path), *overrides, *place, *length], command)
    data = _load_data(arguments)
    print(f"Training on {len(data['train']):,} pronunciations; the model goes to {folder}.")
    show_messages(arguments)
    run(arguments, data, [PronounceWords(WATCHED, SECONDS_BETWEEN_WORDS)])


def _load_data(arguments: RunArguments) -> DatasetDict:
    """Loads the dictionary, with no more examples than the arguments allow."""
    data = load_cmudict()
    limits = {
        "train": arguments.data.max_train_samples,
        "validation": arguments.data.max_eval_samples,
        "test": arguments.data.max_test_samples,
    }
    for split, limit in limits.items():
        if limit is not None and limit < len(data[split]):
            data[split] = data[split].shuffle(seed=0).select(range(limit))
    return data


def _show_held_out_words(folder: Path, count: int = 10) -> None:
    """Prints a table of sources, predictions and references."""
    examples = load_cmudict()["test"].shuffle(seed=0).select(range(count))
    logging.disable_progress_bar()
    translator = Translator.from_pretrained(str(folder), "transformers")
    rows = [("word", "prediction", "", "reference")]
    outputs = translator.translate(list(examples["source"]))
    for row, output in zip(examples, outputs, strict=True):
        verdict = "right" if output in row["references"] else "wrong"
        rows.append((row["source"], output, verdict, " | ".join(row["references"])))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    print("\nTen words that the model has not seen:")
    for cells in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)))


def _pronounce_in_new_process(folder: Path, words: Sequence[str]) -> None:
    """Generates for the words with `vanilla-transformer translate`, and prints the answers."""
    lines = [_make_printable_line(word) for word in words]
    done = subprocess.run(
        [sys.executable, "-m", "vanilla_transformer", "translate", str(folder)],
        input="".join(f"{line.lower()}\n" for line in lines),
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    answers = done.stdout.removesuffix("\n").split("\n")
    print("\nYour words, pronounced by the saved model in a new process:")
    for line, answer in zip(lines, answers, strict=True):
        print(f"{line}: {answer}")


def _next_steps(folder: Path, text: str) -> str:
    """Returns how to serve the model and to see inside it, as typed in the repository."""
    in_repository = Path(sys.prefix).is_relative_to(REPOSITORY)
    programs = os.path.relpath(Path(sys.prefix) / "bin", REPOSITORY) + "/" if in_repository else ""
    missing = [
        extra
        for extra, package in (("serve", "fastapi"), ("page", "gradio"))
        if find_spec(package) is None
    ]
    install = [f'{programs}pip install ".[{",".join(missing)}]"'] if missing else []
    model = shlex.quote(os.path.relpath(folder, REPOSITORY))
    target, text = shlex.quote(folder.resolve().name), shlex.quote(text)
    lines = [
        "To see inside the model in a browser, or to serve it over HTTP and ask it:",
        *install,
        f"{programs}vanilla-transformer page {model} --text {text}",
        f"{programs}vanilla-transformer serve {model}",
        f"curl http://127.0.0.1:8000/translate -d q={text} -d source=any -d target={target}",
    ]
    return "\n  ".join(lines)


def _make_printable_line(text: str) -> str:
    """Replaces bytes that are not Unicode, and line breaks."""
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split())


if __name__ == "__main__":
    main()
