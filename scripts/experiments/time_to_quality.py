r"""Measures the processor time that several systems need to reach a score, from scratch.

    python scripts/experiments/time_to_quality.py pronunciation --output-dir runs/quality \
        --systems ours:scripts/recipes/cmudict-longer.yaml phonetisaurus --target 30
    python scripts/experiments/time_to_quality.py translation --output-dir runs/quality \
        --data data/multi30k --systems ours:scripts/recipes/multi30k-quick.yaml --target 35

A system is one of

- `ours:RECIPE`: `vanilla-transformer train RECIPE`;
- `phonetisaurus`: joint n-grams in a finite-state transducer (`pip install phonetisaurus`);
- `command:NAME`: any other program. `--train-command` trains it, with {source} and {target} in
  place of the files of training texts and {output} in place of a folder of its own;
  `--translate-command` reads sources from its input, a line each, and writes as many outputs;
- `log:FILE`: a training that was timed elsewhere. A line of the file has processor seconds, a tab,
  and the path of a file with the outputs for the held-out sources, from the folder of FILE.

`docs/benchmarks.md` has the rules for entries of others.

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
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pronunciations import load_cmudict
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import vanilla_transformer  # noqa: F401 - registers the Auto classes
from vanilla_transformer.commands.train import ENVIRONMENT
from vanilla_transformer.files.text_files import read_lines
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.inspection.figures import new_figure
from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.training.metrics import score_texts

_POLL_SECONDS = 0.2
_SYSTEMS = {
    "ours": "RECIPE",
    "phonetisaurus": "",
    "command": "NAME",
    "log": "FILE",
}
"""What follows the kind of a system."""


@dataclass(frozen=True)
class HeldOut:
    """The texts on which checkpoints are scored.

    Attributes:
        references: One or several references of each.
        metric: One of `names.METRIC_NAMES`.
        max_length: Longest output in tokens.
    """

    sources: list[str]
    references: list[list[str]]
    metric: str
    num_beams: int
    max_length: int

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric counts errors."""
        return self.metric in ERROR_RATES

    def reaches(self, score: float, target: float) -> bool:
        """Whether a score is as good as the target."""
        return score <= target if self.lower_is_better else score >= target

    @property
    def search(self) -> dict[str, Any]:
        """Arguments of `generate`: the same for all systems, whatever was saved with a model."""
        of_beams = {"early_stopping": True, "length_penalty": 1.0}
        return {
            "num_beams": self.num_beams,
            "max_length": self.max_length,
            "do_sample": False,
            **(of_beams if self.num_beams > 1 else {}),
        }

    def score(self, outputs: Sequence[str]) -> float:
        """Scores an output for each source, in percent."""
        return float(score_texts(self.metric, outputs, self.references)[self.metric])


@dataclass(frozen=True)
class Curve:
    """Scores of one system over processor time.

    Attributes:
        seconds: Processor seconds at each checkpoint.
        total_seconds: Processor seconds of the whole training.
    """

    system: str
    seconds: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    total_seconds: float = 0.0

    def seconds_to(self, target: float, held_out: HeldOut) -> float | None:
        """Returns the processor seconds of the first checkpoint that reaches a score."""
        for seconds, score in zip(self.seconds, self.scores, strict=True):
            if held_out.reaches(score, target):
                return seconds
        return None


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
    add("--train-command", metavar="COMMAND", help="trains command:NAME; see above")
    add("--translate-command", metavar="COMMAND", help="translates with command:NAME; see above")
    add("--save-steps", type=int, default=250, help="updates between checkpoints")
    add("--eval-samples", type=int, default=1000, help="validation texts that are scored")
    add("--threads", type=int, default=1, help="CPU threads")
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
    texts = {side: folder / "texts" / f"train.{side}" for side in ("source", "target")}
    if kind == "command":
        return run_command(system, options, folder_of_system, texts, held_out)
    command = [sys.executable, "-m", "vanilla_transformer", "train", rest]
    command += ["--choose_defaults=False", *options.overrides]
    command += [f"--train_{side}={path}" for side, path in texts.items()]
    command += [f"--output_dir={folder_of_system / 'run'}", "--eval_strategy=no"]
    command += ["--save_strategy=steps", f"--save_steps={options.save_steps}"]
    command += ["--save_total_limit=1000", "--load_best_model_at_end=False"]
    clock = run_clocked(command, folder_of_system, options.threads)
    return score_checkpoints(system, folder_of_system, clock, held_out)


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


# The clock and the scores ----------------------------------------------------------------------


def completed_checkpoints(run: Path) -> list[int]:
    """Returns the steps of the complete checkpoints of a run, in order."""
    states = run.glob("checkpoint-*/trainer_state.json")  # the file that is written last
    return sorted(int(path.parent.name.removeprefix("checkpoint-")) for path in states)


def run_clocked(
    command: Sequence[str],
    folder: Path,
    threads: int,
) -> dict[int, float]:
    """Runs a training, and notes its processor time whenever a checkpoint is complete.

    The result is kept in `folder/clock.json`, which a second call returns.

    Args:
        command: Program and arguments. It saves checkpoints in `folder/run`.

    Returns:
        Processor seconds by step; those of the whole training under the step -1.

    Raises:
        RuntimeError: If the process fails, or the folder holds a training that was stopped.
    """
    record = folder / "clock.json"
    if record.is_file():
        known = json.loads(record.read_text(encoding="utf-8"))
        return {int(step): seconds for step, seconds in known.items()}
    if completed_checkpoints(folder / "run"):
        raise RuntimeError(f"{folder} holds a training that was stopped: delete the folder.")
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        **ENVIRONMENT,  # as `vanilla-transformer train` sets it for its own training
    }
    seconds: dict[int, float] = {}
    before = children_seconds()
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        watched = psutil.Process(process.pid)
        try:
            while process.poll() is None:
                spent = _processor_seconds(watched, seconds)
                for step in completed_checkpoints(folder / "run"):
                    seconds.setdefault(step, spent)
                seconds[-1] = spent
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()  # where this program is interrupted
            process.wait()
    seconds[-1] = children_seconds() - before  # with what came after the last look
    for step in completed_checkpoints(folder / "run"):
        seconds.setdefault(step, seconds[-1])
    if process.returncode:
        tail = (folder / "log.txt").read_text(encoding="utf-8")[-2000:]
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}: {tail}")
    record.write_text(json.dumps(seconds), encoding="utf-8")
    return seconds


def children_seconds() -> float:
    """Returns the processor time of all processes that this one, or its children, waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _processor_seconds(process: psutil.Process, seconds: dict[int, float]) -> float:
    """Returns the processor time of a process and its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # it has just ended
        return seconds.get(-1, 0.0)
    return times.user + times.system + times.children_user + times.children_system


def score_checkpoints(
    system: str,
    folder: Path,
    clock: dict[int, float],
    held_out: HeldOut,
) -> Curve:
    """Returns the curve of a run's checkpoints; scores are kept in `folder/scores.json`."""
    record = folder / "scores.json"
    known: dict[str, float] = json.loads(record.read_text()) if record.is_file() else {}
    curve = Curve(system, total_seconds=clock[-1])
    search = f"{held_out.metric} {json.dumps(held_out.search)}"
    for step in sorted(step for step in clock if step >= 0):
        key = f"{step} {search}"
        if key not in known:
            known[key] = score_model(folder / "run" / f"checkpoint-{step}", held_out)
            record.write_text(json.dumps(known), encoding="utf-8")
            print(f"{system}, step {step}: {held_out.metric} {known[key]:.2f}", file=sys.stderr)
        curve.steps.append(step)
        curve.seconds.append(clock[step])
        curve.scores.append(known[key])
    return curve


def score_model(path: Path, held_out: HeldOut) -> float:
    """Scores a saved model of transformers, ours among them, with the search of `held_out`."""
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    translator = Translator.from_model(model, tokenizer)
    return held_out.score(translator.translate(held_out.sources, **held_out.search))


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
    return kind.capitalize()


if __name__ == "__main__":
    main()
