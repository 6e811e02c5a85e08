"""The model card of a run: the command, the results and the architecture."""

import html
import json
import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from vanilla_transformer.columns import distinct_directions
from vanilla_transformer.data.corpus_reports import CorpusReport, list_reasons
from vanilla_transformer.files.atomic_files import write_atomic
from vanilla_transformer.language_tags import known_tag
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.names import ERROR_RATES
from vanilla_transformer.run.comparison import score_with_interval
from vanilla_transformer.run.plan import PREFIXES, RunPlan
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer

_TEMPLATE = Path(__file__).parent / "model_card_template.md"


def write_model_card(
    plan: RunPlan,
    trainer: TokenBudgetSeq2SeqTrainer,
    results: Mapping[str, float],
    signatures: Mapping[str, Mapping[str, str]],
    quality: str,
) -> None:
    """Writes the model card, README.md, into the output directory.

    A token of the Hub in the command is replaced by dots.

    Args:
        signatures: sacrebleu's signature of each score of each split.
        quality: A sentence on the quality of outputs. "": none is known.
    """
    folder, model = plan.loaded.directory.folder, cast(Any, trainer.model)
    name = folder.resolve().name
    card = ModelCard.from_template(
        _card_data(plan, name, results),
        template_path=os.fspath(_TEMPLATE),
        model_name=_as_text(name),
        task=_as_text(plan.arguments.card.task),
        dataset=_as_text(_dataset_name(plan)),
        parameters=f"{sum(p.numel() for p in model.parameters()):,}",
        kind=_kind_of_model(plan, model.config),
        path=json.dumps(trainer.hub_model_id or plan.training.output_dir, ensure_ascii=False),
        example=repr(plan.texts.example),
        metrics=plan.metrics,
        score=partial(_score_cell, results),
        error_rates=ERROR_RATES,
        signature=partial(_signature_cell, signatures),
        quality=quality,
        samples=_samples(plan, results),
        reports=plan.loaded.reports,
        scores_of_corpus=partial(_scores_of_corpus, plan.metrics, results),
        reasons=list_reasons,
        cell=_as_cell,
        command=wrapped_command(plan.arguments.command),
        code_block=_code_block,
        recipe=plan.arguments.recipe,
        defaults={
            # Given minutes have decided the steps.
            name: trainer.state.max_steps if name == "max_steps" else value
            for name, value in plan.arguments.defaults.items()
        },
        procedure=_training_procedure(plan, results),
    )
    text = str(card)
    if plan.training.hub_token:
        text = text.replace(plan.training.hub_token, "...")
    write_atomic(folder / "README.md", text)


def wrapped_command(words: Sequence[str]) -> str:
    """Joins the words of a command for a shell, with a line for each option and its values."""
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
    return " \\\n    ".join(map(shlex.join, lines))


def _as_text(text: str) -> str:
    """Returns a text that Markdown shows as it is written: raw HTML is escaped."""
    return html.escape(" ".join(text.split()), quote=False)


def _code_block(text: str, language: str) -> str:
    """Returns a block of code, with a fence that is longer than any in the text."""
    fence = max(["``", *re.findall("`{3,}", text)], key=len) + "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _dataset_name(plan: RunPlan, split: str = "train") -> str:
    """Returns the label of the data, or else the names of data sets on the Hub and of files."""
    if label := plan.arguments.card.dataset_label:
        return label
    names: list[str] = []
    for entry in plan.arguments.data.entries:
        files = [Path(path).name for path in entry.paths(split)]
        named = entry.name or entry.dataset
        names += [named] if named else files
    return ", ".join(names) or "data that a program has passed"


def name_on_hub(name: str | None) -> str | None:
    """Returns a name on the Hub; None for a directory of this machine."""
    return None if name is None or Path(name).exists() else name


def _card_data(plan: RunPlan, name: str, results: Mapping[str, float]) -> ModelCardData:
    """Returns the facts of a model card that the Hub reads."""
    card, entries = plan.arguments.card, plan.arguments.data.entries
    scored = [
        EvalResult(
            task_type=card.task,
            dataset_type=(card.dataset_label or "custom").lower().replace(" ", "-"),
            dataset_name=_dataset_name(plan, split),
            dataset_split=split,
            metric_type=metric,
            metric_value=round(results[f"{prefix}_{metric}"], 2),
        )
        for split, prefix in PREFIXES.items()
        for metric in plan.metrics
        if f"{prefix}_{metric}" in results
    ]
    return ModelCardData(
        language=_languages(plan) or None,
        license=card.license,
        library_name="transformers",
        pipeline_tag=card.task,
        tags=["vanilla_transformer", "encoder-decoder"],
        base_model=name_on_hub(plan.arguments.model.model_name_or_path),
        datasets=[named for entry in entries if (named := name_on_hub(entry.dataset))] or None,
        metrics=list(plan.metrics),
        model_name=name if scored else None,
        eval_results=scored or None,
    )


def _languages(plan: RunPlan) -> list[str]:
    """Returns the ISO codes of the languages that the data name."""
    splits = plan.texts.splits.values()
    codes = [code for rows in splits for pair in distinct_directions(rows) for code in pair[:2]]
    tags = [tag.split("-")[0] for code in codes if (tag := known_tag(code))]  # without scripts
    return list(dict.fromkeys(tags))


def _score_cell(results: Mapping[str, float], name: str) -> str:
    if name not in results:
        return "-"
    ends = [results[end] for end in (f"{name}_low", f"{name}_high") if end in results]
    return score_with_interval(results[name], ends)


def _signature_cell(signatures: Mapping[str, Mapping[str, str]], metric: str) -> str:
    """Returns the signature of a metric, or one for each split where they differ."""
    cells = {split: _as_cell(f"`{of_split[metric]}`") for split, of_split in signatures.items()}
    if len({*cells.values()}) > 1:
        return "; ".join(f"{split}: {cell}" for split, cell in cells.items())
    return next(iter(cells.values()), "-")


def _samples(plan: RunPlan, results: Mapping[str, float]) -> list[str]:
    """Returns a sentence on each split of which only a sample was scored."""
    sizes = {name: len(rows) for name, rows in plan.texts.splits.items()}
    return [
        f"The {name} scores are those of a sample of {count:,.0f} of the {size:,} texts."
        for name, size in sizes.items()
        if (count := results.get(f"{PREFIXES.get(name)}_samples", size)) < size
    ]


def _as_cell(text: str) -> str:
    return _as_text(text).replace("|", r"\|")


def _scores_of_corpus(
    metrics: Sequence[str], results: Mapping[str, float], report: CorpusReport
) -> str:
    """Returns a cell with the scores of the texts of a corpus."""
    scores = (
        f"{split} {metric} {results[name]:.2f}"
        for split, prefix in PREFIXES.items()
        for metric in metrics
        if (name := f"{prefix}_{metric}_{report.corpus}") in results
    )
    return ", ".join(scores) or "-"


def _training_procedure(plan: RunPlan, results: Mapping[str, float]) -> str:
    """Describes the time of a training, its hardware and its software."""
    count = plan.training.world_size
    since = "" if plan.checkpoint is None else f" from {plan.checkpoint.path} on"
    processes = "process" if count == 1 else "processes"
    hardware = f"{count} CPU {processes} (threads per process: {torch.get_num_threads()})"
    if plan.training.device.type == "cuda":
        hardware = f"{count} x {torch.cuda.get_device_name()}"
    return (
        f"Training{since} took {results['train_runtime']:.0f} seconds "
        f"({results['train_epoch']:.1f} epochs) on {hardware}.\nVersions: torch "
        f"{torch.__version__}, transformers {transformers.__version__}, Python "
        f"{platform.python_version()}."
    )


def _kind_of_model(plan: RunPlan, config: VanillaTransformerConfig) -> str:
    """Describes the norms, positions, network and optimizer of a model, in which models differ."""
    norms = "no norms" if config.norm_placement == "none" else f"{config.norm_placement}-norm"
    network = config.activation_function
    if config.gated_ffn:
        network = "SwiGLU" if network == "silu" else f"gated {network}"
    positions = f"{config.position_embedding_type} positions"
    return f"{norms}, {positions}, {network}, trained with {plan.training.optim}"
