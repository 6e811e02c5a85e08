"""Learns a task from scratch, shows how well on examples not seen, and answers what you give it.

Tasks: how English words are pronounced (grapheme-to-phoneme conversion on the CMU Pronouncing
Dictionary), and English numerals in Korean. This is the demo of this package, run from its
repository.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from datasets import DatasetDict
from numerals import load_numerals
from pronunciations import load_cmudict
from transformers.utils import logging

from vanilla_transformer.inference.generation import generate_lines
from vanilla_transformer.inference.loading import load_model
from vanilla_transformer.run.parsing import parse_arguments
from vanilla_transformer.run.training_run import run

_RECIPES = Path("scripts/recipes")
_GENERATE = "from vanilla_transformer.inference.generation import main; main()"


@dataclass(frozen=True)
class Task:
    """Something to learn.

    Attributes:
        load: Loads the splits, as `vanilla_transformer.run.training_run.run` takes them.
        recipe: Name of the recipe in scripts/recipes, and of the folder in runs/.
        inputs: Sources to try the trained model on.
        source: What a source is called, in the singular.
        example: What a training pair is called, in the plural.
        answered: What the model does to sources.
        summary: Makes the last line of the demo from the figures of all_results.json.
        full_recipe: Name of a longer recipe; None: there is none.
    """

    load: Callable[[], DatasetDict]
    recipe: str
    inputs: Sequence[str]
    source: str
    example: str
    answered: str
    summary: Callable[[Mapping[str, float]], str]
    full_recipe: str | None = None


def _error_rates(figures: Mapping[str, float]) -> str:
    return f"WER {figures['test_wer']:.1f} PER {figures['test_per']:.1f}"


def _exact_match(figures: Mapping[str, float]) -> str:
    return f"EXACT MATCH {100 - figures['test_wer']:.1f}"


TASKS = {
    "pronunciation": Task(
        load=load_cmudict,
        recipe="cmudict-demo",
        full_recipe="cmudict-full",
        inputs=["transformer", "attention", "vanilla", "pronounceable"],
        source="word",
        example="pronunciations",
        answered="pronounced",
        summary=_error_rates,
    ),
    "numerals": Task(
        load=load_numerals,
        recipe="numerals",
        inputs=["forty-two", "one thousand and one", "ninety-nine thousand, one hundred"],
        source="number",
        example="numbers",
        answered="translated",
        summary=_exact_match,
    ),
}
"""The tasks by name."""


def main(argv: Sequence[str] | None = None) -> None:
    """Trains or reuses a model, then shows ten held-out examples, those given, and the scores.

    Args:
        argv: Arguments; None: those of the process.

    Raises:
        ValueError: If there are arguments for the training and a model that is trained already.
    """
    options, overrides = _parse(argv)
    logging.set_verbosity_warning()
    task = TASKS[options.task]
    name = task.full_recipe if options.full and task.full_recipe else task.recipe
    folder = Path(options.output_dir or Path("runs", name))
    trained = not options.retrain and _is_trained(folder)
    if trained and overrides:
        raise ValueError(
            f"{folder} holds a trained model, on which {' '.join(overrides)} would have no effect: "
            "add --retrain, or choose another --output_dir."
        )
    if not (trained and _reuse(folder)):
        anew = trained or options.retrain
        _train(task, _RECIPES / f"{name}.yaml", folder, anew, overrides)
    _show_held_out_examples(task, folder)
    _answer_in_new_process(task, folder, options.words or task.inputs)
    figures = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    print(f"\n{task.summary(figures)}")


def _parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="bash scripts/demo.sh",
        description=__doc__,
        epilog="Other arguments go to the training, e.g. --num_train_epochs 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--task", choices=TASKS, default="pronunciation", help="what to learn")
    parser.add_argument("--words", nargs="+", help="words to pronounce; numbers in English words")
    parser.add_argument("--full", action="store_true", help="train the long recipe")
    parser.add_argument("--retrain", action="store_true", help="train again even if trained")
    parser.add_argument("--output_dir", help="where the model goes; default: runs/<recipe>")
    options, overrides = parser.parse_known_args(argv)
    if options.full and TASKS[options.task].full_recipe is None:
        parser.error(f"--full: the task {options.task!r} has no long recipe, leave it out")
    return options, overrides


def _is_trained(folder: Path) -> bool:
    """Tells whether a directory holds a model whose run came to its end."""
    try:
        figures = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "test_wer" in figures and (folder / "model.safetensors").is_file()


def _reuse(folder: Path) -> bool:
    """Offers to reuse a finished run; without a terminal to ask, it is reused."""
    print(f"{folder} holds a trained model (train again: --retrain).")
    if not sys.stdin.isatty():
        return True
    try:
        return input("Reuse it? [Y/n] ").strip().lower() not in ("n", "no")
    except EOFError:
        return True


def _train(task: Task, recipe: Path, folder: Path, anew: bool, overrides: list[str]) -> None:
    started = ["--overwrite_output_dir", "True"] if anew else ["--resume_from_checkpoint", "True"]
    argv = [str(recipe), "--output_dir", str(folder), *started, *overrides]
    arguments = parse_arguments(argv, command=["bash", "scripts/demo.sh", *sys.argv[1:]])
    data = task.load()
    print(f"Training on {len(data['train']):,} {task.example}; the model goes to {folder}.")
    limit = arguments.data.max_eval_samples
    if limit is not None:
        data["validation"] = data["validation"].shuffle(seed=0).select(range(limit))
    run(arguments, data)


def _show_held_out_examples(task: Task, folder: Path, count: int = 10) -> None:
    examples = task.load()["test"].shuffle(seed=0).select(range(count))
    logging.disable_progress_bar()
    model, tokenizer = load_model(str(folder))
    rows = [(task.source, "prediction", "", "reference")]
    generated = generate_lines(model, tokenizer, examples["source"])
    for row, outputs in zip(examples, generated, strict=True):
        references = row.get("references", [row["target"]])
        verdict = "right" if outputs[0] in references else "wrong"
        rows.append((row["source"], outputs[0], verdict, " | ".join(references)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    print(f"\nTen {task.source}s that the model has not seen:")
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def _answer_in_new_process(task: Task, folder: Path, words: Sequence[str]) -> None:
    """Loads the saved model through the Auto classes in a process of its own."""
    words = [_clean(word) for word in words]
    done = subprocess.run(
        [sys.executable, "-c", _GENERATE, str(folder)],
        input="".join(f"{word.lower()}\n" for word in words),
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    answers = done.stdout.removesuffix("\n").split("\n")
    print(f"\nYour {task.source}s, {task.answered} by the saved model in a new process:")
    for word, answer in zip(words, answers, strict=True):
        print(f"{word}: {answer}")


def _clean(word: str) -> str:
    """Makes one line of what the command line gave, and Unicode of bytes that are none."""
    return " ".join(word.encode("utf-8", "replace").decode("utf-8").split())


if __name__ == "__main__":
    main()
