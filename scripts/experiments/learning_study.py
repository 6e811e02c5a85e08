r"""Studies what makes a model learn sooner: initial values, norms, depth, warm-up and optimizers.

Every combination of the given values is one scheme, and every scheme is trained once per seed by
the trainer of the package, on the same batches in the same order. Seeds change initial values and
dropout. Each finished run adds a line to runs.jsonl in the output directory. A program that is
started again skips the finished runs. At the end, and with --report_only, it draws the curves and
writes table.md.

    python scripts/experiments/learning_study.py --output_dir runs/study \
        --initializers xavier t_fixup --norm_placements post --layers 3 6 --warmup_steps 0 400 \
        --optimizers adamw:0.003 muon:0.003:0.01 --seeds 1 2 3 --steps 600
"""

import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

import torch
from datasets import DatasetDict, disable_progress_bars
from pronunciations import load_cmudict
from transformers import DataCollatorForSeq2Seq, HfArgumentParser, PrinterCallback, set_seed
from transformers.utils import logging

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.encoding import encode
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.inspection.figures import new_figure
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES
from vanilla_transformer.model.inputs import IGNORE_INDEX
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.options import option
from vanilla_transformer.run.loading import new_config
from vanilla_transformer.run.plan import default_attention
from vanilla_transformer.training.divergence import DivergenceError
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH_OF_A_HEAD = 32
_FEED_FORWARD_FACTOR = 4
_PANEL_FIELDS = ("task", "norm_placement", "layers", "d_model")
_BATCH_ORDER = 1  # the seed of the batches of every run


# Options -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StudyArguments:
    """The values to combine, and what all runs share."""

    output_dir: str = field(
        metadata={"help": "Directory for runs.jsonl, the pictures and table.md."}
    )
    data: str | None = option(
        "Directory with train.en, train.de, val.en and val.de (or another pair of --languages; "
        "each plain or .gz). By default, the runs learn the CMU Pronouncing Dictionary."
    )
    languages: list[str] = option("Source and target language of --data.", ["en", "de"])
    initializers: list[str] = option(
        "Initial values.", ["xavier"], choices=list(CHOICES["initializer"])
    )
    norm_placements: list[str] = option(
        "Placements of norms.", ["post", "pre"], choices=list(CHOICES["norm_placement"])
    )
    layers: list[int] = option("Layers of the encoder, and as many of the decoder.", [3])
    d_models: list[int] = option(
        f"Widths: multiples of {_WIDTH_OF_A_HEAD}, the width of a head.", [128]
    )
    warmup_steps: list[int] = option("Warm-up steps of the schedule.", [100])
    optimizers: list[str] = option(
        "adamw:RATE, or muon:RATE:RATE with the rates of AdamW and of Muon.", ["adamw:0.003"]
    )
    seeds: list[int] = option("Seeds of initial values and dropout.", [1])
    steps: int = option("Updates of each run.", 400)
    max_tokens: int = option("Tokens of source and target per batch, including padding.", 1536)
    lr_scheduler_type: str = option("Schedule of the rates after the warm-up.", "linear")
    dropout: float = option("Dropout rate.", 0.0)
    label_smoothing: float = option("Label smoothing of the loss, also of the validation's.", 0.0)
    vocab_size: int = option("Size of the joint BPE vocabulary of --data.", 6000)
    validations: int = option("Validations of each run, at equal distances and at the end.", 5)
    validation_examples: int = option("Held-out examples of a validation.", 500)
    bf16: bool = option("Whether to train in bfloat16 mixed precision.", False)
    threads: int = option("CPU threads.", 1)
    report_only: bool = option("Whether to draw the finished runs and train none.", False)


def parse_optimizer(text: str) -> tuple[str, float, float | None]:
    """Reads the name and rates of "adamw:0.003" (no rate of Muon) or "muon:0.003:0.01"."""
    match text.split(":"):
        case ["adamw", rate]:
            return "adamw", float(rate), None
        case ["muon", rate, muon_rate]:
            return "muon", float(rate), float(muon_rate)
    raise ValueError(f"`optimizers` {text!r} is none: give adamw:RATE or muon:RATE:RATE.")


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a run computes.

    Attributes:
        task: "pronunciation", or name of the directory and languages.
        muon_learning_rate: None: the run has no Muon.
        Others: As in `StudyArguments`.
    """

    task: str
    initializer: str
    norm_placement: str
    layers: int
    d_model: int
    warmup_steps: int
    optimizer: str
    learning_rate: float
    muon_learning_rate: float | None
    seed: int
    steps: int
    max_tokens: int
    lr_scheduler_type: str
    dropout: float
    label_smoothing: float
    vocab_size: int
    validations: int
    validation_examples: int
    bf16: bool
    threads: int


def list_runs(options: StudyArguments) -> list[Settings]:
    """Lists the runs: all schemes with the first seed, then with the second."""
    task = "pronunciation"
    if options.data is not None:
        task = f"{Path(options.data).resolve().name} {'-'.join(options.languages)}"
    common: dict[str, Any] = {
        setting.name: getattr(options, setting.name)
        for setting in fields(Settings)
        if setting.name not in ("task", "warmup_steps") and hasattr(options, setting.name)
    }
    del common["layers"]
    runs = []
    for seed, initializer, placement, layers, width, warmup, optimizer in itertools.product(
        options.seeds,
        options.initializers,
        options.norm_placements,
        options.layers,
        options.d_models,
        options.warmup_steps,
        options.optimizers,
    ):
        rates = parse_optimizer(optimizer)
        scheme = (task, initializer, placement, layers, width, warmup, *rates, seed)
        runs.append(Settings(*scheme, **common))
    return runs


# Training ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """Encoded data with their tokenizer.

    Attributes:
        splits: "train" and "validation", encoded.
    """

    splits: DatasetDict
    tokenizer: VanillaTransformerTokenizer


def load_texts(options: StudyArguments) -> DatasetDict:
    """Loads "train" and "validation", with the columns "source" and "target".

    The validation texts of the dictionary are drawn at random, as its words stand in the order of
    the alphabet. Those of --data are the first ones of their file.
    """
    if options.data is None:
        texts = load_cmudict()
        held_out = texts["validation"].shuffle(seed=0)
    else:
        texts = load_parallel_data(_files_of(Path(options.data), options.languages)).splits
        held_out = texts["validation"]
    held_out = held_out.select(range(min(options.validation_examples, len(held_out))))
    splits = {"train": texts["train"], "validation": held_out}
    columns = ["source", "target"]
    return DatasetDict({name: rows.select_columns(columns) for name, rows in splits.items()})


def make_task(options: StudyArguments, texts: DatasetDict) -> Task:
    """Trains the tokenizer and encodes."""
    kinds: dict[str, Any] = {"kind": "char", "target_kind": "word", "shared": False}
    if options.data is not None:
        kinds = {"kind": "bpe", "vocab_size": options.vocab_size, "shared": True}
    train = texts["train"]
    tokenizer = VanillaTransformerTokenizer.train(train["source"], train["target"], **kinds)
    return Task(encode(texts, tokenizer), tokenizer)


def _files_of(folder: Path, languages: Sequence[str]) -> DataArguments:
    paths_of_sides: dict[str, Any] = {}
    for split, stem in (("train", "train"), ("validation", "val")):
        for side, language in zip(("source", "target"), languages, strict=True):
            paths = [folder / f"{stem}.{language}{suffix}" for suffix in ("", ".gz")]
            path = next((candidate for candidate in paths if candidate.is_file()), None)
            if path is None:
                raise ValueError(f"`data`: {paths[0]} does not exist, with or without .gz.")
            paths_of_sides[f"{split}_{side}"] = str(path)
    return DataArguments(**paths_of_sides)


class StudyTrainer(TokenBudgetSeq2SeqTrainer):
    """The trainer of the package; it measures its processor time without the validations.

    Attributes:
        seconds: Processor time of the training before each validation.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seconds = list[float]()
        self._without = time.process_time()  # the clock, if validations took no time

    def seconds_so_far(self) -> float:
        """Returns the processor time since the trainer was made, without validations."""
        return time.process_time() - self._without

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        """Validates, as the base class does."""
        self.seconds.append(self.seconds_so_far())
        figures = super().evaluate(*args, **options)
        self._without = time.process_time() - self.seconds[-1]
        return figures


def make_trainer(settings: Settings, task: Task, folder: str) -> StudyTrainer:
    """Makes a model and its trainer. Initial values depend on the seed."""
    set_seed(settings.seed)
    names = ("initializer", "norm_placement", "d_model", "dropout", "label_smoothing")
    changes = {name: getattr(settings, name) for name in names}
    for stack in ("encoder", "decoder"):
        changes[f"{stack}_layers"] = settings.layers
        changes[f"{stack}_attention_heads"] = settings.d_model // _WIDTH_OF_A_HEAD
        changes[f"{stack}_ffn_dim"] = settings.d_model * _FEED_FORWARD_FACTOR
    model = VanillaTransformerForConditionalGeneration(new_config(task.tokenizer, changes))
    arguments = _training_arguments(settings, folder)
    model.set_attn_implementation(default_attention(arguments))
    trainer = StudyTrainer(
        model=model,
        args=arguments,
        train_dataset=task.splits["train"],
        eval_dataset=task.splits["validation"],
        data_collator=DataCollatorForSeq2Seq(task.tokenizer, model=model),
        compute_metrics=_token_accuracy,
        preprocess_logits_for_metrics=_most_probable,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _training_arguments(settings: Settings, folder: str) -> TokenBudgetTrainingArguments:
    names = ("seed", "max_tokens", "lr_scheduler_type", "warmup_steps", "learning_rate", "bf16")
    muon: dict[str, Any] = {}
    if settings.muon_learning_rate is not None:
        muon = {"optim": "muon", "muon_learning_rate": settings.muon_learning_rate}
    return TokenBudgetTrainingArguments(
        folder,
        **{name: getattr(settings, name) for name in names},
        **muon,
        max_steps=settings.steps,
        data_seed=_BATCH_ORDER,
        adam_beta2=0.98,
        max_grad_norm=1.0,
        logging_steps=max(1, settings.steps // 100),
        eval_strategy="steps",
        eval_steps=math.ceil(settings.steps / settings.validations),
        per_device_eval_batch_size=100,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )


def _most_probable(logits: Any, labels: torch.Tensor) -> torch.Tensor:
    scores = logits[0] if isinstance(logits, tuple) else logits
    return cast(torch.Tensor, scores.argmax(-1))


def _token_accuracy(prediction: Any) -> dict[str, float]:
    counted = prediction.label_ids != IGNORE_INDEX
    right = (prediction.predictions == prediction.label_ids) & counted
    return {"accuracy": float(right.sum() / counted.sum())}


def train(settings: Settings, task: Task) -> dict[str, Any]:
    """Carries out one run.

    Returns:
        A line of runs.jsonl: `settings`; `parameters`: their number; `losses`: pairs of a step and
        the mean training loss since the pair before, in nats per token; `validations`: step, loss,
        share of tokens that are predicted correctly, and processor seconds of the training before;
        `diverged`: the step at which the run diverged, or None; `processor_seconds`: of the whole
        training, without validations.
    """
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(settings, task, folder)
        diverged = None
        try:
            trainer.train()
        except DivergenceError:
            diverged = trainer.state.global_step
        seconds = trainer.seconds_so_far()
    history = trainer.state.log_history
    validations = [row for row in history if "eval_loss" in row]
    return {
        "settings": asdict(settings),
        "parameters": cast(Any, trainer.model).num_parameters(),
        "losses": [[row["step"], row["loss"]] for row in history if "loss" in row],
        "validations": [
            [row["step"], row["eval_loss"], row["eval_accuracy"], round(before, 2)]
            for row, before in zip(validations, trainer.seconds, strict=True)
        ],
        "diverged": diverged,
        "processor_seconds": round(seconds, 2),
    }


# Finished runs -----------------------------------------------------------------------------------


def read_results(path: Path) -> list[dict[str, Any]]:
    """Reads the finished runs, as `train` made them."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def carry_out(options: StudyArguments) -> None:
    """Trains the runs that are not finished."""
    path = Path(options.output_dir, "runs.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = list_runs(options)
    finished = [result["settings"] for result in read_results(path)]
    left = [settings for settings in runs if asdict(settings) not in finished]
    print(f"{len(runs)} runs, {len(runs) - len(left)} of them finished before", flush=True)
    if not left:
        return
    task = make_task(options, load_texts(options))
    shown = varied_settings([asdict(settings) for settings in runs])
    for number, settings in enumerate(left, start=1):
        result = train(settings, task)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        last = result["validations"][-1:] or [[0, float("nan"), float("nan")]]
        print(
            f"{number}/{len(left)} {_name_of(asdict(settings), shown)}: validation loss "
            f"{last[0][1]:.3f}, accuracy {last[0][2]:.1%}, "
            f"{result['processor_seconds']:.0f} s",
            flush=True,
        )


# Report ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """The runs of one scheme.

    Attributes:
        scheme: The settings that they share.
        results: Lines of runs.jsonl, one for each seed.
    """

    scheme: dict[str, Any]
    results: list[dict[str, Any]]

    @property
    def whole(self) -> list[dict[str, Any]]:
        """The runs that did not diverge."""
        return [r for r in self.results if r["diverged"] is None and r["validations"]]

    def curve(self, key: str) -> list[tuple[int, float, float, float]]:
        """Returns step, mean, smallest and largest loss over the runs that did not diverge.

        Args:
            key: "losses" or "validations".
        """
        by_step = [{row[0]: row[1] for row in result[key]} for result in self.whole]
        steps = sorted(set.intersection(*(set(result) for result in by_step))) if by_step else []
        values = [(step, [result[step] for result in by_step]) for step in steps]
        return [(step, fmean(losses), min(losses), max(losses)) for step, losses in values]

    def seconds_at(self, step: int) -> float:
        """Returns the mean processor time of the training before the validation of a step."""
        rows = [row for result in self.whole for row in result["validations"] if row[0] == step]
        return fmean(row[3] for row in rows)


def group_by_scheme(results: Sequence[dict[str, Any]]) -> list[Group]:
    """Groups finished runs that differ in the seed alone, in the order of the first of each."""
    groups: dict[str, Group] = {}
    for result in results:
        scheme = {name: value for name, value in result["settings"].items() if name != "seed"}
        group = groups.setdefault(json.dumps(scheme, sort_keys=True), Group(scheme, []))
        group.results.append(result)
    return list(groups.values())


def varied_settings(schemes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the names of the settings that are not the same in all schemes."""
    names = schemes[0] if schemes else {}
    return [name for name in names if len({str(scheme[name]) for scheme in schemes}) > 1]


def _name_of(scheme: Mapping[str, Any], shown: Collection[str]) -> str:
    """Returns a short name of a scheme by the settings to be shown."""
    return ", ".join(f"{name} {scheme[name]}" for name in shown) or "all runs"


def format_table(groups: Sequence[Group]) -> str:
    """Formats the schemes as a table in Markdown, the best one of each task first.

    Returns:
        A row for each scheme: its runs, how many of them diverged, and the figures of the others:
        mean and range of the last validation loss over the seeds, token accuracy, mean loss at
        each validation, mean processor time.
    """
    shown = varied_settings([group.scheme for group in groups])
    heads = ["scheme", "runs", "diverged", "validation loss", "range", "token accuracy"]
    heads += ["loss on the way", "processor seconds"]
    rows = []
    for group in groups:
        whole = group.whole
        last = [result["validations"][-1] for result in whole]
        losses, accuracies = [row[1] for row in last], [row[2] for row in last]
        way = ", ".join(f"{step}: {mean:.2f}" for step, mean, _, _ in group.curve("validations"))
        seconds = [result["processor_seconds"] for result in whole]
        cells = [_name_of(group.scheme, shown), str(len(group.results))]
        cells += [str(len(group.results) - len(whole))]
        cells += [f"{fmean(losses):.3f}" if losses else "-"]
        cells += [f"{min(losses):.3f} to {max(losses):.3f}" if losses else "-"]
        cells += [f"{fmean(accuracies):.1%}" if losses else "-", way or "-"]
        cells += [f"{fmean(seconds):.0f}" if seconds else "-"]
        rows.append((group.scheme["task"], fmean(losses) if losses else float("inf"), cells))
    rows.sort(key=lambda row: row[:2])
    lines = [heads, ["---"] * len(heads), *(cells for _, _, cells in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def panels_of(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Returns the schemes of each panel by its title."""
    panels: dict[str, list[Group]] = {}
    for group in groups:
        panels.setdefault(_name_of(group.scheme, _PANEL_FIELDS), []).append(group)
    return panels


def draw_panel(title: str, groups: Sequence[Group], figure: "Figure") -> None:
    """Draws the training and validation losses over the steps, and the latter over the time.

    Lines are means over the seeds, areas are their ranges. Runs that diverged are left out.
    """
    shown = varied_settings([group.scheme for group in groups])
    figure.suptitle(title)
    training, validation, in_time = figure.subplots(1, 3)
    for group in groups:
        label = _name_of(group.scheme, shown)
        _draw_curve(training, group.curve("losses"), linewidth=1.2, label=label)
        curve = group.curve("validations")
        _draw_curve(validation, curve, marker=".")
        _draw_curve(in_time, [(group.seconds_at(step), *rest) for step, *rest in curve], marker=".")
    training.set(xlabel="step", ylabel="nats per token", title="training, by step")
    validation.set(xlabel="step", title="validation, by step")
    in_time.set(xlabel="processor seconds", title="validation, by processor time")
    training.legend(fontsize="small")


def _draw_curve(axes: Any, curve: Sequence[Sequence[float]], **options: Any) -> None:
    """Draws places, means and ranges, as `Group.curve` returns them."""
    places, means, lowest, highest = zip(*curve, strict=True) if curve else ([], [], [], [])
    (line,) = axes.plot(places, means, **options)
    axes.fill_between(places, lowest, highest, color=line.get_color(), alpha=0.2)


def write_report(folder: Path) -> str:
    """Writes table.md and a picture for each panel; returns the table."""
    groups = group_by_scheme(read_results(folder / "runs.jsonl"))
    table = format_table(groups)
    (folder / "table.md").write_text(table, encoding="utf-8")
    for number, (title, members) in enumerate(panels_of(groups).items(), start=1):
        figure = new_figure((15, 4.5), dpi=100)
        draw_panel(title, members, figure)
        figure.savefig(folder / f"curves-{number}.png")
    return table


# Program -----------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> None:
    """Trains the runs that are not finished, and reports on all."""
    argv = sys.argv[1:] if argv is None else argv
    parser = HfArgumentParser(cast(Any, StudyArguments), description=(__doc__ or "").split("\n")[0])
    parsed: Any = parser.parse_args_into_dataclasses(list(argv), look_for_args_file=False)
    (options,) = parsed
    new_figure((1, 1))  # a missing matplotlib fails here, before the training
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    disable_progress_bars()
    torch.set_num_threads(options.threads)
    if not options.report_only:
        carry_out(options)
    print(write_report(Path(options.output_dir)), end="")


if __name__ == "__main__":
    main()
