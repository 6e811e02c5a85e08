"""The model card of a run, with the exact command and what came out."""

import os
import platform
import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.run.arguments import (
    ArchitectureArguments,
    CardArguments,
    RunArguments,
)
from vanilla_transformer.training.metrics import METRICS

_TEMPLATE = Path(__file__).parent / "model_card_template.md"
_SHOWN_FIELDS = (
    "encoder_layers",
    "decoder_layers",
    "d_model",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "activation_function",
    "norm_placement",
    "position_embedding_type",
    "vocab_size",
    "decoder_vocab_size",
    "share_encoder_decoder_embeddings",
    "tie_word_embeddings",
    "dropout",
    "label_smoothing",
)


def write_model_card(
    arguments: RunArguments,
    model: Any,
    results: Mapping[str, float],
    signatures: Mapping[str, str],
    example: str,
    repo_id: str | None = None,
    resumed_from: str | None = None,
) -> Path:
    """Writes README.md into the output directory.

    Args:
        arguments: Those of the run.
        model: The trained model.
        results: As in all_results.json: train_*, eval_* and test_* figures.
        signatures: Signatures of the metrics, by name of the metric.
        example: A source text to show.
        repo_id: Where the model is on the Hub; None: it is in the output directory alone.
        resumed_from: Checkpoint that the run went on from.

    Returns:
        The path of the card, which names no token of the Hub.
    """
    folder = Path(str(arguments.training.output_dir))
    name = folder.resolve().name
    card = ModelCard.from_template(
        _card_data(arguments.card, name, arguments.model.metrics, results),
        template_path=os.fspath(_TEMPLATE),
        model_name=name,
        summary=f"Task: {arguments.card.task}. Data: {_dataset(arguments.card)}.",
        parameters=f"{sum(p.numel() for p in model.parameters()):,}",
        path=repo_id or arguments.training.output_dir,
        example=repr(example),
        results=_results_table(arguments.model.metrics, results, signatures),
        data=f"Trained on {_dataset(arguments.card)} with this command:",
        command=shlex.join(arguments.command),
        recipe=_recipe(arguments.recipe),
        procedure=_procedure(arguments, results, resumed_from),
        architecture=_architecture_table(model.config),
        limits="Trained and measured on the data named above only; expect less on other text.",
    )
    path = folder / "README.md"
    if arguments.training.hub_token:
        card = ModelCard(str(card).replace(arguments.training.hub_token, "..."))
    card.save(path)
    return path


def _dataset(card: CardArguments) -> str:
    return card.dataset_label or "the data named in the command"


def _card_data(
    card: CardArguments, name: str, metrics: list[str], results: Mapping[str, float]
) -> ModelCardData:
    scored = [
        EvalResult(
            task_type=card.task,
            dataset_type=(card.dataset_label or "custom").lower().replace(" ", "-"),
            dataset_name=_dataset(card),
            dataset_split=split,
            metric_type=metric,
            metric_value=round(results[f"{prefix}_{metric}"], 2),
        )
        for prefix, split in (("eval", "validation"), ("test", "test"))
        for metric in metrics
        if f"{prefix}_{metric}" in results
    ]
    return ModelCardData(
        language=card.language,
        license=card.license,
        library_name="transformers",
        pipeline_tag=card.task,
        tags=["vanilla_transformer", "encoder-decoder"],
        metrics=metrics,
        model_name=name if scored else None,
        eval_results=scored or None,
    )


def _results_table(
    metrics: list[str], results: Mapping[str, float], signatures: Mapping[str, str]
) -> str:
    rows = ["| metric | validation | test | lower is better | signature |", "|---|---|---|---|---|"]
    for metric in metrics:
        cells = [
            f"{results[f'{prefix}_{metric}']:.2f}" if f"{prefix}_{metric}" in results else "-"
            for prefix in ("eval", "test")
        ]
        lower = "yes" if METRICS[metric].lower_is_better else "no"
        signature = f"`{signatures[metric]}`".replace("|", r"\|") if metric in signatures else "-"
        rows.append(f"| {metric} | {' | '.join(cells)} | {lower} | {signature} |")
    return "\n".join(rows)


def _recipe(path: Path | None) -> str:
    if path is None:
        return ""
    text = path.read_text(encoding="utf-8").strip()
    return f"where `{path.name}` holds\n\n```yaml\n{text}\n```\n"


def _procedure(
    arguments: RunArguments, results: Mapping[str, float], resumed_from: str | None
) -> str:
    lines = []
    if "train_runtime" in results:
        whole = "Training" if resumed_from is None else f"Training on from {resumed_from}"
        lines.append(
            f"{whole} took {results['train_runtime']:.0f} seconds "
            f"({results['train_epoch']:.1f} epochs) on {_hardware(arguments)}."
        )
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    lines.append(f"Versions: {versions}, Python {platform.python_version()}.")
    return "\n".join(lines)


def _hardware(arguments: RunArguments) -> str:
    if arguments.training.device.type == "cuda":
        return f"{arguments.training.world_size} x {torch.cuda.get_device_name()}"
    return (
        f"{arguments.training.world_size} process(es), {torch.get_num_threads()} CPU threads each"
    )


def _architecture_table(config: Any) -> str:
    """The sizes and main choices, then whatever differs from its default."""
    defaults, choices = VanillaTransformerConfig(), [f.name for f in fields(ArchitectureArguments)]
    values = {name: getattr(config, name, None) for name in (*_SHOWN_FIELDS, *choices)}
    rows = [
        f"| `{name}` | {value} |"
        for name, value in values.items()
        if name in _SHOWN_FIELDS or value != getattr(defaults, name, None)
    ]
    return "\n".join(["| field | value |", "|---|---|", *rows])
