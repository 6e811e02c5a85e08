"""The formats that models are read from, each with the function that reads it.

A reader is one function `read_...(source, **options)` that returns an `interop.funnel.Imported`. It
raises an OSError if a file does not exist, and a ValueError if a file is broken or holds code, if
an option of the source has no counterpart here, or if the weights do not fit. One error lists all
problems of a kind. A file of weights is what `read_state_dict` takes; `key` names the entry that
holds them, and `changes` are config fields that differ from those of the source.

This module imports neither torch nor transformers, so the command line can read it at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vanilla_transformer.interop.funnel import Imported


@dataclass(frozen=True)
class Source:
    """Describes one format, and how it is read.

    Attributes:
        reader: Module in `vanilla_transformer.interop` and name of its function: "module:name".
        fixed: Options that the format itself fixes.
        on_hub: Whether the source is a directory, or a name on the Hub.
    """

    reader: str
    description: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    on_hub: bool = False

    def load(self) -> "Callable[..., Imported]":
        """Imports the reader."""
        module, name = self.reader.split(":")
        function = getattr(import_module(f"vanilla_transformer.interop.{module}"), name)
        return partial(function, **self.fixed)


_FAMILIES = (*("marian", "pegasus", "bart", "mbart", "blenderbot", "fsmt", "m2m100", "nllb", "t5"),)
_TUTORIALS = ("system-a", "system-b", "system-c", "system-d", "system-e")
SOURCES: dict[str, Source] = {
    **{
        kind: Source(
            "hf_models:read_hf_model",
            "directory of a model of transformers, or its name on the Hub",
            fixed={"kind": kind},
            on_hub=True,
        )
        for kind in _FAMILIES
    },
    "torch": Source(
        "torch_transformer:read_torch",
        "state dict of a model around torch's nn.Transformer",
        (
            "heads",
            "source_embedding",
            "target_embedding",
            "generator",
            "positions",
            "scale_embedding",
        ),
        ("norm_first", "activation", "rename", "key", "changes"),
    ),
    "fairseq": Source(
        "fairseq:read_fairseq",
        "checkpoint of a fairseq `transformer` model",
        optional=("dicts", "changes"),
    ),
    "opennmt-py": Source(
        "opennmt:read_opennmt",
        "checkpoint of an OpenNMT-py transformer",
        optional=("changes",),
    ),
    "eole": Source("eole:read_eole", "directory of an Eole transformer", optional=("changes",)),
    "ctranslate2": Source(
        "ctranslate2_reader:read_ctranslate2",
        "directory of an encoder-decoder that CTranslate2 runs",
        optional=("tokenizer", "source_eos", "changes"),
    ),
    "argos": Source(
        "argos:read_argos", "package of Argos Translate (.argosmodel)", optional=("changes",)
    ),
    "marian-npz": Source(
        "marian_npz:read_marian",
        "model of Marian itself (.npz), or its directory",
        optional=("vocabularies", "changes"),
    ),
    "table": Source(
        "rename_table:read_with_table",
        "state dict of your own model, with a table that renames its weights",
        ("table",),
        ("key", "changes", "run_code"),
    ),
    "tutorials": Source(
        "tutorials:read_layout",
        "state dict of bentrevett's pytorch-seq2seq or of The Annotated Transformer",
        ("heads",),
        ("rename", "key", "changes"),
    ),
    **{
        system: Source(
            "tutorials:read_tutorial",
            "state dict of a tutorial's model",
            ("heads",),
            ("rename", "key", "source_pad", "changes"),
            fixed={"system": system},
        )
        for system in _TUTORIALS
    },
}
"""The formats by name, as `vanilla-transformer convert --from` takes them."""
