"""Applies the common test classes of transformers' source distribution to our classes.

test_transformers_suite.py runs this file in a new process. The environment variable
`TRANSFORMERS_SUITE` names the folder of the distribution's tests. They import modules that the
distribution does not contain (tests of generation and export, starters of processes). Empty classes
and functions replace these.
"""

import importlib
import os
import sys
import tempfile
import types
import unittest

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartModel,
    MarianConfig,
    MarianModel,
    MarianMTModel,
    PreTrainedConfig,
    T5Config,
    T5EncoderModel,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerEncoderModel,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerModel,
)

SUITE = "transformers_suite_tests"
CONFIG_ARGUMENTS = {
    "return_dict": False,
    "output_hidden_states": True,
    "output_attentions": True,
    "dtype": "float16",
    "chunk_size_feed_forward": 5,
    "architectures": ["SomeModel"],
    "id2label": {0: "no", 1: "yes"},
    "label2id": {"no": 0, "yes": 1},
    "problem_type": "regression",
}
CONFIGURATIONS = {
    "Vanilla": {},
    "PreNorm": {"norm_placement": "pre", "activation_function": "gelu"},
    "Separate": {"decoder_vocab_size": 87, "share_encoder_decoder_embeddings": False},
    "Untied": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "SharedUntied": {"tie_word_embeddings": False, "lm_head_bias": True},
    "Learned": {"position_embedding_type": "learned", "scale_embedding": False},
    "Rotary": {"position_embedding_type": "rope", "norm_type": "rms_norm", "gated_ffn": True},
    "Grouped": {"encoder_num_key_value_heads": 2, "decoder_num_key_value_heads": 1},
    "Fused": {"fused_qkv": True, "norm_type": "unbiased_std", "normalize_embedding": True},
    "Alibi": {"position_embedding_type": "alibi", "norm_placement": "pre"},
}


def _add_package(name, path=()):
    module = types.ModuleType(name)
    module.__path__ = list(path)
    sys.modules[name] = module
    return module


def _stand_in(name, **attributes):
    _add_package(f"{SUITE}.{name.split('.')[0]}")
    module = types.ModuleType(f"{SUITE}.{name}")
    module.__dict__.update(attributes)
    sys.modules[module.__name__] = module


_add_package(SUITE, [os.environ["TRANSFORMERS_SUITE"]])
_stand_in("exporters.test_export", ExportTesterMixin=type("ExportTesterMixin", (), {}))
_stand_in("generation.test_utils", GenerationTesterMixin=type("GenerationTesterMixin", (), {}))
_stand_in("utils.test_configuration_utils", config_common_kwargs=CONFIG_ARGUMENTS)
_stand_in(
    "distributed_testing_utils",
    run_distributed=None,
    _get_distributed_backend=None,
    _get_distributed_device_type=lambda: "cpu",
    _get_rank_device=None,
    _set_rank_device=None,
    _start_rank_processes=None,
)
common = importlib.import_module(f"{SUITE}.test_modeling_common")
configuration = importlib.import_module(f"{SUITE}.test_configuration_common")
# Their tests with several processes only run for a fixed list of models; see test_parallel.py.
PARALLEL = [
    importlib.import_module(f"{SUITE}.test_tensor_parallel_mixin").TensorParallelTesterMixin,
    importlib.import_module(f"{SUITE}.test_fsdp_mixin").FSDPTesterMixin,
]
GenerationTesterMixin = sys.modules[f"{SUITE}.generation.test_utils"].GenerationTesterMixin


class ModelTester:
    """Makes the small configs and batches of the common tests."""

    batch_size, seq_length, hidden_size, num_hidden_layers, num_attention_heads = 13, 7, 16, 2, 4
    is_training = True

    def __init__(self, parent, config_class, **changes):
        self.parent = parent
        self.config_class = config_class
        self.changes = changes

    def get_config(self):
        sizes = {
            "vocab_size": 99,
            "d_model": self.hidden_size,
            "encoder_layers": self.num_hidden_layers,
            "decoder_layers": self.num_hidden_layers,
            "encoder_attention_heads": self.num_attention_heads,
            "decoder_attention_heads": self.num_attention_heads,
            "encoder_ffn_dim": 4,
            "decoder_ffn_dim": 4,
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "max_position_embeddings": 100,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "decoder_start_token_id": 3,
        }
        return self.config_class(**{**sizes, **self.changes})

    def prepare_config_and_inputs(self):
        config = self.get_config()
        shape = [self.batch_size, self.seq_length]
        input_ids = common.ids_tensor(shape, config.vocab_size).clamp(3)
        input_ids[:, -1] = config.eos_token_id
        size = getattr(config, "decoder_vocab_size", None) or config.vocab_size
        decoder_input_ids = common.ids_tensor(shape, size)
        mask = input_ids.ne(config.pad_token_id)
        return config, {
            "input_ids": input_ids,
            "decoder_input_ids": decoder_input_ids,
            "attention_mask": mask,
            "decoder_attention_mask": mask,
        }

    def prepare_config_and_inputs_for_common(self):
        return self.prepare_config_and_inputs()


class OneStackTester(ModelTester):
    """The same for models with one stack."""

    def get_config(self):
        config = super().get_config()
        config.is_encoder_decoder = False
        return config

    def prepare_config_and_inputs(self):
        config, inputs = super().prepare_config_and_inputs()
        size = getattr(config, "decoder_vocab_size", None) or config.vocab_size
        ids = inputs["input_ids"].clamp(max=size - 1)
        return config, {"input_ids": ids, "attention_mask": inputs["attention_mask"]}


class _OneStackTestCase:
    """Setup, and the tests of the config, for models with one stack."""

    inputs_from = OneStackTester
    test_can_init_all_missing_weights_before_2023 = True
    config_class: type[PreTrainedConfig]
    changes: dict

    def setUp(self):
        self.model_tester = self.inputs_from(self, self.config_class, **self.changes)
        self.config_tester = configuration.ConfigTester(self, config_class=self.config_class)

    def test_config(self):
        self.config_tester.run_common_tests()


class _TwoStackTestCase(_OneStackTestCase):
    """The same for models with two stacks, and a test that both stacks work on their own."""

    inputs_from = ModelTester
    is_encoder_decoder = True

    def test_stacks_standalone(self):
        config, inputs = self.model_tester.prepare_config_and_inputs()
        model = self.all_model_classes[0](config).eval()
        outputs = model(**inputs)
        stacks = []
        for stack in (model.get_encoder(), model.get_decoder()):
            with tempfile.TemporaryDirectory() as folder:
                stack.save_pretrained(folder)
                stacks.append(type(stack).from_pretrained(folder))
        encoded = stacks[0](inputs["input_ids"], attention_mask=inputs["attention_mask"])[0]
        decoded = stacks[1](
            input_ids=inputs["decoder_input_ids"],
            attention_mask=inputs["decoder_attention_mask"],
            encoder_hidden_states=encoded,
            encoder_attention_mask=inputs["attention_mask"],
        )[0]
        torch.testing.assert_close(encoded, outputs.encoder_last_hidden_state)
        torch.testing.assert_close(decoded, outputs.last_hidden_state)


def _wrong_for_separate_vocabularies(_):
    """These tests take the source embedding for the target's; Marian fails them, too."""
    raise unittest.SkipTest("source and target have separate embeddings")


def _make_test_case(name, model_classes, config_class, changes, kind=_TwoStackTestCase):
    bases = [kind, common.ModelTesterMixin, *PARALLEL, unittest.TestCase]
    if any(model_class.can_generate() for model_class in model_classes):
        bases.insert(2, GenerationTesterMixin)
    attributes = {
        "__module__": __name__,
        "all_model_classes": model_classes,
        "config_class": config_class,
        "changes": changes,
        "model_tester": None,
    }
    if kind is _TwoStackTestCase and not changes.get("share_encoder_decoder_embeddings", True):
        for test in ("test_inputs_embeds_matches_input_ids", "test_resize_embeddings_untied"):
            attributes[test] = _wrong_for_separate_vocabularies
    return type(f"{name}Test", tuple(bases), attributes)


# The common tests distinguish bare models from heads by these tables.
MODEL_MAPPING_NAMES["vanilla_transformer"] = (
    "VanillaTransformerModel",
    "VanillaTransformerEncoderModel",
)
MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES["vanilla_transformer"] = (
    "VanillaTransformerForConditionalGeneration"
)
MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES["vanilla_transformer"] = (
    "VanillaTransformerForSequenceClassification"
)
KINDS = {
    "": ((VanillaTransformerModel, VanillaTransformerForConditionalGeneration), _TwoStackTestCase),
    "Encoder": (
        (VanillaTransformerEncoderModel, VanillaTransformerForSequenceClassification),
        _OneStackTestCase,
    ),
}
for _name, _changes in CONFIGURATIONS.items():
    for _suffix, (_classes, _kind) in KINDS.items():
        globals()[f"{_name}{_suffix}Test"] = _make_test_case(
            f"{_name}{_suffix}", _classes, VanillaTransformerConfig, _changes, _kind
        )


# The library's own models, for comparison.
T5_SIZES = {"num_layers": 2, "num_heads": 4, "d_kv": 4, "d_ff": 4}
T5EncoderTest = _make_test_case(
    "T5Encoder", (T5EncoderModel,), T5Config, T5_SIZES, _OneStackTestCase
)
MarianTest = _make_test_case("Marian", (MarianModel, MarianMTModel), MarianConfig, {})
BartTest = _make_test_case("Bart", (BartModel, BartForConditionalGeneration), BartConfig, {})
