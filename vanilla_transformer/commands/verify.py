"""Checks that a saved model still computes what its probe holds."""

from dataclasses import dataclass

from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.options import argument, option

EXAMPLES = """
vanilla-transformer verify runs/converted
vanilla-transformer verify runs/multi30k --store
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the subcommand."""

    model: str = argument("directory of a saved model", "DIR")
    store: bool = option("replace the probe: take what the model computes now as right", False)


def run(options: Options) -> None:
    """Computes the probe again, or stores a new one."""
    check_model_directory(options.model)
    from vanilla_transformer.interop.probe import store_probe, verify_model

    if options.store:
        print(f"{store_probe(options.model)}: the probe is stored.")
        return
    found = verify_model(options.model)
    if not found.agrees:
        raise ValueError(f"{options.model} computes something else. {found.describe()}")
    print(f"{options.model} computes what it did. {found.describe()}")
