"""Adapts a saved model to a file of pairs, and tells whether it has become better.

Everything is in the output directory: `before` (a model of another system, converted), `trimmed`
and `grown` (with another vocabulary), `data`, `search.json`, `training`, the comparison, and
`model`: the adapted model, or the old one if the adapted one is not significantly better.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Self

import torch
from datasets import disable_progress_bars
from huggingface_hub import snapshot_download

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.atomic_files import replaced_directory, write_atomic
from vanilla_transformer.data.file_contents import content_digest, read_object
from vanilla_transformer.data.text_files import read_lines
from vanilla_transformer.inference.loading import load_tokenizer, on_hub
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.grown_vocabulary import grow_vocabulary
from vanilla_transformer.interop.recognition import recognised_kind
from vanilla_transformer.interop.vocabulary import trim_vocabulary
from vanilla_transformer.names import ADAMW, MODEL_TYPE, MUON
from vanilla_transformer.progress import print_message, shows_bars
from vanilla_transformer.run import training_run
from vanilla_transformer.run.adapt_options import AdaptArguments
from vanilla_transformer.run.adaptation_data import (
    GENERAL,
    GENERAL_TEST,
    GENERAL_VALIDATION,
    Pair,
    Splits,
    data_options,
    files_of,
    split_data,
    text_files,
    without_own,
)
from vanilla_transformer.run.adaptation_mixture import choose_mixture
from vanilla_transformer.run.adaptation_report import Adapted, size_of, write_reports
from vanilla_transformer.run.comparison import Comparison
from vanilla_transformer.run.defaults import divides_weights, has_bfloat16
from vanilla_transformer.run.evaluation import compare_models
from vanilla_transformer.run.parsing import RunArguments, parse_arguments
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.run.store import read_results
from vanilla_transformer.training.finite_values import DivergenceError

_LARGE = 200_000_000
"""Parameters above which adapters are trained: AdamW needs 16 bytes for each weight it trains."""
_RANK = 16
_RATES = (1 / 3, 1, 3)
_RATE, _WIDTH = 1e-4, 1024
"""AdamW's middle rate is this at this width: a good rate is inversely proportional to the width."""
_RATE_OF_ADAPTERS = 10
_MUON_RATES = (0.003, 0.01)
_ADAMW_BESIDE_MUON = 0.15
"""The rate of AdamW in relation to that of Muon."""
_OTHER_FRAMEWORKS = ["*.h5", "*.msgpack", "*.ot", "*.tflite", "*.onnx*"]
"""Files of a repository on the Hub that hold its weights for other frameworks."""
_SEARCH_SHARE, _SEARCH_PAIRS = 0.05, (2000, 20_000)
_SCORED_PAIRS = 250
"""The validation pairs of a corpus that are scored after an epoch: an output takes 5 beams."""


def check_adaptation(options: AdaptArguments) -> dict[str, Any]:
    """Checks files and output directory, and returns what identifies the adaptation.

    Raises:
        FileNotFoundError: If the model or a file does not exist.
        ValueError: If the directory holds something else than this adaptation.
    """
    paths = [*map(str, options.existing_files()), *files_of(data_options(options))]
    identity = {**asdict(options), "contents": [content_digest(path) for path in paths]}
    del identity["output_dir"]
    folder, record = Path(options.output_dir), _record_of(options)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        known = read_object(record) if record.is_file() else None
        if known != json.loads(json.dumps(identity)):
            raise ValueError(
                f"`output_dir` {str(folder)!r} is in use, and not by an adaptation with these "
                "options and files: choose another directory."
            )
    return identity


def _record_of(options: AdaptArguments) -> Path:
    return Path(options.output_dir) / "adapt.json"


@dataclass(frozen=True)
class _PreparedStart:
    """What a training starts from.

    Attributes:
        model: The same, with the vocabulary of the training.
        is_resumed: Whether an interrupted training goes on.
    """

    splits: Splits
    before: Path
    model: Path
    is_resumed: bool


def adapt(options: AdaptArguments, command: Sequence[str]) -> Adapted | None:
    """Adapts a model; a run that was interrupted goes on with the same options.

    Several processes train together. The first one prepares and compares; the others return None.

    Args:
        command: Words of the command on the model card.

    Raises:
        FileNotFoundError: As `check_adaptation`.
        ValueError: As `check_adaptation`, if there are too few pairs, and as a training.
    """
    folder = Path(options.output_dir)
    if not shows_bars():
        disable_progress_bars()
    processes, after = parse_arguments([f"--output_dir={folder}"]).training, folder / "training"
    is_main, is_resumed = processes.process_index == 0, _record_of(options).exists()
    try:
        start = compute_on_main_process(processes, lambda _: _prepare_start(options))
        training = _Training(options, start, is_main)
        seconds = training.run(after, training.find_rate(), command)["train_runtime"]
    except (OSError, ValueError):
        if is_main and not is_resumed and _record_of(options).exists() and not after.exists():
            shutil.rmtree(folder)  # nothing is trained: the options may be corrected
        raise
    if not is_main:
        return None
    before = start.before

    def held_out(name: str) -> DataArguments:
        source, target = text_files(folder / "data" / name)
        return DataArguments(test_source=source, test_target=target)

    def compare(name: str) -> Comparison:
        return compare_models([str(before), str(after)], held_out(name), metrics=options.metrics)

    if GENERAL_VALIDATION in start.splits.held_out:
        after = choose_mixture(start.model, after, held_out, options.metrics[0])
    own = compare("test")
    general = compare(GENERAL_TEST) if GENERAL_TEST in start.splits.held_out else None
    done = Adapted(folder / "model", own, general, seconds, (size_of(before), size_of(after)))
    with replaced_directory(done.model) as unfinished:
        unfinished.mkdir(exist_ok=True)
        chosen = after if done.is_better else before
        for path in chosen.iterdir():
            if path.is_file():
                shutil.copy(path, unfinished)
        write_reports(done, folder / "training", unfinished)
    return done


# The start ----------------------------------------------------------------------------------------


def _prepare_start(options: AdaptArguments) -> _PreparedStart:
    """Writes the pairs, and the model that the training starts from."""
    identity, folder = check_adaptation(options), Path(options.output_dir)
    splits, given = split_data(options), _local_model(options)  # before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(_record_of(options), json.dumps(identity, indent=1))
    before = _old_model(options, given)
    if options.general_texts:
        splits.training[GENERAL] = _own_outputs(options, before, splits)
    splits.write(folder / "data")
    for name, pairs in (*splits.training.items(), *splits.held_out.items()):
        print_message(f"{name}: {len(pairs):,} pairs")
    model = _model_with_vocabulary(options, before, splits)
    return _PreparedStart(splits, before, model, (folder / "training").exists())


def _local_model(options: AdaptArguments) -> Path:
    """Returns the path of the model that is named, downloaded if it is on the Hub."""
    path = Path(options.model)
    if path.exists():
        return path
    with on_hub(options.model):
        return Path(snapshot_download(options.model, ignore_patterns=_OTHER_FRAMEWORKS))


def _old_model(options: AdaptArguments, given: Path) -> Path:
    """Returns the old model, converted if it is one of another system."""
    config, converted = given / "config.json", Path(options.output_dir) / "before"
    if config.is_file() and read_object(config).get("model_type") == MODEL_TYPE:
        return given
    if not (converted / "config.json").is_file():
        done = convert(recognised_kind(given), str(given), converted, overwrite=True)
        print_message(f"{options.model} is converted. {done.outcome}")
    return converted


def _own_outputs(options: AdaptArguments, model: Path, splits: Splits) -> list[Pair]:
    """Returns general texts that are no own sources, with the outputs of the old model."""
    written = Path(options.output_dir) / "data" / "own-outputs.tsv"
    if not written.is_file():  # otherwise it is that of an interrupted run
        lines = (" ".join(line.split()) for line in read_lines(str(options.general_texts)))
        own = (*splits.training.values(), *splits.held_out.values())
        pairs = without_own([Pair(line, "") for line in dict.fromkeys(lines) if line], own)
        texts = [pair.source for pair in pairs]
        count = options.general_count(sum(map(len, splits.training.values())))
        texts = Random(options.seed).sample(texts, min(len(texts), count))
        outputs = Translator.from_pretrained(str(model)).translate(texts, progress=True)
        rows = (
            f"{text}\t{' '.join(out.split())}\n" for text, out in zip(texts, outputs, strict=True)
        )
        written.parent.mkdir(exist_ok=True)
        write_atomic(written, "".join(rows))
    pairs = [Pair(*line.split("\t")) for line in read_lines(str(written))]
    return [pair for pair in pairs if pair.source and pair.target]


def _model_with_vocabulary(options: AdaptArguments, before: Path, splits: Splits) -> Path:
    """Returns the model that the training starts from, with its vocabulary trimmed and grown."""
    folder, start = Path(options.output_dir), before
    files = [entry["train"] for entry in splits.entries(folder / "data")]
    sources, targets = zip(*files, text_files(folder / "data" / "validation"), strict=True)
    if options.trim:
        trimmed = folder / "trimmed"
        if not trimmed.exists():
            print_message(trim_vocabulary(str(start), str(trimmed), sources, targets).describe())
        start = trimmed
    known = load_tokenizer(str(start)).get_vocab() if splits.tags else {}
    tags = [tag for tag in splits.tags if tag not in known]
    if options.add or tags:
        grown = folder / "grown"
        if not grown.exists():
            texts = [*sources, *targets] if options.add else []
            grow_vocabulary(str(start), str(grown), texts, options.add or 0, tags)
        start = grown
    return start


# The training -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rate:
    """A peak learning rate, and the optimizer that it is for."""

    optim: str
    value: float

    @classmethod
    def candidates(cls, optim: str | None, width: int, rank: int, is_sharded: bool) -> list[Self]:
        """Returns the rates that short trainings compare.

        Short trainings favour high rates, so that AdamW's highest is left out beside Muon.

        Args:
            optim: The optimizer; None: all that train adapters, if `rank` is not 0, or weights
                that are divided among processes, if `is_sharded`.
            width: `d_model` of the model.
        """
        middle = _RATE * _WIDTH / width * (_RATE_OF_ADAPTERS if rank else 1)
        adamw = [cls(ADAMW, float(f"{factor * middle:.1e}")) for factor in _RATES]
        muon = [cls(MUON, rate) for rate in _MUON_RATES]
        if optim is None:
            return adamw if rank or is_sharded else adamw[:2] + muon
        return muon if optim == MUON else adamw

    def options(self) -> dict[str, Any]:
        """Returns the options of a training."""
        if self.optim == ADAMW:
            return {"learning_rate": self.value}
        beside = float(f"{_ADAMW_BESIDE_MUON * self.value:.1e}")
        return {"optim": MUON, "muon_learning_rate": self.value, "learning_rate": beside}

    def __str__(self) -> str:
        return f"{self.optim} {self.value:g}"


class _Training:
    """The training of an adaptation, and the short ones that find its rate."""

    def __init__(self, options: AdaptArguments, start: _PreparedStart, is_main: bool) -> None:
        self.options, self.start, self.is_main = options, start, is_main
        self.folder = Path(options.output_dir)
        is_large = size_of(start.model).parameters > _LARGE and options.optim != MUON
        self.rank = options.lora if options.lora is not None else _RANK if is_large else 0
        if self.rank and is_main:
            print_message(f"Adapters of rank {self.rank} are trained.")

    def _run_arguments(
        self, given: dict[str, Any], command: Sequence[str] | None = None
    ) -> RunArguments:
        options, adapters = self.options, dict[str, Any]()
        if self.rank:  # new tokens need embeddings that are trained
            is_grown = self.start.model == self.folder / "grown"
            adapters = {"lora_rank": self.rank, "lora_embeddings": is_grown}
        common = {
            "model_name_or_path": self.start.model,
            **self.start.splits.options,
            "max_tokens": options.max_tokens,
            "eval_max_tokens": options.max_tokens,
            "warmup_steps": 0.05,
            "seed": options.seed,
            "bf16": has_bfloat16(not torch.accelerator.is_available()),
            **adapters,
        }
        words = [f"--{name}={value}" for name, value in {**common, **given}.items()]
        words += ["--metrics", *options.metrics]
        words += ["--corpora", *map(json.dumps, self.start.splits.entries(self.folder / "data"))]
        return parse_arguments(words, command)

    def run(self, output_dir: Path, rate: Rate, command: Sequence[str]) -> dict[str, float]:
        """Trains until the validation score has not risen for some epochs; returns the figures.

        What is scored and saved is a moving average of the weights.
        """
        given = {
            "output_dir": output_dir,
            **rate.options(),
            "num_train_epochs": self.options.epochs,
            "early_stopping_patience": self.options.patience,
            "eval_strategy": "epoch",
            "save_strategy": "epoch",
            "save_total_limit": 2,
            "load_best_model_at_end": True,
            "ema_decay": 0.999,
            "max_eval_samples": _SCORED_PAIRS,
        }
        if self.start.is_resumed:
            given["resume_from_checkpoint"] = True
        arguments = self._run_arguments(given, command)
        training_run.show_messages(arguments)
        return training_run.run(arguments)

    def find_rate(self) -> Rate:
        """Returns the rate that is given, or the best one by the loss of the validation.

        Each of the short trainings takes a twentieth of the longest training, but 2,000 to 20,000
        pairs. Their losses are kept in `search.json`.
        """
        if (given := self.options.learning_rate) is not None:
            return Rate(self.options.optim or ADAMW, given)
        record, folder = self.folder / "search.json", self.folder / "search"
        width = read_object(self.start.model / "config.json")["d_model"]
        found = Rate.candidates(self.options.optim, width, self.rank, divides_weights())
        rates = {str(rate): rate for rate in found}
        if record.is_file():
            losses = read_object(record)
        else:
            losses = {name: self._loss_of(rate, folder / name) for name, rate in rates.items()}
            if self.is_main:
                write_atomic(record, json.dumps(losses, indent=1))
                shutil.rmtree(folder)
        best = min(losses, key=lambda name: (losses[name] is None, losses[name]))
        listed = ", ".join(f"{name}: {loss or 'none'}" for name, loss in losses.items())
        if self.is_main:
            print_message(f"The learning rate is {best}. Losses of short trainings: {listed}.")
        return rates[best]

    def _loss_of(self, rate: Rate, output_dir: Path) -> float | None:
        """Returns the loss of the validations after a short training; None: it has diverged."""
        if (found := read_results(output_dir).get("eval_loss")) is not None:
            return round(found, 4)  # of an interrupted search
        pairs = sum(map(len, self.start.splits.training.values()))
        least, most = (count / pairs for count in _SEARCH_PAIRS)
        longest = self.options.epochs
        epochs = min(longest, max(least, min(most, longest * _SEARCH_SHARE)))
        given = {"output_dir": output_dir, **rate.options(), "num_train_epochs": epochs}
        given |= {"save_strategy": "no", "prediction_loss_only": True, "max_eval_samples": 500}
        arguments = self._run_arguments({**given, "overwrite": True})
        try:
            return round(training_run.run(arguments)["eval_loss"], 4)
        except DivergenceError:
            return None
