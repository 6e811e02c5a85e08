"""The Transformer of "Attention Is All You Need", from scratch, as a Hugging Face model.

Importing the package registers its classes with transformers' Auto classes, and its pipeline as
the task "seq2seq-generation"; it has no other side effect. `registration` tells when this happens.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vanilla_transformer.registration import register, started_as_command

if TYPE_CHECKING:
    from vanilla_transformer.batches.encoding import encode
    from vanilla_transformer.data.arguments import DataArguments
    from vanilla_transformer.data.parallel_data import load_parallel_data
    from vanilla_transformer.documents.formats import read_document
    from vanilla_transformer.documents.translation import translate_document
    from vanilla_transformer.files.text_files import read_lines
    from vanilla_transformer.inference.translator import Translator
    from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
    from vanilla_transformer.model.modeling_vanilla_transformer import (
        VanillaTransformerEncoderModel,
        VanillaTransformerForConditionalGeneration,
        VanillaTransformerForSequenceClassification,
        VanillaTransformerModel,
    )
    from vanilla_transformer.model.pipeline_vanilla_transformer import Seq2SeqGenerationPipeline
    from vanilla_transformer.model.tokenization_vanilla_transformer import (
        VanillaTransformerTokenizer,
    )
    from vanilla_transformer.text.memory import Memory, Pair

__version__ = "0.1.0"
__all__ = [
    "DataArguments",
    "Memory",
    "Pair",
    "Seq2SeqGenerationPipeline",
    "Translator",
    "VanillaTransformerConfig",
    "VanillaTransformerEncoderModel",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerForSequenceClassification",
    "VanillaTransformerModel",
    "VanillaTransformerTokenizer",
    "encode",
    "load_parallel_data",
    "read_document",
    "read_lines",
    "translate_document",
]
_MODULES_OF_OTHER_NAMES = {
    "DataArguments": "data.arguments",
    "Memory": "text.memory",
    "Pair": "text.memory",
    "Seq2SeqGenerationPipeline": "model.pipeline_vanilla_transformer",
    "Translator": "inference.translator",
    "VanillaTransformerConfig": "model.configuration_vanilla_transformer",
    "VanillaTransformerTokenizer": "model.tokenization_vanilla_transformer",
    "encode": "batches.encoding",
    "load_parallel_data": "data.parallel_data",
    "read_document": "documents.formats",
    "read_lines": "files.text_files",
    "translate_document": "documents.translation",
}

if not TYPE_CHECKING:  # type checkers see the imports above, and report names that do not exist

    def __getattr__(name: str) -> Any:
        """Loads a public name when it is first used, and registers the classes."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        register()
        module = _MODULES_OF_OTHER_NAMES.get(name, "model.modeling_vanilla_transformer")
        globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
        return globals()[name]

    def __dir__() -> list[str]:
        """Returns the public names, whether they are loaded or not."""
        return sorted([*__all__, "__version__"])


if not started_as_command():
    register()
