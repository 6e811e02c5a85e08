"""How fast this model learns, beside Hugging Face's Marian of the same size on the same batches.

Alike in all systems: tokenizer, batches and their order, steps, sizes, activation function,
dropout, loss (cross-entropy with label smoothing, a mean over the real tokens of the batch),
optimizer, schedule, clipping and seed. They differ in what their defaults make of that: initial
values, the factor on embeddings, the place of the norms, the order of the sinusoids.

There is no gradient accumulation: under `Trainer`, `MarianMTModel` of transformers 5.23 multiplies
its gradient by the number of accumulated batches, and a comparison would measure that.
"""

import csv
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from datasets import Dataset
from torch import nn
from transformers import (
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    MarianConfig,
    MarianMTModel,
    get_scheduler,
)

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.encoding import encode
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.data.token_budget import TokenBudgetBatchSampler, token_lengths
from vanilla_transformer.model.evaluation_mode import evaluation_mode
from vanilla_transformer.model.losses import IGNORE_INDEX
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.run.model_loading import new_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Batch = dict[str, torch.Tensor]

SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("ours", {}),
    "ours_pre": ("ours", {"norm_placement": "pre"}),
    "marian": ("marian", {}),
    "marian_scaled": ("marian", {"scale_embedding": True}),
}
"""Name of each system: which model it is, and its fields that are not defaults or common to all."""

_SMOOTH = 25  # steps whose mean stands for the loss of the last of them


@dataclass
class CompareArguments:
    """What is compared: systems, sizes and how they are trained.

    Raises:
        ValueError: When a number is below 1, or a system is unknown.
    """

    output_dir: str = field(metadata={"help": "Where losses.json, losses.csv, losses.png go."})
    systems: list[str] = field(
        default_factory=lambda: ["ours", "marian", "marian_scaled"],
        metadata={"help": f"Of {', '.join(SYSTEMS)}."},
    )
    steps: int = field(default=500, metadata={"help": "Updates of each system."})
    max_tokens: int = field(
        default=2048, metadata={"help": "Tokens of source and target in a batch, with padding."}
    )
    vocab_size: int = field(default=6000, metadata={"help": "Tokens of the joint BPE."})
    d_model: int = field(default=256, metadata={"help": "Width; a head has 64 of it."})
    layers: int = field(default=3, metadata={"help": "Of encoder and decoder, each."})
    ffn_dim: int = field(default=512, metadata={"help": "Width of the feed-forward layers."})
    activation_function: str = field(default="relu", metadata={"help": "Of all systems."})
    dropout: float = field(default=0.1, metadata={"help": "Of all systems."})
    label_smoothing: float = field(default=0.1, metadata={"help": "Of the training loss."})
    learning_rate: float = field(default=1e-3, metadata={"help": "At its highest; AdamW."})
    lr_scheduler_type: str = field(
        default="inverse_sqrt", metadata={"help": "A schedule of transformers."}
    )
    warmup_steps: int = field(default=200, metadata={"help": "Steps of the rate's growth."})
    validate_every: int = field(default=100, metadata={"help": "Steps between validations."})
    threads: int = field(default=1, metadata={"help": "Of the CPU."})
    device: str = field(default="cpu", metadata={"help": "cpu, cuda, ..."})
    seed: int = field(default=1, metadata={"help": "Of initial values, batches and dropout."})

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, int) and value < (name not in ("seed", "warmup_steps")):
                raise ValueError(f"`{name}` is {value}: it must be at least 1.")
        if unknown := [name for name in self.systems if name not in SYSTEMS]:
            raise ValueError(f"`systems` {unknown} are unknown: choose of {list(SYSTEMS)}.")


# Systems and data -------------------------------------------------------------------------------


def make_model(system: str, options: CompareArguments, tokenizer: Any) -> nn.Module:
    """Makes one of the systems, its initial values drawn from the seed.

    Args:
        system: A key of `SYSTEMS`.
        options: Sizes.
        tokenizer: Gives the vocabulary and the special tokens.

    Returns:
        The model.
    """
    torch.manual_seed(options.seed)
    family, changes = SYSTEMS[system]
    sizes = _sizes(options)
    if family == "ours":
        smoothing = {"label_smoothing": options.label_smoothing}
        config = new_config(tokenizer, {**sizes, **smoothing, **changes})
        return cast(nn.Module, VanillaTransformerForConditionalGeneration(config))
    ids = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.bos_token_id,
        "forced_eos_token_id": None,
    }
    return cast(nn.Module, MarianMTModel(MarianConfig(**{**sizes, **ids, **changes})))


def _sizes(options: CompareArguments) -> dict[str, Any]:
    sizes: dict[str, Any] = {
        name: getattr(options, name) for name in ("d_model", "activation_function", "dropout")
    }
    for side in ("encoder", "decoder"):
        sizes[f"{side}_layers"] = options.layers
        sizes[f"{side}_attention_heads"] = max(1, options.d_model // 64)
        sizes[f"{side}_ffn_dim"] = options.ffn_dim
    return sizes


def count_parameters(model: nn.Module) -> int:
    """Counts the trained numbers of a model, shared ones once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def training_batches(rows: Dataset, options: CompareArguments, tokenizer: Any) -> Iterator[Batch]:
    """Yields the batches of a training, the same for every system.

    Args:
        rows: Encoded pairs.
        options: Budget, seed and number of batches.
        tokenizer: Pads.

    Yields:
        `input_ids` and `attention_mask` of shape (batch, source_len), `labels` of shape (batch,
        target_len), as many times as there are steps.
    """
    sampler = _sampler(rows, options, shuffle=True)
    left, epoch = options.steps, 0
    while left:
        sampler.set_epoch(epoch)
        for _, batch in zip(range(left), _collated(rows, sampler, tokenizer), strict=False):
            left -= 1
            yield batch
        epoch += 1


def _sampler(rows: Dataset, options: CompareArguments, shuffle: bool) -> TokenBudgetBatchSampler:
    lengths = [token_lengths(rows, name) for name in ("input_ids", "labels")]
    return TokenBudgetBatchSampler(
        lengths[0], lengths[1], options.max_tokens, shuffle=shuffle, seed=options.seed
    )


def _collated(rows: Dataset, sampler: TokenBudgetBatchSampler, tokenizer: Any) -> Iterator[Batch]:
    columns = rows.select_columns(["input_ids", "attention_mask", "labels"])
    collator = DataCollatorForSeq2Seq(tokenizer)
    for indices in sampler:  # a DataLoader would draw from torch's generator
        yield dict(collator([columns[index] for index in indices]))


# Training ---------------------------------------------------------------------------------------


def training_loss(model: Any, batch: Batch, label_smoothing: float) -> torch.Tensor:
    """Computes the loss of a batch: this package's own, or the same formula on Marian's logits.

    Args:
        model: In training mode.
        batch: As `training_batches` yields it.
        label_smoothing: Share of the uniform distribution, which our model has in its config.

    Returns:
        A scalar in nats per token.
    """
    if isinstance(model, VanillaTransformerForConditionalGeneration):
        return cast(torch.Tensor, model(**batch).loss)
    return _cross_entropy(_logits(model, batch), batch["labels"], label_smoothing)


def _logits(model: Any, batch: Batch) -> torch.Tensor:
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    fed = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    return cast(torch.Tensor, model(**inputs, decoder_input_ids=fed, use_cache=False).logits)


def _cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0
) -> torch.Tensor:
    flat = logits.flatten(0, 1).float()
    return F.cross_entropy(
        flat, labels.flatten(), ignore_index=IGNORE_INDEX, label_smoothing=label_smoothing
    )


def train(
    model: nn.Module, rows: Dataset, held_out: Dataset, options: CompareArguments, tokenizer: Any
) -> dict[str, Any]:
    """Trains a system: AdamW as in the recipes, gradients clipped at norm 1.

    Args:
        model: The system.
        rows: Encoded training pairs.
        held_out: Encoded validation pairs.
        options: How it is trained.
        tokenizer: Pads.

    Returns:
        `parameters`; `loss`, in nats per token with label smoothing, of each step; `validation`:
        step, `nll` (nats per token, without smoothing) and `accuracy` (of the next token);
        `seconds` of the training, without validations.
    """
    torch.manual_seed(options.seed)
    model.to(options.device).train()
    # fused is what Trainer has by default, and the fastest on a CPU too
    optimizer = torch.optim.AdamW(
        model.parameters(), options.learning_rate, (0.9, 0.98), weight_decay=0.0, fused=True
    )
    schedule = get_scheduler(
        options.lr_scheduler_type, optimizer, options.warmup_steps, options.steps
    )
    losses, validations, seconds = list[float](), list[dict[str, float]](), 0.0
    for step, batch in enumerate(training_batches(rows, options, tokenizer), start=1):
        start = time.perf_counter()
        losses.append(_update(model, _moved(batch, options.device), optimizer, options))
        schedule.step()
        seconds += time.perf_counter() - start
        if step % options.validate_every == 0 or step == options.steps:
            validations.append({"step": step, **validate(model, held_out, options, tokenizer)})
    return {
        "parameters": count_parameters(model),
        "loss": losses,
        "validation": validations,
        "seconds": seconds,
    }


def _update(
    model: nn.Module, batch: Batch, optimizer: torch.optim.Optimizer, options: CompareArguments
) -> float:
    loss = training_loss(model, batch, options.label_smoothing)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def _moved(batch: Batch, device: str) -> Batch:
    return {name: value.to(device) for name, value in batch.items()}


def validate(
    model: nn.Module, rows: Dataset, options: CompareArguments, tokenizer: Any
) -> dict[str, float]:
    """Measures how well a system predicts the next token of held-out targets.

    Args:
        model: The system; its mode and its random numbers stay as they are.
        rows: Encoded pairs.
        options: Budget of a batch.
        tokenizer: Pads.

    Returns:
        `nll`, in nats per token, and `accuracy`, from 0 to 1.
    """
    total, right, tokens = 0.0, 0, 0
    with evaluation_mode(model):
        for batch in _collated(rows, _sampler(rows, options, shuffle=False), tokenizer):
            moved = _moved(batch, options.device)
            labels, logits = moved["labels"], _logits(model, moved)
            count = int((labels != IGNORE_INDEX).sum())
            total += _cross_entropy(logits, labels).item() * count
            right += int((logits.argmax(-1) == labels).sum())
            tokens += count
    return {"nll": total / tokens, "accuracy": right / tokens}


# What is written --------------------------------------------------------------------------------


def table(results: dict[str, dict[str, Any]]) -> str:
    """Formats the results as a table in Markdown.

    Args:
        results: Of `train`, by system.

    Returns:
        A row per system: training losses at four steps, each a mean over the steps before it, and
        what was measured at the end.
    """
    steps = len(next(iter(results.values()))["loss"])
    marks = sorted({max(1, steps * part // 5) for part in (1, 2, 3, 5)})
    heads = ["system", "parameters", *(f"loss, step {mark}" for mark in marks)]
    heads += ["validation NLL", "token accuracy", "seconds"]
    lines = [_row(heads), "|" + "---|" * len(heads)]
    for name, result in results.items():
        smooth = running_mean(result["loss"])
        last = result["validation"][-1]
        cells = [name, f"{result['parameters']:,}", *(f"{smooth[mark - 1]:.2f}" for mark in marks)]
        cells += [f"{last['nll']:.3f}", f"{last['accuracy']:.1%}", f"{result['seconds']:.0f}"]
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def running_mean(losses: Sequence[float]) -> list[float]:
    """Returns, for each step, the mean loss of up to 25 steps that end there."""
    return [fmean(losses[max(0, end - _SMOOTH) : end]) for end in range(1, len(losses) + 1)]


def write_csv(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Writes a row per system and step; validation columns are empty where there was none.

    Args:
        results: Of `train`, by system.
        path: File to write.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["system", "step", "loss", "validation_nll", "validation_accuracy"])
        for name, result in results.items():
            measured = {v["step"]: (v["nll"], v["accuracy"]) for v in result["validation"]}
            for step, loss in enumerate(result["loss"], start=1):
                writer.writerow([name, step, loss, *measured.get(step, ("", ""))])


def draw(results: dict[str, dict[str, Any]]) -> "Figure":
    """Draws the curves: training losses (running means), and validation NLL.

    Args:
        results: Of `train`, by system.

    Returns:
        A figure of matplotlib.
    """
    figure = _new_figure()
    training, held_out = figure.subplots(1, 2, sharex=True)
    for name, result in results.items():
        means = running_mean(result["loss"])
        training.plot(range(1, len(means) + 1), means, label=name.replace("_", " "), linewidth=1.2)
        points = result["validation"]
        held_out.plot([p["step"] for p in points], [p["nll"] for p in points], marker=".")
    training.set(xlabel="step", ylabel="nats per token", title="training, label-smoothed")
    held_out.set(xlabel="step", title="validation NLL")
    training.legend()
    return figure


def _new_figure() -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'matplotlib is not installed: pip install "vanilla-transformer[plot]"'
        ) from error
    return Figure(figsize=(8, 3.5), dpi=90, layout="constrained")


# The program ------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """Trains the systems, writes and draws their losses: the program of `scripts/compare.py`.

    Args:
        argv: Arguments; None: those of the process.

    Returns:
        The results of `train`, by system.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are no validation data, or as `CompareArguments` and
            `load_parallel_data` say.
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = HfArgumentParser(cast(Any, (DataArguments, CompareArguments)))
    parsed: Any = parser.parse_args_into_dataclasses(list(argv), look_for_args_file=False)
    data, options = parsed
    _new_figure()  # fails now rather than after the trainings
    torch.set_num_threads(options.threads)
    results = compare(data, options)
    write(results, options)
    print(table(results))
    return results


def compare(data: DataArguments, options: CompareArguments) -> dict[str, dict[str, Any]]:
    """Trains each system on the same data.

    Args:
        data: Where training and validation pairs come from.
        options: What is compared.

    Returns:
        The results of `train`, by system.

    Raises:
        ValueError: If a split is missing.
    """
    splits = load_parallel_data(data)
    if missing := {"train", "validation"} - set(splits):
        raise ValueError(f"No {' and '.join(sorted(missing))} data are given: both are needed.")
    texts = splits["train"]
    tokenizer = VanillaTransformerTokenizer.train(
        texts["source"], texts["target"], kind="bpe", vocab_size=options.vocab_size, shared=True
    )
    encoded = encode(splits, tokenizer)
    results = {}
    for system in options.systems:
        model = make_model(system, options, tokenizer)
        print(f"{system}: {count_parameters(model):,} parameters", flush=True)
        results[system] = train(model, encoded["train"], encoded["validation"], options, tokenizer)
    return results


def write(results: dict[str, dict[str, Any]], options: CompareArguments) -> None:
    """Writes losses.json (with the settings), losses.csv and losses.png.

    Args:
        results: Of `train`, by system.
        options: Names the directory.
    """
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    content = {"settings": asdict(options), "systems": results}
    Path(folder, "losses.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    write_csv(results, folder / "losses.csv")
    draw(results).savefig(folder / "losses.png")


if __name__ == "__main__":
    main()
