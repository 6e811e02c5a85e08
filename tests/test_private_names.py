"""The private names of libraries that the package uses: a new version of them may drop any."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import vanilla_transformer

PACKAGE = Path(vanilla_transformer.__file__).parent
LIBRARIES = ("transformers.", "accelerate.", "datasets.")
# Names after "self." are set in the code of the class, and exist only in its instances.
PRIVATE_NAMES = {
    "transformers.modeling_utils.PreTrainedModel": (
        "_from_config _init_weights _tied_weights_keys _keys_to_ignore_on_load_unexpected "
        "_no_split_modules _skip_keys_device_placement _can_record_outputs _supports_sdpa "
        "_supports_flex_attn _supports_flash_attn _can_compile_fullgraph _auto_class "
        "_tp_plan _fsdp_plan _resize_token_embeddings _get_resized_lm_head "
        "_check_and_adjust_attn_implementation _set_gradient_checkpointing"
    ),
    "transformers.configuration_utils.PreTrainedConfig": "_auto_class",
    "transformers.generation.utils.GenerationMixin": (
        "_validate_generation_mode _expand_inputs_for_generation "
        "_prepare_cache_for_generation _prepare_generated_length _get_logits_processor "
        "_beam_search _sample _prefill _get_top_k_continuations "
        "_get_running_beams_for_next_iteration"
    ),
    "transformers.generation.configuration_utils.GenerationConfig": (
        "_get_default_generation_params"
    ),
    "transformers.pipelines.base.Pipeline": (
        "_forward _sanitize_parameters _pipeline_calls_generate _load_tokenizer "
        "_load_processor _load_feature_extractor _load_image_processor "
        "_load_video_processor _prepare_generate_kwargs _get_set_generation_params"
    ),
    "transformers.tokenization_utils_tokenizers.TokenizersBackend": (
        "_encode_plus _decode _tokenizer _save_pretrained"
    ),
    "transformers.tokenization_utils_base.PreTrainedTokenizerBase": "_from_pretrained _auto_class",
    "transformers.trainer.Trainer": (
        "_run_epoch _get_grad_norm _save_checkpoint _get_output_dir self._total_loss_scalar "
        "self._tr_loss _issue_warnings_after_load _load_callback_state _finalize_training "
        "self._initial_global_step _set_signature_columns_if_needed self._signature_columns "
        "_determine_best_metric self._created_lr_scheduler _prepare_inputs"
    ),
    "datasets.arrow_dataset.Dataset": "self._fingerprint self._indices",
    "transformers.trainer_jit_checkpoint.CheckpointManager": "self._original_sigterm_handler",
}
# Of torch, sacrebleu and the standard library, and of the package itself.
OWN_OR_OTHERS = {
    *["_efficient_attention_forward", "_efficient_attention_backward"],
    *["_foreach_add_", "_foreach_copy_", "_foreach_lerp", "_foreach_lerp_", "_foreach_mul_"],
    *["_ArgumentGroup", "_C", "_actions", "_asdict", "_compiled_call_impl", "_exit"],
    *[
        "_extract_corpus_statistics",
        "_functorch",
        "_get_tracing_state",
        "_is_avx512_bf16_supported",
    ],
    *["_linear_pointwise", "_option_string_actions", "_replace", "_version"],
}
KNOWN = {name.removeprefix("self.") for names in PRIVATE_NAMES.values() for name in names.split()}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("path", PRIVATE_NAMES)
def test_the_names_exist(path):
    module, _, name = path.rpartition(".")
    owner = getattr(importlib.import_module(module), name)
    source = inspect.getsource(owner)
    for private in PRIVATE_NAMES[path].split():
        assert hasattr(owner, private) or (private.startswith("self.") and private in source)


def overridden_names(module):
    """Private names of a library's classes that the classes of a module define anew."""
    for own in vars(module).values():
        if inspect.isclass(own) and own.__module__ == module.__name__:
            for base in own.__mro__[1:]:
                if base.__module__.startswith(LIBRARIES):
                    yield from (name for name in vars(own) if name in vars(base))


def test_every_private_name_that_a_class_overrides_is_in_the_table():
    overridden = set()
    for module in pkgutil.walk_packages(vanilla_transformer.__path__, "vanilla_transformer."):
        if not module.name.endswith("__main__"):
            overridden |= set(overridden_names(importlib.import_module(module.name)))
    assert {name for name in overridden if is_private(name)} - {"_abc_impl"} <= KNOWN


def test_every_private_attribute_of_something_else_is_in_the_table():
    used, defined = set(), set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                defined.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            elif isinstance(node, ast.Attribute) and is_private(node.attr):
                used.add(node.attr)
    hooks = {name for name in used if name.endswith("_hooks")}  # of torch's modules
    assert used - defined - KNOWN - OWN_OR_OTHERS - hooks == set()
