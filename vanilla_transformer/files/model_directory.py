"""The files of a saved model; needs the standard library only."""

import re
from pathlib import Path

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


def check_model_directory(path: str) -> None:
    """Checks that a local path holds a model of this package; a name on the Hub passes."""
    folder = Path(path)
    if not folder.exists():
        return
    if not (folder / "config.json").is_file():
        inner = sorted(str(file.parent) for file in folder.glob("*/config.json"))[:3]
        raise ValueError(
            f"{path!r} is no saved model: it has no config.json. Give a directory that `train` has "
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
