"""Adapts a saved model to a file of pairs, and tells whether it has become better.

Everything is in the output directory: `before` (a model of another system, converted), `grown`
(with more tokens), `data`, `own-outputs`, `training`, the comparisons, and `model`: the adapted
model, or the old one if the adapted one is not significantly better.
"""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from statistics import NormalDist, fmean, pstdev
from typing import Any

import torch
from datasets import disable_progress_bars
from huggingface_hub import ModelCard, snapshot_download
from transformers import AutoConfig

from vanilla_transformer.adapt.adaptation_data import (
    GENERAL_TEST,
    Splits,
    add_own_outputs,
    split_data,
)
from vanilla_transformer.adapt.options import (
    OWN_OUTPUTS,
    RECORD,
    AdaptArguments,
    check_paths,
    former_contents,
)
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.files.atomic_files import foreign_names, replaced_directory, write_atomic
from vanilla_transformer.files.directory_lock import locked_directory
from vanilla_transformer.files.file_contents import content_digest, read_object, text_digest
from vanilla_transformer.files.loading import load_generation_settings, load_tokenizer
from vanilla_transformer.interop.changed_vocabulary import grow_vocabulary
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.recognition import recognised_kind
from vanilla_transformer.language_tags import closest_tag
from vanilla_transformer.model.directions import Direction
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.tokenization_vanilla_transformer import MEMORY_TOKEN, TERM_TOKENS
from vanilla_transformer.names import ANNOTATE, ERROR_RATES, MODEL_TYPE, MUON
from vanilla_transformer.progress import print_message, shows_bars
from vanilla_transformer.run import training_run
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.comparison import SIGNIFICANT, ModelComparison, describe_comparison
from vanilla_transformer.run.evaluation import compare_models
from vanilla_transformer.run.machine import Machine
from vanilla_transformer.run.model_card import name_on_hub
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.run.tokenizer_and_config import keeps_case
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

_LARGE = 200_000_000
"""Parameters above which adapters are trained: AdamW needs 16 bytes for each, 3.2 GB at the border.

The border is chosen, not measured.
"""
_RANK = 16  # chosen, not measured
_RATE_BY_WIDTH, _RATE_OF_ADAPTERS = 0.1, 10
"""AdamW's rate is the first divided by the width (Yang et al. 2022), and higher for adapters.

Both are chosen; the log of experiments (docs/log.md) compares the first with Muon alone.
"""
_RATE_OF_MUON, _ADAMW_BESIDE_MUON = 0.01, 0.15
"""Muon's rate, the best of four (docs/log.md), and AdamW's rate in relation to it.

New models had the rates 0.003 and 0.02 then; the relation is not measured for adaptations.
"""
_OTHER_FRAMEWORKS = ["*.h5", "*.msgpack", "*.ot", "*.tflite", "*.onnx*"]
"""Files of a repository on the Hub that hold its weights for other frameworks."""
_SCORED_PAIRS = 250
"""Validation pairs of a corpus that are scored after an epoch: an output takes 5 beams."""
_MOST_PAIRS = 100_000
"""Test pairs above which it is not said how many would decide: nobody sees such a difference."""
_PAIRS = re.compile(r"(general-)?(train|validation|test)(-\d+)?\.jsonl")  # in `data`


@dataclass(frozen=True)
class Adapted:
    """The model to use, and the comparisons of the old and the adapted model on the test sets."""

    model: Path
    own: ModelComparison
    general: ModelComparison | None  # None: there is no such test set

    @property
    def is_better(self) -> bool:
        """Whether the adapted model is significantly better on the own test set."""
        return _significant_gain(self.own, self.own.text_metric) > 0


def adapt(options: AdaptArguments, command: Sequence[str]) -> Adapted | None:
    """Adapts a model; a run that was interrupted goes on with the same options.

    Several processes train together. The first one prepares and compares; the others return None.
    The model card shows the words of the command.
    """
    folder = Path(options.output_dir)
    if not shows_bars():
        disable_progress_bars()
    processes = TokenBudgetTrainingArguments(str(folder))
    is_main, after = processes.process_index == 0, folder / "training"
    with locked_directory(folder, is_main):
        start = compute_on_main_process(processes, _prepare_start, options)
        _train(options, start, is_main, command)
    if not is_main:
        return None

    def compare(name: str) -> ModelComparison:
        print_message(f"Both models translate the {name} pairs.")
        return compare_models(
            [str(start.before), str(after)],
            DataArguments(corpora=list(map(json.dumps, start.entries[name]))),
            metrics=list(dict.fromkeys([*options.metrics, "chrf"])),  # a BLEU of 0 tells nothing
            bleu_tokenize=options.bleu_tokenize,
            tags=start.splits.tags,
            progress=True,
        )

    own = compare("test")
    general = compare(GENERAL_TEST) if GENERAL_TEST in start.entries else None
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
    """What a training starts from."""

    splits: Splits
    entries: dict[str, list[dict[str, Any]]]  # of `corpora`: for "train", and for each test set
    before: Path  # the old model
    model: Path  # the same, with the vocabulary of the training


def _prepare_start(options: AdaptArguments) -> _PreparedStart:
    """Writes the pairs, and the model that the training starts from."""
    folder = Path(options.output_dir)
    source = Path(options.model)
    check_paths(options)
    if not source.exists():
        source = Path(snapshot_download(options.model, ignore_patterns=_OTHER_FRAMEWORKS))
    model_digest, splits = _digest_of_model(source), split_data(options)
    digests = map(content_digest, filter(None, [options.recipe, options.general_texts]))
    of_pairs = text_digest(json.dumps(asdict(splits)))
    identity = {**asdict(options), "contents": [model_digest, of_pairs, *digests]}
    del identity["output_dir"]
    contents, record = former_contents(folder), folder / RECORD
    if contents and read_object(record) != json.loads(json.dumps(identity)):
        if not all(map(_precedes_training, contents)):
            raise ValueError(
                f"`output_dir` {str(folder)!r} is in use by an adaptation with other options, "
                "files or model: choose another directory."
            )
        for path in contents:  # of one that was refused or ended before its training
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_atomic(record, json.dumps(identity, indent=1))
    before = _converted(source, options)
    if splits.case_augment is not None and keeps_case(str(before)):
        splits.add_cased_copies(splits.case_augment)
    _check_languages(before, splits)
    if options.general_texts:
        add_own_outputs(splits, options, before, model_digest, folder / OWN_OUTPUTS)
    entries = splits.write(folder / "data")
    counts = {name: len(pairs) for name, pairs in splits.training.items()}
    for name, corpora in splits.held_out.items():
        counts[name] = sum(map(len, corpora.values()))
    print_message(f"Pairs: {', '.join(f'{name} {count:,}' for name, count in counts.items())}.")
    return _PreparedStart(splits, entries, before, _with_vocabulary(before, options, splits))


def _check_languages(before: Path, splits: Splits) -> None:
    """Refuses languages that the model lacks, and that no tag of a corpus adds."""
    config, tokenizer = AutoConfig.from_pretrained(before), load_tokenizer(str(before))
    settings = load_generation_settings(str(before), config)
    untagged = [pairs for name, pairs in splits.training.items() if name not in splits.tag_of]
    for source, target in dict.fromkeys(pair[3:5] for pairs in untagged for pair in pairs):
        Direction.resolve(tokenizer, settings, source, target, closest_tag)


def _precedes_training(path: Path) -> bool:
    """Returns whether an adaptation writes a file or a folder, and all in it, before it trains."""
    if path.name == "data":
        return all(_PAIRS.fullmatch(file.name) for file in path.iterdir())
    return path.name == RECORD or (path.name in ("before", "grown") and not foreign_names(path))


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


def _with_vocabulary(before: Path, options: AdaptArguments, splits: Splits) -> Path:
    """Returns the model that the training starts from, with its new tokens."""
    tokens = [*splits.tags, *(TERM_TOKENS if "terms" in splits.options else ())]
    tokens += [MEMORY_TOKEN] if splits.options.get("memory") == ANNOTATE else []
    known = load_tokenizer(str(before)).get_vocab() if tokens else {}
    if not (new := [token for token in tokens if token not in known]):
        return before
    grown = Path(options.output_dir, "grown")
    if not grown.exists():
        grow_vocabulary(str(before), str(grown), new)
    return grown


# The training -------------------------------------------------------------------------------------


def _train(
    options: AdaptArguments, start: _PreparedStart, is_main: bool, command: Sequence[str]
) -> None:
    """Trains until the validation score has not risen for some epochs.

    What is scored and saved is a moving average of the weights.
    """
    config = AutoConfig.from_pretrained(start.model)
    with torch.device("meta"):  # without memory for weights
        parameters = VanillaTransformerForConditionalGeneration(config).num_parameters()
    rank = options.lora
    if rank is None:
        rank = _RANK if parameters > _LARGE and options.optim != MUON else 0
    if rank and is_main:
        print_message(f"Adapters of rank {rank} are trained.")
    folder, machine = Path(options.output_dir), Machine.here()
    given = dict(
        output_dir=str(folder / "training"),
        model_name_or_path=str(start.model),
        corpora=list(map(json.dumps, start.entries["train"])),
        **start.splits.options,
        **_rates(options, config.d_model, rank, machine.is_sharded),
        lora_rank=rank or None,
        lora_embeddings=start.model == folder / "grown",  # those of new tokens must be trained
        max_tokens=options.max_tokens,
        eval_max_tokens=options.max_tokens,
        warmup_steps=0.05,
        seed=options.seed,
        bf16=machine.is_faster_in_bfloat16(config.d_model),
        num_train_epochs=options.epochs,
        early_stopping_patience=options.patience,
        metrics=options.metrics,
        bleu_tokenize=options.bleu_tokenize,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        ema_decay=0.999,
        max_eval_samples=_SCORED_PAIRS,
        resume_from_checkpoint="True",
    )
    arguments = RunArguments.of(given, command)
    training_run.show_messages(arguments)
    training_run.run(arguments)


def _rates(options: AdaptArguments, width: int, rank: int, is_sharded: bool) -> dict[str, Any]:
    """Returns the options of the optimizer; `rank` is that of adapters, or 0."""
    needs_adamw = rank or options.learning_rate is not None or is_sharded
    if options.optim == MUON or (options.optim is None and not needs_adamw):
        rate = options.learning_rate or _RATE_OF_MUON
        beside = float(f"{_ADAMW_BESIDE_MUON * rate:.1e}")
        return {"optim": MUON, "muon_learning_rate": rate, "learning_rate": beside}
    rate = _RATE_BY_WIDTH / width * (_RATE_OF_ADAPTERS if rank else 1)
    return {"learning_rate": options.learning_rate or float(f"{rate:.1e}")}


# The report ---------------------------------------------------------------------------------------


def describe_adaptation(done: Adapted) -> Iterator[str]:
    """Yields the lines of a report: scores before and after, and what they mean."""
    yield from _compared_scores(done)
    yield ""
    yield from _final_sentences(done)
    yield f"The model to use: {done.model}. All outputs: {done.model.parent / 'own.json'}."


def _significant_gain(comparison: ModelComparison, metric: str) -> float:
    """Returns by how much the second model is better than the first; 0: not significantly."""
    (test,) = comparison.scores[metric].pairs
    gain = float(test.difference or 0) * (-1 if metric in ERROR_RATES else 1)
    return gain if test.p_value < SIGNIFICANT else 0.0


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
    (test,) = done.own.scores[metric].pairs
    p = f"p = {test.p_value:.3f}"
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
    if not gain and (needed := _deciding_pairs(done.own)):
        yield (
            f"The test has {len(done.own.sources):,} pairs. If the difference stays, about "
            f"{needed:,} would decide: give more, with `--test` or `--held-out`."
        )


def _deciding_pairs(comparison: ModelComparison) -> int | None:
    """Returns with how many test pairs the same difference is significant; None: with very many.

    The deviation of a mean falls with the square root of their number.
    """
    gains = [after - before for before, after in zip(*comparison.text_scores.values(), strict=True)]
    if not (mean := fmean(gains)):
        return None
    needed = (NormalDist().inv_cdf(1 - SIGNIFICANT / 2) * pstdev(gains) / mean) ** 2
    return ceil(needed / 10) * 10 if needed < _MOST_PAIRS else None


def _write_reports(done: Adapted, folder: Path, base_model: str | None) -> None:
    """Writes the comparisons, and the card of the model into its folder."""
    output_dir = done.model.parent
    for name, comparison in _comparisons(done):
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
