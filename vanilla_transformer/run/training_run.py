"""One training run, from its options to a directory that every Hugging Face tool can load."""

import json
from collections.abc import Iterable, Mapping
from logging import DEBUG, ERROR, INFO
from pathlib import Path
from signal import SIGTERM
from time import monotonic
from typing import Any

import datasets
from accelerate.utils import gather_object
from datasets import Dataset, DatasetDict
from huggingface_hub import HfApi
from transformers import TrainerCallback
from transformers.utils import logging

from vanilla_transformer import progress
from vanilla_transformer.files.atomic_files import explained_full_disk, write_atomic
from vanilla_transformer.files.directory_lock import locked_directory
from vanilla_transformer.files.file_contents import without_infinities
from vanilla_transformer.files.text_files import short_line
from vanilla_transformer.run.adapters import merge_adapters
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.assembly import Assembly
from vanilla_transformer.run.calibration import calibrate
from vanilla_transformer.run.evaluation import warn_of_copies
from vanilla_transformer.run.fitting import fit_minutes
from vanilla_transformer.run.loaded_data import load_data
from vanilla_transformer.run.model_card import write_model_card
from vanilla_transformer.run.plan import PREFIXES, RunPlan, make_plan
from vanilla_transformer.training.callbacks import PICKLES, OverwriteGuard
from vanilla_transformer.training.deadline import Deadline
from vanilla_transformer.training.metrics import Scored
from vanilla_transformer.training.store import (
    FILE_SIZES,
    RESULTS,
    checkpoints_with_state,
    finished_figures,
    write_file_sizes,
)
from vanilla_transformer.training.training_log import TrainingLog, describe_figures

logger = logging.get_logger(__name__)

STATUS_OF_SIGTERM = 128 + SIGTERM
"""The exit status of a process that this signal has ended, as shells show it."""
_TIMED = 32
"""Number of texts whose scoring is timed at the end of given minutes."""
_LEAST_SCORED = 128
"""Least number of texts that are scored: a calibration needs 100, and some are blank or equal."""
_SHARE_OF_MINUTES = 0.98
"""Share of given minutes in which all scores end; like the numbers above, chosen, not measured."""


def show_messages(arguments: RunArguments) -> None:
    """Shows the messages of a run on standard error; without this call, only warnings are shown.

    The main process shows the plan, the progress and the scores; the others show errors.
    """
    is_main = arguments.training.process_index == 0
    if is_main:
        progress.show_messages(DEBUG if progress.tells_all() else INFO)
    else:
        logging.set_verbosity_error()
        progress.show_messages(ERROR)
    if not (is_main and progress.shows_bars()):
        datasets.disable_progress_bars()


def run(
    arguments: RunArguments,
    data: DatasetDict | None = None,
    callbacks: Iterable[TrainerCallback] = (),
    began: float | None = None,
) -> dict[str, float]:
    """Trains, evaluates and saves a model, and writes its model card.

    Options that contradict each other, the data or the output directory are refused before
    anything is written or deleted.

    Args:
        arguments: Options of the run, which does not change them.
        data: Any of the splits "train", "validation" and "test", with the columns "source" and
            "target", and "references" where an example has several. None: the data that the
            options name.
        began: The beginning of the `minutes`, in seconds of `time.monotonic()`. None: now.

    Returns:
        The figures of all_results.json: train_*, eval_* and test_*.
    """
    training = arguments.training
    began = monotonic() if began is None else began
    with locked_directory(Path(str(training.output_dir)), training.process_index == 0):
        arguments, loaded = load_data(arguments, data)
        minutes = arguments.model.minutes
        scores_until = None
        callbacks = list(callbacks)
        if minutes is not None:
            deadline = Deadline()  # a resumed run ends as it was planned
            if loaded.directory.checkpoint is None:
                arguments, deadline = fit_minutes(arguments, loaded, began)
            scores_until = began + _SHARE_OF_MINUTES * 60 * minutes
            callbacks.append(deadline)
        plan = make_plan(arguments, loaded)
        assembly = Assembly.of(plan)
        for callback in callbacks:
            assembly.trainer.add_callback(callback)
        logger.info(_describe_data(plan, assembly.encoded, assembly.trainer.model))
        for report in loaded.reports:
            logger.log(INFO if report.tells_something else DEBUG, report.describe())
        if "validation" not in loaded.splits:
            logger.info("No validation data: nothing is scored, and the last step is kept.")
        training_run = _TrainingRun(assembly, scores_until)
        return training_run.figures_if_finished() or training_run.train_and_score()


def _describe_data(plan: RunPlan, encoded: DatasetDict, model: Any) -> str:
    """Describes the data of a run, with the pair that comes first, and the size of its model."""
    pairs = ", ".join(f"{len(rows):,} {name} pairs" for name, rows in encoded.items())
    parameters = sum(weight.numel() for weight in model.parameters())
    origin = "" if (path := plan.loaded.init_from) is None else f" of {path!r}"
    tokenizer = plan.texts.tokenizer
    case = "; sources are lower-cased" if getattr(tokenizer, "do_lower_case", False) else ""
    first = next(iter(plan.loaded.splits.values()))[0]
    source, target = (short_line(first[side], 60) for side in ("source", "target"))
    return (
        f"{pairs}; a vocabulary of {len(tokenizer):,} tokens{case}; the model{origin} has "
        f'{parameters:,} parameters. The first pair: "{source}" → "{target}".'
    )


class _TrainingRun:
    """Trains, saves and scores the model of an assembled run.

    Args:
        scores_until: The end of the scores, in seconds of `monotonic()`. None: all are computed.
    """

    def __init__(self, assembly: Assembly, scores_until: float | None) -> None:
        self.assembly, self.plan, self.trainer = assembly, assembly.plan, assembly.trainer
        self.scores_until, self.directory = scores_until, self.plan.loaded.directory
        self.folder, self.is_main = self.directory.folder, self.trainer.is_world_process_zero()
        self.signatures: dict[str, Mapping[str, str]] = {}  # of the scores of each split
        self.quality = ""  # a sentence on the quality of outputs, by the validation data

    def figures_if_finished(self) -> dict[str, float]:
        """Returns the figures of a resumed run that is finished already; {}: it is not."""
        plan, trainer = self.plan, self.trainer
        if plan.checkpoint is None or plan.training.push_to_hub:
            return {}
        figures = finished_figures(self.directory, trainer.record.inputs)
        trainer.accelerator.wait_for_everyone()  # all processes have read the files
        if figures:
            logger.warning(
                f"The run in {str(self.folder)!r} is finished: nothing is changed. To train "
                "further, give more epochs or steps."
            )
        return figures

    def train_and_score(self) -> dict[str, float]:
        """Trains, saves and scores the model; writes figures, history and model card."""
        # Files of a former run are deleted only when the first training step begins.
        guard = OverwriteGuard(self.directory, self.is_main)
        self.trainer.accelerator.wait_for_everyone()
        self.trainer.add_callback(guard)
        figures = self._train(guard)
        self._save_figures(figures)
        logger.info(f"Saved in {str(self.folder)!r}: {self._describe_weights()}.")
        try:
            figures = self._score_splits(figures)
        except (KeyboardInterrupt, SystemExit):
            logger.warning(
                f"The scoring ended early; the model in {str(self.folder)!r} is complete. To score "
                f"it, {self._describe_same_command()}."
            )
            raise
        with explained_full_disk(self.folder):
            self.trainer.save_state()
        if self.is_main:
            write_model_card(self.plan, self.trainer, figures, self.signatures, self.quality)
            write_file_sizes(self.folder)
            if self.plan.training.push_to_hub:
                self._push_to_hub()
        return figures

    def _train(self, guard: OverwriteGuard) -> dict[str, float]:
        """Trains the model and saves it; returns the figures of the training."""
        plan, trainer = self.plan, self.trainer
        if plan.checkpoint is not None:
            logger.info(f"The training goes on from {str(plan.checkpoint.path)!r}.")
        try:
            metrics: dict[str, float] = trainer.train(plan.checkpoint).metrics
            if trainer.was_terminated:
                raise SystemExit(STATUS_OF_SIGTERM)
        except (KeyboardInterrupt, SystemExit):
            for callback in trainer.callback_handler.callbacks:
                if isinstance(callback, TrainingLog):
                    callback.close()
            if self.is_main:
                logger.warning(self._describe_early_end())
            raise
        guard.delete()
        if plan.arguments.model.lora_rank is not None:
            merge_adapters(trainer.model)
        if self.is_main:
            (self.folder / FILE_SIZES).unlink(missing_ok=True)
        with explained_full_disk(self.folder):  # the run itself pushes, when all files are there
            trainer.save_model(_internal_call=True)
        return {f"train_{name.removeprefix('train_')}": value for name, value in metrics.items()}

    def _score_splits(self, figures: dict[str, float]) -> dict[str, float]:
        """Returns the figures with the scores of the validation and the test split added."""
        for split, count in self._sizes_of_samples().items():
            prefix, size = PREFIXES[split], len(self.plan.texts.splits[split])
            rows, scored, of_split = self.assembly.score(split, count)
            of_split.pop("epoch", None)
            of_split[f"{prefix}_samples"] = len(rows)
            of_all = ""
            if len(rows) < size:
                of_all = f" (a sample of {len(rows):,} of {size:,} texts, for want of time)"
            in_words = describe_figures(of_split, f"{prefix}_")
            logger.info(f"{split.capitalize()}{of_all}: {in_words}.")
            figures = {**figures, **of_split}
            self._save_figures(figures)  # after each split, so that a kill loses no score
            if scored is not None:
                self._judge_outputs(split, rows, scored)
        return figures

    def _judge_outputs(self, split: str, rows: Dataset, scored: Scored) -> None:
        """Warns of useless outputs, and calibrates the quality by those of the validation."""
        self.signatures[split] = scored.signatures
        if scored.num_cut:
            logger.warning(
                f"{split.capitalize()}: outputs that are cut off at the longest length of "
                f"{self.plan.search.max_new_tokens} tokens (shorter during the training): "
                f"{scored.num_cut:,}. Give a larger `generation_max_length`, or train "
                "longer if they repeat themselves."
            )
        warn_of_copies(rows, scored.predictions, f"{split} ")
        if split == "validation" and self.is_main and scored.outputs:
            self.quality = calibrate(self.folder, scored.outputs, rows)
            logger.info(self.quality)

    def _sizes_of_samples(self) -> dict[str, int]:
        """Returns the number of texts of each split that are scored in the time that is left."""
        splits = self.plan.texts.splits
        sizes = {split: len(splits[split]) for split in PREFIXES if split in splits}
        if self.scores_until is None or not sizes:
            return sizes
        seconds = self.assembly.seconds_per_text(next(iter(sizes)), _TIMED, with_intervals=True)
        possible = (self.scores_until - monotonic()) / seconds
        share = gather_object([possible / sum(sizes.values())])[0]  # that of the main process
        return {split: max(_LEAST_SCORED, int(share * size)) for split, size in sizes.items()}

    def _describe_early_end(self) -> str:
        """Describes the checkpoint that is kept of a training that a signal has ended."""
        left = "no checkpoint was saved, so nothing is kept."
        if saved := checkpoints_with_state(self.folder):
            again = self._describe_same_command()
            left = f"{str(saved[-1].path)!r} is kept. To go on from there, {again}."
        step = self.trainer.state.global_step
        return f"The training ended early, after step {step:,}: {left}"

    def _describe_same_command(self) -> str:
        """Describes the command that resumes the run; some commands always resume."""
        always = self.plan.arguments.given.get("resume_from_checkpoint") is not None
        option = "" if always else " with `--resume-from-checkpoint True`"
        return f"give the same command{option}"

    def _describe_weights(self) -> str:
        """Describes the saved weights by their step."""
        state = self.trainer.state
        if self.plan.training.load_best_model_at_end and state.best_global_step:
            return f"the checkpoint of step {state.best_global_step:,}, which has the best score"
        return f"the weights of step {state.global_step:,}"

    def _save_figures(self, figures: dict[str, float]) -> None:
        if self.is_main:
            text = json.dumps(without_infinities(figures), indent=4, sort_keys=True) + "\n"
            write_atomic(self.folder / RESULTS, text)

    def _push_to_hub(self) -> None:
        """Pushes the directory of a finished run, without pickle files and checkpoints."""
        HfApi().upload_folder(
            repo_id=str(self.trainer.hub_model_id),
            folder_path=self.folder,
            commit_message="End of training",
            token=self.plan.training.hub_token,
            revision=self.plan.training.hub_revision,
            ignore_patterns=[*PICKLES, "_*", "checkpoint-*"],
            delete_patterns=list(PICKLES),
        )
