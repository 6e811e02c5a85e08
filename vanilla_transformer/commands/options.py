"""The groups of options that subcommands share."""

from dataclasses import dataclass

from vanilla_transformer.options import REQUIRED, argument, option


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The saved model that is read."""

    model: str = argument("directory of a saved model, or its name on the Hub", "MODEL")


@dataclass(frozen=True, kw_only=True)
class PairFiles:
    """Two files of parallel lines."""

    source: str = option("source texts, one per line", REQUIRED, metavar="FILE")
    target: str = option("target texts, one per line", REQUIRED, metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class OutputFile:
    """A file that is written, and whether it may replace one."""

    output: str | None = option("file to write (default: print)", metavar="FILE")
    overwrite: bool = option("replace an existing --output", False)
