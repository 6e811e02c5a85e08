"""Learns how English words are pronounced, shows how well, and pronounces words.

The task is grapheme-to-phoneme conversion on the CMU Pronouncing Dictionary: the demo of this
package, run from its repository.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from transformers.utils import logging

from vanilla_transformer.inference import generate_lines, load_model
from vanilla_transformer.training.arguments import parse_arguments
from vanilla_transformer.training.cmudict import load_cmudict
from vanilla_transformer.training.run import run

_RECIPES = Path("scripts/recipes")
_WORDS = ["transformer", "attention", "vanilla", "pronounceable"]
_GENERATE = "from vanilla_transformer.inference import main; main()"


def main(argv: Sequence[str] | None = None) -> None:
    """Trains or reuses a model, then shows ten held-out words, the words given, and the scores.

    Args:
        argv: Arguments; None: those of the process.
    """
    options, overrides = _parse(argv)
    logging.set_verbosity_warning()
    name = "cmudict-full" if options.full else "cmudict-demo"
    folder = Path(options.output_dir or Path("runs", name))
    if options.retrain or not _reuse(folder):
        _train(_RECIPES / f"{name}.yaml", folder, options.retrain, overrides)
    _show_held_out_words(folder)
    _pronounce_in_new_process(folder, options.words)
    figures = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    print(f"\nWER {figures['test_wer']:.1f} PER {figures['test_per']:.1f}")


def _parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="bash scripts/demo.sh",
        description=__doc__,
        epilog="Other arguments go to the training, e.g. --num_train_epochs 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--words", nargs="+", default=_WORDS, help="English words to pronounce")
    parser.add_argument("--full", action="store_true", help="train the long recipe")
    parser.add_argument("--retrain", action="store_true", help="train again even if trained")
    parser.add_argument("--output_dir", help="where the model goes; default: runs/<recipe>")
    return parser.parse_known_args(argv)


def _reuse(folder: Path) -> bool:
    """Offers to reuse a finished run; without a terminal to ask, it is reused."""
    results = folder / "all_results.json"
    if not results.is_file() or "test_wer" not in json.loads(results.read_text(encoding="utf-8")):
        return False
    print(f"{folder} holds a trained model (train again: --retrain).")
    if not sys.stdin.isatty():
        return True
    return input("Reuse it? [Y/n] ").strip().lower() not in ("n", "no")


def _train(recipe: Path, folder: Path, anew: bool, overrides: list[str]) -> None:
    started = ["--overwrite_output_dir", "True"] if anew else ["--resume_from_checkpoint", "True"]
    arguments = parse_arguments([str(recipe), "--output_dir", str(folder), *started, *overrides])
    arguments.command = ["bash", "scripts/demo.sh", *sys.argv[1:]]
    data = load_cmudict()
    print(f"Training on {len(data['train']):,} pronunciations; the model goes to {folder}.")
    limit = arguments.data.max_eval_samples
    if limit is not None:
        data["validation"] = data["validation"].select(range(limit))
    run(arguments, data)


def _show_held_out_words(folder: Path, count: int = 10) -> None:
    words = load_cmudict()["test"].shuffle(seed=0).select(range(count))
    logging.disable_progress_bar()
    model, tokenizer = load_model(str(folder))
    rows = [("word", "prediction", "", "reference")]
    for row, outputs in zip(words, generate_lines(model, tokenizer, words["source"]), strict=True):
        verdict = "right" if outputs[0] in row["references"] else "wrong"
        rows.append((row["source"], outputs[0], verdict, " | ".join(row["references"])))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    print("\nTen words that the model has not seen:")
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def _pronounce_in_new_process(folder: Path, words: Sequence[str]) -> None:
    """Loads the saved model through the Auto classes in a process of its own."""
    command = [sys.executable, "-c", _GENERATE, str(folder), *(word.lower() for word in words)]
    spoken = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print("\nYour words, pronounced by the saved model in a new process:")
    for word, phonemes in zip(words, spoken.splitlines(), strict=True):
        print(f"{word}: {phonemes}")


if __name__ == "__main__":
    main()
