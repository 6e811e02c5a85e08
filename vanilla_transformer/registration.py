"""Registration of the package's classes with the Auto classes and pipelines of transformers.

`import vanilla_transformer` registers at once, so that `AutoModel.from_pretrained` works right
after it. The command `vanilla-transformer` registers later, once its options are read, because
registration imports torch and takes seconds.
"""

import sys
from functools import cache
from pathlib import PurePath


def started_as_command() -> bool:
    """Returns whether this process is `vanilla-transformer` or `python -m vanilla_transformer`.

    While Python looks for the module of `-m`, `sys.argv[0]` is "-m". `sys.orig_argv` holds the
    arguments of Python itself, which differ in a process that a program starts for its work.
    """
    program = next(iter(getattr(sys, "argv", ())), "")
    started_with = getattr(sys, "orig_argv", [])
    if program == "-m" and "-m" in started_with:
        position = started_with.index("-m") + 1
        return started_with[position : position + 1] == ["vanilla_transformer"]
    names = ("vanilla-transformer", "vanilla-transformer.exe")
    return program in started_with and PurePath(program).name in names


@cache
def register() -> None:
    """Registers each class for loading, and for being saved together with its code."""
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForSeq2SeqLM,
        AutoModelForSequenceClassification,
        AutoModelForTextEncoding,
        AutoTokenizer,
    )
    from transformers.pipelines import PIPELINE_REGISTRY

    from vanilla_transformer.model import modeling_vanilla_transformer as modeling
    from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
    from vanilla_transformer.model.pipeline_vanilla_transformer import Seq2SeqGenerationPipeline
    from vanilla_transformer.model.sharing import GENERATION_TASK
    from vanilla_transformer.model.tokenization_vanilla_transformer import (
        VanillaTransformerTokenizer,
    )

    config = VanillaTransformerConfig
    AutoConfig.register(config.model_type, config, exist_ok=True)
    config.register_for_auto_class()  # type: ignore[no-untyped-call]  # it has no types
    for auto_class, model_class in (
        (AutoModel, modeling.VanillaTransformerModel),
        (AutoModelForTextEncoding, modeling.VanillaTransformerEncoderModel),
        (AutoModelForSeq2SeqLM, modeling.VanillaTransformerForConditionalGeneration),
        (AutoModelForSequenceClassification, modeling.VanillaTransformerForSequenceClassification),
    ):
        auto_class.register(config, model_class, exist_ok=True)
        model_class.register_for_auto_class(auto_class.__name__)  # type: ignore[no-untyped-call]  # it has no types
    # AutoModel takes the class that the config's `architectures` names, or else the first one.
    bare = (modeling.VanillaTransformerModel, modeling.VanillaTransformerEncoderModel)
    AutoModel.register(config, bare, exist_ok=True)
    AutoTokenizer.register(config, fast_tokenizer_class=VanillaTransformerTokenizer, exist_ok=True)
    VanillaTransformerTokenizer.register_for_auto_class()  # type: ignore[no-untyped-call]  # it has no types
    PIPELINE_REGISTRY.register_pipeline(
        GENERATION_TASK, Seq2SeqGenerationPipeline, pt_model=AutoModelForSeq2SeqLM
    )
