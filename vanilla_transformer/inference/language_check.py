"""The languages of a request, checked without the model.

This file imports no torch of its own.
"""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.language_tags import Languages, closest_tag
from vanilla_transformer.model.directions import Direction, tags_of_sources


def check_directions(
    model: str, source: str | None, target: str | None, texts: Iterable[str] = ()
) -> Languages | None:
    """Checks languages of texts by the directions that a saved model records.

    Returns:
        The languages as the model spells them. None: it records none.
    """
    config = Path(model, "tokenizer_config.json")
    if not config.is_file() or "directions" not in (record := read_object(config)):
        return None
    tokenizer = SimpleNamespace(init_kwargs=record)  # all that a direction reads of one
    direction = Direction.resolve(tokenizer, None, source, target, closest_tag)
    for text in texts:
        direction.of_text(text, tags_of_sources(tokenizer))
    return direction.source, direction.target
