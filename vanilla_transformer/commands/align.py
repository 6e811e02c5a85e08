"""Aligns the words of source lines and given target lines, in Pharaoh's format."""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from vanilla_transformer.commands.options import ModelOptions, OutputFile, PairFiles
from vanilla_transformer.commands.pairs import check as check
from vanilla_transformer.commands.pairs import compute_pairs
from vanilla_transformer.options import BatchOptions, LanguageOptions, option
from vanilla_transformer.text.word_alignment import format_links

if TYPE_CHECKING:
    from vanilla_transformer.inference.results import Alignment

EXAMPLES = """
vanilla-transformer align runs/multi30k --source train.en --target train.de --output train.align
vanilla-transformer align runs/multi30k --source test.en --target test.de --json
"""


@dataclass(frozen=True, kw_only=True)
class Files(OutputFile, PairFiles):
    """What is read and written."""

    _argument_group_name = "files"

    json: bool = option(
        "write a JSON object per line: links of words and of tokens, and the tokens", False
    )


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """The options of the subcommand."""

    files: Files
    languages: LanguageOptions
    computation: BatchOptions


def run(options: Options) -> None:
    """Aligns the pairs in their order."""
    files = options.files

    def describe(alignment: "Alignment") -> str:
        if files.json:
            return json.dumps(asdict(alignment), ensure_ascii=False)
        return format_links(alignment.words)

    compute_pairs(options, "transformers", "align", describe)
