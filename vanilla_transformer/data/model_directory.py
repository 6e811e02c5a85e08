"""Whether a path can be that of a saved model; needs the standard library only."""

from pathlib import Path

from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.names import MODEL_TYPE

TOKENIZER_FILES = ("tokenizer.json", "target_tokenizer.json", "tokenizer_config.json")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
"""Files of a saved model that hold its weights."""
_READ_FILES = ("config.json", "generation_config.json", *TOKENIZER_FILES)
_DECIDING = (*WEIGHTS, "*.json", "*.model", "*.spm", "*.txt")


def model_files(folder: Path) -> list[Path]:
    """Returns the files of a saved model of any kind that may decide its outputs, in order."""
    found = (file for file in folder.iterdir() if any(map(file.match, _DECIDING)))
    return sorted(filter(Path.is_file, found))


def check_model_path(path: str) -> None:
    """Checks that a path can be that of a saved model of any kind; a name on the Hub passes.

    A name such as "runs/en-de" is a local path if the folder `runs` exists: the Hub is not asked.

    Raises:
        FileNotFoundError: If the path does not exist and cannot be a name on the Hub, or if the
            directory holds no config.
        NotADirectoryError: If it is a file.
    """
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(
                f"{path!r} holds no config.json, so it is not a saved model: give the directory of "
                "one."
            )
    elif folder.exists():
        raise NotADirectoryError(f"The model {path!r} is a file: give the directory that holds it.")
    elif not path or path.startswith((".", "/", "~")) or path.count("/") > 1 or "\\" in path:
        raise FileNotFoundError(f"The model directory {path!r} does not exist.")
    elif "/" in path and folder.parent.is_dir():
        raise FileNotFoundError(
            f"The model directory {path!r} does not exist, and the folder {str(folder.parent)!r} "
            "does: check the name. To load a model of this name from the Hub, work in a directory "
            "without that folder."
        )


def check_model_directory(path: str) -> None:
    """Checks that a local directory holds a model of this package; a name on the Hub passes.

    Raises:
        FileNotFoundError: As `check_model_path`.
        NotADirectoryError: As `check_model_path`.
        ValueError: If a JSON file is damaged, or the config is of another kind of model.
    """
    check_model_path(path)
    folder = Path(path)
    if not folder.is_dir():
        if "/" not in path:
            raise FileNotFoundError(
                f"The model directory {path!r} does not exist, and no model of this package has a "
                "name without a slash on the Hub."
            )
        return
    contents = {
        name: read_object(folder / name) for name in _READ_FILES if (folder / name).is_file()
    }
    found = contents["config.json"].get("model_type")
    if found != MODEL_TYPE:
        raise ValueError(
            f"{path!r} holds a model of type {found!r} (config.json), not {MODEL_TYPE!r}: give a "
            "directory that this package saved, or convert the model first with "
            "`vanilla-transformer convert`."
        )
