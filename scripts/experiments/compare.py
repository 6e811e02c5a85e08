"""Compares how fast this model learns with Hugging Face's Marian of the same size.

All systems have the same tokenizer, batches, order of batches, steps, sizes, activation function,
dropout, loss (cross-entropy with label smoothing, averaged over the real tokens of the batch),
optimizer, schedule, clipping and seed. They differ only in what their defaults decide: initial
values, scaling of embeddings, placement of norms, order of the sinusoids.

There is no gradient accumulation: under `Trainer`, `MarianMTModel` of transformers 5.23 multiplies
its gradient by the number of accumulated batches, and the comparison would measure that.

Shapes: `input_ids` and `attention_mask` are (batch, source_len), `labels` are (batch, target_len).
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
    PreTrainedTokenizerBase,
    get_scheduler,
)

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.encoding import encode
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.data.token_budget import TokenBudgetBatchSampler, token_lengths
from vanilla_transformer.inspection.figures import new_figure
from vanilla_transformer.model.evaluation_mode import evaluation_mode
from vanilla_transformer.model.labels import IGNORE_INDEX
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.run.model_loading import new_config
from vanilla_transformer.training.schedules import SCHEDULES_OF_A_SCORE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Batch = dict[str, torch.Tensor]

SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("ours", {}),
    "ours_pre": ("ours", {"norm_placement": "pre"}),
    "ours_xavier": ("ours", {"initializer": "xavier"}),
    "ours_normal": ("ours", {"initializer": "normal"}),
    "marian": ("marian", {}),
    "marian_scaled": ("marian", {"scale_embedding": True}),
}
"""The model of each system, and the fields in which it differs from its defaults and the others."""

_RUNNING_MEAN_STEPS = 25


@dataclass(frozen=True)
class CompareArguments:
    """Options of the comparison: the systems, their size and their training.

    Raises:
        ValueError: If a number is below 1, a system is unknown or given twice, or the schedule
            follows a score.
    """

    output_dir: str = field(
        metadata={"help": "Directory for losses.json, losses.csv and losses.png."}
    )
    systems: list[str] = field(
        default_factory=lambda: ["ours", "marian", "marian_scaled"],
        metadata={"help": f"Systems to compare, from {', '.join(SYSTEMS)}."},
    )
    steps: int = field(default=500, metadata={"help": "Updates of each system."})
    max_tokens: int = field(
        default=2048,
        metadata={"help": "Tokens of source and target per batch, including padding."},
    )
    vocab_size: int = field(default=6000, metadata={"help": "Size of the joint BPE vocabulary."})
    d_model: int = field(default=256, metadata={"help": "Width of the models; 64 per head."})
    layers: int = field(default=3, metadata={"help": "Layers of the encoder, and of the decoder."})
    ffn_dim: int = field(default=512, metadata={"help": "Width of the feed-forward layers."})
    activation_function: str = field(default="relu", metadata={"help": "Activation function."})
    dropout: float = field(default=0.1, metadata={"help": "Dropout rate."})
    label_smoothing: float = field(
        default=0.1, metadata={"help": "Label smoothing of the training loss."}
    )
    learning_rate: float = field(default=1e-3, metadata={"help": "Peak learning rate of AdamW."})
    lr_scheduler_type: str = field(
        default="inverse_sqrt", metadata={"help": "Learning rate schedule of transformers."}
    )
    warmup_steps: int = field(default=200, metadata={"help": "Warm-up steps of the schedule."})
    validate_every: int = field(default=100, metadata={"help": "Steps between validations."})
    threads: int = field(default=1, metadata={"help": "CPU threads."})
    device: str = field(default="cpu", metadata={"help": "cpu, cuda, ..."})
    seed: int = field(default=1, metadata={"help": "Seed of initial values, batches and dropout."})

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, int) and value < (name not in ("seed", "warmup_steps")):
                raise ValueError(f"`{name}` is {value}: choose at least 1.")
        if unknown := [name for name in self.systems if name not in SYSTEMS]:
            raise ValueError(f"`systems` {unknown} are unknown: choose from {list(SYSTEMS)}.")
        if len(set(self.systems)) < len(self.systems):
            raise ValueError(f"`systems` {self.systems} name a system twice.")
        if self.lr_scheduler_type in SCHEDULES_OF_A_SCORE:
            raise ValueError(
                f"`lr_scheduler_type` {self.lr_scheduler_type!r} follows a score, which this "
                "comparison does not give it: choose another schedule."
            )


# Systems and data -------------------------------------------------------------------------------


def make_compared_model(
    system: str, options: CompareArguments, tokenizer: PreTrainedTokenizerBase
) -> nn.Module:
    """Makes one of the systems. Its initial values depend on the seed.

    Args:
        system: A key of `SYSTEMS`.
        options: Sizes and seed.
        tokenizer: Gives the vocabulary size and the special tokens.

    Returns:
        The model.
    """
    torch.manual_seed(options.seed)
    family, changes = SYSTEMS[system]
    sizes: dict[str, Any] = {
        name: getattr(options, name) for name in ("d_model", "activation_function", "dropout")
    }
    for side in ("encoder", "decoder"):
        sizes[f"{side}_layers"] = options.layers
        sizes[f"{side}_attention_heads"] = max(1, options.d_model // 64)
        sizes[f"{side}_ffn_dim"] = options.ffn_dim
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


def count_parameters(model: nn.Module) -> int:
    """Counts the trainable parameters of a model. Shared parameters count once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def training_batches(
    rows: Dataset, options: CompareArguments, tokenizer: PreTrainedTokenizerBase
) -> Iterator[Batch]:
    """Yields the training batches, which are the same for every system.

    Args:
        rows: Encoded pairs.
        options: Budget, seed and number of batches.
        tokenizer: Pads the batches.

    Yields:
        `options.steps` batches of `input_ids`, `attention_mask` and `labels`.
    """
    sampler = _make_sampler(rows, options, shuffle=True)
    left, epoch = options.steps, 0
    while left:
        sampler.set_epoch(epoch)
        batches = _collate_batches(rows, sampler, tokenizer, options.device)
        for _, batch in zip(range(left), batches, strict=False):
            left -= 1
            yield batch
        epoch += 1


def _make_sampler(
    rows: Dataset, options: CompareArguments, shuffle: bool
) -> TokenBudgetBatchSampler:
    lengths = [token_lengths(rows, name) for name in ("input_ids", "labels")]
    return TokenBudgetBatchSampler(
        lengths[0], lengths[1], options.max_tokens, shuffle=shuffle, seed=options.seed
    )


def _collate_batches(
    rows: Dataset,
    sampler: TokenBudgetBatchSampler,
    tokenizer: PreTrainedTokenizerBase,
    device: str,
) -> Iterator[Batch]:
    """Yields padded batches on the device. A DataLoader would draw from torch's generator."""
    columns = rows.select_columns(["input_ids", "attention_mask", "labels"])
    collator = DataCollatorForSeq2Seq(tokenizer)
    for indices in sampler:
        batch = collator([columns[index] for index in indices])
        yield {name: value.to(device) for name, value in batch.items()}


# Training ---------------------------------------------------------------------------------------


def training_loss(model: Any, batch: Batch, label_smoothing: float) -> torch.Tensor:
    """Computes the loss of a batch: our model's own loss, or the same formula for Marian.

    Args:
        model: A model in training mode.
        batch: As `training_batches` yields it.
        label_smoothing: Share of the uniform distribution. Our model takes it from its config.

    Returns:
        A scalar in nats per token.
    """
    if isinstance(model, VanillaTransformerForConditionalGeneration):
        return cast(torch.Tensor, model(**batch).loss)
    return _cross_entropy(_compute_logits(model, batch), batch["labels"], label_smoothing)


def _compute_logits(model: Any, batch: Batch) -> torch.Tensor:
    """Returns logits of shape (batch, target_len, vocab)."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    fed = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    return cast(torch.Tensor, model(**inputs, decoder_input_ids=fed, use_cache=False).logits)


def _cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, label_smoothing: float = 0.0
) -> torch.Tensor:
    flat = logits.flatten(0, 1).float()  # (batch · target_len, vocab)
    return F.cross_entropy(
        flat, labels.flatten(), ignore_index=IGNORE_INDEX, label_smoothing=label_smoothing
    )


def train(
    model: nn.Module,
    rows: Dataset,
    held_out: Dataset,
    options: CompareArguments,
    tokenizer: PreTrainedTokenizerBase,
) -> dict[str, Any]:
    """Trains a system with AdamW, as in the recipes, and gradients clipped at norm 1.

    Args:
        model: The system.
        rows: Encoded training pairs.
        held_out: Encoded validation pairs.
        options: Options of the training.
        tokenizer: Pads the batches.

    Returns:
        `parameters`: their number; `loss`: the label-smoothed loss of each step in nats per token;
        `validation`: a dict for each validation with `step`, `nll` and `accuracy`, see `validate`;
        `seconds`: duration of the training without validations.
    """
    torch.manual_seed(options.seed)
    model.to(options.device).train()
    # fused is Trainer's default, and the fastest on a CPU too
    optimizer = torch.optim.AdamW(
        model.parameters(), options.learning_rate, (0.9, 0.98), weight_decay=0.0, fused=True
    )
    schedule = get_scheduler(
        options.lr_scheduler_type, optimizer, options.warmup_steps, options.steps
    )
    losses, validations, seconds = list[float](), list[dict[str, float]](), 0.0
    for step, batch in enumerate(training_batches(rows, options, tokenizer), start=1):
        start = time.perf_counter()
        loss = training_loss(model, batch, options.label_smoothing)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
        seconds += time.perf_counter() - start
        if step % options.validate_every == 0 or step == options.steps:
            validations.append({"step": step, **validate(model, held_out, options, tokenizer)})
    return {
        "parameters": count_parameters(model),
        "loss": losses,
        "validation": validations,
        "seconds": seconds,
    }


def validate(
    model: nn.Module, rows: Dataset, options: CompareArguments, tokenizer: PreTrainedTokenizerBase
) -> dict[str, float]:
    """Measures how well a system predicts the next token of held-out targets.

    Args:
        model: The system. Its mode and the state of the random generator are restored.
        rows: Encoded pairs.
        options: Budget of a batch.
        tokenizer: Pads the batches.

    Returns:
        `nll`: negative log-likelihood in nats per token, without label smoothing; `accuracy`: share
        of tokens that are predicted correctly, from 0 to 1.
    """
    total, right, tokens = 0.0, 0, 0
    sampler = _make_sampler(rows, options, shuffle=False)
    with evaluation_mode(model):
        for batch in _collate_batches(rows, sampler, tokenizer, options.device):
            labels, logits = batch["labels"], _compute_logits(model, batch)
            count = int((labels != IGNORE_INDEX).sum())
            total += _cross_entropy(logits, labels).item() * count
            right += int((logits.argmax(-1) == labels).sum())
            tokens += count
    return {"nll": total / tokens, "accuracy": right / tokens}


# Output -----------------------------------------------------------------------------------------


def format_table(results: dict[str, dict[str, Any]]) -> str:
    """Formats the results as a table in Markdown.

    Args:
        results: Results of `train`, by system.

    Returns:
        A row per system: training losses at four steps, as running means, and the last validation.
    """
    steps = len(next(iter(results.values()))["loss"])
    marks = sorted({max(1, steps * part // 5) for part in (1, 2, 3, 5)})
    heads = ["system", "parameters", *(f"loss, step {mark}" for mark in marks)]
    heads += ["validation NLL", "token accuracy", "seconds"]
    rows = [heads, ["---"] * len(heads)]
    for name, result in results.items():
        means = running_mean(result["loss"])
        last = result["validation"][-1]
        cells = [name, f"{result['parameters']:,}", *(f"{means[mark - 1]:.2f}" for mark in marks)]
        cells += [f"{last['nll']:.3f}", f"{last['accuracy']:.1%}", f"{result['seconds']:.0f}"]
        rows.append(cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def running_mean(losses: Sequence[float]) -> list[float]:
    """Returns the mean loss of the last 25 steps (or of all steps so far), for each step."""
    return [
        fmean(losses[max(0, end - _RUNNING_MEAN_STEPS) : end]) for end in range(1, len(losses) + 1)
    ]


def write_csv(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Writes a row per system and step. Validation columns are empty at steps without validation.

    Args:
        results: Results of `train`, by system.
        path: File to write.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["system", "step", "loss", "validation_nll", "validation_accuracy"])
        for name, result in results.items():
            measured = {v["step"]: (v["nll"], v["accuracy"]) for v in result["validation"]}
            for step, loss in enumerate(result["loss"], start=1):
                writer.writerow([name, step, loss, *measured.get(step, ("", ""))])


def draw_curves(results: dict[str, dict[str, Any]], figure: "Figure") -> None:
    """Draws the running means of the training losses, and the validation NLL.

    Args:
        results: Results of `train`, by system.
        figure: An empty matplotlib figure.
    """
    training, held_out = figure.subplots(1, 2, sharex=True)
    for name, result in results.items():
        means = running_mean(result["loss"])
        training.plot(range(1, len(means) + 1), means, label=name.replace("_", " "), linewidth=1.2)
        points = result["validation"]
        held_out.plot([p["step"] for p in points], [p["nll"] for p in points], marker=".")
    training.set(xlabel="step", ylabel="nats per token", title="training, label-smoothed")
    held_out.set(xlabel="step", title="validation NLL")
    training.legend()


def write_results(
    results: dict[str, dict[str, Any]], options: CompareArguments, figure: "Figure"
) -> None:
    """Writes losses.json (with the options), losses.csv and losses.png.

    Args:
        results: Results of `train`, by system.
        options: The options; `output_dir` is where the files go.
        figure: An empty matplotlib figure.
    """
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    content = {"settings": asdict(options), "systems": results}
    Path(folder, "losses.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    write_csv(results, folder / "losses.csv")
    draw_curves(results, figure)
    figure.savefig(folder / "losses.png")


# Program ----------------------------------------------------------------------------------------


def compare(data: DataArguments, options: CompareArguments) -> dict[str, dict[str, Any]]:
    """Trains each system on the same data.

    Args:
        data: Sources of the training and validation pairs.
        options: Options of the comparison.

    Returns:
        Results of `train`, by system.

    Raises:
        ValueError: If a split is missing.
    """
    splits = load_parallel_data(data)
    if missing := {"train", "validation"} - set(splits):
        raise ValueError(f"No {' and '.join(sorted(missing))} data: give training and validation.")
    texts = splits["train"]
    tokenizer = VanillaTransformerTokenizer.train(
        texts["source"], texts["target"], kind="bpe", vocab_size=options.vocab_size, shared=True
    )
    encoded = encode(splits, tokenizer, data.max_source_length, data.max_target_length)
    results = {}
    for system in options.systems:
        model = make_compared_model(system, options, tokenizer)
        print(f"{system}: {count_parameters(model):,} parameters", flush=True)
        results[system] = train(model, encoded["train"], encoded["validation"], options, tokenizer)
    return results


def main(argv: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """Trains the systems, and writes and draws their losses.

    Args:
        argv: Arguments. None: those of the process.

    Returns:
        Results of `train`, by system.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are no validation data, or as `CompareArguments` and
            `load_parallel_data`.
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = HfArgumentParser(
        cast(Any, (DataArguments, CompareArguments)),
        description="Compares how fast this model and Hugging Face's Marian learn a translation.",
    )
    parsed: Any = parser.parse_args_into_dataclasses(list(argv), look_for_args_file=False)
    data, options = parsed
    figure = new_figure((8, 3.5), dpi=90)  # a missing matplotlib fails here, before the training
    torch.set_num_threads(options.threads)
    results = compare(data, options)
    write_results(results, options, figure)
    print(format_table(results))
    return results


if __name__ == "__main__":
    main()
