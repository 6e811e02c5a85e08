"""The kinds of checkpoints that can be converted, and where the code for each stands.

A kind is one function `import_...(source, **options)` that returns an `interop.imported.Imported`.
This module imports neither torch nor transformers, so the command line can read it at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vanilla_transformer.interop.imported import Imported


@dataclass(frozen=True)
class Kind:
    """Describes how one kind of checkpoint is converted.

    Attributes:
        function: Module in `vanilla_transformer.interop` and name of its function: "module:name".
        source: What the source is.
        required: Names of the options that must be given, beside the source.
        optional: Names of the options that may be given.
    """

    function: str
    source: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def load(self) -> "Callable[..., Imported]":
        """Imports the function."""
        module, name = self.function.split(":")
        loaded: Callable[..., Imported] = getattr(
            import_module(f"vanilla_transformer.interop.{module}"), name
        )
        return loaded


_FILE = ("key", "changes")
IMPORTERS: dict[str, Kind] = {
    "torch": Kind(
        "torch_transformer:import_torch",
        "state dict of a model around torch's nn.Transformer",
        (
            "heads",
            "source_embedding",
            "target_embedding",
            "generator",
            "positions",
            "scale_embedding",
        ),
        ("norm_first", "activation", "rename", *_FILE),
    ),
    "fairseq": Kind(
        "fairseq:import_fairseq",
        "checkpoint of a fairseq `transformer` model",
        (),
        ("dicts", "changes"),
    ),
    "opennmt-py": Kind(
        "opennmt:import_opennmt",
        "checkpoint of an OpenNMT-py transformer",
        (),
        ("changes",),
    ),
    "eole": Kind("eole:import_eole", "directory of an Eole transformer", (), ("changes",)),
    "table": Kind(
        "rename_table:import_table",
        "state dict of your own model, with a table that renames its weights",
        ("table",),
        _FILE,
    ),
}
"""The kinds by name, as `vanilla-transformer convert --from` takes them."""
