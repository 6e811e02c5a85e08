"""The files of a saved model, and whether a name is one; this file imports nothing heavy."""

import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, RepositoryNotFoundError

from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.names import MODEL_TYPE

TOKENIZER_FILES = ("tokenizer.json", "target_tokenizer.json", "tokenizer_config.json")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
"""Files of a saved model that hold its weights."""
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_READ_FILES = ("generation_config.json", *TOKENIZER_FILES)
_DECIDING = (*WEIGHTS, "*.json", "*.model", "*.spm", "*.txt")


def model_files(folder: Path) -> list[Path]:
    """Returns the files of a saved model of any kind that may decide its outputs, in order."""
    files = (file for file in folder.iterdir() if any(map(file.match, _DECIDING)))
    return sorted(filter(Path.is_file, files))


def described_on_card(path: str) -> str:
    """Returns the first paragraph of the card in a directory; "" without a card there."""
    card = Path(path, "README.md")
    text = _FRONT_MATTER.sub("", card.read_text(encoding="utf-8")) if card.is_file() else ""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    return next((part for part in paragraphs if part and not part.startswith("#")), "")


@cache
def check_on_hub(path: str) -> None:
    """Checks that a path exists, or is a name on the Hub: loaders would ask the Hub for minutes."""
    if Path(path).exists():
        return
    try:
        if not isinstance(try_to_load_from_cache(path, "config.json"), str):
            get_hf_file_metadata(hf_hub_url(path, "config.json"))
    except HFValidationError as error:  # it is a path
        raise FileNotFoundError(f"There is no directory {path!r}.{_meant_by(path)}") from error
    except Exception as error:  # of the Hub's client: most are no OSError
        is_unknown = isinstance(error, RepositoryNotFoundError | EntryNotFoundError)
        answer = "has no such model that you may read" if is_unknown else "was not reached"
        raise FileNotFoundError(
            f"There is no directory {path!r}, and the Hub {answer}.{_meant_by(path)}"
        ) from error


def _meant_by(path: str) -> str:
    """Asks whether the neighbour with the most similar name was meant; "": none is similar."""
    folder = Path(path)
    near = get_close_matches(folder.name, (other.name for other in folder.parent.glob("*")), 1)
    return "".join(f" Did you mean {str(folder.with_name(name))!r}?" for name in near)


def check_model_directory(path: str) -> None:
    """Checks that a path holds a model of this package, or is a name on the Hub."""
    folder = Path(path)
    check_on_hub(path)
    if not folder.exists():
        return
    if not (folder / "config.json").is_file():
        inner = sorted(str(file.parent) for file in folder.glob("*/config.json"))[:3]
        problem = "it is a file" if folder.is_file() else "it has no config.json"
        raise ValueError(
            f"{path!r} is no saved model: {problem}. Give a directory that `train` has "
            f"written{', such as ' * bool(inner)}{', '.join(inner)}."
        )
    model_type = read_object(folder / "config.json").get("model_type")
    if model_type != MODEL_TYPE:
        raise ValueError(
            f"{path!r} holds a model of type {model_type!r} (config.json), not {MODEL_TYPE!r}: "
            "give a directory that this package saved, or convert the model first with "
            "`vanilla-transformer convert`."
        )
    for name in _READ_FILES:
        if (folder / name).is_file():
            read_object(folder / name)
