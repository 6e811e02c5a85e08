"""What transformers leaves out when a model is pushed to the Hub: the card that belongs to it.

The module is flat: it is copied beside every saved model.
"""

import os
import re
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, ModelCard

_LEFT_OPEN = "[More Information Needed]"
_PATH_TO_LOAD = re.compile(r'^path = ".*"$', re.MULTILINE)


def push_card(
    source: str | os.PathLike[str],
    pushed: Any,
    *,
    token: str | bool | None = None,
    revision: str | None = None,
) -> None:
    """Puts the card of a directory in the place of the empty form that transformers has pushed.

    A card that somebody has filled in, on the Hub, stays as it is.

    Args:
        source: The directory that the model was loaded from; nothing happens if it holds no card.
        pushed: The `CommitInfo` of the push.
        token: Token of the Hub; None: the saved one.
        revision: Branch that was pushed to; None: the main one, or that of the pull request.
    """
    path = Path(source) / "README.md"
    if not path.is_file():
        return
    api, repo_id = HfApi(), pushed.repo_url.repo_id
    revision = pushed.pr_revision or revision
    found = api.hf_hub_download(repo_id, path.name, revision=revision, token=token)
    form = ModelCard.load(found)
    if _LEFT_OPEN not in form.text:
        return
    card = ModelCard.load(path)
    card.data.tags = list(dict.fromkeys([*(card.data.tags or []), *(form.data.tags or [])]))
    api.upload_file(
        path_or_fileobj=card_for(str(card), repo_id).encode(),
        path_in_repo=path.name,
        repo_id=repo_id,
        token=token,
        revision=revision,
        commit_message="Upload model card",
    )


def card_for(text: str, repo_id: str) -> str:
    """Has the example of a card load from the Hub.

    Args:
        text: The card.
        repo_id: Name of the repository.

    Returns:
        The card with the line `path = "..."` changed.
    """
    return _PATH_TO_LOAD.sub(f'path = "{repo_id}"', text)
