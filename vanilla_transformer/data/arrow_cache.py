"""Writes rows that are read from files to Arrow, in a cache that follows the files' content."""

from collections.abc import Callable, Iterator

from datasets import Dataset, Features
from datasets.exceptions import DatasetGenerationError

from vanilla_transformer.data.file_contents import content_digest


def dataset_from_rows(
    read_rows: Callable[..., Iterator[dict[str, str]]], features: Features, paths: dict[str, str]
) -> Dataset:
    """Builds a data set from the rows of files, or takes it from the cache.

    Args:
        read_rows: Generator of the rows. Its arguments are `paths` by name, and `digests`, which it
            does not use: they make the cache depend on the content of the files.
        features: Columns of the rows.
        paths: Paths of the files, by the names of the generator's arguments.

    Raises:
        FileNotFoundError: If a file does not exist.
        Exception: Any error of the generator, as the generator raised it.
    """
    # A tuple: `from_generator` takes a list for shards.
    digests = tuple(content_digest(path) for path in paths.values())
    try:
        return Dataset.from_generator(
            read_rows, features=features, gen_kwargs={**paths, "digests": digests}
        )
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None
