"""Pushes the model card of a saved directory to the Hub, which transformers itself leaves out."""

import os
import re
from pathlib import Path

from huggingface_hub import CommitInfo, HfApi, ModelCard

UNFILLED_FIELD = "[More Information Needed]"
PATH_LINE = re.compile(r'^path = ".*"$', re.MULTILINE)


def push_card(
    source: str | os.PathLike[str],
    pushed: CommitInfo,
    *,
    token: str | bool | None = None,
    revision: str | None = None,
) -> None:
    """Replaces the empty card that transformers pushed with the card of a directory.

    A card on the Hub that has been filled in is not replaced.

    Args:
        source: The directory that the model was loaded from. Without a card in it, nothing happens.
        pushed: The commit of the push.
        token: Access token of the Hub. None: the saved token.
        revision: Branch of the push. None: the main branch. For a pull request, its own branch is
            used.
    """
    path = Path(source) / "README.md"
    if not path.is_file():
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


def card_for(text: str, repo_id: str) -> str:
    """Changes the example of a card so that it loads the model from the Hub.

    Args:
        text: The card.
        repo_id: Name of the repository.

    Returns:
        The card, with `repo_id` in the line `path = "..."`.
    """
    return PATH_LINE.sub(f'path = "{repo_id}"', text)
