"""The code that is saved beside a model, and the config entries by which transformers finds it.

`auto_map` names the class that each Auto class loads, and `custom_pipelines` names the class of
each pipeline task. Both refer to files in the saved directory, which `trust_remote_code=True` runs.
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers.dynamic_module_utils import get_relative_import_files
from transformers.pipelines import PIPELINE_REGISTRY

AUTO_MAP = {
    "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerConfig",
    "AutoModel": "modeling_vanilla_transformer.VanillaTransformerModel",
    "AutoModelForSeq2SeqLM": (
        "modeling_vanilla_transformer.VanillaTransformerForConditionalGeneration"
    ),
    "AutoModelForTextEncoding": "modeling_vanilla_transformer.VanillaTransformerEncoderModel",
    "AutoModelForSequenceClassification": (
        "modeling_vanilla_transformer.VanillaTransformerForSequenceClassification"
    ),
    "AutoModelForTokenClassification": (
        "modeling_vanilla_transformer.VanillaTransformerForTokenClassification"
    ),
    "AutoModelForCausalLM": "modeling_vanilla_transformer.VanillaTransformerForCausalLM",
}
BARE_ENCODER = "VanillaTransformerEncoderModel"
ENCODER_ARCHITECTURES = (
    BARE_ENCODER,
    "VanillaTransformerForSequenceClassification",
    "VanillaTransformerForTokenClassification",
)
"""The models that have an encoder only."""

GENERATION_TASK = "seq2seq-generation"
"""The pipeline task of models that generate a text from a text."""

PIPELINES = {
    "VanillaTransformerForConditionalGeneration": {
        GENERATION_TASK: {
            "impl": "pipeline_vanilla_transformer.Seq2SeqGenerationPipeline",
            "pt": ["AutoModelForSeq2SeqLM"],
        }
    },
}
"""The pipeline tasks of each architecture that has some."""


class CustomPipelines(dict[str, Any]):
    """Maps pipeline tasks to the code in a saved directory that performs them.

    `pipeline` requires `trust_remote_code=True` for every task that is `in` this mapping. A task
    that is registered in the running process needs no remote code, so `in` returns False for it.
    Iteration and item access still show it, because `pipeline` finds a model's task that way.
    """

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) and task not in PIPELINE_REGISTRY.supported_tasks


def collect_pipelines(
    architectures: Sequence[str] | None, user_pipelines: Mapping[str, Any]
) -> CustomPipelines:
    """Collects the pipelines of the saved architectures and those that the user set.

    Args:
        architectures: Names of model classes.
        user_pipelines: Entries by task; they override those of the architectures.

    Returns:
        A deep copy: `pipeline` puts classes into the entries, and no config file can hold those.
    """
    found: dict[str, Any] = {}
    for architecture in architectures or []:
        found |= PIPELINES.get(architecture, {})
    return CustomPipelines(copy.deepcopy({**found, **user_pipelines}))


def select_user_pipelines(pipelines: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the pipelines without those of this package, which follow from the architecture."""
    own_tasks = {task for tasks in PIPELINES.values() for task in tasks}
    return {task: entry for task, entry in pipelines.items() if task not in own_tasks}


def choose_bare_model(
    architectures: Sequence[str] | None, auto_map: Mapping[str, str], is_encoder_decoder: bool
) -> tuple[list[str], dict[str, str]]:
    """Makes `AutoModel` load a saved encoder, with or without a classifier, as the bare encoder.

    `AutoModel` takes the first class in `architectures` that it knows. For remote code, it takes
    the class in `auto_map`.

    Args:
        architectures: Names of the saved model classes.
        auto_map: Class names by Auto class. An `AutoModel` class that the user set is kept.
        is_encoder_decoder: Whether the model has both stacks.

    Returns:
        The new `architectures` and the new `auto_map`.
    """
    names = list(architectures or [])
    is_encoder = not is_encoder_decoder and any(name in ENCODER_ARCHITECTURES for name in names)
    if is_encoder and BARE_ENCODER not in names:
        names.append(BARE_ENCODER)
    chosen = AUTO_MAP["AutoModelForTextEncoding" if is_encoder else "AutoModel"]
    if auto_map["AutoModel"] in (AUTO_MAP["AutoModel"], AUTO_MAP["AutoModelForTextEncoding"]):
        return names, {**auto_map, "AutoModel": chosen}
    return names, dict(auto_map)


def list_code_files() -> list[Path]:
    """Lists the files of the models' code; the list is empty if only the config was downloaded."""
    modeling = Path(__file__).parent / "modeling_vanilla_transformer.py"
    if not modeling.is_file():
        return []
    return [modeling, *map(Path, get_relative_import_files(modeling))]
