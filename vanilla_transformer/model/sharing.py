"""What makes a saved model usable elsewhere: its code and its versions.

The code is saved beside a model. In its config, `auto_map` names the class that each Auto class
loads, and `custom_pipelines` the class of each pipeline task. Both refer to files in the saved
directory, which `trust_remote_code=True` runs. `saved_with` records the versions that a model was
saved with; they are compared with the installed ones when it is built, also as remote code.

transformers keeps one model class for each config class, and one config class for each content of
the config's file and of all files that lines like the next lead to from there. This line leads to
all code of the model: two directories with different code have different classes.

    from .modeling_vanilla_transformer import ...
"""

import copy
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.utils import logging

logger = logging.get_logger(__name__)

CODE_VERSION = "0.1.0"
"""The version of this code: that of the package it comes from."""

TESTED: Mapping[str, tuple[str, str | None]] = {
    "torch": ("2.13", None),
    "transformers": ("5.24", "5.25"),
}
"""The first version that the tests have run with, and the end of those, by library.

Without an end, newer versions give no warning: nothing is known against them.
"""

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
}
BARE_ENCODER = "VanillaTransformerEncoderModel"
ENCODER_ARCHITECTURES = (BARE_ENCODER, "VanillaTransformerForSequenceClassification")
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


# Code and pipelines ------------------------------------------------------------------------------


class CustomPipelines(dict[str, Any]):
    """Maps pipeline tasks to the code in a saved directory that performs them.

    `pipeline` requires `trust_remote_code=True` for every task that is `in` this mapping. A task
    that is registered in the running process needs no remote code, so `in` returns False for it.
    Iteration and item access still show it, because `pipeline` finds a model's task that way.
    """

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) and task not in PIPELINE_REGISTRY.supported_tasks


class SharedConfig:
    """What a config does to make a saved model usable elsewhere."""

    architectures: list[str] | None
    auto_map: dict[str, str]
    is_encoder_decoder: bool
    _auto_class: str | None

    @property
    def custom_pipelines(self) -> CustomPipelines:
        """A copy of the pipelines of the saved architecture and those that the user set.

        It is a deep copy: `pipeline` puts classes into the entries, and no config file can hold
        those.
        """
        pipelines: dict[str, Any] = {}
        for architecture in self.architectures or []:
            pipelines |= PIPELINES.get(architecture, {})
        return CustomPipelines(copy.deepcopy(pipelines | self.__dict__.get("custom_pipelines", {})))

    @custom_pipelines.setter
    def custom_pipelines(self, pipelines: Mapping[str, Any]) -> None:
        own_tasks = {task for tasks in PIPELINES.values() for task in tasks}
        self.__dict__.pop("custom_pipelines", None)
        if theirs := {task: entry for task, entry in pipelines.items() if task not in own_tasks}:
            self.__dict__["custom_pipelines"] = theirs

    def update_bare_model(self) -> None:
        """Makes `AutoModel` load a saved encoder, with or without a classifier, as a bare encoder.

        `AutoModel` takes the first class in `architectures` that it knows. For remote code, it
        takes the class in `auto_map`; one that the user set there is kept.
        """
        names = list(self.architectures or [])
        is_saved_encoder = any(name in ENCODER_ARCHITECTURES for name in names)
        is_encoder = is_saved_encoder and not self.is_encoder_decoder
        if is_encoder and BARE_ENCODER not in names:
            names.append(BARE_ENCODER)
        self.__dict__["architectures"] = names
        if self.auto_map["AutoModel"] in (
            AUTO_MAP["AutoModel"],
            AUTO_MAP["AutoModelForTextEncoding"],
        ):
            bare = AUTO_MAP["AutoModelForTextEncoding" if is_encoder else "AutoModel"]
            self.auto_map = {**self.auto_map, "AutoModel": bare}

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """Writes the config, with the current versions, and the code of all classes it names."""
        self.update_bare_model()
        self.saved_with = current_versions()
        cast(Any, super()).save_pretrained(save_directory, push_to_hub, **kwargs)
        if self._auto_class is not None:
            for file in list_code_files():
                shutil.copyfile(file, Path(save_directory) / file.name)

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as they are written to a file, without empty `custom_pipelines`."""
        fields: dict[str, Any] = cast(Any, super()).to_dict()
        fields.pop("custom_pipelines", None)
        if self.custom_pipelines:
            fields["custom_pipelines"] = dict(self.custom_pipelines)
        return fields


def list_code_files() -> list[Path]:
    """Lists the files of the models' code; the list is empty if only the config was downloaded."""
    modeling = Path(__file__).parent / "modeling_vanilla_transformer.py"
    if not modeling.is_file():
        return []
    return [modeling, *map(Path, get_relative_import_files(modeling))]


# Versions ----------------------------------------------------------------------------------------


def current_versions() -> dict[str, str]:
    """Returns the versions of this code and of the libraries it stands on, by name."""
    return {
        "vanilla_transformer": CODE_VERSION,
        "transformers": transformers.__version__,
        "torch": str(torch.__version__),
    }


def warn_of_untested_versions(saved_with: object) -> None:
    """Warns of installed versions that the tests have not run with; nothing is refused.

    Args:
        saved_with: Versions that the model was saved with, by name. One that is installed again
            gives no warning. Anything but a mapping: they are not known.
    """
    installed = current_versions()
    known_versions = saved_with if isinstance(saved_with, Mapping) else {}
    for library, (first, end) in TESTED.items():
        version, recorded = installed[library], known_versions.get(library)
        is_old = _numbers_of(version) < _numbers_of(first)
        is_new = end is not None and _numbers_of(version) >= _numbers_of(end)
        if version != recorded and (is_old or is_new):
            tested = first if end is None else f"{first} up to, but not including, {end}"
            known = "" if recorded is None else f", and the model was saved with {recorded}"
            logger.warning_once(
                f"{library} {version} is untested: this code was tested with {tested}{known}."
            )


def _numbers_of(version: str) -> list[int]:
    """Returns the three numbers of a version; what follows them, such as `+cpu`, does not count."""
    return [int(number) for number in re.findall(r"\d+", version)[:3]]
