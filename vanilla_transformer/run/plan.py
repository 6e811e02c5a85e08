"""The plan of a run: everything that is decided before its model is made."""

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
from vanilla_transformer.run.texts import RunTexts, prepare_texts
from vanilla_transformer.search import Search, learned_positions
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

PREFIXES = {"validation": "eval", "test": "test"}
"""The first part of the names of the figures of each split."""


@dataclass(frozen=True)
class RunPlan:
    """The data of a run, and all that it does with them. Made once; nothing changes it."""

    arguments: RunArguments
    loaded: LoadedData
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
        """Describes what the run trains on and scores with, so that a resumed run notices a change.

        It holds a digest of the texts of each split, the length limits, the search and what ends
        the training; and the defaults that the run has chosen, which a resumed run keeps.
        """
        ends = ("max_steps", "num_train_epochs", "early_stopping_patience")
        minutes = self.arguments.model.minutes
        limits = {name: getattr(self, name) for name in ("max_source_length", "max_target_length")}
        digests = {
            f"{split} data": encoded_digest(rows, encoded[split])
            for split, rows in self.texts.splits.items()
        }
        return {
            **digests,
            **limits,
            "shares of the corpora": self.loaded.data.shares,
            "search settings": self.search.to_save().to_json_string(ignore_metadata=True),
            "metrics": self.arguments.model.metrics,
            "ends": [getattr(self.training, name) for name in ends],
            "minutes": minutes,
            # The plan of a given time counts on these epochs: others would have no effect.
            "`num_train_epochs` beside `minutes`": minutes and self.training.num_train_epochs,
            "defaults": self.arguments.defaults,
        }


def make_plan(arguments: RunArguments, loaded: LoadedData) -> RunPlan:
    """Makes the texts of a run as its model reads them, and decides what the run does with them."""
    texts, training = prepare_texts(arguments, loaded), arguments.training
    config = texts.config
    positions = learned_positions(config)
    limits = [
        min((n for n in (limit, positions) if n is not None), default=None)
        for limit in (arguments.data.max_source_length, arguments.data.max_target_length)
    ]
    search = _plan_search(training, config, texts.settings)
    resolved = copy(training)  # `dataclasses.replace` would check and derive all fields again
    resolved.hub_token = training.hub_token  # which a copy lacks
    resolved.predict_with_generate = True
    resolved.generation_config = None  # or Trainer would replace all of the model's settings
    resolved.generation_num_beams = search.num_beams
    resolved.generation_max_length = search.settings.max_length
    if "log_level_replica" not in arguments.given:  # the main process gives the warnings
        resolved.log_level_replica = "error"
    resolved.metric_for_best_model, resolved.greater_is_better = watched_metric(arguments)
    # What no model can be made of fails here, not after the data are encoded for minutes.
    attention = arguments.model.attn_implementation or default_attention(training)
    with torch.device("meta"):  # without memory for weights
        trial = VanillaTransformerForConditionalGeneration(deepcopy(config))
        trial.set_attn_implementation(attention)
    return RunPlan(
        arguments=replace(arguments, training=resolved),
        loaded=loaded,
        texts=texts,
        max_source_length=limits[0],
        max_target_length=limits[1],
        search=search,
        attention=attention,
        score_tokenizers={
            name: choose_score_tokenizers(
                rows, arguments.model.metrics, arguments.model.bleu_tokenize
            )
            for name, rows in texts.splits.items()
            if name != "train"
        },
    )


def _plan_search(
    training: TokenBudgetTrainingArguments,
    config: VanillaTransformerConfig,
    settings: GenerationConfig,
) -> Search:
    """Decides how text is generated, in validation and by a plain `generate()` of the saved model.

    The settings of a saved model, or of the file in `training.generation_config`, are kept unless
    `training` has others.
    """
    settings = deepcopy(settings)
    if training.generation_config is not None:
        loaded = Seq2SeqTrainer.load_generation_config(cast(Any, training.generation_config))
        settings.update(**loaded.to_diff_dict())
    search = Search.of_training(training, settings, config)
    search.to_save()  # or saving would fail after the training
    return search


def watched_metric(arguments: RunArguments) -> tuple[str | None, bool | None]:
    """Chooses the metric that selects the best checkpoint.

    A given metric stays. Otherwise, where a best checkpoint is needed, it is the first of
    `metrics`, or the loss with `prediction_loss_only` and with a schedule that follows the loss.

    Returns:
        The metric, and whether a greater one is better; both None: no checkpoint is the best.
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
    """Returns the fastest kernel for a training: on a CPU, sdpa is slow in half precision."""
    is_slow = training.device.type == "cpu" and (training.bf16 or training.fp16)
    return "eager" if is_slow else "sdpa"
