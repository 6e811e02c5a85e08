"""One training run, from its options to a directory that every Hugging Face tool can load."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from logging import ERROR, INFO, getLogger
from pathlib import Path
from signal import SIGTERM
from typing import Any, cast

import datasets
import torch
from datasets import DatasetDict
from huggingface_hub import HfApi
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PrinterCallback,
    TrainerCallback,
    set_seed,
)
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.utils import logging

from vanilla_transformer.data.corpora import describe_report, entries_of, reports_of
from vanilla_transformer.data.directory_lock import locked_directory
from vanilla_transformer.data.mixing import Mixture
from vanilla_transformer.data.subwords import SampledSubwords
from vanilla_transformer.data.token_budget import token_lengths
from vanilla_transformer.inference.loading import load_weights
from vanilla_transformer.interop.probe import load_for_probe, store_probe
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.progress import MessageHandler, hide_bars_of_loading, shows_bars
from vanilla_transformer.run.adapters import add_adapters, merge_adapters
from vanilla_transformer.run.evaluation import score_training
from vanilla_transformer.run.loading import limit_length, load_teachers
from vanilla_transformer.run.model_card import write_model_card
from vanilla_transformer.run.parsing import RunArguments, parse_arguments
from vanilla_transformer.run.plan import RunPlan, make_plan
from vanilla_transformer.run.preparation import prepare
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.run.store import OverwriteGuard, finished_figures, save_results
from vanilla_transformer.training.averaging import AverageCheckpoints
from vanilla_transformer.training.callbacks import (
    PICKLES,
    CompletePushes,
    ShowTranslations,
    SubwordEpochs,
)
from vanilla_transformer.training.checkpoints import (
    CHECKSUMS,
    complete_checkpoints,
    write_checksums,
)
from vanilla_transformer.training.metrics import GenerationMetrics
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_log import TrainingLog, describe_figures

logger = logging.get_logger(__name__)

STATUS_OF_SIGTERM = 128 + SIGTERM
"""What a shell shows for a process that this signal has ended."""


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Carries out the run of a command line, and returns the figures of all_results.json."""
    arguments = parse_arguments(argv)
    show_messages(arguments)
    return run(arguments)


def show_messages(arguments: RunArguments) -> None:
    """Shows what a run tells on standard error; without this call it only gives warnings.

    The main process tells the plan, the progress and the scores, and with `verbose` all messages of
    transformers; the other processes tell errors.
    """
    is_main, verbose = arguments.training.process_index == 0, arguments.show.verbose
    package = getLogger("vanilla_transformer")
    package.setLevel(INFO if is_main else ERROR)
    if not package.handlers:
        package.addHandler(MessageHandler())
    if not is_main:
        logging.set_verbosity_error()
    elif verbose:
        logging.set_verbosity_info()
    if verbose:
        logging.enable_progress_bar()
    else:
        hide_bars_of_loading()
    if not (is_main and shows_bars()):
        datasets.disable_progress_bars()


def run(
    arguments: RunArguments,
    data: DatasetDict | None = None,
    callbacks: Iterable[TrainerCallback] = (),
) -> dict[str, float]:
    """Trains, evaluates and saves a model, and writes its model card.

    Without training data, or with `do_train` False, the run scores a saved model and writes only
    its figures.

    Args:
        arguments: Options of the run. They are not changed.
        data: Any of the splits "train", "validation" and "test", with the columns "source" and
            "target", and "references" where an example has several. None: the data that the
            options name.

    Returns:
        The figures of all_results.json: train_*, eval_* and test_*.

    Raises:
        ValueError: If the output directory is in use, or the options contradict each other or what
            is loaded, or the file of `guided_alignment` does not fit the training data. Nothing has
            been written or deleted in this case.
    """
    training = arguments.training
    with locked_directory(Path(str(training.output_dir)), training.process_index == 0):
        return _run_in_directory(arguments, data, callbacks)


def _run_in_directory(
    arguments: RunArguments, data: DatasetDict | None, callbacks: Iterable[TrainerCallback]
) -> dict[str, float]:
    prepared = compute_on_main_process(arguments.training, partial(prepare, arguments, data))
    arguments = replace(arguments, given=prepared.given).with_defaults(prepared.defaults)
    splits, directory = prepared.texts, prepared.directory
    plan = make_plan(arguments, directory, splits, prepared.tokenizer)
    tokenizer = limit_length(prepared.tokenizer, plan.positions)
    set_seed(arguments.training.seed)
    model = make_model(plan)
    scorer = GenerationMetrics(tokenizer, plan.metrics)
    encoded = prepared.encoded
    trainer = make_trainer(plan, model, tokenizer, scorer, encoded)
    for callback in callbacks:
        trainer.add_callback(callback)
    _log_message(trainer, _describe_data(plan, encoded, len(tokenizer), model))
    for report in reports_of(splits["train"]) if "train" in splits else ():
        _log_message(trainer, describe_report(report))

    if "train" in splits:
        trainer.record.inputs = prepared.inputs
        if finished := _figures_if_finished(trainer, plan):
            return finished
    guard = OverwriteGuard(directory, plan.training.process_index == 0)
    trainer.accelerator.wait_for_everyone()
    trainer.add_callback(guard)
    figures = _train_and_score(trainer, plan, encoded, scorer, guard)
    if "train" in splits:
        _save_history_and_card(trainer, plan, figures, scorer.signatures)
    return figures


def _log_message(trainer: TokenBudgetSeq2SeqTrainer, message: str) -> None:
    """Logs a message in the main process."""
    if trainer.is_world_process_zero():
        logger.info(message)


def _describe_data(plan: RunPlan, encoded: DatasetDict, num_tokens: int, model: Any) -> str:
    """Says how much a run has read, and how large its model is."""
    pairs = ", ".join(f"{len(rows):,} {name} pairs" for name, rows in encoded.items())
    parameters = sum(weight.numel() for weight in model.parameters())
    origin = "" if plan.init_from is None else f" of {plan.init_from!r}"
    return (
        f"{pairs}; a vocabulary of {num_tokens:,} tokens; the model{origin} has {parameters:,} "
        "parameters."
    )


def _figures_if_finished(trainer: TokenBudgetSeq2SeqTrainer, plan: RunPlan) -> dict[str, float]:
    """Returns the figures of a run that is resumed although it is finished; otherwise none."""
    if plan.directory.checkpoint is None or plan.training.push_to_hub:
        return {}
    with torch.random.fork_rng([]):  # making the loader may draw a random number
        loader = trainer.get_train_dataloader()
    max_steps = trainer.set_initial_training_values(plan.training, loader)[-1]
    wanted = {"train_loss"}
    for split, prefix in (("validation", "eval"), ("test", "test")):
        if split in plan.splits:
            wanted |= {f"{prefix}_{name}" for name in ("loss", *plan.metrics)}
    patience = plan.training.early_stopping_patience
    inputs = trainer.record.inputs
    figures = finished_figures(plan.directory, wanted, max_steps, patience, inputs)
    trainer.accelerator.wait_for_everyone()  # all processes have read the files
    if figures:
        logger.warning(
            f"The run in {str(plan.directory.folder)!r} is finished: nothing is changed. To train "
            "further, give a larger `--num_train_epochs` or `--max_steps`."
        )
    return figures


def make_model(plan: RunPlan) -> Any:
    """Loads the weights that the run starts from, or initialises a new model.

    The generation config of the model holds the search of the run.
    """
    rank, checkpoint = plan.options.model.lora_rank, plan.directory.checkpoint
    if plan.init_from is None or (rank is not None and checkpoint is not None):
        # Where a checkpoint has adapters beside the weights, Trainer loads both.
        model: Any = VanillaTransformerForConditionalGeneration(plan.config)
    else:  # half precision would lose small changes of the weights
        model = load_weights(plan.init_from, config=plan.config, dtype=torch.float32)
    if rank is not None:
        add_adapters(model, rank, plan.options.model.lora_embeddings)
    model.set_attn_implementation(plan.attention)
    model.generation_config = plan.search.to_save()
    return model


def make_trainer(
    plan: RunPlan, model: Any, tokenizer: Any, scorer: GenerationMetrics, encoded: DatasetDict
) -> TokenBudgetSeq2SeqTrainer:
    """Makes the Trainer of a run with its callbacks."""
    trainer = TokenBudgetSeq2SeqTrainer(
        model=model,
        args=plan.training,
        train_dataset=encoded.get("train"),
        eval_dataset=encoded.get("validation"),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=scorer,
        callbacks=[CompletePushes()] if plan.training.push_to_hub else None,
    )
    if (shares := plan.shares) is not None:
        sizes = {one["corpus"]: one["used"] for one in reports_of(plan.splits["train"])}
        trainer.mixture = Mixture(sizes, shares, trainer.order_seed)
    if "train" in plan.splits:
        trainer.teachers = load_teachers(plan.options.model, tokenizer, model, plan.training.device)
    averaging, subwords, show = plan.options.averaging, plan.options.subwords, plan.options.show
    bars = PrinterCallback if plan.training.disable_tqdm else DEFAULT_PROGRESS_CALLBACK
    trainer.remove_callback(bars)
    if show.verbose:
        trainer.add_callback(PrinterCallback)
    validated = plan.splits.get("validation")
    sources = None if validated is None else validated["source"]
    trainer.add_callback(TrainingLog(trainer, scorer, sources))
    if averaging.ema_decay is not None:
        trainer.add_callback(ExponentialMovingAverage(averaging.ema_decay))
    if averaging.average_last is not None:
        trainer.add_callback(AverageCheckpoints(averaging.average_last))
    if averaging.average_best is not None:
        trainer.add_callback(AverageCheckpoints(averaging.average_best, best=True))
    if "train" in plan.splits and subwords.enabled:
        sampled = SampledSubwords(
            plan.splits["train"],
            encoded["train"],
            tokenizer,
            bpe_dropout=subwords.bpe_dropout,
            unigram_alpha=subwords.unigram_alpha,
            sides=subwords.sampled_sides,
            seed=trainer.order_seed,
            max_source_length=plan.max_source_length,
            max_target_length=plan.max_target_length,
        )
        trainer.train_dataset = sampled
        trainer.add_callback(SubwordEpochs(sampled))
    if "train" in plan.splits and show.show_every is not None:
        rows = plan.splits.get("validation", plan.splits["train"])
        shown = rows.select(range(min(show.show_examples, len(rows))))
        sources, targets = list(shown["source"]), list(shown["target"])
        trainer.add_callback(ShowTranslations(trainer, sources, targets, show.show_every))
    return trainer


def _train_and_score(
    trainer: TokenBudgetSeq2SeqTrainer,
    plan: RunPlan,
    encoded: DatasetDict,
    scorer: GenerationMetrics,
    guard: OverwriteGuard,
) -> dict[str, float]:
    """Trains on the training split and scores the others; saves the model and the figures."""
    figures: dict[str, float] = {}
    trains = "train" in plan.splits
    if trains:
        _score_split(trainer, plan, scorer, encoded, "validation")
        figures |= _train_and_save(trainer, plan, guard)
    scorer.with_intervals = True
    for split, prefix in (("validation", "eval"), ("test", "test")):
        if split in plan.splits:
            _score_split(trainer, plan, scorer, encoded, split)
            scores = trainer.evaluate(encoded[split], metric_key_prefix=prefix)
            scores.pop("epoch", None)
            _log_message(
                trainer, f"{split.capitalize()}: {describe_figures(scores, f'{prefix}_')}."
            )
            if scorer.num_cut:
                sooner = " (sooner while the training went on)" if trains else ""
                logger.warning(
                    f"{split.capitalize()}: outputs that are cut off at the longest length of "
                    f"{plan.search.max_new_tokens} tokens{sooner}: {scorer.num_cut:,}. Give a "
                    "larger `generation_max_length`, or train longer if they repeat themselves."
                )
            figures |= scores
            if trains:
                _save_figures(trainer, plan, figures)
    if not trains:
        guard.delete()
        _save_figures(trainer, plan, figures)
    return figures


def _score_split(
    trainer: TokenBudgetSeq2SeqTrainer,
    plan: RunPlan,
    scorer: GenerationMetrics,
    encoded: DatasetDict,
    split: str,
) -> None:
    """Lets the next evaluations score the texts of a split, if there is one.

    Where no process holds the whole model, the Trainer generates from the encoded sources.
    """
    scorer.references = scorer.corpora = None
    if split not in plan.splits:
        return
    rows = plan.splits[split]
    scorer.references = rows["references" if "references" in rows.column_names else "target"]
    if plan.options.data.corpora and "corpus" in rows.column_names:
        scorer.corpora = rows["corpus"]
        entries = [one for one in entries_of(plan.options.data) if one.languages]
        scorer.directions = {one.name: "-".join(one.languages or ()) for one in entries}
    is_sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    if not is_sharded and trainer.get_tp_size() == 1:
        lengths = token_lengths(encoded[split], "labels").tolist()
        trainer.score_texts = partial(
            score_training, trainer, scorer, list(rows["source"]), lengths
        )


def _train_and_save(
    trainer: TokenBudgetSeq2SeqTrainer, plan: RunPlan, guard: OverwriteGuard
) -> dict[str, float]:
    if plan.directory.checkpoint is not None:
        _log_message(trainer, f"The training goes on from {str(plan.directory.checkpoint.path)!r}.")
    try:
        metrics: dict[str, float] = trainer.train(plan.directory.checkpoint).metrics
        if trainer.was_terminated:
            raise SystemExit(STATUS_OF_SIGTERM)
    except (KeyboardInterrupt, SystemExit):
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, TrainingLog):
                callback.close()
        if trainer.is_world_process_zero():
            logger.warning(_describe_early_end(trainer, plan))
        raise
    figures = {f"train_{name.removeprefix('train_')}": value for name, value in metrics.items()}
    guard.delete()
    if plan.options.model.lora_rank is not None:
        merge_adapters(trainer.model)
    if trainer.is_world_process_zero():
        (plan.directory.folder / CHECKSUMS).unlink(missing_ok=True)
    trainer.save_model(_internal_call=True)  # without a push: the run pushes when all is there
    folder = plan.directory.folder
    if trainer.is_world_process_zero() and list(folder.glob("*.safetensors")):
        store_probe(load_for_probe(folder), folder)
    _save_figures(trainer, plan, figures)
    _log_message(trainer, f"Saved in {str(folder)!r}: {_describe_weights(trainer, plan)}.")
    return figures


def _describe_early_end(trainer: TokenBudgetSeq2SeqTrainer, plan: RunPlan) -> str:
    """Says what is left of a training that a signal has ended."""
    kept = "no checkpoint was saved, so nothing is kept."
    if saved := complete_checkpoints(plan.directory.folder):
        kept = (
            f"{str(saved[-1].path)!r} is kept. To go on from there, give the same command with "
            "`--resume_from_checkpoint True`."
        )
    return f"The training ended early, after step {trainer.state.global_step:,}: {kept}"


def _describe_weights(trainer: TokenBudgetSeq2SeqTrainer, plan: RunPlan) -> str:
    """Says which weights a training has ended with."""
    state, averaging = trainer.state, plan.options.averaging
    if averaging.average_last or averaging.average_best:
        return "the mean weights of checkpoints"
    if plan.training.load_best_model_at_end and state.best_global_step:
        metric = str(plan.training.metric_for_best_model).removeprefix("eval_")
        return (
            f"the checkpoint of step {state.best_global_step:,}, the best by {metric} "
            f"({state.best_metric:.2f})"
        )
    return f"the weights of step {state.global_step:,}"


def _save_figures(
    trainer: TokenBudgetSeq2SeqTrainer, plan: RunPlan, figures: dict[str, float]
) -> None:
    if trainer.is_world_process_zero():
        save_results(plan.directory.folder, figures)


def _save_history_and_card(
    trainer: TokenBudgetSeq2SeqTrainer,
    plan: RunPlan,
    figures: dict[str, float],
    signatures: dict[str, str],
) -> None:
    """Saves the history of the training and the model card, and pushes the directory if asked."""
    trainer.save_state()
    if not trainer.is_world_process_zero():
        return
    example = next(iter(plan.splits.values()))[0]["source"]
    repo_id: str | None = trainer.hub_model_id
    model = cast(PreTrainedModel, trainer.model)
    write_model_card(plan, model, figures, signatures, example, repo_id)
    write_checksums(plan.directory.folder)
    if plan.training.push_to_hub:
        _push_to_hub(plan, str(repo_id))


def _push_to_hub(plan: RunPlan, repo_id: str) -> None:
    """Pushes the directory of a finished run, without pickle files and checkpoints.

    Raises:
        ConnectionError: If the Hub does not take it.
    """
    try:
        HfApi().upload_folder(
            repo_id=repo_id,
            folder_path=plan.directory.folder,
            commit_message="End of training",
            token=plan.training.hub_token,
            revision=plan.training.hub_revision,
            ignore_patterns=[*PICKLES, "_*", "checkpoint-*"],
            delete_patterns=list(PICKLES),
        )
    except Exception as error:  # of the Hub, of the network, of any type
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConnectionError(
            f"The model is saved in {str(plan.directory.folder)!r}, but the Hub did not take it "
            f"({reason}): to push it, give the same command with `--resume_from_checkpoint True`, "
            "which trains no further step."
        ) from error
