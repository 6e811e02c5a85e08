"""Batches of a fixed budget of tokens, for the stock Trainer.

Sentences differ in length, so batches of a fixed number of sentences are mostly padding and vary
in cost. Here a batch holds as many sentences of similar length as fit into `max_tokens`, padding
included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import datasets
import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
import torch
from accelerate.data_loader import prepare_data_loader
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Sampler
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SchedulerType, has_length

from vanilla_transformer.training.metrics import METRICS
from vanilla_transformer.training.rdrop import rdrop_loss
from vanilla_transformer.training.schedules import NOAM, NoamSchedule

Ints = NDArray[np.int64]

_JITTER = 0.1  # lengths count as up to 10% longer, by chance, when an epoch is sorted
_BAND = 1.12  # ratio of the longest to the shortest target of a band
_SLACK = 1.005  # room for epochs that need more batches than the first draw
_DRAWS = 8  # draws before an epoch falls back on the composition of the first draw

_SCHEDULES = (NOAM, *(kind.value for kind in SchedulerType))
_LOADER_OPTIONS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Batches of indices whose padded size, source and target together, is at most `max_tokens`.

    A batch of n examples costs n x (longest source + longest target) tokens. In each epoch every
    example appears exactly once. Examples are sorted into narrow bands of target length and by
    source length within a band, forwards and backwards in turn, so that neighbours are alike in
    both; the sorted order is cut greedily, and the batches are shuffled. Lengths are jittered
    before they are sorted, so an example meets other examples in each epoch.

    The order is a function of (seed, epoch) alone, and all epochs have the same number of batches,
    a multiple of `num_processes`: where a draw gives fewer, its largest batches are halved. No
    example is repeated or dropped.

    Args:
        source_lengths: tokens of each source.
        target_lengths: tokens of each target.
        max_tokens: the budget of a batch, in tokens of source and target, padding included.
        max_sentences: the most examples in a batch; None for no limit.
        shuffle: when False, every epoch has the same batches, in the sorted order.
        seed: a non-negative integer.
        num_processes: the processes among which batches are shared.
        process_index: the process whose batches (every `num_processes`-th) are yielded; None
            yields those of all processes, to be shared by `Accelerator.prepare`.

    Raises:
        ValueError: when the two lengths differ in number, when an example alone exceeds
            `max_tokens`, when there are fewer examples than processes (or none), when the
            processes cannot have equally many batches, or when a number is out of range.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | Ints,
        target_lengths: Sequence[int] | Ints,
        max_tokens: int,
        *,
        max_sentences: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        num_processes: int = 1,
        process_index: int | None = None,
    ) -> None:
        self.source_lengths = np.asarray(source_lengths, dtype=np.int64)
        self.target_lengths = np.asarray(target_lengths, dtype=np.int64)
        self.max_tokens = max_tokens
        self.max_sentences = max_sentences
        self.shuffle = shuffle
        self.seed = seed
        self.num_processes = num_processes
        self.process_index = process_index
        self.epoch = 0
        self._check_numbers()
        self._check_lengths()
        self._first_draw = self._draw(np.random.default_rng(seed))
        self.num_batches = self._fixed_number(len(self._first_draw[1]) - 1)

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch, counted from 0, whose batches the next iteration yields."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_batches // self._stride

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng((self.seed, self.epoch))
        order, cuts = self._draw_of_epoch(rng)
        cuts = _halve_largest(cuts, self.num_batches)
        batches = np.arange(self.num_batches)
        if self.shuffle:
            rng.shuffle(batches)
        for batch in batches[self.process_index or 0 :: self._stride]:
            yield order[cuts[batch] : cuts[batch + 1]].tolist()

    @property
    def _stride(self) -> int:
        return 1 if self.process_index is None else self.num_processes

    def _draw_of_epoch(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        for _ in range(_DRAWS if self.shuffle else 0):
            order, cuts = self._draw(rng)
            if len(cuts) - 1 <= self.num_batches:
                return order, cuts
        return self._first_draw

    def _draw(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Return a sorted order of the examples and the positions that cut it into batches."""
        order = self._sorted(rng)
        return order, self._cut(self.source_lengths[order], self.target_lengths[order])

    def _sorted(self, rng: np.random.Generator) -> Ints:
        count, jitter = len(self.source_lengths), _JITTER if self.shuffle else 0.0
        source = (self.source_lengths + 1) * (1 + jitter * rng.random(count))
        target = (self.target_lengths + 1) * (1 + jitter * rng.random(count))
        band = np.floor(np.log(target) / np.log(_BAND))
        return np.lexsort((np.where(band % 2, -source, source), band))

    def _cut(self, source: Ints, target: Ints) -> Ints:
        cuts = [0]
        while (start := cuts[-1]) < len(source):
            # A batch only gets wider as it grows: its first example bounds how many it can hold.
            most = self.max_tokens // max(1, int(source[start] + target[start]))
            stop = start + min(most, self.max_sentences or most)
            width = np.maximum.accumulate(source[start:stop])
            width += np.maximum.accumulate(target[start:stop])
            cost = width * np.arange(1, len(width) + 1)
            cuts.append(start + int(np.searchsorted(cost, self.max_tokens, side="right")))
        return np.asarray(cuts, dtype=np.int64)

    def _fixed_number(self, drawn: int) -> int:
        examples, processes = len(self.source_lengths), self.num_processes
        wanted = int(np.ceil(drawn * _SLACK)) if self.shuffle else drawn
        number = min(-(-wanted // processes), examples // processes) * processes
        if number < drawn:
            raise ValueError(
                f"max_tokens={self.max_tokens} makes {drawn} batches of {examples} examples, which "
                f"{processes} processes cannot share equally: raise max_tokens"
            )
        return number

    def _check_numbers(self) -> None:
        numbers = {"max_tokens": self.max_tokens, "num_processes": self.num_processes}
        if self.max_sentences is not None:
            numbers["max_sentences"] = self.max_sentences
        for name, value in numbers.items():
            if value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 1")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must not be negative")
        if not 0 <= (self.process_index or 0) < self.num_processes:
            raise ValueError(
                f"process_index is {self.process_index}: with num_processes={self.num_processes} "
                f"it must be in 0..{self.num_processes - 1}"
            )

    def _check_lengths(self) -> None:
        source, target = self.source_lengths, self.target_lengths
        if len(source) != len(target):
            raise ValueError(
                f"source_lengths has {len(source)} entries and target_lengths has {len(target)}: "
                "give one of each per example"
            )
        if len(source) < self.num_processes:
            raise ValueError(
                f"{len(source)} examples are too few for {self.num_processes} process(es): "
                "add data or use fewer processes"
            )
        longest = int((source + target).argmax())
        if source[longest] + target[longest] > self.max_tokens:
            raise ValueError(
                f"example {longest} has {source[longest]} source and {target[longest]} target "
                f"tokens, {source[longest] + target[longest]} together, more than "
                f"max_tokens={self.max_tokens}: raise max_tokens or truncate the example "
                "(max_source_length, max_target_length)"
            )


def _halve_largest(cuts: Ints, wanted: int) -> Ints:
    """Halve the batches with the most examples until there are `wanted` batches."""
    while (missing := wanted - (len(cuts) - 1)) > 0:
        sizes = np.diff(cuts)
        largest = np.argsort(-sizes, kind="stable")[:missing]
        largest = largest[sizes[largest] > 1]
        cuts = np.sort(np.concatenate([cuts, cuts[largest] + sizes[largest] // 2]))
    return cuts


def token_lengths(dataset: Any, column: str) -> Ints:
    """Return the number of tokens of every example in a column of token ids.

    Args:
        dataset: a `datasets.Dataset` (read as Arrow), or any iterable of mappings. Where the tokens
            change from epoch to epoch, its attribute `unsampled` is read: such a data set.
        column: such as "input_ids" or "labels".

    Raises:
        ValueError: when a `datasets.Dataset` has no such column.
    """
    dataset = getattr(dataset, "unsampled", dataset)
    if not isinstance(dataset, datasets.Dataset):
        return np.fromiter((len(example[column]) for example in dataset), dtype=np.int64)
    if column not in dataset.column_names:
        raise ValueError(f"no column {column!r} among {dataset.column_names}: tokenize the data")
    tables = dataset.select_columns([column]).with_format("arrow").iter(batch_size=10_000)
    lengths = [pc.list_value_length(table[column]).to_numpy() for table in tables]
    return np.concatenate([np.zeros(0, np.int64), *lengths]).astype(np.int64)


@dataclass
class TokenBudgetTrainingArguments(Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with a budget of tokens, the paper's schedule and R-Drop.

    `lr_scheduler_type` may also be "noam": `warmup_steps` is then that of the paper's formula, and
    `lr_scheduler_kwargs` may hold `factor` (1 by default) and `d_model` (by default the model's).
    For an error rate (wer, per, ter) as `metric_for_best_model`, less is better.

    Raises:
        ValueError: when `max_tokens` or `early_stopping_patience` is below 1, `rdrop_alpha` is
            negative, or when options contradict each other.
    """

    max_tokens: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of source and target, padding included, in a training batch of one "
            "process. When set, batches hold sentences of similar length and "
            "per_device_train_batch_size is not used."
        },
    )
    # A plain name, because the base's type makes the command line refuse names that it lacks.
    lr_scheduler_type: str = field(
        default="linear",
        metadata={"help": f"Schedule of the learning rate: {', '.join(_SCHEDULES)}."},
    )
    rdrop_alpha: float | None = field(
        default=None,
        metadata={
            "help": "Weight of R-Drop's divergence between two passes with other dropout; 5 in the "
            "paper. Doubles the memory and the time of a step."
        },
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={
            "help": "Stop when so many evaluations in turn brought no better metric_for_best_model."
        },
    )

    def __post_init__(self) -> None:
        noam = self.lr_scheduler_type == NOAM
        if noam:
            self.lr_scheduler_type = SchedulerType.INVERSE_SQRT  # the base knows its own names only
        asked = self.greater_is_better
        super().__post_init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        if noam:
            self.lr_scheduler_type = NOAM
            self._check_noam()
        self._choose_direction(asked)
        self._check_stopping()
        if self.rdrop_alpha is not None and self.rdrop_alpha < 0:
            raise ValueError(f"rdrop_alpha is {self.rdrop_alpha}: it must not be negative")
        if self.max_tokens is not None:
            self._check_budget(self.max_tokens)

    def _check_noam(self) -> None:
        default = type(self).__dataclass_fields__["learning_rate"].default
        if self.learning_rate != default:
            raise ValueError(
                f"learning_rate={self.learning_rate} has no effect beside lr_scheduler_type="
                '"noam", whose formula gives the rate: set lr_scheduler_kwargs={"factor": ...}'
            )
        if self.warmup_steps <= 0:
            raise ValueError(
                f"warmup_steps is {self.warmup_steps}: lr_scheduler_type='noam' needs some; the "
                "paper has 4000"
            )
        given: Any = self.lr_scheduler_kwargs or {}
        if unknown := sorted(set(given) - {"factor", "d_model"}):
            raise ValueError(f"lr_scheduler_kwargs {unknown} are unknown: noam has factor, d_model")

    def _choose_direction(self, asked: bool | None) -> None:
        """Makes less be better where the metric that chooses the best model is an error rate."""
        name = (self.metric_for_best_model or "").rpartition("_")[2]
        if name not in METRICS or not METRICS[name].lower_is_better:
            return
        if asked:
            raise ValueError(
                f"greater_is_better=True does not fit metric_for_best_model={name!r}, an error "
                "rate: leave it out"
            )
        self.greater_is_better = False

    def _check_stopping(self) -> None:
        if self.early_stopping_patience is None:
            return
        if self.early_stopping_patience < 1:
            raise ValueError(
                f"early_stopping_patience is {self.early_stopping_patience}: it must be at least 1"
            )
        if self.eval_strategy == IntervalStrategy.NO:
            raise ValueError(
                "early_stopping_patience counts evaluations: set eval_strategy to steps or epoch"
            )
        self.restore_callback_states_from_checkpoint = True  # the count survives an interruption

    def _check_budget(self, max_tokens: int) -> None:
        if max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}: it must be at least 1")
        rivals: dict[str, Any] = {
            "train_sampling_strategy": "random",
            "auto_find_batch_size": False,
            "dataloader_drop_last": False,
        }
        for name, default in rivals.items():
            if (value := getattr(self, name)) != default:
                raise ValueError(
                    f"{name}={value!r} has no effect beside max_tokens={max_tokens}: "
                    "leave one of them out"
                )


class TokenBudgetSeq2SeqTrainer(Seq2SeqTrainer):
    """The stock `Seq2SeqTrainer`, training on token-budget batches when `args.max_tokens` is set.

    Lengths are those of the columns "input_ids" and "labels". Evaluation is unchanged. A run that
    is resumed in the middle of an epoch sees the batches that the uninterrupted run would have
    seen, on one process or several. With `args.rdrop_alpha` the training loss is R-Drop's, and
    `args.lr_scheduler_type` may be "noam".
    """

    _batch_sampler: TokenBudgetBatchSampler | None = None

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the stock loader, with another batch sampler when `args.max_tokens` is set.

        Raises:
            ValueError: when the training set has no length, when several processes work on one
                batch (tensor, context or sequence parallelism), or as `TokenBudgetBatchSampler`
                does.
        """
        stock = super().get_train_dataloader()
        if self._max_tokens is None:
            return stock
        options = {name: getattr(stock, name) for name in _LOADER_OPTIONS}
        sampler = self._batch_sampler = self.token_budget_sampler(self._max_tokens)
        loader: DataLoader[Any] = DataLoader(stock.dataset, batch_sampler=sampler, **options)
        # The sampler picks this process's batches itself. Under Accelerate's sharding wrapper it
        # would miss the epoch that Trainer sets on resuming, which reaches one wrapper deep.
        prepared = prepare_data_loader(
            loader, self.accelerator.device, num_processes=1, process_index=0, put_on_device=True
        )
        return cast("DataLoader[Any]", prepared)

    def token_budget_sampler(self, max_tokens: int) -> TokenBudgetBatchSampler:
        """Return this process's batch sampler over the training set.

        Args:
            max_tokens: the budget of a batch, in tokens of source and target.

        Raises:
            ValueError: as `get_train_dataloader`.
        """
        if not has_length(self.train_dataset):
            raise ValueError("max_tokens needs a training set with a length: this one has none")
        if self.get_tp_size() * self.get_cp_size() * self.get_sp_size() > 1:
            raise ValueError(
                "max_tokens gives each process its own batches, which tensor, context and sequence "
                "parallelism do not allow: use per_device_train_batch_size"
            )
        return TokenBudgetBatchSampler(
            token_lengths(self.train_dataset, "input_ids"),
            token_lengths(self.train_dataset, "labels"),
            max_tokens,
            seed=self.args.seed if self.args.data_seed is None else self.args.data_seed,
            num_processes=self.args.world_size,
            process_index=self.args.process_index,
        )

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Return the examples of an optimisation step: their mean when `max_tokens` is set."""
        if (sampler := self._batch_sampler) is None:
            return int(super().get_total_train_batch_size(args))
        batches_per_step: int = args.gradient_accumulation_steps * args.world_size
        return round(len(sampler.source_lengths) * batches_per_step / sampler.num_batches)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Return the scheduler that `args.lr_scheduler_type` names, the paper's among them."""
        if self.args.lr_scheduler_type != NOAM or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        model: Any = self.model
        given = cast("dict[str, Any]", self.args.lr_scheduler_kwargs or {})
        options = {"d_model": model.config.hidden_size} | given
        warmup = self.args.get_warmup_steps(num_training_steps)
        schedule = NoamSchedule(
            cast(Any, optimizer or self.optimizer), warmup_steps=warmup, **options
        )
        self.lr_scheduler = cast("torch.optim.lr_scheduler.LambdaLR", schedule)
        self._created_lr_scheduler = True  # as the base does: a second training makes a new one
        return schedule

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Return the stock loss; in training with `args.rdrop_alpha` that of R-Drop."""
        alpha = getattr(self.args, "rdrop_alpha", None)
        if not alpha or not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        plain: Any = self.model
        if "decoder_input_ids" not in inputs:
            shifted = plain.prepare_decoder_input_ids_from_labels(labels=inputs["labels"])
            inputs = {**inputs, "decoder_input_ids": shifted}
        smoothing = self.args.label_smoothing_factor
        smoothing = smoothing or getattr(plain.config, "label_smoothing", 0.0)
        loss, outputs = rdrop_loss(model, inputs, alpha, smoothing, num_items_in_batch)
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * (self.accelerator.num_processes // self.get_tp_size())
        return (loss, outputs) if return_outputs else loss

    @property
    def _max_tokens(self) -> int | None:
        return cast("int | None", getattr(self.args, "max_tokens", None))
