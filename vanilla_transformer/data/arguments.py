"""Where the data of a run come from."""

from dataclasses import dataclass, field
from typing import Any

SPLITS = ("train", "validation", "test")
FORMATS = ".csv, .json, .jsonl (each also with .gz), .parquet"


def _option(help_text: str, default: Any = None) -> Any:
    return field(default=default, metadata={"help": help_text})


@dataclass
class DataArguments:
    """Where the data come from, and how much of them is used.

    The data are one of: a data set of the Hub (or a directory in one of its forms), a file for each
    split, or a pair of plain text files for each split.

    Raises:
        ValueError: when a limit is below 1.
    """

    dataset_name: str | None = _option("Data set on the Hub, or a directory that holds one.")
    dataset_config_name: str | None = _option("Configuration of the data set on the Hub.")
    train_file: str | None = _option(f"Training data in one file: {FORMATS}.")
    validation_file: str | None = _option("Validation data, as train_file.")
    test_file: str | None = _option("Test data, as train_file.")
    train_source: str | None = _option(
        "Source side of the training data: UTF-8 text, one sentence a line, plain or .gz."
    )
    train_target: str | None = _option("Target side, line by line the same sentences.")
    validation_source: str | None = _option("Source side of the validation data.")
    validation_target: str | None = _option("Target side of the validation data.")
    test_source: str | None = _option("Source side of the test data.")
    test_target: str | None = _option("Target side of the test data.")
    source_column: str = _option("Column of the source text (not for text files).", "source")
    target_column: str = _option("Column of the target text (not for text files).", "target")
    source_lang: str | None = _option(
        'Key of the source in rows like {"translation": {"en": ..., "de": ...}}.'
    )
    target_lang: str | None = _option("Key of the target in such rows.")
    max_train_samples: int | None = _option("Use only the first so many training pairs.")
    max_eval_samples: int | None = _option("Use only the first so many validation pairs.")
    max_test_samples: int | None = _option("Use only the first so many test pairs.")
    max_source_length: int | None = _option("Truncate sources to so many tokens.")
    max_target_length: int | None = _option("Truncate targets to so many tokens.")

    def __post_init__(self) -> None:
        limits = ("train_samples", "eval_samples", "test_samples", "source_length", "target_length")
        for name in (f"max_{limit}" for limit in limits):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 1, or left out")
