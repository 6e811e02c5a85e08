"""Pushes the model card of a saved directory to the Hub, which transformers itself leaves out."""

import json
import re
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo, HfApi, ModelCard

UNFILLED_FIELD = "[More Information Needed]"
PATH_LINE = re.compile(r'^path = ".*"$', re.MULTILINE)


def push_card(
    model: Any,
    pushed: CommitInfo,
    *,
    token: str | bool | None = None,
    revision: str | None = None,
) -> None:
    """Replaces the empty card that transformers pushed with the card of the model's directory.

    A card belongs to the class and the weights that it was written for. It does not go along with a
    model that has been trained further, or was loaded as another class. A card on the Hub that has
    been filled in is not replaced.

    Args:
        model: The pushed model. Without a card in the directory it was loaded from, nothing
            happens.
        pushed: The commit of the push.
        token: Access token of the Hub. None: the saved token.
        revision: Branch of the push. None: the main branch. For a pull request, its own branch is
            used.
    """
    path = Path(model.name_or_path) / "README.md"
    if not path.is_file() or not is_as_saved(model, path.parent):
        return
    api, repo_id = HfApi(), pushed.repo_url.repo_id
    revision = pushed.pr_revision or revision
    downloaded = api.hf_hub_download(repo_id, path.name, revision=revision, token=token)
    empty_card = ModelCard.load(downloaded)
    if UNFILLED_FIELD not in empty_card.text:
        return
    card = ModelCard.load(path)
    card.data.tags = list(dict.fromkeys([*(card.data.tags or []), *(empty_card.data.tags or [])]))
    api.upload_file(
        path_or_fileobj=card_for(str(card), repo_id).encode(),
        path_in_repo=path.name,
        repo_id=repo_id,
        token=token,
        revision=revision,
        commit_message="Upload model card",
    )


def is_as_saved(model: Any, folder: Path) -> bool:
    """Returns whether a model has the class and the weights that a directory holds.

    Args:
        model: A model.
        folder: Directory of a saved model.

    Returns:
        False also if the directory holds no model, or if weights of the model are not in memory.
    """
    config = folder / "config.json"
    if not config.is_file():
        return False
    architectures = json.loads(config.read_text(encoding="utf-8")).get("architectures") or [None]
    own: dict[str, torch.Tensor] = model.state_dict()
    if type(model).__name__ != architectures[0] or any(value.is_meta for value in own.values()):
        return False
    try:
        saved = type(model).from_pretrained(folder, dtype=model.dtype).state_dict()
    except (OSError, RuntimeError):  # no weights, or weights of other shapes
        return False
    return saved.keys() == own.keys() and all(
        saved[name].dtype == value.dtype and torch.equal(saved[name], value.cpu())
        for name, value in own.items()
    )


def card_for(text: str, repo_id: str) -> str:
    """Changes the example of a card so that it loads the model from the Hub.

    Args:
        text: The card.
        repo_id: Name of the repository.

    Returns:
        The card, with `repo_id` in the line `path = "..."`.
    """
    return PATH_LINE.sub(f'path = "{repo_id}"', text)
