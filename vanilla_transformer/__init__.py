"""The Transformer of "Attention Is All You Need", from scratch, as a Hugging Face model.

Importing the package registers its classes with transformers' Auto classes, and its pipeline as
the task "seq2seq-generation"; it has no other side effect.
"""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    AutoModelForTokenClassification,
    AutoTokenizer,
)
from transformers.pipelines import PIPELINE_REGISTRY

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerEncoderModel,
    VanillaTransformerForCausalLM,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerForTokenClassification,
    VanillaTransformerModel,
)
from vanilla_transformer.model.pipeline_vanilla_transformer import Seq2SeqGenerationPipeline
from vanilla_transformer.model.remote_code import GENERATION_TASK
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

__version__ = "0.1.0"
__all__ = [
    "Seq2SeqGenerationPipeline",
    "VanillaTransformerConfig",
    "VanillaTransformerEncoderModel",
    "VanillaTransformerForCausalLM",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerForSequenceClassification",
    "VanillaTransformerForTokenClassification",
    "VanillaTransformerModel",
    "VanillaTransformerTokenizer",
]


def _register() -> None:
    """Registers each class for loading, and for being saved together with its code."""
    AutoConfig.register(
        VanillaTransformerConfig.model_type, VanillaTransformerConfig, exist_ok=True
    )
    VanillaTransformerConfig.register_for_auto_class()  # type: ignore[no-untyped-call]  # it has no types
    for auto_class, model_class in (
        (AutoModel, VanillaTransformerModel),
        (AutoModelForTextEncoding, VanillaTransformerEncoderModel),
        (AutoModelForSeq2SeqLM, VanillaTransformerForConditionalGeneration),
        (AutoModelForSequenceClassification, VanillaTransformerForSequenceClassification),
        (AutoModelForTokenClassification, VanillaTransformerForTokenClassification),
        (AutoModelForCausalLM, VanillaTransformerForCausalLM),
    ):
        auto_class.register(VanillaTransformerConfig, model_class, exist_ok=True)
        model_class.register_for_auto_class(auto_class.__name__)  # type: ignore[no-untyped-call]  # it has no types
    # Of two classes AutoModel takes the one that the config's `architectures` names, or the first.
    bare = (VanillaTransformerModel, VanillaTransformerEncoderModel)
    AutoModel.register(VanillaTransformerConfig, bare, exist_ok=True)
    AutoTokenizer.register(
        VanillaTransformerConfig, fast_tokenizer_class=VanillaTransformerTokenizer, exist_ok=True
    )
    VanillaTransformerTokenizer.register_for_auto_class()  # type: ignore[no-untyped-call]  # it has no types
    PIPELINE_REGISTRY.register_pipeline(
        GENERATION_TASK, Seq2SeqGenerationPipeline, pt_model=AutoModelForSeq2SeqLM
    )


_register()
