"""What a user does first, in one process: train ten steps, load, generate, save, go on, translate.

It needs no part of Python or of the system that only POSIX has: `python tests/smoke/tour.py FOLDER`
runs on Linux, macOS and Windows.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SOURCES = ["a dog sees a cat .", "a man likes a boat .", "a bird finds a horse ."] * 8
TARGETS = ["Hund sieht Katze .", "Mann mag Boot .", "Vogel findet Pferd ."] * 8
TRAINING = """
choose_defaults: false
d_model: 16
encoder_layers: 1
decoder_layers: 1
encoder_attention_heads: 2
decoder_attention_heads: 2
encoder_ffn_dim: 32
decoder_ffn_dim: 32
tokenizer_kind: word
max_tokens: 64
learning_rate: 0.01
max_steps: 10
save_steps: 5
eval_strategy: steps
eval_steps: 5
save_total_limit: 1
use_cpu: true
generation_max_length: 12
"""


def write_data(folder):
    """Writes the files of a training, with the line ends of the system, and its recipe."""
    options = [TRAINING]
    for split in ("train", "validation"):
        for side, lines in (("source", SOURCES), ("target", TARGETS)):
            path = folder / f"{split}.{side}.txt"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            options.append(f"{split}_{side}: {path.as_posix()}\n")
    (folder / "recipe.yaml").write_text("".join(options), encoding="utf-8")


def run(*words):
    """Runs a subcommand of vanilla-transformer."""
    from vanilla_transformer.commands.program import main

    assert main([str(word) for word in words]) == 0, words


def import_everything():
    """Imports every module of the package, but for those whose extra is not installed."""
    import vanilla_transformer
    from vanilla_transformer.extras import EXTRAS

    optional = {package for packages in EXTRAS.values() for package in packages}
    for found in walk_packages(vanilla_transformer.__path__, "vanilla_transformer."):
        try:
            import_module(found.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in optional:
                raise


def make_the_tour(folder):
    """Trains, generates, overwrites, resumes and translates below a folder."""
    run_folder, recipe = folder / "run", folder / "recipe.yaml"
    write_data(folder)
    run("train", recipe, "--output_dir", run_folder)
    run("train", recipe, "--output_dir", run_folder, "--overwrite")
    run(
        *("train", recipe, "--output_dir", run_folder),
        *("--resume_from_checkpoint", "True", "--max_steps", "15"),
        *("--eval_strategy", "no", "--dataloader_num_workers", "1"),
    )
    checkpoints = [path.name for path in run_folder.glob("checkpoint-*")]
    assert checkpoints == ["checkpoint-15"], checkpoints

    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    import vanilla_transformer  # noqa: F401 - registers the Auto classes

    tokenizer = AutoTokenizer.from_pretrained(run_folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(run_folder)
    inputs = tokenizer(SOURCES[:2], padding=True, return_tensors="pt")
    texts = tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
    model.save_pretrained(folder / "copy")
    tokenizer.save_pretrained(folder / "copy")
    again = AutoModelForSeq2SeqLM.from_pretrained(folder / "copy")
    assert tokenizer.batch_decode(again.generate(**inputs), skip_special_tokens=True) == texts
    del model, again

    output = folder / "output.txt"
    for options in ((), ("--overwrite",)):
        run(
            *("translate", run_folder, "--input", folder / "validation.source.txt"),
            *("--output", output, "--engine", "transformers", *options),
        )
    assert output.read_bytes().count(b"\n") == len(SOURCES)
    assert b"\r" not in output.read_bytes()
    both = (run_folder, folder / "copy")
    for options in ((), ("--overwrite",)):
        run("average", *both, "--output", folder / "mean", *options)
    run("inspect", "shapes", run_folder)
    import_everything()
    print("The tour is complete.")


if __name__ == "__main__":
    make_the_tour(Path(sys.argv[1]).resolve())
