"""Translates documents, whose texts are taken out of files by `documents`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from transformers.utils import logging

from vanilla_transformer.documents.markup import MarkedText, Tag, place_tags
from vanilla_transformer.documents.places import Document, Item, marked_text, split_text
from vanilla_transformer.documents.repair import LEAST_REPAIRED, repair
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.segments import NO_LINKS
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.text.languages import closest_tag, known_tag
from vanilla_transformer.text.memory import (
    LEAST_SHOWN,
    LEAST_SIMILARITY,
    Memory,
    Suggestion,
    suggestions_for,
)

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class KnownTranslation(Translation):
    """What a memory has for a text of a document, with the tags of this text."""

    marked: MarkedText | None = field(default=None, repr=False)


def marked_of(output: Translation) -> MarkedText | None:
    """Returns an output with its tags, if a memory has them."""
    return output.marked if isinstance(output, KnownTranslation) else None


def translate_document(
    translator: Translator,
    document: Document,
    on_outputs: Callable[[Sequence[Translation]], None] = lambda _: None,
    fuzzy_below: int = 0,
    memories: Sequence[Memory] = (),
    former: Sequence[Translation | None] = (),
    **options: Any,
) -> bytes:
    """Returns a document with its texts translated, sentence by sentence.

    A text whose output is cut off at the longest length stays; a warning names its place. One that
    a memory has is not translated.

    Args:
        document: What `documents.formats.read_document` returns.
        on_outputs: Is called with the output of each text.
        fuzzy_below: As for `write_document`.
        former: Translations that its texts keep.
        **options: As for `Translator.translate`.
    """
    target = options.get("tgt_lang")
    (direction,) = translator.directions(1, options.get("src_lang"), target)
    language = target_of_document(document, target or direction.target)
    known, suggestions = known_outputs(
        document.texts, memories, translator.reader.reads_memory, document.marks_doubt
    )
    if former:
        known = [kept or output for kept, output in zip(former, known, strict=True)]
    rest = [number for number, output in enumerate(known) if output is None]
    shown = iter([suggestions[number] for number in rest])
    translated = translator.translate(
        [document.texts[number].text for number in rest],
        return_links=True,
        in_sentences=True,
        suggest=lambda texts: list(islice(shown, len(texts))),
        name_text=lambda number: document.locations[rest[number]],
        **options,
    )
    remaining = iter(translated)
    outputs = with_proposals(document, [output or next(remaining) for output in known])
    on_outputs(outputs)
    written, untranslated = write_document(document, outputs, language, fuzzy_below)
    if untranslated:
        logger.warning(f"The source stays in {', '.join(untranslated)}.")
    return written


def known_outputs(
    texts: Sequence[MarkedText],
    memories: Sequence[Memory],
    reads_memory: bool,
    marks_doubt: bool,
) -> tuple[list[Translation | None], list[Suggestion | None]]:
    """Returns the outputs that memories have for texts, and what they have for the other texts.

    A model may read the translation of a similar text; a document may say that it has such a one.
    """
    written = [marked.write() for marked in texts]
    contexts = [getattr(marked.text, "context", None) for marked in texts]
    least = LEAST_SIMILARITY if marks_doubt else None
    found = suggestions_for(written, memories, contexts, LEAST_SHOWN if reads_memory else least)
    outputs: list[Translation | None] = []
    for number, (text, suggestion) in enumerate(zip(texts, found, strict=True)):
        outputs.append(None)
        if suggestion is None:
            continue
        is_read = reads_memory and not text.tags  # the model would link tags with what it has read
        if is_read and not suggestion.is_exact:
            continue
        found[number] = None  # the model does not read it
        marked = _with_tags_of(text, suggestion.target)
        is_proposed = marks_doubt and suggestion.similarity >= LEAST_SIMILARITY
        if marked and (suggestion.is_exact or is_proposed):
            outputs[-1] = KnownTranslation(marked.text, from_memory=suggestion, marked=marked)
    return outputs, found


def _with_tags_of(text: MarkedText, target: str) -> MarkedText | None:
    """Returns a translation with the tags of its text. None: it has others."""
    remaining = [tag for tag in text.tags if tag.text]
    written = "|".join(re.escape(tag.text) for tag in remaining) or "(?!)"
    items: list[Item] = []
    for number, part in enumerate(re.split(f"({written})", target)):  # texts and tags by turns
        same = next((own for own in remaining if number % 2 and own.text == part), None)
        if same is not None:
            remaining.remove(same)
        elif number % 2:
            return None
        items.append(same or part)
    translated = marked_text(items)
    has_all = len(translated.tags) == len(text.tags)
    return translated if has_all and _tags_in(translated) == _tags_in(text) else None


def _tags_in(marked: MarkedText) -> list[str]:
    """Returns what looks like tags, and is text."""
    return sorted(item.text for item in split_text(marked.text) if isinstance(item, Tag))


def target_of_document(document: Document, target: str | None) -> str | None:
    """Returns the tag of a target language, which a document that names one must have; or None."""
    own, language = known_tag(document.language), known_tag(target)
    if own and language and closest_tag(own, [language]) is None:
        raise ValueError(
            f"the file is a translation into {document.language}, and the target is {target}: take "
            "the other model, or take the language out of the file."
        )
    return language


def write_document(
    document: Document,
    outputs: Sequence[Translation],
    language: str | None,
    fuzzy_below: int = 0,
) -> tuple[bytes, list[str]]:
    """Returns a document with outputs, and where the source stays, as these are cut off.

    Args:
        language: What `target_of_document` returns.
        fuzzy_below: Outputs of a lower quality are marked as doubtful, as translations of similar
            texts are.
    """
    written: list[MarkedText | None] = []
    untranslated = []
    placed = with_tags_placed(document.texts, outputs)
    for marked, output, place in zip(placed, outputs, document.locations, strict=True):
        if output.is_complete:
            is_doubtful, is_known = _is_doubtful(output, fuzzy_below), marked_of(output) is not None
            written.append(replace(marked, is_doubtful=is_doubtful, is_known=is_known))
        else:
            written.append(None)
            untranslated.append(place)
    return document.write(written, language), untranslated


def with_proposals(document: Document, outputs: Sequence[Translation]) -> list[Translation]:
    """Returns outputs; for texts that are very similar to known ones, it proposes the known ones.

    A proposal has what the model has made of the words that differ.
    """
    proposals = list(outputs)
    for number, (text, output) in enumerate(zip(document.texts, outputs, strict=True)):
        known = output.from_memory
        is_near = known is not None and known.similarity >= LEAST_REPAIRED
        if known and is_near and document.marks_doubt and marked_of(output) is None:
            repaired = repair(text.text, known, output.text, output.links or NO_LINKS)
            if marked := _with_tags_of(text, repaired):
                proposals[number] = KnownTranslation(marked.text, from_memory=known, marked=marked)
    return proposals


def with_tags_placed(
    texts: Sequence[MarkedText], outputs: Sequence[Translation]
) -> list[MarkedText]:
    """Returns outputs with the tags of their texts; without tags, no links are needed."""
    return [
        marked_of(output) or place_tags(marked, output.text, output.links or NO_LINKS)
        for marked, output in zip(texts, outputs, strict=True)
    ]


def _is_doubtful(output: Translation, fuzzy_below: int) -> bool:
    if marked_of(output) is not None and output.from_memory is not None:
        return not output.from_memory.is_exact
    return output.quality is not None and output.quality < fuzzy_below
