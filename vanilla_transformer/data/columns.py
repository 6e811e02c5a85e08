"""Picks the columns of a data set that hold the source, the target and the references."""

from collections.abc import Iterable

from datasets import Dataset

from vanilla_transformer.data.arguments import DataArguments


def select_text_columns(dataset: Dataset, args: DataArguments, origin: str) -> Dataset:
    """Reduces a data set to its text columns, under standard names.

    Args:
        dataset: Rows with at least the columns that `args` names.
        args: Names the columns, or the languages within a column "translation".
        origin: File or data set that the rows come from, for error messages.

    Returns:
        The same rows with the text columns "source" and "target", and "references" (a list of
        texts) if the data set has such a column.

    Raises:
        ValueError: If a column is missing or does not hold text, if only one language is named, or
            if a row has no reference.
    """
    if args.source_lang is not None or args.target_lang is not None:
        if args.source_lang is None or args.target_lang is None:
            raise ValueError("`source_lang` and `target_lang` go together: give both.")
        dataset = dataset.flatten()
        wanted = {
            f"translation.{args.source_lang}": "source",
            f"translation.{args.target_lang}": "target",
        }
    else:
        wanted = {args.source_column: "source", args.target_column: "target"}
    _check_columns(dataset, wanted, origin)
    kept = [*wanted, *(["references"] if "references" in dataset.column_names else [])]
    dataset = dataset.select_columns(kept)
    if "references" in kept:
        _check_references(dataset["references"], origin)
    return dataset.rename_columns({old: new for old, new in wanted.items() if old != new})


def _check_columns(dataset: Dataset, wanted: dict[str, str], origin: str) -> None:
    if len(wanted) < 2:
        raise ValueError(f"Source and target are both column {list(wanted)}: name two columns.")
    for column in wanted:
        if column not in dataset.column_names:
            raise ValueError(
                f"{origin} has no column {column!r}; its columns are {dataset.column_names}. Set "
                "`source_column` and `target_column`, or `source_lang` and `target_lang` for a "
                "column 'translation'."
            )
        if not _holds_text(feature := dataset.features[column]):
            raise ValueError(f"{origin}: column {column!r} holds {feature}: it must hold text.")
    references = dataset.features.get("references")
    if references is not None and not _holds_text(getattr(references, "feature", None)):
        raise ValueError(
            f"{origin}: column 'references' holds {references}: it must hold lists of text. A CSV "
            "file cannot hold lists: rename the column, or use .jsonl or .parquet."
        )


def _check_references(column: Iterable[list[str | None] | None], origin: str) -> None:
    for number, texts in enumerate(column, 1):
        if not texts or None in texts:
            raise ValueError(
                f"{origin}, row {number}: 'references' holds {texts}: give it at least one text, "
                "and no null."
            )


def _holds_text(feature: object) -> bool:
    return getattr(feature, "dtype", None) in ("string", "large_string")
