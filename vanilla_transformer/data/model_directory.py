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
    files = (file for file in folder.iterdir() if any(map(file.match, _DECIDING)))
    return sorted(filter(Path.is_file, files))


def check_model_path(path: str) -> None:
    """Checks that a path can be that of a saved model of any kind; a name on the Hub passes.

    A name such as "runs/en-de" is a local path if the folder `runs` exists: the Hub is not asked.

    Raises:
        FileNotFoundError: If there is no such directory and it cannot be a name on the Hub, or if
            the directory holds no config.
    """
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{path!r} holds no config.json, so it is no saved model.")
        return
    is_name = path.count("/") < 2 and "\\" not in path and not path.startswith((".", "/", "~"))
    if not path or not is_name or folder.exists() or ("/" in path and folder.parent.is_dir()):
        raise FileNotFoundError(f"The model directory {path!r} does not exist: check the name.")


def check_model_directory(path: str) -> None:
    """Checks that a local directory holds a model of this package; a name on the Hub passes.

    Raises:
        FileNotFoundError: As `check_model_path`.
        ValueError: If a JSON file is damaged, or the config is of another kind of model.
    """
    check_model_path(path)
    folder = Path(path)
    if not folder.is_dir():
        if "/" not in path:  # the Hub has models of this package under names of users alone
            raise FileNotFoundError(f"The model directory {path!r} does not exist: check the name.")
        return
    contents = {
        name: read_object(folder / name) for name in _READ_FILES if (folder / name).is_file()
    }
    model_type = contents["config.json"].get("model_type")
    if model_type != MODEL_TYPE:
        raise ValueError(
            f"{path!r} holds a model of type {model_type!r} (config.json), not {MODEL_TYPE!r}: "
            "give a directory that this package saved, or convert the model first with "
            "`vanilla-transformer convert`."
        )
