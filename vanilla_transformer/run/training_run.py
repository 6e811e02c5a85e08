"""One training run, from its options to a directory that every Hugging Face tool can load."""

from collections.abc import Sequence
from functools import partial
from logging import INFO, StreamHandler, getLogger
from pathlib import Path
from signal import SIGTERM
from typing import Any, cast

import torch
from datasets import DatasetDict
from huggingface_hub import HfApi
from transformers import DataCollatorForSeq2Seq, PreTrainedModel, set_seed
from transformers.utils import logging

from vanilla_transformer.data.alignment_files import add_links
from vanilla_transformer.data.encoding import encode
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.data.subwords import SampledSubwords
from vanilla_transformer.data.text_files import existing_file
from vanilla_transformer.interop.probe import load_for_probe, store_probe
from vanilla_transformer.names import OWN_ALIGNMENT
from vanilla_transformer.run.defaults import Facts, choose_defaults, recorded_defaults
from vanilla_transformer.run.evaluation import score_training
from vanilla_transformer.run.loading import (
    limit_length,
    load_generation_settings,
    make_config,
    make_model,
    make_tokenizer,
)
from vanilla_transformer.run.model_card import write_model_card
from vanilla_transformer.run.output_directory import (
    OutputDirectory,
    OverwriteGuard,
    locked_directory,
    resolve_output_directory,
)
from vanilla_transformer.run.parsing import RunArguments, parse_arguments
from vanilla_transformer.run.plan import RunPlan, make_plan, splits_in_use
from vanilla_transformer.run.results import finished_figures, save_results
from vanilla_transformer.search import learned_positions
from vanilla_transformer.training.averaging import AverageCheckpoints
from vanilla_transformer.training.callbacks import ShowTranslations, SubwordEpochs
from vanilla_transformer.training.checkpoints import CHECKSUMS, write_checksums
from vanilla_transformer.training.hub import PICKLES, CompletePushes
from vanilla_transformer.training.metrics import GenerationMetrics
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer

logger = logging.get_logger(__name__)

_STATUS_OF_SIGTERM = 128 + SIGTERM  # what a shell shows for a process that a signal ended
_DATA_FILES = ("_file", "_source", "_target")


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Carries out the run of a command line, and returns the figures of all_results.json."""
    show_messages()
    return run(parse_arguments(argv))


def show_messages() -> None:
    """Shows the messages of transformers and of this package on standard error."""
    logging.set_verbosity_info()
    package = getLogger("vanilla_transformer")
    package.setLevel(INFO)
    if not package.handlers:
        package.addHandler(StreamHandler())


def run(arguments: RunArguments, data: DatasetDict | None = None) -> dict[str, float]:
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
        return _run_in_directory(arguments, data)


def _run_in_directory(arguments: RunArguments, data: DatasetDict | None) -> dict[str, float]:
    with arguments.training.main_process_first(desc="output directory"):
        directory = resolve_output_directory(arguments)
    init_from = arguments.model.model_name_or_path
    if directory.checkpoint is not None:
        init_from = str(directory.checkpoint.path)
    if init_from is not None:
        check_model_directory(init_from)
    data = _load_data(arguments, data)
    arguments = _with_defaults(arguments, data, directory)
    splits = splits_in_use(arguments.training, data, init_from)

    set_seed(arguments.training.seed)
    full_tokenizer = make_tokenizer(arguments.tokenizer, data, init_from)
    config = make_config(arguments.architecture, full_tokenizer, init_from)
    tokenizer = limit_length(full_tokenizer, learned_positions(config))
    settings = load_generation_settings(config, init_from)
    plan = make_plan(arguments, directory, init_from, splits, config, settings)
    model = make_model(plan, config)
    scorer = GenerationMetrics(tokenizer, plan.metrics)
    trainer, encoded = make_trainer(plan, model, tokenizer, scorer)

    if "train" in splits:
        trainer.record.inputs = plan.inputs()
        if finished := _figures_if_finished(trainer, plan):
            return finished
    with OverwriteGuard(directory, plan.training.process_index == 0) as guard:
        trainer.accelerator.wait_for_everyone()
        trainer.add_callback(guard)
        figures = _train_and_score(trainer, plan, encoded, scorer, guard)
    if "train" in splits:
        _save_history_and_card(trainer, plan, figures, scorer.signatures)
    return figures


def _with_defaults(
    arguments: RunArguments, data: DatasetDict, directory: OutputDirectory
) -> RunArguments:
    """Chooses the options that are not given, once; a resumed run keeps what it has chosen."""
    given, defaults = arguments.given, None
    if directory.checkpoint is not None:
        record = directory.checkpoint.record.get("inputs", {}).get("defaults")
        defaults = recorded_defaults(record, given)
    elif "train" in data and arguments.training.do_train is not False:
        scores = "validation" in data and given.get("do_eval") is not False
        facts = Facts.of(data["train"], scores, arguments.training.use_cpu)
        defaults = choose_defaults(given, facts)
    if defaults is not None and arguments.training.process_index == 0:
        logger.info(defaults.sentence)
    return arguments.with_defaults(defaults)


def _figures_if_finished(trainer: TokenBudgetSeq2SeqTrainer, plan: RunPlan) -> dict[str, float]:
    """Returns the figures of a run that is resumed although it is finished; otherwise none."""
    if plan.directory.checkpoint is None or plan.training.push_to_hub:
        return {}
    with torch.random.fork_rng([]):  # making the loader may draw a random number
        loader = trainer.get_train_dataloader()
    max_steps = trainer.set_initial_training_values(plan.training, loader)[-1]
    figures = finished_figures(plan, max_steps, trainer.record.inputs)
    trainer.accelerator.wait_for_everyone()  # all processes have read the files
    if figures:
        logger.warning(
            f"The run in {str(plan.directory.folder)!r} is finished: nothing is changed. To train "
            "further, give a larger `--num_train_epochs` or `--max_steps`."
        )
    return figures


def _load_data(arguments: RunArguments, data: DatasetDict | None) -> DatasetDict:
    """Loads the splits unless a caller gives them, and adds the word links of a file."""
    links = arguments.training.guided_alignment
    path = None if links in (None, OWN_ALIGNMENT) else str(existing_file(str(links)))
    if data is None:
        for name, value in vars(arguments.data).items():
            if name.endswith(_DATA_FILES) and value is not None:
                existing_file(value)
        return load_parallel_data(arguments.data, path)
    if path is None or "train" not in data:
        return data
    return DatasetDict({**data, "train": add_links(data["train"], path)})


def make_trainer(
    plan: RunPlan, model: Any, tokenizer: Any, scorer: GenerationMetrics
) -> tuple[TokenBudgetSeq2SeqTrainer, DatasetDict]:
    """Makes the Trainer of a run with its callbacks; also returns the splits as token ids."""
    with plan.training.main_process_first(desc="tokenizing"):
        encoded = encode(plan.splits, tokenizer, plan.max_source_length, plan.max_target_length)
    if not plan.training.remove_unused_columns:  # the model would get all columns
        encoded = encoded.remove_columns("length")
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
    averaging, subwords, show = plan.options.averaging, plan.options.subwords, plan.options.show
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
    return trainer, encoded


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
        _score_split(trainer, plan, scorer, "validation")
        figures |= _train_and_save(trainer, plan, guard)
    for split, prefix in (("validation", "eval"), ("test", "test")):
        if split in plan.splits:
            _score_split(trainer, plan, scorer, split)
            scores = trainer.evaluate(encoded[split], metric_key_prefix=prefix)
            scores.pop("epoch", None)
            trainer.log_metrics(prefix, scores)
            figures |= scores
            if trains:
                _save_figures(trainer, plan, figures)
    if not trains:
        guard.delete()
        _save_figures(trainer, plan, figures)
    return figures


def _score_split(
    trainer: TokenBudgetSeq2SeqTrainer, plan: RunPlan, scorer: GenerationMetrics, split: str
) -> None:
    """Lets the next evaluations score the texts of a split, if there is one.

    Where no process holds the whole model, the Trainer generates from the encoded sources.
    """
    scorer.references = None
    if split not in plan.splits:
        return
    rows = plan.splits[split]
    scorer.references = rows["references" if "references" in rows.column_names else "target"]
    is_sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    if not is_sharded and trainer.get_tp_size() == 1:
        trainer.score_texts = partial(score_training, trainer, scorer, list(rows["source"]))


def _train_and_save(
    trainer: TokenBudgetSeq2SeqTrainer, plan: RunPlan, guard: OverwriteGuard
) -> dict[str, float]:
    metrics: dict[str, float] = trainer.train(plan.directory.checkpoint).metrics
    if trainer.was_terminated:
        logger.warning(
            f"SIGTERM has ended the training after step {trainer.state.global_step}: go on with "
            "`--resume_from_checkpoint True`."
        )
        raise SystemExit(_STATUS_OF_SIGTERM)
    figures = {f"train_{name.removeprefix('train_')}": value for name, value in metrics.items()}
    guard.delete()
    if trainer.is_world_process_zero():
        (plan.directory.folder / CHECKSUMS).unlink(missing_ok=True)
    trainer.save_model(_internal_call=True)  # without a push: the run pushes when all is there
    folder = plan.directory.folder
    if trainer.is_world_process_zero() and list(folder.glob("*.safetensors")):
        store_probe(load_for_probe(folder), folder)
    _save_figures(trainer, plan, figures)
    return figures


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
        _push_folder(plan, str(repo_id))


def _push_folder(plan: RunPlan, repo_id: str) -> None:
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


if __name__ == "__main__":
    main()
