"""The formats that models are read from, each with the function that reads it.

A reader is one function `read_...(source, **options)` that returns an `Imported`. It raises an
OSError if a file does not exist, and a ValueError if a file is broken or holds code, if an option
of the source has no counterpart here, or if the weights do not fit. One error lists all problems of
a kind. `read_state_dict` reads files of weights; `key` names the entry that holds them, and
`changes` are config fields that differ from the fields of the source.

This module imports neither torch nor transformers, so the command line can read it at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from vanilla_transformer.interop.comparison import Comparison, SourceLogits


@dataclass(frozen=True)
class Imported:
    """A model that was read from another system.

    Attributes:
        tokenizer: Its tokenizer. None: the source has none.
        library: Name and version of the library that `source_logits` runs.
        source_logits: Computes the logits of the source. None: its library cannot run.
        source_model: The source, if it is a model of transformers: its greedy output is compared.
        comparison: How far the saved model is from its source. None: not saved, or not compared.
        keeps: An object that must live until `source_logits` has run, such as a temporary folder.
        outcome: A sentence on the comparison, once the model is saved.
    """

    model: Any
    tokenizer: Any = None
    library: str = ""
    source_logits: "SourceLogits | None" = None
    source_model: "PreTrainedModel | None" = None
    notes: tuple[str, ...] = ()
    comparison: "Comparison | None" = None
    outcome: str = ""
    keeps: object = None


@dataclass(frozen=True)
class Source:
    """Describes one format, and how it is read.

    Attributes:
        reader: Module in `vanilla_transformer.interop` and name of its function: "module:name".
            The parameters of the function are the options of the format.
        fixed: Arguments of the function that the format fixes.
        on_hub: Whether the source is a directory, or a name on the Hub.
    """

    reader: str
    fixed: Mapping[str, str] = field(default_factory=dict)
    on_hub: bool = False

    def load(self) -> Callable[..., Imported]:
        """Imports the reader."""
        module, name = self.reader.split(":")
        function = getattr(import_module(f"vanilla_transformer.interop.{module}"), name)
        return partial(function, **self.fixed)


KINDS = {
    **{name: name for name in ("marian", "pegasus", "bart", "mbart", "blenderbot", "fsmt", "t5")},
    "m2m_100": "m2m100",
    "mt5": "t5",
}
"""Kinds by the `model_type` of a config of transformers."""

TUTORIALS = ("system-a", "system-b", "system-c", "system-d", "system-e")
SOURCES: dict[str, Source] = {
    **{
        kind: Source("hf_models:read_hf_model", fixed={"kind": kind}, on_hub=True)
        for kind in (*KINDS.values(), "nllb")
    },
    "torch": Source("torch_transformer:read_torch"),
    "fairseq": Source("fairseq:read_fairseq"),
    "opennmt-py": Source("opennmt:read_opennmt"),
    "eole": Source("opennmt:read_eole"),
    "ctranslate2": Source("ctranslate2_reader:read_ctranslate2"),
    "argos": Source("argos:read_argos"),
    "marian-npz": Source("marian_npz:read_marian"),
    "table": Source("rename_table:read_with_table"),
    "tutorials": Source("tutorials:read_layout"),
    **{system: Source("tutorials:read_tutorial", fixed={"system": system}) for system in TUTORIALS},
}
"""The formats by name, as `vanilla-transformer convert --from` takes them."""
