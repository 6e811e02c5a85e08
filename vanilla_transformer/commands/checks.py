"""Checks of models and files that need neither torch nor transformers."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from vanilla_transformer.data.text_files import existing_file


def check_model_path(path: str) -> None:
    """Checks that a model can be there; a name on the Hub passes.

    Args:
        path: Directory of a saved model, or its name on the Hub.

    Raises:
        FileNotFoundError: If the path does not exist and cannot be a name on the Hub, or if the
            directory holds no config.
        NotADirectoryError: If it is a file.
    """
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{path!r} holds no config.json: it is not a saved model.")
    elif folder.exists():
        raise NotADirectoryError(f"The model {path!r} is a file: give the directory that holds it.")
    elif not path or path.startswith((".", "/", "~")) or path.count("/") > 1:
        raise FileNotFoundError(f"The model directory {path!r} does not exist.")


def check_data_files(options: Mapping[str, Any]) -> None:
    """Checks that the data files among the options exist.

    Args:
        options: Values by field of `DataArguments`; other names are ignored.

    Raises:
        FileNotFoundError: If a file does not exist. The message names its option.
    """
    for name, path in data_files(options).items():
        try:
            existing_file(path)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"`{name}`: {error}") from None


def data_files(options: Mapping[str, Any]) -> dict[str, str]:
    """Returns the data files among the options by the names of their options.

    Args:
        options: As `check_data_files`.
    """
    names = [
        f"{split}_{part}"
        for split in ("train", "validation", "test")
        for part in ("file", "source", "target")
    ]
    return {name: options[name] for name in names if options.get(name)}


def check_output_file(
    path: str, overwrite: bool, read_from: Mapping[str, str | None] | None = None
) -> None:
    """Checks that a file may be written, and can be.

    Args:
        path: The file.
        overwrite: Whether it may replace an existing file.
        read_from: Files that are read at the same time, by the options that name them.

    Raises:
        ValueError: If the file exists and `overwrite` is False, or if it is one of `read_from`.
        IsADirectoryError: If it is a directory.
        FileNotFoundError: If its directory does not exist.
        OSError: If no file can be made in its directory.
    """
    output = Path(path)
    if output.is_dir():
        raise IsADirectoryError(f"`--output` {path!r} is a directory: give the name of a file.")
    if output.exists() and not overwrite:
        raise ValueError(f"`--output` {path!r} exists: add --overwrite, or choose another file.")
    for option, source in (read_from or {}).items():
        if source and output.exists() and output.samefile(source):
            raise ValueError(f"`--output` {path!r} is also the `{option}`: choose another file.")
    if not output.parent.is_dir():
        raise FileNotFoundError(
            f"`--output` {path!r}: the directory {str(output.parent)!r} does not exist."
        )
    if output.is_file() or not output.exists():  # not a device or a pipe
        try:
            with TemporaryFile(dir=output.parent):
                pass
        except OSError as error:
            raise OSError(
                f"`--output` {path!r}: no file can be made in {str(output.parent)!r} "
                f"({error.strerror}): choose another directory."
            ) from error
