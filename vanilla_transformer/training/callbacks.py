"""Callbacks of a training: early stopping, epochs of subwords, signals, examples of its outputs."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path
from typing import Any, cast

import torch
from tqdm.auto import tqdm
from transformers import (
    BatchEncoding,
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.dynamic_module_utils import custom_object_save
from transformers.integrations.integration_utils import TensorBoardCallback
from transformers.trainer_jit_checkpoint import CheckpointManager

from vanilla_transformer.data.corpus_entries import LANGUAGE_COLUMNS
from vanilla_transformer.data.encoding import PairEncoder, RowDirections
from vanilla_transformer.data.subwords import SampledSubwords
from vanilla_transformer.data.token_words import target_side
from vanilla_transformer.model.directions import prompts_of_labels
from vanilla_transformer.model.modes import evaluation_mode
from vanilla_transformer.model.pipeline_vanilla_transformer import NO_LIMIT
from vanilla_transformer.search import Search
from vanilla_transformer.training.metrics import deciding_scores
from vanilla_transformer.training.moving_average import ExponentialMovingAverage


class EarlyStopping(EarlyStoppingCallback):
    """Stops a training without progress, as in transformers; the count survives an interruption.

    A metric that tells nothing does not stop it: then a better chrF (see `deciding_scores`) and a
    lower loss are progress.

    A resumed run uses its own patience, which may differ from that of the interrupted run. A run
    that had already stopped trains no further step.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begins a count, or restores that of the checkpoint; called by Trainer."""
        super().on_train_begin(args, state, control, **kwargs)  # type: ignore[no-untyped-call]
        self.early_stopping_patience_counter = 0  # a Trainer may train several times
        counts = cast("dict[str, Any]", state.stateful_callbacks)
        saved = counts.get(type(self).__name__)
        if state.global_step and isinstance(saved, dict):
            count = saved["attributes"]["early_stopping_patience_counter"]
            self.early_stopping_patience_counter = count
        counts[type(self).__name__] = self.state()
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True

    def check_metric_value(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, value: float
    ) -> None:
        """Counts the evaluations in a row without a better score; called on each evaluation."""
        watched = str(args.metric_for_best_model).removeprefix("eval_")
        name, scores = deciding_scores(state.log_history, watched, args.greater_is_better)
        followed = [scores]
        if name != watched:
            followed.append(deciding_scores(state.log_history, "loss", False)[1])
        threshold = cast(float, self.early_stopping_threshold)
        is_better = any(
            scores.pop(state.global_step, -inf) > max(scores.values(), default=-inf) + threshold
            for scores in followed
        )
        count = self.early_stopping_patience_counter
        self.early_stopping_patience_counter = 0 if is_better else count + 1


class SubwordEpochs(TrainerCallback):
    """Passes the epoch of the training on to `SampledSubwords`."""

    def __init__(self, rows: SampledSubwords) -> None:
        self.rows = rows

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Sets the epoch; called by Trainer."""
        self.rows.set_epoch(int(state.epoch or 0))


class CheckpointOnSignal(TrainerCallback):
    """Saves a checkpoint at the end of the step in which SIGTERM arrives, and stops.

    The callback of transformers may save before a step has ended, when random numbers for this step
    are already drawn; its resumed training then differs. This one asks the Trainer for a checkpoint
    of the usual kind. With several processes, one signal stops all of them at the same step.

    Attributes:
        has_stopped: Whether the signal has ended the training.
    """

    def __init__(self, manager: CheckpointManager) -> None:
        self.jit_manager = manager
        self.has_stopped = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Forgets an earlier signal; called by Trainer."""
        self.has_stopped = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Asks for a checkpoint, and for the end of the training; called by Trainer."""
        asked = torch.tensor(float(self.jit_manager.is_checkpoint_requested), device=args.device)
        if args.world_size > 1:
            torch.distributed.all_reduce(asked)
        if asked:
            self.has_stopped = control.should_save = control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restores the handler of the signal; called by Trainer."""
        self.jit_manager.is_checkpoint_requested = False
        handler = self.jit_manager._original_sigterm_handler
        if handler is not None:
            signal.signal(signal.SIGTERM, handler)


class ShowTranslations(TrainerCallback):
    """Shows fixed sentences at regular steps, each with the predictions of the model.

    For each sentence it shows the source, the reference, the teacher-forced prediction (the
    likeliest token at each position of the reference, given the reference before it) and the greedy
    output; and the loss over all sentences. The text is printed, and also goes to TensorBoard if
    `Trainer` reports there. With `ExponentialMovingAverage` the model has its averaged weights, as
    when it is saved, and with a schedule-free optimizer those that it evaluates. The training is
    bit for bit the same with and without the callback. Only the main process shows anything. A
    model whose weights are sharded over processes (FSDP, DeepSpeed ZeRO 3) cannot be shown.

    Add it with `trainer.add_callback(ShowTranslations(trainer, sources, references, every=500))`.

    Args:
        trainer: Trainer with a tokenizer (`processing_class`).
        every: Number of optimizer steps between two shows.
        languages: Those of each source and its reference, where a model has several.

    Raises:
        ValueError: If sources and references differ in number.
    """

    def __init__(
        self,
        trainer: Trainer,
        sources: Sequence[str],
        references: Sequence[str],
        every: int,
        languages: Sequence[tuple[str | None, str | None]] | None = None,
    ) -> None:
        self.trainer, self.every = trainer, every
        self.languages = languages or [(None, None)] * len(sources)
        self.tokenizer: Any = trainer.processing_class
        pairs = list(zip(sources, references, strict=True))
        self.sources, self.references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Shows the sentences if the step is a multiple of `every`; called by Trainer."""
        if state.global_step % self.every or not state.is_world_process_zero:
            return
        callbacks = self.trainer.callback_handler.callbacks
        with ExitStack() as stack:
            for callback in callbacks:
                if isinstance(callback, ExponentialMovingAverage):
                    stack.enter_context(callback.in_model())
            stack.enter_context(_scored_weights(self.trainer.optimizer))
            stack.enter_context(evaluation_mode(model))
            kind = model.device.type  # generators of the CPU are always restored
            devices = [] if kind == "cpu" else [model.device]
            kind = "cuda" if kind == "cpu" else kind
            stack.enter_context(torch.random.fork_rng(devices, device_type=kind))
            text = self.describe(model, state.global_step)
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # it may lack characters
        printable = text.encode(encoding, "backslashreplace").decode(encoding)
        tqdm.write(printable)  # print would break a progress bar
        for callback in callbacks:
            if isinstance(callback, TensorBoardCallback) and callback.tb_writer is not None:
                preformatted = "".join(f"    {line}\n" for line in text.splitlines())
                callback.tb_writer.add_text("translations", preformatted, state.global_step)

    def describe(self, model: Any, step: int) -> str:
        """Returns the text that is shown; the model must be in eval mode.

        Returns:
            One line with the step and the loss (nats per token), and four lines per sentence.
        """
        batch = self._encode_sentences(model)
        outputs = model(**batch)
        predicted = outputs.logits.argmax(dim=-1)
        predicted[batch["labels"] == -100] = self.tokenizer.pad_token_id
        generated = self._generate_greedily(model, batch)
        lines = [f"step {step}: loss {outputs.loss.item():.4f}"]
        texts = map(self._decode_sentences, (predicted, generated))
        columns = (self.sources, self.references, *texts)
        for source, reference, forced, greedy in zip(*columns, strict=True):
            lines += [f"  source     {source}", f"  reference  {reference}"]
            lines += [f"  forced     {forced}", f"  greedy     {greedy}", ""]
        return "\n".join(lines[:-1])

    def _encode_sentences(self, model: Any) -> BatchEncoding:
        limited = self.tokenizer.model_max_length < NO_LIMIT
        limit = self.tokenizer.model_max_length if limited else None
        directions = RowDirections(self.tokenizer, settings=model.generation_config)
        encode = PairEncoder(self.tokenizer, {"source": limit, "target": limit}, directions)
        columns = zip(LANGUAGE_COLUMNS, zip(*self.languages, strict=True), strict=True)
        encoded = encode({"source": self.sources, "target": self.references, **dict(columns)})
        rows = [{name: encoded[name][i] for name in encoded} for i in range(len(self.sources))]
        batch: BatchEncoding = DataCollatorForSeq2Seq(self.tokenizer, model=model)(rows)
        return batch.to(model.device)

    def _generate_greedily(self, model: Any, batch: BatchEncoding) -> torch.Tensor:
        greedy = {"num_beams": 1, "do_sample": False}
        search = Search.resolve(model.generation_config, greedy, config=model.config)
        start = model.config.decoder_start_token_id
        ids: torch.Tensor = model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            **prompts_of_labels(self.tokenizer, start, batch["labels"]),
            generation_config=search.capped_by_reference_length(batch["labels"].shape[1]).settings,
        )
        return ids

    def _decode_sentences(self, ids: torch.Tensor) -> list[str]:
        """Decodes each row up to its first end-of-sentence token."""
        rows = ids.tolist()
        for row in rows:
            if self.tokenizer.eos_token_id in row:
                del row[row.index(self.tokenizer.eos_token_id) :]
        texts = target_side(self.tokenizer).batch_decode(rows, skip_special_tokens=True)
        return list(texts)


@contextmanager
def _scored_weights(optimizer: Any) -> Iterator[None]:
    """Gives the model the weights that a schedule-free optimizer evaluates, within the block.

    The training weights come back from a copy: the optimizer computes them only up to rounding.
    """
    while hasattr(optimizer, "optimizer"):  # that of Accelerate wraps another
        optimizer = optimizer.optimizer
    groups = getattr(optimizer, "param_groups", [])
    if not (hasattr(optimizer, "eval") and any(group.get("train_mode") for group in groups)):
        yield
        return
    weights = [weight for group in groups for weight in group["params"]]
    copies = [weight.detach().clone() for weight in weights]
    optimizer.eval()
    try:
        yield
    finally:
        optimizer.train()
        with torch.no_grad():
            for weight, copied in zip(weights, copies, strict=True):
                weight.copy_(copied)


# Pushes to the Hub --------------------------------------------------------------------------------


PICKLES = ("*.bin", "*.ckpt", "*.joblib", "*.pickle", "*.pkl", "*.pt", "*.pth")
"""Patterns of file names that may hold pickled objects, such as Trainer's `training_args.bin`."""


class CompletePushes(TrainerCallback):
    """Adds the model's code to what Trainer pushes while it trains, and excludes pickle files.

    For a checkpoint, Trainer pushes weights and config without the code that they need, and with
    `training_args.bin`, a pickle file that holds all arguments, including the token of the Hub.
    Before each push, this callback saves the code to the output directory, and a `.gitignore` that
    the Hub respects.
    """

    def on_push_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Completes the output directory; called by Trainer before it collects files to push."""
        if not state.is_world_process_zero:
            return
        folder = Path(str(args.output_dir))
        model = kwargs["model"]
        custom_object_save(getattr(model, "module", model), folder)
        ignored = folder / ".gitignore"
        rules = ignored.read_text(encoding="utf-8").splitlines() if ignored.is_file() else []
        rules += [rule for rule in PICKLES if rule not in rules]
        ignored.write_text("\n".join(rules) + "\n", encoding="utf-8")
