"""The plan of a run: all decisions that come before its model is made."""

from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from datasets import DatasetDict
from transformers import GenerationConfig, Seq2SeqTrainer
from transformers.trainer_utils import SaveStrategy

from vanilla_transformer.batches.encoding import encoded_digest
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.names import ERROR_RATES, SCHEDULES_OF_A_SCORE
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.loaded_data import LoadedData
from vanilla_transformer.run.score_tokenizers import choose_score_tokenizers
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.run.texts import RunTexts, prepare_texts
from vanilla_transformer.search import Search, learned_positions
from vanilla_transformer.training.store import Checkpoint
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

PREFIXES = {"validation": "eval", "test": "test"}
"""The prefix of each split in the names of its figures."""


@dataclass(frozen=True)
class RunPlan:
    """The data of a run, and all decisions on it; frozen, but for objects of other libraries."""

    arguments: RunArguments
    loaded: LoadedData
    checkpoint: Checkpoint | None  # from which the run resumes
    metrics: list[str]
    texts: RunTexts
    max_source_length: int | None  # in tokens; None: no limit
    max_target_length: int | None
    search: Search
    attention: str
    score_tokenizers: dict[str, list[str]]  # sacrebleu's, for each text of a split that is scored

    @property
    def training(self) -> TokenBudgetTrainingArguments:
        """The arguments of the Trainer, with the decisions of the plan."""
        return self.arguments.training

    def fingerprint(self, encoded: DatasetDict) -> dict[str, Any]:
        """Returns the inputs that decide the training; a resumed run notices a change of them.

        They are a digest of the texts of each split, the length limits, the search, the end of the
        training, and the defaults that the run has chosen, which a resumed run keeps.
        """
        ends = ("max_steps", "num_train_epochs", "early_stopping_patience")
        minutes, epochs = self.arguments.model.minutes, self.training.num_train_epochs
        limits = {name: getattr(self, name) for name in ("max_source_length", "max_target_length")}
        splits = self.texts.splits.items()
        digests = {f"{split} data": encoded_digest(rows, encoded[split]) for split, rows in splits}
        return {
            **digests,
            **limits,
            "shares of the corpora": self.loaded.shares,
            "search settings": self.search.to_save().to_json_string(ignore_metadata=True),
            "metrics": self.metrics,
            "ends": [getattr(self.training, name) for name in ends],
            "minutes": minutes,
            # The steps of given minutes are planned with these epochs: others have no effect.
            "`num_train_epochs` beside `minutes`": None if minutes is None else epochs,
            "defaults": self.arguments.defaults,
        }


def make_plan(arguments: RunArguments, loaded: LoadedData) -> RunPlan:
    """Makes the texts of a run as its model reads them, and decides how the run treats them."""
    training, options = arguments.training, arguments.model
    texts = compute_on_main_process(training, prepare_texts, arguments, loaded)
    positions = learned_positions(texts.config)

    def capped(limit: int | None) -> int | None:
        return min((n for n in (limit, positions) if n is not None), default=None)

    search = _plan_search(training, texts.config, texts.settings)
    attention = options.attn_implementation or default_attention(training)
    with torch.device("meta"):  # an impossible model fails now, not after minutes of encoding
        trial = VanillaTransformerForConditionalGeneration(deepcopy(texts.config))
        trial.set_attn_implementation(attention)
    return RunPlan(
        arguments=replace(arguments, training=_resolved_training(arguments, search)),
        loaded=loaded,
        checkpoint=loaded.directory.checkpoint,
        metrics=options.metrics,
        texts=texts,
        max_source_length=capped(arguments.data.max_source_length),
        max_target_length=capped(arguments.data.max_target_length),
        search=search,
        attention=attention,
        score_tokenizers={
            name: choose_score_tokenizers(rows, options.metrics, options.bleu_tokenize)
            for name, rows in texts.splits.items()
            if name != "train"
        },
    )


def _resolved_training(arguments: RunArguments, search: Search) -> TokenBudgetTrainingArguments:
    """Returns the arguments of the Trainer with the search, the metric and the messages."""
    resolved = copy(arguments.training)  # `replace` would check and derive all fields again
    resolved.hub_token = arguments.training.hub_token  # which a copy lacks
    resolved.predict_with_generate = True
    resolved.generation_config = None  # or Trainer would replace all of the model's settings
    resolved.generation_num_beams = search.num_beams
    resolved.generation_max_length = search.settings.max_length
    if "log_level_replica" not in arguments.given:  # the main process gives the warnings
        resolved.log_level_replica = "error"
    resolved.metric_for_best_model, resolved.greater_is_better = watched_metric(arguments)
    return resolved


def _plan_search(
    training: TokenBudgetTrainingArguments,
    config: VanillaTransformerConfig,
    settings: GenerationConfig,
) -> Search:
    """Decides the search of validation, which is also that of `generate()` of the saved model.

    The settings of a saved model, or of the file in `training.generation_config`, are kept unless
    `training` has others.
    """
    settings = deepcopy(settings)
    if training.generation_config is not None:
        loaded = Seq2SeqTrainer.load_generation_config(cast(Any, training.generation_config))
        settings.update(**loaded.to_diff_dict())
    search = Search.of_training(training, settings, config)
    search.to_save()  # fails now, not after the training
    return search


def watched_metric(arguments: RunArguments) -> tuple[str | None, bool | None]:
    """Returns the metric that selects the best checkpoint, and whether a greater one is better.

    A given metric stays. Otherwise, where a best checkpoint is needed, it is the first of
    `metrics`, or the loss with `prediction_loss_only` and with a schedule that follows the loss.
    Both are None where no checkpoint is the best.
    """
    training, first = arguments.training, arguments.model.metrics[0]
    selects = (
        training.load_best_model_at_end
        or training.save_strategy == SaveStrategy.BEST
        or training.early_stopping_patience is not None
    )
    if training.metric_is_chosen or not selects:
        return training.metric_for_best_model, training.greater_is_better
    if training.prediction_loss_only or training.lr_scheduler_type in SCHEDULES_OF_A_SCORE:
        return "loss", False
    return first, first not in ERROR_RATES


def default_attention(training: TokenBudgetTrainingArguments) -> str:
    """Returns the fastest attention for a training: eager in half precision on a CPU, or sdpa."""
    is_slow = training.device.type == "cpu" and (training.bf16 or training.fp16)
    return "eager" if is_slow else "sdpa"
