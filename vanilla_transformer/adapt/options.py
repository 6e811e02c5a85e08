"""The options of an adaptation, and the checks that need no model; imports nothing heavy."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.corpus_entries import is_table
from vanilla_transformer.files.atomic_files import LOCK, check_lies_elsewhere
from vanilla_transformer.files.model_directory import check_on_hub
from vanilla_transformer.files.text_files import check_files
from vanilla_transformer.names import ADAMW, METRIC_NAMES, MUON
from vanilla_transformer.options import REQUIRED, argument, option, same_option
from vanilla_transformer.rules import Rule, check_rules
from vanilla_transformer.run.options import ModelArguments
from vanilla_transformer.run.recipes import data_of_recipe

GENERAL = "general"
"""The corpus that keeps the model from forgetting; a recipe may have an entry of this name."""
OWN_OUTPUTS = "own-outputs"
"""The folder, in the output directory, of a model's outputs for general texts: they take hours."""
RECORD = "adapt.json"
"""The file, in the output directory, that tells what an adaptation is made from."""
_OF_DATA = ("case_augment", "terms", "memory", "source_language", "target_language")
RULES = (
    Rule(
        ("validation", "test", "general", "columns", *_OF_DATA),
        lambda value, options: bool(value) and options.recipe is not None,
        "`{name}` {value} belongs in the recipe {options.recipe!r}: give it there.",
    ),
    Rule(
        ("general_texts",),
        lambda _, options: bool(options.general),
        "`{name}` {value!r} and `general` exclude each other: give one of them.",
    ),
    Rule(
        ("lora",),
        lambda value, options: bool(value) and options.optim == MUON,
        "`{name}` {value} does not work with `optim` 'muon', which trains whole matrices: give one "
        "of them.",
    ),
)


@dataclass(frozen=True)
class AdaptArguments:
    """What an adaptation does; `files` are one file of pairs, two text files, or a recipe."""

    model: str = argument("directory of a saved model, or its name on the Hub", "MODEL")
    files: list[str] = argument(
        "a .tsv or .tmx of pairs, two text files, or a recipe (.yaml) that names the data", "FILE"
    )
    output_dir: str = option("directory of all that is made", REQUIRED, metavar="DIR")
    validation: list[str] = option(
        "validation pairs; by default, some pairs are split off", [], metavar="FILE"
    )
    test: list[str] = option("test pairs; by default, some pairs are split off", [], metavar="FILE")
    general: list[str] = option(
        "general pairs, so that the model does not forget them", [], metavar="FILE"
    )
    general_texts: str | None = option(
        "general source texts: the model learns its own outputs for them, so that it does not "
        "change on them",
        metavar="FILE",
    )
    general_share: float = option(
        "share of general pairs in the training, if there are any without a weight", 0.5, gt=0, lt=1
    )
    columns: list[str] = option(
        "source and target of a .tsv (1 2), also with the document (1 2 3), which is then held out "
        "whole; or names of columns; a recipe names its own",
        [],
        metavar="COLUMN",
    )
    case_augment: float | None = same_option(DataArguments, "case_augment")
    terms: str | None = same_option(DataArguments, "terms")
    memory: str | None = same_option(DataArguments, "memory")
    source_language: str | None = same_option(DataArguments, "source_language")
    target_language: str | None = same_option(DataArguments, "target_language")
    held_out: int = option(
        "pairs that are split off for validation, and as many for a test", 500, ge=1
    )
    metrics: list[str] = option(
        "scores; the first decides", ["bleu", "chrf"], metavar="METRIC", choices=METRIC_NAMES
    )
    bleu_tokenize: str | None = same_option(ModelArguments, "bleu_tokenize")
    optim: str | None = option(
        "optimizer: muon or adamw (default: muon, but adamw for adapters, for weights that are "
        "divided among processes, and with a learning rate)",
        choices=(MUON, ADAMW),
    )
    learning_rate: float | None = option(
        "peak learning rate, with muon that of the layers' matrices (default: 0.01 with muon, 0.1 "
        "divided by the width with adamw, and ten times that for adapters)",
        gt=0,
    )
    lora: int | None = option(
        "train adapters of this rank (LoRA) and merge them at the end; 0 trains all weights "
        "(default: 16 for models of more than 200 million parameters, otherwise 0)",
        ge=0,
    )
    epochs: int = option("most passes over the training data", 5, ge=1)
    patience: int = option("stop after this many epochs without a better validation score", 2, ge=1)
    max_tokens: int = option("largest batch, in tokens of source and target", 2048, ge=1)
    seed: int = option("seed of the split and of the training", 42)

    def __post_init__(self) -> None:
        check_rules(RULES, self)

    @property
    def recipe(self) -> str | None:
        """The recipe that names the data; None: `files` are the data."""
        is_recipe = len(self.files) == 1 and self.files[0].endswith((".yaml", ".yml"))
        return self.files[0] if is_recipe else None

    def entry(self, name: str, train: list[str], **splits: list[str]) -> str:
        """Returns the entry of `corpora` for files of this adaptation."""
        columns = [int(column) if column.isdigit() else column for column in self.columns]
        has_table = any(map(is_table, (train, *splits.values())))
        if name == GENERAL:  # only own pairs have documents
            columns = columns[: 2 * has_table]
        elif not has_table and is_table(self.general):
            columns = []
        values: dict[str, Any] = {"columns": columns}
        for split, files in {"train": train, **splits}.items():
            values[split] = files[0] if len(files) == 1 else files
        return json.dumps({"name": name} | {key: value for key, value in values.items() if value})

    def data(self) -> DataArguments:
        """Returns the options of the data: of the recipe, or for the files."""
        if self.recipe is None:
            entries = [self.entry("own", self.files, validation=self.validation, test=self.test)]
            if self.general:
                entries.append(self.entry(GENERAL, self.general))
            return DataArguments(
                corpora=entries, **{name: getattr(self, name) for name in _OF_DATA}
            )
        data, others = data_of_recipe(self.recipe)
        if others:
            raise ValueError(
                f"The recipe {self.recipe!r} sets {' '.join(others)}: `adapt` takes the data of a "
                "recipe alone; give its other options in the command."
            )
        return data


def check_paths(options: AdaptArguments) -> None:
    """Checks what is read, and that the output directory is new or one of an adaptation."""
    folder, data = Path(options.output_dir), options.data()
    data.check_files()
    check_on_hub(options.model)
    check_files(options.general_texts)
    read_from = [options.model, *options.files, options.general_texts, *data.read_from]
    check_lies_elsewhere(read_from, folder)
    if former_contents(folder) and not (folder / RECORD).is_file():
        raise ValueError(
            f"`output_dir` {str(folder)!r} holds files of no adaptation: choose another directory."
        )


def former_contents(folder: Path) -> list[Path]:
    """Lists what former adaptations have left in the output directory, but what takes hours."""
    return [path for path in folder.glob("*") if path.name not in (LOCK, OWN_OUTPUTS)]
