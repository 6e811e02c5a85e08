"""Aligns the words of source lines and given target lines, in Pharaoh's format."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from vanilla_transformer.commands.files import check_output
from vanilla_transformer.commands.options import (
    LanguageOptions,
    ModelOptions,
    OutputFile,
    PairFiles,
)
from vanilla_transformer.commands.pairs import compute_pairs
from vanilla_transformer.data.text_files import read_lines
from vanilla_transformer.data.word_alignment import (
    Links,
    alignment_error_rate,
    format_links,
    parse_gold_links,
)
from vanilla_transformer.options import BatchOptions, option

if TYPE_CHECKING:
    from vanilla_transformer.inference.results import Alignment

EXAMPLES = """
vanilla-transformer align runs/multi30k --source train.en --target train.de --output train.align
vanilla-transformer align runs/multi30k --source test.en --target test.de --gold test.align
"""


@dataclass(frozen=True, kw_only=True)
class Files(OutputFile, PairFiles):
    """What is read and written."""

    _argument_group_name = "files"

    json: bool = option(
        "write a JSON object per line: links of words and of tokens, and the tokens", False
    )
    gold: str | None = option(
        "links of words made by hand, 0-2 for a sure one and 0p2 for a possible one; prints the "
        "alignment error rate on standard error",
        metavar="FILE",
    )


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """The options of the subcommand."""

    files: Files
    languages: LanguageOptions
    computation: BatchOptions


def run(options: Options) -> None:
    """Aligns the pairs in their order; prints the error rate on standard error."""
    files = options.files
    check_output(files, {"--source": files.source, "--target": files.target, "--gold": files.gold})
    gold = _read_gold_links(files.gold) if files.gold else []
    all_links: list[Links] = []

    def describe(alignment: "Alignment") -> str:
        if files.gold:
            all_links.append(alignment.words)
        if files.json:
            return json.dumps(asdict(alignment), ensure_ascii=False)
        return format_links(alignment.words)

    compute_pairs(options, "transformers", "align", describe)
    if files.gold:
        if len(gold) != len(all_links):
            raise ValueError(
                f"{files.gold!r} has {len(gold)} lines for {len(all_links)} pairs: give one each."
            )
        rate = alignment_error_rate(all_links, *zip(*gold, strict=True))
        print(f"{len(gold):,} pairs, alignment error rate {rate:.4f}", file=sys.stderr)


def _read_gold_links(path: str) -> list[tuple[Links, Links]]:
    """Reads the sure and the possible links of each line."""
    links = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            links.append(parse_gold_links(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return links
