"""The private names of transformers and datasets that this package uses, each with its reason.

A new version of transformers may drop or rename them without notice. `LOADING` names what a saved
model needs, also as remote code; `TRAINING` what `training` needs on top of it. A test looks every
name up, and finds every private name that the package uses in these tables.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

import transformers


class PrivateNames(NamedTuple):
    """One row: names of one class that are used for one reason.

    Attributes:
        names: The names. One that begins with "self." is set in the code of the class, and exists
            only in its instances.
        instead: The public way that it would take if there were one.
    """

    owner: str
    names: tuple[str, ...]
    reason: str
    instead: str


_MODEL = "transformers.modeling_utils.PreTrainedModel"
_GENERATION = "transformers.generation.utils.GenerationMixin"
_PIPELINE = "transformers.pipelines.base.Pipeline"
_TOKENIZER = "transformers.tokenization_utils_tokenizers.TokenizersBackend"
_TRAINER = "transformers.trainer.Trainer"

LOADING = (
    PrivateNames(
        _MODEL,
        (
            *("_init_weights", "_tied_weights_keys", "_keys_to_ignore_on_load_unexpected"),
            *("_no_split_modules", "_skip_keys_device_placement", "_can_record_outputs"),
            *("_supports_sdpa", "_supports_flex_attn", "_supports_flash_attn"),
            *("_can_compile_fullgraph", "_auto_class"),
        ),
        "what transformers reads of every model class; its own models set the same names",
        "none is needed: transformers documents them for models of one's own",
    ),
    PrivateNames(
        _MODEL,
        ("_tp_plan", "_fsdp_plan"),
        "how tensor parallelism and FSDP divide the weights",
        "none is needed: transformers documents it for models of one's own",
    ),
    PrivateNames(
        "transformers.configuration_utils.PreTrainedConfig",
        ("_auto_class",),
        "a saved config carries the code beside it",
        "`register_for_auto_class`, if it did not also register with the classes in use",
    ),
    PrivateNames(
        _MODEL,
        ("_resize_token_embeddings", "_get_resized_lm_head"),
        "two vocabularies are resized one by one",
        "an argument of `resize_token_embeddings` that names the vocabulary",
    ),
    PrivateNames(
        _MODEL,
        ("_check_and_adjust_attn_implementation",),
        "flash attention would ignore a bias on the scores, and is refused with one",
        "a flag of the model class for kernels that take a bias",
    ),
    PrivateNames(
        _MODEL,
        ("_set_gradient_checkpointing",),
        "re-entrant checkpoints do not work with a trained bias that layers share",
        "a hook of `gradient_checkpointing_enable` that sees its arguments",
    ),
    PrivateNames(
        _GENERATION,
        ("_validate_generation_mode",),
        "`generate()` refuses options that cannot give the right result with two vocabularies",
        "a check of the settings that a model class may extend",
    ),
    PrivateNames(
        _GENERATION,
        ("_expand_inputs_for_generation",),
        "a mask that is too long or too short is refused before a static cache replaces it",
        "a check of the inputs that a model class may extend",
    ),
    PrivateNames(
        _GENERATION,
        ("_prepare_cache_for_generation",),
        "`generate()` takes a cache with room for all tokens, and the ONNX model one of its own",
        "a method of the model class that makes the cache",
    ),
    PrivateNames(
        _GENERATION,
        ("_prepare_generated_length",),
        "`generate(max_new_tokens=...)` does not warn of the longest output that nobody has named",
        "a default length of the model class",
    ),
    PrivateNames(
        _GENERATION,
        ("_get_logits_processor", "_get_candidate_generator", "_get_stopping_criteria"),
        "watermarks, early exit, prompt lookup and stop strings read the target's vocabulary",
        "a vocabulary size of the outputs that `generate()` asks the model for",
    ),
    PrivateNames(
        "transformers.generation.configuration_utils.GenerationConfig",
        ("_get_default_generation_params",),
        "what `generate()` takes for a setting that is None",
        "a public method of the same content",
    ),
    PrivateNames(
        "transformers.generation.stopping_criteria.StopStringCriteria",
        ("_byte_level_decoder", "_token_to_bytes"),
        "the texts of the tokens, by which stop strings are found",
        "`StopStringCriteria` with the target's vocabulary as an argument",
    ),
    PrivateNames(
        _PIPELINE,
        ("_forward", "_sanitize_parameters"),
        "what every pipeline has to define",
        "none is needed: transformers documents them for pipelines of one's own",
    ),
    PrivateNames(
        _PIPELINE,
        (
            *("_pipeline_calls_generate", "_load_tokenizer", "_load_processor"),
            *("_load_feature_extractor", "_load_image_processor", "_load_video_processor"),
        ),
        "which parts `pipeline()` loads for the task, as its own pipelines tell it",
        "none: all pipelines of transformers set them",
    ),
    PrivateNames(
        _PIPELINE,
        ("_prepare_generate_kwargs", "_get_set_generation_params"),
        "the settings with which a pipeline calls `generate()`, for the scores of its outputs",
        "public methods of the same content",
    ),
    PrivateNames(
        _TOKENIZER,
        ("_encode_plus", "_decode"),
        "texts are encoded and decoded with the vocabulary of their side",
        "an argument of `__call__` and `decode` that reaches the backend",
    ),
    PrivateNames(
        _TOKENIZER,
        ("_tokenizer",),
        "the vocabulary in use, which is exchanged for that of the other side",
        "a setter of `backend_tokenizer`",
    ),
    PrivateNames(
        _TOKENIZER,
        ("_save_pretrained",),
        "the vocabulary of the target is saved in a file of its own",
        "a hook of `save_pretrained` that adds files",
    ),
    PrivateNames(
        "transformers.tokenization_utils_base.PreTrainedTokenizerBase",
        ("_from_pretrained", "_auto_class"),
        "the vocabulary of the target is loaded, and the code is saved beside the tokenizer",
        "a hook of `from_pretrained` that reads files",
    ),
)
"""What a saved model needs to be built, loaded and used."""

TRAINING = (
    PrivateNames(
        _TRAINER,
        ("_run_epoch",),
        "a resumed training that is complete trains no further step",
        "a callback that can end the training before its first step",
    ),
    PrivateNames(
        _TRAINER,
        ("_get_grad_norm",),
        "a training whose gradient is not finite stops before its weights are lost",
        "the norm among the arguments of the callback `on_pre_optimizer_step`",
    ),
    PrivateNames(
        _TRAINER,
        ("_save_checkpoint", "_get_output_dir", "self._total_loss_scalar", "self._tr_loss"),
        "no checkpoint has bad weights, and each has a record of the time and the loss before it",
        "a callback before a checkpoint is saved, with its directory and the sum of the losses",
    ),
    PrivateNames(
        _TRAINER,
        ("_maybe_log_save_evaluate",),
        "checksums are written when all callbacks have added their files to a checkpoint",
        "a callback after all other callbacks of a checkpoint",
    ),
    PrivateNames(
        _TRAINER,
        ("_issue_warnings_after_load",),
        "a checkpoint does not hold weights that are tied to others, which is no reason to warn",
        "a message that leaves out tied weights",
    ),
    PrivateNames(
        _TRAINER,
        ("_load_optimizer_and_scheduler", "_load_rng_state", "_load_callback_state"),
        "a damaged state is named, other settings are refused, and the record restores itself",
        "a callback before and after the states of a checkpoint are loaded",
    ),
    PrivateNames(
        _TRAINER,
        ("_finalize_training", "self._initial_global_step"),
        "the figures of a resumed training are those of all of its steps",
        "a hook that computes the figures of a training",
    ),
    PrivateNames(
        _TRAINER,
        ("_set_signature_columns_if_needed", "self._signature_columns"),
        "batches keep the column of links that guided alignment needs",
        "an option that names further columns to keep",
    ),
    PrivateNames(
        _TRAINER,
        ("_get_dataloader",),
        "an evaluation scores all examples where a training drops those of its last batch",
        "an option that drops the last batch of a training alone",
    ),
    PrivateNames(
        _TRAINER,
        ("self._created_lr_scheduler",),
        "a second call of `train` makes the schedule anew",
        "an option that takes a function for the schedule",
    ),
    PrivateNames(
        "datasets.arrow_dataset.Dataset",
        ("self._fingerprint",),
        "a resumed run finds its encoded data, whatever directory its tokenizer was loaded from",
        "an argument of `map` for what its result depends on",
    ),
    PrivateNames(
        "datasets.arrow_dataset.Dataset",
        ("self._indices",),
        "an error names the line of a pair, also where pairs before it were skipped",
        "a method that returns the number that a selected row had",
    ),
    PrivateNames(
        "transformers.trainer_jit_checkpoint.CheckpointManager",
        ("self._original_sigterm_handler",),
        "the handler of the signal is restored at the end of a training",
        "a method that restores it",
    ),
)
"""What `training` needs besides."""


def missing_names(rows: Iterable[PrivateNames]) -> list[str]:
    """Returns a sentence on each name that is gone; names that only instances have are passed."""
    return [
        f"transformers {transformers.__version__} has no {row.owner}.{name}, with which "
        f"{row.reason}; the public way would be: {row.instead}."
        for row in rows
        for name in row.names
        if not name.startswith("self.") and not hasattr(_find_owner(row.owner), name)
    ]


def _find_owner(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name, None)
    except ModuleNotFoundError:
        return None
