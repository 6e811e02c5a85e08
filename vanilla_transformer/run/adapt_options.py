"""The options of an adaptation; needs no heavy package."""

import json
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from vanilla_transformer.data.arguments import option
from vanilla_transformer.data.corpus_entries import Corpus
from vanilla_transformer.data.model_directory import check_model_path
from vanilla_transformer.data.text_files import existing_file
from vanilla_transformer.names import ADAMW, METRIC_NAMES, MUON
from vanilla_transformer.rules import Rule, at_least, check_rules, one_of, within

FILE_LISTS = ("files", "validation", "test", "general")
"""The options that name pairs: one file of pairs, or two text files."""
RECIPES = (".yaml", ".yml")


@dataclass(frozen=True)
class AdaptArguments:
    """What an adaptation does; `files` are one file of pairs, or two text files.

    Raises:
        ValueError: If an option breaks one of `RULES`.
    """

    model: str
    files: list[str]
    output_dir: str
    validation: list[str] = field(
        default_factory=list,
        metadata={"help": "validation pairs; by default, some pairs are split off"},
    )
    test: list[str] = field(
        default_factory=list, metadata={"help": "test pairs; by default, some pairs are split off"}
    )
    general: list[str] = field(
        default_factory=list,
        metadata={"help": "general pairs, so that the model does not forget them"},
    )
    general_texts: str | None = option(
        "general source texts: the model learns its own outputs for them, so that it does not "
        "change on them"
    )
    general_share: float = option("share of general pairs in the training", 0.5)
    columns: list[str] = field(
        default_factory=list,
        metadata={
            "help": "source and target of a .tsv (1 2), also with the document (1 2 3), which is "
            "then held out whole; or names of columns"
        },
    )
    languages: list[str] = field(
        default_factory=list, metadata={"help": "codes of source and target, which a .tmx needs"}
    )
    trim: bool = option("keep only the tokens that the texts need", False)
    add: int | None = option("add up to N subwords of the texts")
    held_out: int = option("pairs that are split off for validation, and as many for a test", 500)
    metrics: list[str] = field(
        default_factory=lambda: ["bleu", "chrf"], metadata={"help": "scores; the first decides"}
    )
    optim: str | None = option(
        "optimizer: muon or adamw (default: found by short trainings, if the rate is too)"
    )
    learning_rate: float | None = option(
        "peak learning rate, with muon that of the layers' matrices (default: found by short "
        "trainings)"
    )
    lora: int | None = option(
        "train adapters of this rank (LoRA) and merge them at the end; 0 trains all weights "
        "(default: 16 for models of more than 200 million parameters, otherwise 0)"
    )
    epochs: int = option("most passes over the training data", 5)
    patience: int = option("stop after this many epochs without a better validation score", 2)
    max_tokens: int = option("largest batch, in tokens of source and target", 2048)
    seed: int = option("seed of the split and of the training", 42)

    def __post_init__(self) -> None:
        check_rules(RULES, self)

    @property
    def recipe(self) -> str | None:
        """The recipe that names the data; None: `files` are the data."""
        is_recipe = len(self.files) == 1 and self.files[0].endswith(RECIPES)
        return self.files[0] if is_recipe else None

    def existing_files(self) -> list[Path]:
        """Returns the files that are given.

        Raises:
            FileNotFoundError: If the model or a file does not exist.
        """
        if not Path(self.model).is_file():  # of another system
            check_model_path(self.model)
        paths = [path for name in FILE_LISTS for path in getattr(self, name)]
        return [existing_file(path) for path in (*paths, *filter(None, [self.general_texts]))]

    def general_count(self, own: int) -> int:
        """Returns how many general pairs make up their share beside own ones."""
        return round(own * self.general_share / (1 - self.general_share))

    def entry(self, name: str, train: list[str], **splits: list[str]) -> str:
        """Returns the entry of `corpora` for files of this adaptation.

        Raises:
            ValueError: If it breaks a rule of entries.
        """
        columns = [int(one) if one.isdigit() else one for one in self.columns]
        values: dict[str, Any] = {
            "languages": self.languages,
            "columns": columns[:2] if name != "own" else columns,
        }
        values |= {
            split: files[0] if len(files) == 1 else files
            for split, files in {"train": train, **splits}.items()
        }
        text = json.dumps({"name": name} | {key: value for key, value in values.items() if value})
        Corpus.from_json(text)
        return text


RULES = (
    Rule(
        ("validation", "test"),
        lambda value, options: bool(value) and options.recipe is not None,
        "`{name}` {value} belongs into the recipe {options.recipe!r}: give it there.",
    ),
    Rule(
        FILE_LISTS,
        lambda value, _: len(value) > 2,
        "`{name}` names {value}: give one file of pairs, or two text files.",
    ),
    within(0, 1, "general_share", ends="()"),
    Rule(
        ("general_texts",),
        lambda _, options: bool(options.general),
        "`{name}` {value!r} and `general` exclude each other: give one of them.",
    ),
    Rule(
        ("general_share",),
        lambda _, options: not (options.general or options.general_texts or options.recipe),
        "`{name}` {value} has no effect without `general` or `general_texts`: give one of them.",
    ),
    Rule(
        ("columns", "languages"),
        lambda value, options: bool(value) and options.recipe is not None and not options.general,
        "`{name}` {value} belongs into the recipe {options.recipe!r}: give it there.",
    ),
    one_of(METRIC_NAMES, "metrics"),
    one_of((MUON, ADAMW), "optim"),
    at_least(0, "lora"),
    Rule(
        ("lora",),
        lambda value, options: bool(value) and options.optim == MUON,
        "`{name}` {value} does not work with `optim` 'muon', which trains whole matrices: give one "
        "of them.",
    ),
    at_least(1, "held_out", "epochs", "patience", "max_tokens", "add"),
    within(0, inf, "learning_rate", ends="()"),
)
"""The rules of an adaptation."""
