"""The messages of a training: its progress, and a line for each evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from transformers import TrainerCallback, TrainerState
from transformers.utils import logging

from vanilla_transformer.files.text_files import short_line
from vanilla_transformer.names import WITHOUT_WARMUP
from vanilla_transformer.progress import SECONDS_BETWEEN_LINES, Progress
from vanilla_transformer.training.metrics import GenerationMetrics
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer

logger = logging.get_logger(__name__)

_LONGEST_EXAMPLE = 70
"""Characters of an example that a line shows."""
_NO_SCORES = (
    *("runtime", "per_second", "preparation_time", "samples"),
    *("gen_len", "epoch", "_low", "_high"),
)


@dataclass(frozen=True)
class _Moment:
    """How far a training was at one moment."""

    seconds: float
    step: int
    loss: float
    tokens: int


class TrainingLog(TrainerCallback):
    """Tells how a training goes, instead of the bars and the dicts of transformers.

    On a terminal it is a bar, elsewhere a line at most once a minute. Each evaluation adds a line:
    the losses since the last one and of the validation, its scores, tokens per second (source and
    target, without padding), the time left, and examples with the model's outputs. The lines go to
    the logger of this module, and only the main process has any.

    Args:
        scorer: Scores the outputs. None: there are no validation data.
        sources: Texts that are evaluated. The first short ones are the examples.
    """

    def __init__(
        self,
        trainer: TokenBudgetSeq2SeqTrainer,
        scorer: GenerationMetrics | None,
        sources: Sequence[str],
        count: int,
    ) -> None:
        self.trainer, self.scorer, self.sources = trainer, scorer, sources
        short = [row for row, text in enumerate(self.sources) if len(text) <= _LONGEST_EXAMPLE]
        self.examples = short[:count] or [0]
        self._progress: Progress | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        """Begins to count; called by Trainer."""
        if state.is_world_process_zero:
            warmup = args.get_warmup_steps(state.max_steps)
            if warmup >= state.max_steps and args.lr_scheduler_type not in WITHOUT_WARMUP:
                logger.warning(
                    f"The warm-up of {warmup:,} steps does not end in a training of "
                    f"{state.max_steps:,}: the learning rate stays below its peak. Give a share of "
                    "the steps, such as `--warmup-steps 0.1`."
                )
            self._progress = Progress(
                state.max_steps,
                "steps",
                done=state.global_step,
                bar=False if args.disable_tqdm else None,
                print_line=logger.info,
                seconds_to_first_line=10.0,
                warms_up=True,
            )
            self._last_line = self._last_evaluation = self._current_moment()

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        """Shows the progress; called by Trainer."""
        if self._progress is not None:
            self._progress.total = state.max_steps  # it may have become less
            self._progress.update(state.global_step, self._describe_recent_steps)

    def on_evaluate(
        self, args: Any, state: TrainerState, control: Any, metrics: Any = None, **_: Any
    ) -> None:
        """Tells the figures of an evaluation during the training; called by Trainer."""
        if self._progress is None or (scorer := self.scorer) is None:
            return
        figures, scored = metrics or {}, scorer.last  # None: only the loss was computed
        runtimes = (value for name, value in figures.items() if name.endswith("_runtime"))
        now = self._current_moment()
        training = replace(now, seconds=now.seconds - sum(runtimes))
        scores = describe_figures(figures, "eval_")
        parts = (
            self._describe_steps(self._last_evaluation, training),
            f"validation {scores}" if scores else "",
            f"outputs cut off: {scored.num_cut:,}" if scored and scored.num_cut else "",
            self._progress.time_left(),
        )
        where = f"Epoch {state.epoch or 0:.3g}, step {state.global_step:,} of {state.max_steps:,}"
        examples = self._describe_examples(scored.predictions) if scored else ""
        logger.info(f"{where}: {'; '.join(filter(None, parts))}.{examples}")
        self._progress.wait_for_next_line()
        self._last_line = self._last_evaluation = now

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        """Ends the bar; called by Trainer."""
        self.close()

    def close(self) -> None:
        """Ends the bar, also of a training that is interrupted."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None

    def _current_moment(self) -> _Moment:
        trainer = self.trainer
        return _Moment(
            seconds=monotonic(),
            step=trainer.state.global_step,
            loss=trainer.sum_of_losses(),
            tokens=int(sum(trainer.num_tokens.values())) * trainer.args.world_size,
        )

    def _describe_recent_steps(self) -> str:
        """Describes the steps since the last line; on a bar, of up to a minute."""
        now = self._current_moment()
        text = self._describe_steps(self._last_line, now)
        if now.seconds - self._last_line.seconds >= SECONDS_BETWEEN_LINES:
            self._last_line = now
        return text

    def _describe_steps(self, first: _Moment, last: _Moment) -> str:
        steps = last.step - first.step
        if steps <= 0:
            return ""
        seconds = max(last.seconds - first.seconds, 1e-9)
        speed = (last.tokens - first.tokens) / seconds
        loss = (last.loss - first.loss) / steps
        return f"training loss {loss:.3f}, {speed:,.0f} tokens/s"

    def _describe_examples(self, outputs: Sequence[str]) -> str:
        pairs = ((self.sources[row], outputs[row]) for row in self.examples)
        short = ([short_line(text, _LONGEST_EXAMPLE) for text in pair] for pair in pairs)
        return " " + "\n    ".join(f'"{source}" → "{output}"' for source, output in short)


def describe_figures(figures: Mapping[str, float], prefix: str) -> str:
    """Returns the loss and the scores of an evaluation in words: "loss 2.104, bleu 37.20"."""
    named = {name.removeprefix(prefix): value for name, value in figures.items()}
    return ", ".join(
        f"{name} {value:.{3 if name == 'loss' else 2}f}"
        for name, value in named.items()
        if not name.endswith(_NO_SCORES)
    )
