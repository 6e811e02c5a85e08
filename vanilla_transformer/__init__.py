"""The Transformer of "Attention Is All You Need", from scratch, as a Hugging Face model.

Importing the package registers its classes with transformers' Auto classes, and its pipeline as
the task "seq2seq-generation"; it has no other side effect.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.pipelines import PIPELINE_REGISTRY

from vanilla_transformer.configuration_vanilla_transformer import (
    GENERATION_TASK,
    VanillaTransformerConfig,
)
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)
from vanilla_transformer.pipeline_vanilla_transformer import Seq2SeqGenerationPipeline
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

__version__ = "0.1.0"
__all__ = [
    "Seq2SeqGenerationPipeline",
    "VanillaTransformerConfig",
    "VanillaTransformerForConditionalGeneration",
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
        (AutoModelForSeq2SeqLM, VanillaTransformerForConditionalGeneration),
    ):
        auto_class.register(VanillaTransformerConfig, model_class, exist_ok=True)
        model_class.register_for_auto_class(auto_class.__name__)  # type: ignore[no-untyped-call]  # it has no types
    AutoTokenizer.register(
        VanillaTransformerConfig, fast_tokenizer_class=VanillaTransformerTokenizer, exist_ok=True
    )
    VanillaTransformerTokenizer.register_for_auto_class()  # type: ignore[no-untyped-call]  # it has no types
    PIPELINE_REGISTRY.register_pipeline(
        GENERATION_TASK, Seq2SeqGenerationPipeline, pt_model=AutoModelForSeq2SeqLM
    )


_register()
