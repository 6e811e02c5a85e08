"""What a run shows while it trains: fixed sentences, and what the model makes of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from tqdm.auto import tqdm
from transformers import (
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations.integration_utils import TensorBoardCallback

from vanilla_transformer.data.subwords import SampledSubwords
from vanilla_transformer.model.evaluation_mode import evaluation_mode
from vanilla_transformer.model.pipeline_vanilla_transformer import NO_LIMIT

_COUNT = "early_stopping_patience_counter"


class EarlyStopping(EarlyStoppingCallback):
    """transformers' callback, whose count survives an interruption.

    The patience is that of the resumed run, which may be another. A run that had stopped already
    stops again, after one step.

    Args:
        early_stopping_patience: Evaluations without a better score before the training stops.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Takes the count of the checkpoint, if there is one; called by Trainer."""
        super().on_train_begin(args, state, control, **kwargs)  # type: ignore[no-untyped-call]
        counts: dict[str, Any] = cast(Any, state.stateful_callbacks)
        # Earlier versions saved it under the name of the base class.
        saved = counts.get(type(self).__name__, counts.get("EarlyStoppingCallback"))
        if state.global_step and isinstance(saved, dict):
            self.early_stopping_patience_counter = saved["attributes"][_COUNT]
        counts[type(self).__name__] = self.state()
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True


class ShowTranslations(TrainerCallback):
    """Shows fixed sentences every so many steps, each with what the model makes of it.

    For each sentence: source, reference, teacher-forced prediction (the likeliest token at each
    place of the reference, given the reference before it) and greedy output; and the loss over
    them. All of it is printed, and goes to TensorBoard as text where `Trainer` reports there. The
    training is the same, bit for bit, with and without it. Only the main process shows anything; a
    model whose weights are spread over processes (FSDP, DeepSpeed ZeRO 3) cannot be shown.

    Add it with `trainer.add_callback(ShowTranslations(trainer, sources, references, every=500))`.

    Args:
        trainer: Gives the tokenizer (its `processing_class`), and TensorBoard.
        sources: Texts to translate.
        references: Their translations.
        every: Steps of the optimizer from one show to the next.

    Raises:
        ValueError: If `every` is below 1, there is no sentence, sources and references differ in
            number, or the trainer has no tokenizer.
    """

    def __init__(
        self, trainer: Trainer, sources: Sequence[str], references: Sequence[str], every: int
    ) -> None:
        if every < 1:
            raise ValueError(f"`every` is {every}: it must be at least 1 step.")
        if not sources or len(sources) != len(references):
            raise ValueError(
                f"There are {len(sources)} sources and {len(references)} references: give at least "
                "one, and equally many."
            )
        if trainer.processing_class is None:
            raise ValueError("The trainer has no tokenizer: give it a `processing_class`.")
        self.trainer = trainer
        self.tokenizer: Any = trainer.processing_class
        self.sources, self.references, self.every = list(sources), list(references), every

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Shows the sentences after every so many steps; called by Trainer."""
        if state.global_step % self.every or not state.is_world_process_zero:
            return
        with evaluation_mode(model), _same_random_numbers(model.device):
            text = self.describe(model, state.global_step)
        tqdm.write(text)  # print would break a progress bar
        for callback in self.trainer.callback_handler.callbacks:
            if isinstance(callback, TensorBoardCallback) and callback.tb_writer is not None:
                preformatted = "".join(f"    {line}\n" for line in text.splitlines())
                callback.tb_writer.add_text("translations", preformatted, state.global_step)

    def describe(self, model: Any, step: int) -> str:
        """Writes down what a model makes of the sentences.

        Args:
            model: A sequence-to-sequence model, in eval mode.
            step: Steps trained so far.

        Returns:
            A line with step and loss (in nats per token), and four lines for each sentence.
        """
        batch = self._batch(model)
        outputs = model(**batch)
        predicted = outputs.logits.argmax(dim=-1)
        predicted[batch["labels"] == -100] = self.tokenizer.pad_token_id
        generated = self._greedy(model, batch)
        lines = [f"step {step}: loss {outputs.loss.item():.4f}"]
        columns = (self.sources, self.references, *map(self._decode, (predicted, generated)))
        for source, reference, forced, greedy in zip(*columns, strict=True):
            lines += [f"  source     {source}", f"  reference  {reference}"]
            lines += [f"  forced     {forced}", f"  greedy     {greedy}", ""]
        return "\n".join(lines[:-1])

    def _batch(self, model: Any) -> Any:
        limited = self.tokenizer.model_max_length < NO_LIMIT
        encoded = self.tokenizer(self.sources, text_target=self.references, truncation=limited)
        rows = [
            {name: encoded[name][i] for name in ("input_ids", "attention_mask", "labels")}
            for i in range(len(self.sources))
        ]
        return DataCollatorForSeq2Seq(self.tokenizer, model=model)(rows).to(model.device)

    def _greedy(self, model: Any, batch: Any) -> torch.Tensor:
        """Generates; a model that never ends a sentence is stopped at twice the references."""
        longest = 2 * batch["labels"].shape[1] + 8
        limit = model.generation_config.max_length or longest
        ids: torch.Tensor = model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            num_beams=1,
            do_sample=False,
            early_stopping=False,
            max_length=min(longest, limit),
        )
        return ids

    def _decode(self, ids: torch.Tensor) -> list[str]:
        """Decodes each row up to the end of its sentence."""
        rows = ids.tolist()
        for row in rows:
            if self.tokenizer.eos_token_id in row:
                del row[row.index(self.tokenizer.eos_token_id) :]
        return list(self.tokenizer.batch_decode(rows, skip_special_tokens=True))


class SubwordEpochs(TrainerCallback):
    """Tells `SampledSubwords` the epoch.

    Args:
        rows: The training set.
    """

    def __init__(self, rows: SampledSubwords) -> None:
        self.rows = rows

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Sets the epoch; called by Trainer."""
        self.rows.set_epoch(int(state.epoch or 0))


@contextmanager
def _same_random_numbers(device: torch.device) -> Iterator[None]:
    """Leaves torch's generators, on the CPU and on the device, as they were before the block."""
    on_cpu = device.type == "cpu"
    devices = [] if on_cpu else [device]
    with torch.random.fork_rng(devices, device_type="cuda" if on_cpu else device.type):
        yield
