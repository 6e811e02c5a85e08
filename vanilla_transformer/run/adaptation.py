"""Adapts a saved model to a file of pairs, and tells whether it has become better.

Everything is in the output directory: `before` (a model of another system, converted), `trimmed`
and `grown` (with another vocabulary), `data`, `own-outputs`, `search.json`, `training`, the
comparisons, and `model`: the adapted model, or the old one if the adapted one is not significantly
better.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import disable_progress_bars
from huggingface_hub import ModelCard, snapshot_download
from transformers import AutoConfig

from vanilla_transformer.data.atomic_files import replaced_directory, write_atomic
from vanilla_transformer.data.directory_lock import locked_directory
from vanilla_transformer.data.file_contents import content_digest, read_object, text_digest
from vanilla_transformer.inference.loading import check_on_hub, load_tokenizer
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.grown_vocabulary import grow_vocabulary
from vanilla_transformer.interop.recognition import recognised_kind
from vanilla_transformer.interop.trimmed_vocabulary import trim_vocabulary
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.tokenization_vanilla_transformer import TERM_TOKENS
from vanilla_transformer.names import ADAMW, ERROR_RATES, MODEL_TYPE, MUON
from vanilla_transformer.progress import print_message, shows_bars
from vanilla_transformer.run import training_run
from vanilla_transformer.run.adaptation_data import (
    GENERAL_TEST,
    AdaptArguments,
    Splits,
    add_own_outputs,
    split_data,
)
from vanilla_transformer.run.comparison import SIGNIFICANT, ModelComparison, describe_comparison
from vanilla_transformer.run.comparison_page import comparison_page
from vanilla_transformer.run.defaults import (
    divides_weights,
    has_bfloat16,
    is_faster_in_bfloat16,
)
from vanilla_transformer.run.evaluation import compare_models
from vanilla_transformer.run.model_card import name_on_hub
from vanilla_transformer.run.parsing import RunArguments, parse_arguments
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.training.divergence import DivergenceError

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
_FEW_TEXTS = 100
"""Test pairs below which only a large difference is significant."""
_OWN_OUTPUTS = "own-outputs"


@dataclass(frozen=True)
class Adapted:
    """What an adaptation has led to.

    Attributes:
        model: Directory of the model to use.
        own: The comparison of the old and the adapted model on the own test set.
        general: That on the general test set; None: there is none.
    """

    model: Path
    own: ModelComparison
    general: ModelComparison | None

    @property
    def is_better(self) -> bool:
        """Whether the adapted model is significantly better on the own test set."""
        return _significant_gain(self.own, self.own.text_metric) > 0


def adapt(options: AdaptArguments, command: Sequence[str]) -> Adapted | None:
    """Adapts a model; a run that was interrupted goes on with the same options.

    Several processes train together. The first one prepares and compares; the others return None.

    Args:
        command: Words of the command on the model card.

    Raises:
        FileNotFoundError: If the model or a file does not exist.
        ValueError: If the output directory holds something else than this adaptation, if there are
            too few pairs, and as a training.
    """
    folder = Path(options.output_dir)
    if not shows_bars():
        disable_progress_bars()
    processes = parse_arguments([f"--output_dir={folder}"]).training
    is_main, after = processes.process_index == 0, folder / "training"
    with locked_directory(folder, is_main):
        start = compute_on_main_process(processes, lambda: _prepare_start(options))
        _Training(options, start, is_main).run(after, command)
    if not is_main:
        return None

    def compare(name: str) -> ModelComparison:
        return compare_models(
            [str(start.before), str(after)],
            start.splits.test_data(name, folder / "data"),
            metrics=list(dict.fromkeys([*options.metrics, "chrf"])),  # a BLEU of 0 tells nothing
            bleu_tokenize=options.bleu_tokenize,
            tags=start.splits.tags,
        )

    own = compare("test")
    general = compare(GENERAL_TEST) if GENERAL_TEST in start.splits.held_out else None
    done = Adapted(folder / "model", own, general)
    with replaced_directory(done.model) as unfinished:
        unfinished.mkdir(exist_ok=True)
        for path in (after if done.is_better else start.before).iterdir():
            if path.is_file():
                shutil.copy(path, unfinished)
        _write_reports(done, unfinished, name_on_hub(options.model))
    return done


# The start ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PreparedStart:
    """What a training starts from.

    Attributes:
        entries: The entries of `corpora` for the training.
        before: The old model.
        model: The same, with the vocabulary of the training.
    """

    splits: Splits
    entries: list[dict[str, Any]]
    before: Path
    model: Path


def _prepare_start(options: AdaptArguments) -> _PreparedStart:
    """Writes the pairs, and the model that the training starts from."""
    folder = Path(options.output_dir)
    source = Path(options.model)
    if not source.exists():
        check_on_hub(options.model)
        source = Path(snapshot_download(options.model, ignore_patterns=_OTHER_FRAMEWORKS))
    model_digest, splits = _digest_of_model(source), split_data(options)
    digests = map(content_digest, filter(None, [options.recipe, options.general_texts]))
    of_pairs = text_digest(json.dumps(asdict(splits)))
    identity = {**asdict(options), "contents": [model_digest, of_pairs, *digests]}
    del identity["output_dir"]
    contents = [path for path in folder.iterdir() if path.name != _OWN_OUTPUTS]  # they take hours
    record = folder / "adapt.json"
    recorded = read_object(record) if record.is_file() else None
    if contents and recorded != json.loads(json.dumps(identity)):
        if recorded is None or (folder / "training").exists():
            raise ValueError(
                f"`output_dir` {str(folder)!r} is in use, and not by an adaptation with these "
                "options, files and model: choose another directory."
            )
        for path in contents:  # of one that was refused or ended before its training
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_atomic(record, json.dumps(identity, indent=1))
    before = _converted(source, options)
    if options.general_texts:
        add_own_outputs(splits, options, before, model_digest, folder / _OWN_OUTPUTS)
    entries = splits.write(folder / "data")
    for name, pairs in splits.training.items():
        print_message(f"{name}: {len(pairs):,} pairs")
    for name, corpora in splits.held_out.items():
        print_message(f"{name}: {sum(map(len, corpora.values())):,} pairs")
    files = [entry["train"] for entry in entries if "train" in entry]
    files += splits.files("validation", folder / "data").values()
    tokens = [*splits.tags, *(TERM_TOKENS if "terms" in splits.options else ())]
    model = _with_vocabulary(before, options, files, tokens)
    return _PreparedStart(splits, entries, before, model)


def _digest_of_model(source: Path) -> str:
    """Returns the digest of the files of a model; checkpoints in its folder are no part of it."""
    files = [source]
    if source.is_dir():
        has_config = (source / "config.json").is_file()
        files = sorted(source.iterdir() if has_config else source.rglob("*"))
    digests = {str(path): content_digest(path) for path in files if path.is_file()}
    return text_digest(json.dumps(list(digests.values())))


def _converted(source: Path, options: AdaptArguments) -> Path:
    """Returns a model of this package: the source, or the source converted."""
    config, converted = source / "config.json", Path(options.output_dir) / "before"
    if config.is_file() and read_object(config).get("model_type") == MODEL_TYPE:
        return source
    if not (converted / "config.json").is_file():
        done = convert(recognised_kind(source), str(source), converted, overwrite=True)
        print_message(f"{options.model} is converted. {done.outcome}")
    return converted


def _with_vocabulary(
    before: Path, options: AdaptArguments, texts: Sequence[Sequence[str]], tags: Sequence[str]
) -> Path:
    """Returns the model that the training starts from, with its vocabulary trimmed and grown.

    Args:
        texts: Pairs of files of sources and targets.
        tags: Words that must be tokens.
    """
    folder, start = Path(options.output_dir), before
    sources, targets = zip(*texts, strict=True)
    if options.trim:
        trimmed = folder / "trimmed"
        if not trimmed.exists():
            print_message(trim_vocabulary(str(start), str(trimmed), sources, targets).describe())
        start = trimmed
    known = load_tokenizer(str(start)).get_vocab() if tags else {}
    new_tags = [tag for tag in tags if tag not in known]
    if new_tags:
        grown = folder / "grown"
        if not grown.exists():
            grow_vocabulary(str(start), str(grown), new_tags)
        start = grown
    return start


# The training -------------------------------------------------------------------------------------


def _candidate_rates(
    optim: str | None, width: int, rank: int, is_sharded: bool
) -> list[tuple[str, float]]:
    """Returns the optimizers and peak learning rates that short trainings compare.

    Short trainings favour high rates, so that AdamW's highest is left out beside Muon.

    Args:
        optim: The optimizer; None: all that train adapters, if `rank` is not 0, or weights that are
            divided among processes, if `is_sharded`.
        width: `d_model` of the model.
    """
    middle = _RATE * _WIDTH / width * (_RATE_OF_ADAPTERS if rank else 1)
    adamw = [(ADAMW, float(f"{factor * middle:.1e}")) for factor in _RATES]
    muon = [(MUON, rate) for rate in _MUON_RATES]
    if optim is None:
        return adamw if rank or is_sharded else adamw[:2] + muon
    return muon if optim == MUON else adamw


class _Training:
    """The training of an adaptation, and the short ones that find its rate."""

    def __init__(self, options: AdaptArguments, start: _PreparedStart, is_main: bool) -> None:
        self.options, self.start, self.is_main = options, start, is_main
        self.folder = Path(options.output_dir)
        self.config = AutoConfig.from_pretrained(start.model)
        with torch.device("meta"):  # without memory for weights
            parameters = VanillaTransformerForConditionalGeneration(self.config).num_parameters()
        is_large = parameters > _LARGE and options.optim != MUON
        self.rank = options.lora if options.lora is not None else _RANK if is_large else 0
        if self.rank and is_main:
            print_message(f"Adapters of rank {self.rank} are trained.")

    def run(self, output_dir: Path, command: Sequence[str]) -> None:
        """Trains until the validation score has not risen for some epochs.

        What is scored and saved is a moving average of the weights.
        """
        arguments = self._run_arguments(
            output_dir,
            *self._find_rate(),
            command=command,
            num_train_epochs=self.options.epochs,
            early_stopping_patience=self.options.patience,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=2,
            load_best_model_at_end=True,
            ema_decay=0.999,
            max_eval_samples=_SCORED_PAIRS,
            resume_from_checkpoint=True,
        )
        training_run.show_messages(arguments)
        training_run.run(arguments)

    def _find_rate(self) -> tuple[str, float]:
        """Returns the optimizer and the rate that are given, or the best by the validation's loss.

        Each of the short trainings takes a twentieth of the longest training, but 2,000 to 20,000
        pairs. Their losses are kept in `search.json`.
        """
        if self.options.learning_rate is not None:
            return self.options.optim or ADAMW, self.options.learning_rate
        record, folder = self.folder / "search.json", self.folder / "search"
        width = self.config.d_model
        candidates = _candidate_rates(self.options.optim, width, self.rank, divides_weights())
        rates = {f"{optim} {rate:g}": (optim, rate) for optim, rate in candidates}
        if record.is_file():
            losses = read_object(record)
        else:
            losses = {name: self._loss_of(folder / name, *rates[name]) for name in rates}
            if self.is_main:
                write_atomic(record, json.dumps(losses, indent=1))
                shutil.rmtree(folder)
        best = min(losses, key=lambda name: (losses[name] is None, losses[name]))
        if self.is_main:
            listed = ", ".join(f"{name}: {loss or 'none'}" for name, loss in losses.items())
            print_message(f"The learning rate is {best}. Losses of short trainings: {listed}.")
        return rates[best]

    def _loss_of(self, output_dir: Path, optim: str, rate: float) -> float | None:
        """Returns the loss of the validations after a short training; None: it has diverged."""
        pairs = sum(map(len, self.start.splits.training.values()))
        least, most = (count / pairs for count in _SEARCH_PAIRS)
        longest = self.options.epochs
        arguments = self._run_arguments(
            output_dir,
            optim,
            rate,
            num_train_epochs=min(longest, max(least, min(most, longest * _SEARCH_SHARE))),
            save_strategy="no",
            prediction_loss_only=True,
            max_eval_samples=500,
            overwrite=True,
        )
        try:
            return round(training_run.run(arguments)["eval_loss"], 4)
        except DivergenceError:
            return None

    def _run_arguments(
        self,
        output_dir: Path,
        optim: str,
        rate: float,
        command: Sequence[str] | None = None,
        **others: Any,
    ) -> RunArguments:
        """Returns the options of a training: those of all trainings, and the others."""
        on_cpu = not torch.accelerator.is_available()
        options = {
            "output_dir": output_dir,
            "learning_rate": rate,
            "model_name_or_path": self.start.model,
            **self.start.splits.options,
            "max_tokens": self.options.max_tokens,
            "eval_max_tokens": self.options.max_tokens,
            "warmup_steps": 0.05,
            "seed": self.options.seed,
            "bf16": has_bfloat16(on_cpu) and is_faster_in_bfloat16(on_cpu, self.config.d_model),
        }
        if self.rank:  # new tokens need embeddings that are trained
            is_grown = self.start.model == self.folder / "grown"
            options |= {"lora_rank": self.rank, "lora_embeddings": is_grown}
        if optim == MUON:
            beside = float(f"{_ADAMW_BESIDE_MUON * rate:.1e}")
            options |= {"optim": MUON, "muon_learning_rate": rate, "learning_rate": beside}
        words = [f"--{name}={value}" for name, value in {**options, **others}.items()]
        words += ["--metrics", *self.options.metrics]
        if (tokenize := self.options.bleu_tokenize) is not None:
            words += ["--bleu_tokenize", tokenize]
        words += ["--corpora", *map(json.dumps, self.start.entries)]
        return parse_arguments(words, command)


# The report ---------------------------------------------------------------------------------------


def describe_adaptation(done: Adapted) -> Iterator[str]:
    """Yields the lines of a report: scores before and after, and what they mean."""
    yield from _compared_scores(done)
    yield ""
    yield from _final_sentences(done)
    yield f"The model to use: {done.model}. All outputs: {done.model.parent / 'own.html'}."


def _significant_gain(comparison: ModelComparison, metric: str) -> float:
    """Returns by how much the second model is better than the first; 0: not significantly."""
    (pair,) = comparison.scores[metric]["pairs"]
    gain = float(pair["difference"] or 0) * (-1 if metric in ERROR_RATES else 1)
    return gain if pair["p_value"] < SIGNIFICANT else 0.0


def _comparisons(done: Adapted) -> Iterator[tuple[str, ModelComparison]]:
    yield "own", done.own
    if done.general is not None:
        yield "general", done.general


def _compared_scores(done: Adapted) -> Iterator[str]:
    for title, comparison in _comparisons(done):
        yield f"{title} test set ({len(comparison.sources):,} texts)"
        yield from (f"  {line}" for line in describe_comparison(comparison.scores))


def _final_sentences(done: Adapted) -> Iterator[str]:
    metric = done.own.text_metric
    (pair,) = done.own.scores[metric]["pairs"]
    p = f"p = {pair['p_value']:.3f}"
    gain = _significant_gain(done.own, metric)
    if metric != (first := next(iter(done.own.scores))):
        yield f"Both models have the worst possible {first}, which tells nothing: {metric} decides."
    if gain > 0:
        yield f"The adapted model is significantly better in {metric} ({p})."
    elif gain < 0:
        yield f"The adapted model is significantly worse in {metric} ({p}): the old model is kept."
    else:
        yield f"No significant difference in {metric} ({p}): the old model is kept."
    for title, comparison in _comparisons(done):
        fallen = [name for name in comparison.scores if _significant_gain(comparison, name) < 0]
        if fallen:
            yield f"On the {title} test set it is significantly worse in {', '.join(fallen)}."
    if (count := len(done.own.sources)) < _FEW_TEXTS:
        yield (
            f"The test has {count} pairs, and so few decide little: only a large difference is "
            "significant. Give more, with `--test` or `--held-out`."
        )


def _write_reports(done: Adapted, folder: Path, base_model: str | None) -> None:
    """Writes pages and figures of the comparisons, and the card of the model into its folder."""
    output_dir = done.model.parent
    for name, comparison in _comparisons(done):
        write_atomic(output_dir / f"{name}.html", comparison_page(comparison))
        text = json.dumps(asdict(comparison), indent=1, ensure_ascii=False, allow_nan=False)
        write_atomic(output_dir / f"{name}.json", text)
    path = folder / "README.md"
    card: Any = ModelCard(path.read_text(encoding="utf-8") if path.is_file() else "---\n{}\n---\n")
    text, card.data.base_model = card.text, base_model
    if done.is_better:  # it is the card of the training, whose name and path stand in it
        training = output_dir / "training"
        text = text.replace(f"\n# {training.name}\n", f"\n# {output_dir.name}\n", 1)
        text = text.replace(json.dumps(str(training)), json.dumps(str(done.model)), 1)
        card.data.model_name = output_dir.resolve().name
    report = "\n".join(["```text", *_compared_scores(done), "```", "", *_final_sentences(done)])
    card.text = f"{text.rstrip()}\n\n## Adaptation\n\n{report}\n"
    write_atomic(path, str(card))
