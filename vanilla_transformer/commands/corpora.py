"""`vanilla-transformer corpora`: a report of the filters of a recipe."""

import argparse
from collections.abc import Sequence

from vanilla_transformer.commands.options import CommandParser, UsageError, usage_errors
from vanilla_transformer.data.text_files import short_line

SUMMARY = (
    "A report of the filters: how many pairs of each corpus of a recipe they keep, and what they "
    "drop, with examples. It writes nothing."
)
EXAMPLES = """
vanilla-transformer corpora recipe.yaml
"""
_LONGEST_TEXT = 100


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the options of the subcommand."""
    parser = CommandParser("corpora", SUMMARY, EXAMPLES)
    parser.add_argument("recipe", metavar="RECIPE", help="YAML or JSON file with `corpora`")
    return parser.parse_words(words)


def run(options: argparse.Namespace) -> None:
    """Reads the corpora, and prints counts and examples."""
    from vanilla_transformer.data.corpora import dropped_examples, entries_of, held_out_keys
    from vanilla_transformer.run.parsing import parse_arguments

    with usage_errors():
        data = parse_arguments([options.recipe]).data
    if not (corpora := entries_of(data)):
        raise UsageError(f"{options.recipe} has no `corpora`: give a list of entries")
    held_out = held_out_keys(data)
    for corpus in corpora:
        count, dropped = dropped_examples(corpus, held_out)
        kept = count - sum(number for number, _ in dropped.values())
        print(f"{corpus.name}: {kept:,} of {count:,} pairs are kept", flush=True)
        for name, (number, examples) in dropped.items():
            print(f"  {name} drops {number:,}")
            for row in examples:
                sides = [short_line(text, _LONGEST_TEXT) for text in (row.source, row.target)]
                print(f"    {row.line}: {sides[0]} → {sides[1]}")
