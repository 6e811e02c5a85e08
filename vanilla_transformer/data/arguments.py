"""The arguments that name the data of a run; needs the standard library only."""

from dataclasses import dataclass, field
from typing import TypeVar

SPLITS = ("train", "validation", "test")
FORMATS = ".csv, .json, .jsonl (each also with .gz), .parquet"

T = TypeVar("T")


def _option_with_help(default: T, help_text: str) -> T:
    return field(default=default, metadata={"help": help_text})


@dataclass
class DataArguments:
    """Names the data of a run and limits how much of them is used.

    The data come from one of three sources: a data set of the Hub or a directory that holds one,
    one file per split, or two plain text files per split.

    Raises:
        ValueError: If a limit is below 1, or an option has no effect on the kind of data.
    """

    dataset_name: str | None = _option_with_help(
        None, "Name of a data set on the Hub, or a local directory that holds a data set."
    )
    dataset_config_name: str | None = _option_with_help(
        None, "Name of the configuration of the data set on the Hub."
    )
    train_file: str | None = _option_with_help(None, f"Training data in one file: {FORMATS}.")
    validation_file: str | None = _option_with_help(
        None, "Validation data in one file, in the same formats as train_file."
    )
    test_file: str | None = _option_with_help(
        None, "Test data in one file, in the same formats as train_file."
    )
    train_source: str | None = _option_with_help(
        None, "Source side of the training data: UTF-8 text, one sentence per line, plain or .gz."
    )
    train_target: str | None = _option_with_help(
        None,
        "Target side of the training data: line n is the translation of line n of train_source.",
    )
    validation_source: str | None = _option_with_help(None, "Source side of the validation data.")
    validation_target: str | None = _option_with_help(None, "Target side of the validation data.")
    test_source: str | None = _option_with_help(None, "Source side of the test data.")
    test_target: str | None = _option_with_help(None, "Target side of the test data.")
    source_column: str = _option_with_help(
        "source", "Column that holds the source text. Not used for plain text files."
    )
    target_column: str = _option_with_help(
        "target", "Column that holds the target text. Not used for plain text files."
    )
    source_lang: str | None = _option_with_help(
        None, 'Key of the source text in rows like {"translation": {"en": ..., "de": ...}}.'
    )
    target_lang: str | None = _option_with_help(
        None, "Key of the target text in such rows; source_lang and target_lang go together."
    )
    max_train_samples: int | None = _option_with_help(
        None, "Use only this many training pairs, the first ones. By default, all of them."
    )
    max_eval_samples: int | None = _option_with_help(
        None, "Use only this many validation pairs, the first ones. By default, all of them."
    )
    max_test_samples: int | None = _option_with_help(
        None, "Use only this many test pairs, the first ones. By default, all of them."
    )
    max_source_length: int | None = _option_with_help(
        None, "Truncate each source to this many tokens, special tokens included."
    )
    max_target_length: int | None = _option_with_help(
        None, "Truncate each target to this many tokens, special tokens included."
    )

    def __post_init__(self) -> None:
        limits = ("train_samples", "eval_samples", "test_samples", "source_length", "target_length")
        for name in (f"max_{limit}" for limit in limits):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(
                    f"`{name}` is {value}: set it to at least 1, or leave it out for no limit."
                )
        if self.dataset_config_name is not None and self.dataset_name is None:
            raise ValueError(
                f"`dataset_config_name` {self.dataset_config_name!r} has no effect without "
                "`dataset_name`: give both, or leave it out."
            )
        texts = [name for name in vars(self) if name.endswith("_source") and getattr(self, name)]
        for name in ("source_lang", "target_lang"):
            if texts and getattr(self, name) is not None:
                raise ValueError(
                    f"`{name}` {getattr(self, name)!r} has no effect on plain text files such as "
                    f"`{texts[0]}`: leave it out."
                )
