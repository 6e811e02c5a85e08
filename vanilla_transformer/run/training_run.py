"""One training run, from arguments to a directory that every Hugging Face tool can load."""

from collections.abc import Sequence
from logging import INFO, StreamHandler, getLogger
from typing import Any

from datasets import Dataset, DatasetDict
from transformers import DataCollatorForSeq2Seq, TrainerCallback, set_seed
from transformers.trainer_utils import SchedulerType
from transformers.utils import logging

from vanilla_transformer.data.encoding import encode
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.data.subwords import SampledSubwords
from vanilla_transformer.inference.loading import check_model_directory
from vanilla_transformer.run.arguments import RunArguments, parse_arguments
from vanilla_transformer.run.loading import make_model, make_tokenizer
from vanilla_transformer.run.model_card import write_model_card
from vanilla_transformer.run.output_directory import (
    check_output_directory,
    overwritten_output_directory,
)
from vanilla_transformer.training.averaging import AverageCheckpoints
from vanilla_transformer.training.callbacks import ShowTranslations, SubwordEpochs
from vanilla_transformer.training.generation_metrics import GenerationMetrics
from vanilla_transformer.training.hub import CompletePushes, check_hub_strategy, push_directory
from vanilla_transformer.training.metrics import METRICS
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Runs what the command line says: the program of `scripts/train.py`.

    Args:
        argv: Arguments; None: those of the process.

    Returns:
        The figures of all_results.json.
    """
    logging.set_verbosity_info()
    _show_own_messages()
    arguments = parse_arguments(argv)
    return run(arguments, load_parallel_data(arguments.data))


def _show_own_messages() -> None:
    """Shows this package's messages as transformers shows its own."""
    package = getLogger("vanilla_transformer")
    package.setLevel(INFO)
    if not package.handlers:
        package.addHandler(StreamHandler())


def run(arguments: RunArguments, data: DatasetDict) -> dict[str, float]:
    """Trains, evaluates, saves the model with everything that belongs to it, and describes it.

    Without training data, or with `do_train` False, it scores a saved model and writes figures
    alone.

    Args:
        arguments: Of the run.
        data: Splits "train", "validation" and "test" (those that there are) with the columns
            "source" and "target", and "references" where an example has several.

    Returns:
        The figures of all_results.json: train_*, eval_* and test_*.

    Raises:
        ValueError: If the output directory is in use, or the arguments contradict each other or
            what is loaded. Nothing has been written or deleted then.
    """
    check_hub_strategy(arguments.training)
    splits = _splits_in_use(arguments, data)
    with arguments.training.main_process_first(desc="output directory"):
        checkpoint = check_output_directory(arguments)
    saved = checkpoint or arguments.model.model_name_or_path
    if saved is not None:
        check_model_directory(saved)
    _check_something_to_do(arguments, splits, saved)
    set_seed(arguments.training.seed)
    tokenizer = make_tokenizer(arguments, data, saved)
    model = make_model(arguments, tokenizer, saved)
    limits = _length_limits(arguments, model, tokenizer)
    with arguments.training.main_process_first(desc="tokenizing"):
        encoded = encode(splits, tokenizer, *limits)
    scorer = GenerationMetrics(tokenizer, arguments.model.metrics)
    trainer = make_trainer(arguments, model, tokenizer, encoded, scorer)
    for callback in _callbacks(arguments, checkpoint):
        trainer.add_callback(callback)
    if "train" in splits and _samples_subwords(arguments):
        _sample_subwords(trainer, arguments, splits["train"], limits)
    if arguments.show.show_every is not None and "train" in splits:
        _show(trainer, splits, arguments.show.show_every, arguments.show.show_examples)

    with overwritten_output_directory(arguments) as deletes_old_files:
        trainer.accelerator.wait_for_everyone()
        trainer.add_callback(deletes_old_files)
        figures = _train_and_score(trainer, splits, encoded, scorer, checkpoint)
    if "train" in splits:
        _describe(trainer, arguments, figures, scorer, splits, checkpoint)
    return figures


def _train_and_score(
    trainer: TokenBudgetSeq2SeqTrainer,
    splits: DatasetDict,
    encoded: DatasetDict,
    scorer: GenerationMetrics,
    checkpoint: str | None,
) -> dict[str, float]:
    figures: dict[str, float] = {}
    if "train" in splits:
        scorer.references = references(splits, "validation")
        figures |= _train(trainer, checkpoint)
    for split, prefix in (("validation", "eval"), ("test", "test")):
        if split in splits:
            scorer.references = references(splits, split)
            figures |= _score(trainer, encoded[split], prefix)
    return figures


def _splits_in_use(arguments: RunArguments, data: DatasetDict) -> DatasetDict:
    """Leaves out what do_train, do_eval and do_predict forbid."""
    training = arguments.training
    asked = {
        "train": ("`do_train`", training.do_train),
        "validation": ("`do_eval` or `eval_strategy`", training.do_eval),
        "test": ("`do_predict`", training.do_predict),
    }
    for split, (name, wanted) in asked.items():
        if wanted and split not in data:
            raise ValueError(f"{name} needs {split} data: give them, or leave it out.")
    return DatasetDict({name: rows for name, rows in data.items() if asked[name][1] is not False})


def _check_something_to_do(arguments: RunArguments, splits: DatasetDict, saved: str | None) -> None:
    """Refuses a run that would have no effect, or score weights that nobody trained."""
    if not splits:
        raise ValueError("`do_train`, `do_eval` and `do_predict` leave nothing to do.")
    if "train" in splits:
        return
    if saved is None:
        raise ValueError(
            "Nothing is trained here, and there is no saved model to score: give training data, "
            "or `--model_name_or_path`."
        )
    if arguments.training.push_to_hub:
        raise ValueError(
            "`push_to_hub` pushes what a run has trained, and nothing is trained here: leave it "
            "out, or push with `model.push_to_hub`."
        )


def _describe(
    trainer: TokenBudgetSeq2SeqTrainer,
    arguments: RunArguments,
    figures: dict[str, float],
    scorer: GenerationMetrics,
    splits: DatasetDict,
    checkpoint: str | None,
) -> None:
    """Completes the directory of a trained model by its history and its card."""
    trainer.save_state()
    if not trainer.is_world_process_zero():
        return
    write_model_card(
        arguments,
        trainer.model,
        figures,
        scorer.signatures,
        example=next(iter(splits.values()))[0]["source"],
        repo_id=trainer.hub_model_id,
        resumed_from=checkpoint,
    )
    if arguments.training.push_to_hub:
        _push(trainer)


def _push(trainer: Any) -> None:
    """Pushes what the output directory holds at the end, the card in the first place."""
    args = trainer.args
    push_directory(
        str(args.output_dir),
        trainer.hub_model_id,
        token=args.hub_token,
        revision=args.hub_revision,
    )


def _train(trainer: TokenBudgetSeq2SeqTrainer, checkpoint: str | None) -> dict[str, float]:
    figures: dict[str, float] = trainer.train(resume_from_checkpoint=checkpoint).metrics
    figures = {
        name if name.startswith("train_") else f"train_{name}": value
        for name, value in figures.items()
    }
    trainer.save_model()
    trainer.save_metrics("train", figures)
    return figures


def _score(trainer: TokenBudgetSeq2SeqTrainer, rows: Dataset, prefix: str) -> dict[str, float]:
    figures = trainer.evaluate(rows, metric_key_prefix=prefix)
    figures.pop("epoch", None)
    trainer.log_metrics(prefix, figures)
    trainer.save_metrics(prefix, figures)
    return figures


def _length_limits(arguments: RunArguments, model: Any, tokenizer: Any) -> list[int | None]:
    """Returns the most tokens of a source and of a target; learned positions set a limit too."""
    given = [arguments.data.max_source_length, arguments.data.max_target_length]
    if model.config.position_embedding_type != "learned":
        return given
    positions = model.config.max_position_embeddings
    tokenizer.model_max_length = positions
    return [min(limit or positions, positions) for limit in given]


def make_trainer(
    arguments: RunArguments,
    model: Any,
    tokenizer: Any,
    encoded: DatasetDict,
    scorer: GenerationMetrics,
) -> TokenBudgetSeq2SeqTrainer:
    """Puts the stock trainer together.

    Args:
        arguments: Of the run.
        model: The model.
        tokenizer: Its tokenizer.
        encoded: The splits, as token ids.
        scorer: Scores generated text.

    Returns:
        The trainer.
    """
    training, first = arguments.training, arguments.model.metrics[0]
    training.predict_with_generate = True
    by_score = training.load_best_model_at_end or training.early_stopping_patience is not None
    by_score = by_score or arguments.averaging.average_best is not None
    by_score = by_score and not _watches_the_loss(training)
    if by_score and not training.metric_is_chosen:
        training.metric_for_best_model = first
        training.greater_is_better = not METRICS[first].lower_is_better
    return TokenBudgetSeq2SeqTrainer(
        model=model,
        args=training,
        train_dataset=encoded.get("train"),
        eval_dataset=encoded.get("validation"),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=scorer,
        callbacks=[CompletePushes()] if training.push_to_hub else None,
    )


def _watches_the_loss(training: Any) -> bool:
    """Whether the rate follows `metric_for_best_model`, and expects it to fall."""
    return training.lr_scheduler_type in (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)


def _callbacks(arguments: RunArguments, checkpoint: str | None) -> list[TrainerCallback]:
    """Makes the callback for the average that was asked for."""
    options, made = arguments.averaging, list[TrainerCallback]()
    if options.ema_decay is not None:
        made.append(ExponentialMovingAverage(options.ema_decay, checkpoint))
    if options.average_last is not None:
        made.append(AverageCheckpoints(options.average_last))
    if options.average_best is not None:
        made.append(AverageCheckpoints(options.average_best, best=True))
    return made


def _samples_subwords(arguments: RunArguments) -> bool:
    options = arguments.subwords
    return options.bpe_dropout is not None or options.unigram_alpha is not None


def _sample_subwords(
    trainer: TokenBudgetSeq2SeqTrainer,
    arguments: RunArguments,
    texts: Dataset,
    limits: Sequence[int | None],
) -> None:
    """Lets the training set fall into other subwords in each epoch."""
    training, options = arguments.training, arguments.subwords
    tokenizer: Any = trainer.processing_class
    rows = SampledSubwords(
        texts,
        trainer.train_dataset,
        tokenizer,
        bpe_dropout=options.bpe_dropout,
        unigram_alpha=options.unigram_alpha,
        sides=options.sampled_sides,
        seed=training.seed if training.data_seed is None else training.data_seed,
        max_source_length=limits[0],
        max_target_length=limits[1],
    )
    trainer.train_dataset = rows
    trainer.add_callback(SubwordEpochs(rows))


def _show(trainer: TokenBudgetSeq2SeqTrainer, data: DatasetDict, every: int, count: int) -> None:
    """Shows the first validation examples while training; training ones where there are none."""
    rows = data["validation" if "validation" in data else "train"]
    shown = rows.select(range(min(count, len(rows))))
    sources, targets = list(shown["source"]), list(shown["target"])
    trainer.add_callback(ShowTranslations(trainer, sources, targets, every))


def references(data: DatasetDict, split: str) -> Any:
    """Returns the reference texts of a split, one or several per example; None: no such split."""
    if split not in data:
        return None
    rows = data[split]
    return rows["references"] if "references" in rows.column_names else rows["target"]
