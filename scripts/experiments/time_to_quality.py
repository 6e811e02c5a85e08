r"""Measures the processor time that several systems need to reach a score, from scratch.

    python scripts/experiments/time_to_quality.py pronunciation --output-dir runs/quality \
        --systems ours:scripts/recipes/cmudict-longer.yaml phonetisaurus --target 30
    python scripts/experiments/time_to_quality.py translation --output-dir runs/quality \
        --data data/multi30k --systems ours:scripts/recipes/multi30k.yaml marian:1e-3 marian:2e-3 \
        --target 35

A system is one of

- `ours:RECIPE`: `vanilla-transformer train RECIPE`;
- `marian:RATE`: `MarianMTModel` under the stock `Seq2SeqTrainer` (`marian_run.py`), with this
  learning rate and the sizes of the recipe in `--peer-recipe`; several rates make a search;
- `phonetisaurus`: joint n-grams in a finite-state transducer (`pip install phonetisaurus`);
- `command:NAME`: any other program. `--train-command` trains it, with {source} and {target} in
  place of the files of training texts and {output} in place of a folder of its own;
  `--translate-command` reads sources from its input, a line each, and writes as many outputs;
- `log:FILE`: a training that was timed elsewhere. A line of the file has processor seconds, a tab,
  and the path of a file with the outputs for the held-out sources, from the folder of FILE.

`docs/speedrun.md` has the rules for entries of others.

The systems train one after the other on the same texts. Checkpoints are scored afterwards, on
validation texts, with the same search. The clock counts the processor time of the training process:
imports, tokenizer, training and saving, but no scoring. Finished runs and scores are kept in the
output directory, so that a second call adds systems, and so are the texts: `texts/train.source`,
`texts/train.target` and the held-out `texts/val.source`. Run it on an idle machine: processor time
depends on what else the machine does. Options that this program does not have replace those of our
recipes, such as `--num_train_epochs 8 --seed 2`.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from marian_run import AS_WRITTEN, recipe_settings
from pronunciations import load_cmudict
from quality_runs import (
    HERE,
    Curve,
    HeldOut,
    children_seconds,
    run_clocked,
    score_checkpoints,
)

from vanilla_transformer.files.text_files import read_lines
from vanilla_transformer.inspection.figures import new_figure

RECIPES = HERE.parent / "recipes"
MARIAN_SETTINGS = (
    *("--per_device_train_batch_size", "64"),
    *("--lr_scheduler_type", "linear"),
    *("--warmup_steps", "1000"),
    *("--label_smoothing_factor", "0.1"),
    *("--report_to", "none"),
)
"""What a person would set beside the rate; batches are random, as is Trainer's default."""

_SYSTEMS = {
    "ours": "RECIPE",
    "marian": "RATE",
    "phonetisaurus": "",
    "command": "NAME",
    "log": "FILE",
}
"""What follows the kind of a system."""


def main(argv: Sequence[str] | None = None) -> None:
    """Trains, scores, prints a table and draws the curves."""
    options = parse_options(argv)
    new_figure((1, 1))  # a missing matplotlib fails here, before the training
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    held_out = write_texts(options, folder / "texts")
    curves = []
    for system in options.systems:
        curves.append(run_system(system, options, folder, held_out))
        print(format_curve(curves[-1], options.target, held_out), flush=True)
        results = [vars(curve) for curve in curves]
        (folder / "curves.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(format_ratios(curves, options.target, held_out))
    draw_curves(curves, held_out, options.target, folder / "time_to_quality.png")


def parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("task", choices=("pronunciation", "translation"))
    add("--systems", nargs="+", required=True, metavar="SYSTEM", help="see above")
    add("--output-dir", required=True, metavar="DIR", help="runs, scores and the picture")
    add("--target", type=float, required=True, help="score to reach, in percent")
    add("--data", metavar="DIR", help="translation: train, val as FILE.LANGUAGE.gz")
    add(
        "--languages",
        nargs=2,
        default=["en", "de"],
        metavar=("SOURCE", "TARGET"),
        help="languages of --data (default: en de)",
    )
    add("--peer-recipe", metavar="FILE", help="sizes of Marian (default: the first recipe)")
    add("--epochs", type=float, help="epochs of Marian (default: those of the recipe)")
    add("--train-command", metavar="COMMAND", help="trains command:NAME; see above")
    add("--translate-command", metavar="COMMAND", help="translates with command:NAME; see above")
    add("--save-steps", type=int, default=250, help="updates between checkpoints of ours")
    add("--peer-save-steps", type=int, default=1000, help="updates between those of Marian")
    add("--eval-samples", type=int, default=1000, help="validation texts that are scored")
    add("--threads", type=int, default=1, help="CPU threads")
    add("--peer-bf16", action="store_true", help="train Marian in bfloat16 (ours: as its recipe)")
    options, overrides = parser.parse_known_args(argv)
    options.overrides = overrides
    _check_options(options, parser)
    return options


def _check_options(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Exits with a message if a system is unknown, or lacks what it needs."""
    for system in options.systems:
        kind, _, rest = system.partition(":")
        if kind not in _SYSTEMS or bool(rest) != bool(_SYSTEMS[kind]):
            systems = (":".join(filter(None, pair)) for pair in _SYSTEMS.items())
            parser.error(f"unknown system {system!r}: use {', '.join(systems)}")
        if kind == "command" and not (options.train_command and options.translate_command):
            parser.error(f"{system} needs --train-command and --translate-command")
    if options.task == "translation" and not options.data:
        parser.error("translation needs --data")


def write_texts(options: argparse.Namespace, folder: Path) -> HeldOut:
    """Writes the texts for all systems, and returns those that are held out."""
    folder.mkdir(exist_ok=True)
    if options.task == "pronunciation":
        data = load_cmudict()
        columns = {"source": data["train"]["source"], "target": data["train"]["target"]}
        validation = data["validation"].shuffle(seed=0)
        validation = validation.select(range(min(options.eval_samples, len(validation))))
        sources, references = list(validation["source"]), list(validation["references"])
        held_out = HeldOut(sources, references, "mismatch", num_beams=4, max_length=48)
    else:
        files = [Path(options.data, f"{{}}.{language}.gz") for language in options.languages]
        columns = {
            side: list(read_lines(str(file).format("train")))
            for side, file in zip(("source", "target"), files, strict=True)
        }
        sources, targets = (list(read_lines(str(file).format("val"))) for file in files)
        count = options.eval_samples
        rows = [[target] for target in targets[:count]]
        held_out = HeldOut(sources[:count], rows, "bleu", num_beams=5, max_length=80)
    written = {f"train.{side}": texts for side, texts in columns.items()}
    written["val.source"] = held_out.sources
    for name, texts in written.items():
        (folder / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return held_out


def run_system(system: str, options: argparse.Namespace, folder: Path, held_out: HeldOut) -> Curve:
    """Trains and scores one system."""
    kind, _, rest = system.partition(":")
    folder_of_system = folder / f"{kind}-{Path(rest).stem if kind == 'ours' else rest}".rstrip("-")
    if kind == "phonetisaurus":
        return run_phonetisaurus(folder / "texts", folder_of_system, held_out)
    if kind == "log":
        return score_log(system, Path(rest), held_out)
    recipe = options.peer_recipe or _first_recipe(options.systems)
    texts = {side: folder / "texts" / f"train.{side}" for side in ("source", "target")}
    if kind == "command":
        return run_command(system, options, folder_of_system, texts, held_out)
    files = [f"--train_{side}={path}" for side, path in texts.items()]
    saving = [
        f"--output_dir={folder_of_system / 'run'}",
        "--save_strategy=steps",
        "--eval_strategy=no",
    ]
    if kind == "ours":
        saving.append(f"--save_steps={options.save_steps}")
        command = [sys.executable, "-m", "vanilla_transformer", "train", rest, *AS_WRITTEN]
        command += [*options.overrides, *files, *saving]
        command += ["--save_total_limit=1000", "--load_best_model_at_end=False"]
    else:
        command = [sys.executable, str(HERE / "marian_run.py"), f"--recipe={recipe}", *files]
        command += [*saving, f"--save_steps={options.peer_save_steps}"]
        command += [f"--learning_rate={rest}", f"--threads={options.threads}"]
        command += [*MARIAN_SETTINGS, *(["--bf16"] if options.peer_bf16 else [])]
        epochs = options.epochs or recipe_settings(recipe)["num_train_epochs"]
        command.append(f"--num_train_epochs={epochs:g}")
    clock = run_clocked(command, folder_of_system, options.threads)
    return score_checkpoints(system, folder_of_system, clock, held_out)


def _first_recipe(systems: Sequence[str]) -> str:
    """Returns the recipe of the first system of ours."""
    recipes = (system.removeprefix("ours:") for system in systems if system.startswith("ours:"))
    return next(recipes, str(RECIPES / "multi30k.yaml"))


def run_phonetisaurus(texts: Path, folder: Path, held_out: HeldOut) -> Curve:
    """Trains and scores joint n-grams: a curve of one point."""
    folder.mkdir(exist_ok=True)
    sides = (read_lines(str(texts / f"train.{side}")) for side in ("source", "target"))
    pairs = zip(*sides, strict=True)
    lexicon, model = folder / "lexicon.txt", folder / "model.fst"
    lexicon.write_text("".join(f"{word} {spoken}\n" for word, spoken in pairs), encoding="utf-8")
    program = [sys.executable, "-m", "phonetisaurus"]
    before = children_seconds()
    shutil.rmtree(folder / "corpus", ignore_errors=True)
    _call(
        [*program, "train", "--corpus", f"{folder / 'corpus'}", "--model", f"{model}", f"{lexicon}"]
    )
    seconds = children_seconds() - before
    printed = _call([*program, "predict", "--model", str(model)], held_out.sources)
    answers = dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)
    score = held_out.score([answers.get(word, "") for word in held_out.sources])
    return Curve("phonetisaurus", [seconds], [1], [score], seconds)


def run_command(
    system: str,
    options: argparse.Namespace,
    folder: Path,
    texts: dict[str, Path],
    held_out: HeldOut,
) -> Curve:
    """Trains and scores a program of others: a curve of one point."""
    names = {**{side: path.resolve() for side, path in texts.items()}, "output": folder.resolve()}
    train, translate = (
        [word.format(**names) for word in shlex.split(command)]
        for command in (options.train_command, options.translate_command)
    )
    seconds = run_clocked(train, folder, options.threads)[-1]
    outputs = _call(translate, held_out.sources).splitlines()
    return Curve(system, [seconds], [1], [held_out.score(outputs)], seconds)


def score_log(system: str, log: Path, held_out: HeldOut) -> Curve:
    """Scores the outputs that a log lists with their processor seconds."""
    rows = [line.split("\t") for line in read_lines(str(log))]
    seconds = [float(row[0]) for row in rows]
    outputs = (list(read_lines(str(log.parent / row[1]))) for row in rows)
    scores = [held_out.score(texts) for texts in outputs]
    return Curve(system, seconds, list(range(1, len(rows) + 1)), scores, max(seconds))


def _call(command: list[str], lines: Sequence[str] = ()) -> str:
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-1000:]}")
    return done.stdout


# Reports ----------------------------------------------------------------------------------------


def format_curve(curve: Curve, target: float, held_out: HeldOut) -> str:
    """Formats one line on a system: its best score, and when it reached the target."""
    best = (min if held_out.lower_is_better else max)(curve.scores, default=float("nan"))
    reached = curve.seconds_to(target, held_out)
    when = "not reached" if reached is None else f"reached after {reached:.0f} processor seconds"
    whole = f"best {held_out.metric} {best:.2f} in {curve.total_seconds:.0f} processor seconds"
    return f"{curve.system}: {whole}; {target:g} {when}"


def format_ratios(curves: Sequence[Curve], target: float, held_out: HeldOut) -> str:
    """Formats the seconds to the target, and their ratios to the fastest system."""
    times = {curve.system: curve.seconds_to(target, held_out) for curve in curves}
    reached = {name: seconds for name, seconds in times.items() if seconds is not None}
    if not reached:
        return f"No system reached {held_out.metric} {target:g}."
    fastest = min(reached.values())
    lines = [
        f"| system | processor seconds to {held_out.metric} {target:g} | ratio |",
        "|---|---|---|",
    ]
    for name, seconds in sorted(reached.items(), key=lambda item: item[1]):
        lines.append(f"| {name} | {seconds:.0f} | {seconds / fastest:.2f} |")
    return "\n".join(
        [*lines, *(f"| {name} | not reached | |" for name in times if name not in reached)]
    )


def draw_curves(curves: Sequence[Curve], held_out: HeldOut, target: float, path: Path) -> None:
    """Draws score over processor time, with a line at the target.

    Args:
        held_out: Names the metric.
    """
    figure = new_figure((8, 4.5), dpi=150)
    axes = figure.subplots()
    for curve in curves:
        minutes = [seconds / 60 for seconds in curve.seconds]
        axes.plot(minutes, curve.scores, marker="o", markersize=4, label=_title_of(curve.system))
    unit = held_out.metric.upper()
    axes.axhline(target, color="gray", linestyle="--", linewidth=1, label=f"{target:g} {unit}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("processor minutes (logarithmic)")
    better = " (lower is better)" if held_out.lower_is_better else ""
    axes.set_ylabel(f"{unit} of the held-out texts{better}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def _title_of(system: str) -> str:
    """Returns a reader's name for a system of the command line."""
    kind, _, setting = system.partition(":")
    if kind == "ours":
        return f"this package ({Path(setting).stem})"
    if kind in ("command", "log"):
        return setting
    return f"{kind.capitalize()} (rate {setting})" if setting else kind.capitalize()


if __name__ == "__main__":
    main()
