"""Learns English pronunciation from the CMU Pronouncing Dictionary, and pronounces your words.

It trains a model from scratch, or reuses the trained one, and shows results on held-out words.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from pronunciations import load_cmudict
from transformers.utils import logging

from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.run.defaults import has_bfloat16
from vanilla_transformer.run.parsing import parse_arguments
from vanilla_transformer.run.training_run import run

REPOSITORY = Path(__file__).resolve().parents[2]


RECIPE, FULL_RECIPE = "cmudict-demo", "cmudict-full"
WORDS = ("transformer", "attention", "vanilla", "pronounceable")


def main(argv: Sequence[str] | None = None) -> None:
    """Trains or reuses a model, then shows ten held-out words, the user's words and the scores.

    Args:
        argv: Arguments. None: those of the process.

    Raises:
        ValueError: If training arguments are given although a trained model is reused, or if that
            model was trained by another recipe.
    """
    options, overrides = _parse_options(argv)
    logging.set_verbosity_warning()
    name = FULL_RECIPE if options.full else RECIPE
    folder = Path(options.output_dir or os.path.relpath(REPOSITORY / "runs" / name))
    trained = not options.retrain and _is_trained(folder)
    if trained:
        _check_recipe(folder, name)
    if trained and overrides:
        raise ValueError(
            f"{folder} holds a trained model, on which {' '.join(overrides)} would have no effect: "
            "add --retrain, or choose another --output-dir."
        )
    if not (trained and _confirm_reuse(folder)):
        command = ["bash", "scripts/demo.sh", *(sys.argv[1:] if argv is None else argv)]
        overwrite = trained or options.retrain
        train_model(name, folder, overrides, overwrite=overwrite, command=command)
    _show_held_out_words(folder)
    _pronounce_in_new_process(folder, options.words or WORDS)
    figures = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    print(f"\nWER {figures['test_wer']:.1f} PER {figures['test_per']:.1f}")
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
    add("--full", action="store_true", help="train the long recipe")
    add("--retrain", action="store_true", help="train again, even if there is a trained model")
    add("--output-dir", "--output_dir", help="directory of the model (default: runs/<recipe>)")
    return parser.parse_known_args(argv)


def _is_trained(folder: Path) -> bool:
    """Returns whether a directory holds the model of a finished run."""
    try:
        figures = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "test_wer" in figures and (folder / "model.safetensors").is_file()


def _check_recipe(folder: Path, wanted: str) -> None:
    """Refuses a trained model of another recipe, such as the short one for the long one.

    The model card names the recipe. Where no card does, the name of the default directory counts.
    """
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    named = re.search(r"^The recipe `(.+)\.yaml` contains:$", text, re.MULTILINE)
    found = named[1] if named else folder.resolve().name
    if found == wanted:
        return
    held = f"a model of the recipe {found}" if named else "a model whose card names no recipe"
    raise ValueError(
        f"{folder} holds {held}, and {wanted} is wanted: add --retrain, which deletes that model, "
        "or choose another --output-dir."
    )


def _confirm_reuse(folder: Path) -> bool:
    """Asks whether to reuse a trained model. Without a terminal, the answer is yes."""
    print(f"{folder} holds a trained model (to train again, add --retrain).")
    if not sys.stdin.isatty():
        return True
    try:
        return input("Reuse it? [Y/n] ").strip().lower() not in ("n", "no")
    except EOFError:
        return True


def train_model(
    recipe: str,
    folder: Path,
    overrides: Sequence[str],
    *,
    overwrite: bool,
    command: Sequence[str],
) -> None:
    """Trains a model by a recipe.

    Args:
        recipe: Name of the recipe.
        folder: Directory of the model.
        overrides: Arguments that replace those of the recipe.
        overwrite: Whether a model in the directory is replaced. False: the run resumes from the
            last checkpoint in the directory, if it has one.
        command: Words of the command on the model card.
    """
    path = REPOSITORY / "scripts" / "recipes" / f"{recipe}.yaml"
    start = "--overwrite" if overwrite else "--resume_from_checkpoint"
    argv = [str(path), "--output_dir", str(folder), start, "True", *_precision(), *overrides]
    arguments = parse_arguments(argv, command=command)
    data = load_cmudict()
    limits = {
        "train": arguments.data.max_train_samples,
        "validation": arguments.data.max_eval_samples,
        "test": arguments.data.max_test_samples,
    }
    for split, limit in limits.items():
        if limit is not None and limit < len(data[split]):
            data[split] = data[split].shuffle(seed=0).select(range(limit))
    print(f"Training on {len(data['train']):,} pronunciations; the model goes to {folder}.")
    run(arguments, data)


def _precision() -> list[str]:
    """Returns the argument that chooses the precision on this machine, whatever the recipe says."""
    if torch.cuda.is_available():
        return []
    return ["--bf16", str(has_bfloat16(on_cpu=True))]


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
    """Returns how to serve the model and to look into it, as typed in a shell in the repository."""
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
        "To look into the model in a browser, or to serve it over HTTP and ask it:",
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
