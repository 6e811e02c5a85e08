"""The arguments that name the data of a run; needs no heavy package."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from vanilla_transformer.data.corpus_entries import SPLITS, Corpus, read_entries
from vanilla_transformer.files.text_files import check_files, suffix_of
from vanilla_transformer.language_tags import Languages, standard_tag
from vanilla_transformer.names import ANNOTATE
from vanilla_transformer.options import option
from vanilla_transformer.rules import Rule, check_rules

LIMITS = dict(
    zip(SPLITS, ("max_train_samples", "max_eval_samples", "max_test_samples"), strict=True)
)
"""The option that limits the rows of each split."""
FORMATS = ".tsv (source, target), .tmx, .csv, .json, .jsonl (each also with .gz), .parquet"

RULES = (
    Rule(
        ("corpora_temperature",),
        lambda _, options: any(corpus.weight is not None for corpus in options.entries),
        "`{name}` {value} and a `weight` in `corpora` exclude each other: give one of them.",
    ),
    Rule(
        ("source_column", "target_column"),
        lambda _, options: options.source_column == options.target_column,
        "Source and target are both column {value!r}: name two columns.",
    ),
    Rule(
        ("source_column", "target_column"),
        lambda _, options: {bool(e.columns and not e.name) for e in options.entries} == {False},
        "`{name}` {value!r} names a column of no file: in `corpora`, give `columns` to an entry.",
    ),
)


@dataclass
class DataArguments:
    """Names the data of a run and limits how much of them is used.

    Each option that names data stands for an entry like the entries of `corpora`: a data set of the
    Hub or a directory that holds one, one file of a split, or two plain text files of a split.
    """

    _argument_group_name = "data"

    dataset_name: str | None = option(
        "Name of a data set on the Hub, or a local directory that holds a data set."
    )
    dataset_config_name: str | None = option(
        "Name of the configuration of dataset_name on the Hub."
    )
    train_file: str | None = option(f"Training data in one file: {FORMATS}.", metavar="FILE")
    validation_file: str | None = option(
        "Validation data in one file, in the formats of train_file.", metavar="FILE"
    )
    test_file: str | None = option(
        "Test data in one file, in the formats of train_file.", metavar="FILE"
    )
    train_source: str | None = option(
        "Source side of the training data: UTF-8 text, one sentence per line, plain or .gz.",
        metavar="FILE",
    )
    train_target: str | None = option(
        "Target side of the training data: line n is the translation of line n of train_source.",
        metavar="FILE",
    )
    validation_source: str | None = option("Source side of the validation data.", metavar="FILE")
    validation_target: str | None = option("Target side of the validation data.", metavar="FILE")
    test_source: str | None = option("Source side of the test data.", metavar="FILE")
    test_target: str | None = option("Target side of the test data.", metavar="FILE")
    source_column: str = option(
        "Column that holds the source text, or a part of one, such as translation.en. Not used for "
        "plain text files, .tsv and .tmx.",
        "source",
    )
    target_column: str = option("Column that holds the target text, likewise.", "target")
    source_language: str | None = option(
        "Language of the sources, such as en or eng_Latn, where neither a column source_language "
        "nor `languages` of a corpus names it."
    )
    target_language: str | None = option(
        "Language of the targets, likewise. A model of several target languages needs it."
    )
    corpora: list[str] | None = option(
        "Several corpora in place of one: in a recipe, a list of entries (docs/corpora.md); on "
        "the command line, each as a JSON object."
    )
    corpora_temperature: float | None = option(
        "T: each of `corpora` with n pairs has the share n^(1/T) of an epoch. 1: shares like the "
        "sizes; a large number: nearly equal shares. Default: each pair is used once, or the "
        "weights decide.",
        gt=0,
    )
    case_augment: float | None = option(
        "Share of the training pairs that are also used in capitals or in title case, so that the "
        "model learns such texts. Default: none.",
        gt=0,
        le=1,
    )
    placeholder_share: float | None = option(
        "Share of the training pairs in which tokens such as <ph1> stand for placeholders, "
        "addresses and emoji that both sides have, so that the model learns to copy them. 0: none. "
        "Default: 0.5 if at least one pair in 100 has such parts. Only for new models and models "
        "that have learnt these tokens.",
        ge=0,
        le=1,
    )
    terms: str | None = option(
        f"{ANNOTATE}: half of the training pairs show how some terms are translated, so that the "
        "model learns to obey a glossary (docs/better.md). Default: no.",
        choices=(ANNOTATE,),
    )
    memory: str | None = option(
        f"{ANNOTATE}: half of the training pairs that are similar to another one show the "
        "translation of the other, so that the model learns to use a memory (docs/better.md). "
        f"none: they do not. Default: {ANNOTATE} for a new model with one vocabulary, if one pair "
        "in 20 or more is similar to another.",
        choices=(ANNOTATE, "none"),
    )
    max_train_samples: int | None = option(
        "Use only the first N training pairs of each corpus. Default: all.", ge=1
    )
    max_eval_samples: int | None = option("Likewise of the validation pairs.", ge=1)
    max_test_samples: int | None = option("Likewise of the test pairs.", ge=1)
    max_source_length: int | None = option(
        "Cut off each source after this many tokens, special tokens included.", ge=1
    )
    max_target_length: int | None = option("Cut off each target likewise.", ge=1)

    def __post_init__(self) -> None:
        check_rules(RULES, self)

    @cached_property
    def entries(self) -> list[Corpus]:
        """All data as entries: the entries of `corpora`, and entries of the other options.

        An entry that names no languages has the languages of the options.
        """
        corpora, others = read_entries(self.corpora or ()), self._entries_of_options()
        given = [split for entry in others for split in SPLITS if entry.may_have(split)]
        own = {split for entry in corpora for split in SPLITS if entry.paths(split)}
        given += own | {"train"} if corpora else own
        if twice := [split for split in SPLITS if given.count(split) > 1]:
            raise ValueError(
                f"The {twice[0]} data are given twice: give them once, in `corpora`, by "
                f"`{twice[0]}_file`, by `{twice[0]}_source` and `{twice[0]}_target`, or by "
                "`dataset_name` for all splits."
            )
        both: Languages = (self.source_language, self.target_language)
        for tag in filter(None, both):
            standard_tag(tag)
        entries = [
            entry if entry.languages else replace(entry, languages=both if any(both) else None)
            for entry in (*corpora, *others)
        ]
        for entry in entries:
            entry.check_languages()
        return entries

    def _entries_of_options(self) -> list[Corpus]:
        """Returns entries without names: one for a data set, or one for the data of each split."""
        entries, named = [], [self.source_column, self.target_column]
        if self.dataset_name is not None:
            name, config = self.dataset_name, self.dataset_config_name
            entries.append(Corpus(dataset=name, dataset_config=config, columns=named))
        for split in SPLITS:
            table = getattr(self, f"{split}_file")
            sides: Any = [getattr(self, f"{split}_{side}") for side in ("source", "target")]
            if table is not None:
                columns = None if suffix_of(table) in (".tsv", ".tmx") else named
                entries.append(Corpus(**{split: table}, columns=columns))
            if any(sides):
                if None in sides:
                    raise ValueError(f"Give both `{split}_source` and `{split}_target`, or none.")
                entries.append(Corpus(**{split: sides}))
        return entries

    @property
    def tags(self) -> list[str]:
        """The tags of `corpora`, each once."""
        return list(dict.fromkeys(entry.tag for entry in self.entries if entry.tag is not None))

    @property
    def files(self) -> list[str]:
        """The files that hold the data."""
        return [path for entry in self.entries for split in SPLITS for path in entry.paths(split)]

    @property
    def read_from(self) -> list[str]:
        """The files and data sets that hold the data."""
        return [*self.files, *(entry.dataset for entry in self.entries if entry.dataset)]

    def check_files(self) -> None:
        """Checks that data are named, and that their files exist."""
        if not self.entries:
            raise ValueError(
                "No data are given: name them by `train_file`, or `train_source` and "
                "`train_target` (data to score: `test_file`, or `test_source` and `test_target`), "
                "`dataset_name` or `corpora`."
            )
        check_files(*self.files)
