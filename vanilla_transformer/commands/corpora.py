"""Reports how many pairs of each corpus the filters of a recipe keep, with dropped examples."""

from collections.abc import Sequence
from dataclasses import dataclass

from vanilla_transformer.command_line import UsageError, parse_options
from vanilla_transformer.commands import train
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.files.text_files import short_line
from vanilla_transformer.options import argument
from vanilla_transformer.run.recipes import data_of_recipe

EXAMPLES = """
vanilla-transformer corpora recipe.yaml
"""
_LONGEST_TEXT = 100


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the subcommand."""

    recipe: str = argument("YAML or JSON file with `corpora`", "RECIPE")


def parse(words: Sequence[str]) -> DataArguments:
    """Reads the options of the data in the recipe."""
    recipe = parse_options("corpora", __doc__, EXAMPLES, Options, words).recipe
    train.parse([recipe])  # it refuses what is no option
    data, _ = data_of_recipe(recipe)
    if not data.corpora:
        raise UsageError(f"{recipe} has no `corpora`: give a list of entries")
    data.check_files()
    return data


def run(data: DataArguments) -> None:
    """Reads the corpora, and prints counts and examples."""
    from vanilla_transformer.columns import split_tag
    from vanilla_transformer.data.corpus_reports import count_reasons, dropped_examples
    from vanilla_transformer.data.near_twins import is_twin, memory_of_sources
    from vanilla_transformer.data.parallel_data import load_tables

    tables = load_tables(data)
    for corpus, table in tables.get("train", []):
        dropped = count_reasons(table)
        print(f"{corpus.name}: {len(table) - dropped.total():,} of {len(table):,} pairs are kept")
        for reason, number in dropped.most_common():
            print(f"  {reason} drops {number:,}")
            for row in dropped_examples(table, reason):
                sides = [short_line(row[side], _LONGEST_TEXT) for side in ("source", "target")]
                print(f"    {row['line']}: {sides[0]} → {sides[1]}")
    if tables.keys() <= {"train"}:
        return
    training = (row for _, table in tables.get("train", []) for row in table if not row["reason"])
    memory = memory_of_sources((row["source"] for row in training), data.tags)
    for split in (split for split in tables if split != "train"):
        for corpus, table in tables[split]:
            twins = sum(is_twin(memory, split_tag(text, data.tags)[1]) for text in table["source"])
            print(
                f"{corpus.name}, {split}: {twins:,} of {len(table):,} texts are nearly equal to a "
                "training text"
            )
