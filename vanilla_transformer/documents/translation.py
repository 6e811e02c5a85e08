"""Translates documents, whose texts are taken out of files by `documents`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from transformers.utils import logging

from vanilla_transformer.documents.marked_text import (
    Item,
    MarkedText,
    Tag,
    TextTranslation,
    Translations,
)
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.documents.messages import MessageDocument
from vanilla_transformer.documents.named_tags import name_tags, with_named_tags
from vanilla_transformer.documents.places import FileText
from vanilla_transformer.documents.repair import repair
from vanilla_transformer.inference.job import Job, JobText
from vanilla_transformer.inference.memory_use import MemoryUse, decide_memory_uses
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.segments import NO_LINKS
from vanilla_transformer.inference.translator import TEXTS_PER_CHUNK, Translator
from vanilla_transformer.language_tags import closest_tag, known_tag
from vanilla_transformer.text.memory import Memory

logger = logging.get_logger(__name__)

_VALUE = re.compile(r"<ph\d+>|%[-+#0]*[\d.*]*(?:hh?|ll?|[zjt])?[diouxXeEfgGcs@](?![\w%])")
_TAG = re.compile(r"(?:<|&lt;)/?([\w:.-]+)(?:[^<>&]|&(?![lg]t;))*(?:>|&gt;)")


@dataclass(frozen=True)
class PlannedText:
    """A text with tags, and what is decided of it.

    Attributes:
        answer: Its translation that exists, or is of a memory. None: the model makes it.
        use: The use of a memory for it. None: there is none.
    """

    marked: MarkedText
    answer: TextTranslation | None = None
    use: MemoryUse | None = None


@dataclass(frozen=True)
class MarkedJob:
    """The job of texts with tags.

    Attributes:
        language: The tag of the target language of a document. None: it is unknown.
    """

    texts: Sequence[PlannedText]
    job: Job
    language: str | None = None

    def place_tags(self, outputs: Sequence[Translation]) -> list[TextTranslation]:
        """Returns the outputs of the job with the tags of their texts."""
        rows = zip(self.texts, self.job.texts, outputs, strict=True)
        return [
            planned.answer or _with_output(planned.marked, asked, output)
            for planned, asked, output in rows
        ]


@dataclass(frozen=True)
class TranslatedDocument:
    """A document with its texts translated.

    Attributes:
        outputs: The output of each text, without tags.
        written: The translation of each text, with tags. None: the source stays.
        untranslated: The places of these texts, whose outputs are empty or cut off, lack a
            placeholder or would have values in another order, and of those that are `compared`.
    """

    content: bytes
    outputs: Sequence[Translation]
    written: Translations
    untranslated: Sequence[str]


def translate_document(
    translator: Translator,
    document: MessageDocument,
    *,
    memories: Sequence[Memory] = (),
    existing: Translations = (),
    fuzzy_below: int = 0,
    progress: bool = False,
    **options: Any,
) -> TranslatedDocument:
    """Translates the texts of a document, sentence by sentence.

    A text whose output is empty or cut off stays; a warning names its place. A text that a memory
    has is not translated.

    Args:
        document: The document, as `documents.formats.read_document` returns it.
        existing: Translations that its texts have already.
        fuzzy_below: As for `write_document`.
        progress: As for `Translator.translate`, as all other options are.
    """
    asked = TranslateOptions.of(**options)
    planned = plan_document(translator, document, asked, memories, existing)
    return run_document(translator, document, planned, fuzzy_below, progress)


def run_document(
    translator: Translator,
    document: MessageDocument,
    planned: MarkedJob,
    fuzzy_below: int = 0,
    progress: bool = False,
) -> TranslatedDocument:
    """Computes the job of a document."""
    jobs, count = planned.job.chunks(TEXTS_PER_CHUNK), len(planned.texts)
    location_of = [row.location for row in document.texts].__getitem__
    rows = translator.run_jobs(jobs, count, progress, location_of)
    translated = write_document(document, planned, [row[0] for row in rows], fuzzy_below)
    if translated.untranslated:
        logger.warning(f"The source stays in {', '.join(translated.untranslated)}.")
    return translated


def plan_document(
    translator: Translator,
    document: MessageDocument,
    options: TranslateOptions,
    memories: Sequence[Memory] = (),
    existing: Translations = (),
    target: str | None = None,
) -> MarkedJob:
    """Decides all of the translation of a document.

    Args:
        target: The language of the translations. None: that of the options.
    """
    (direction,) = translator.directions(1, options)
    target = target or options.target_language or direction.target
    language, doubt = target_of_document(document, target), document.marks_doubt
    planned = plan_marked(translator, document.texts, options, memories, doubt, existing)
    return replace(planned, language=language)


def plan_marked(
    translator: Translator,
    texts: Sequence[FileText],
    options: TranslateOptions,
    memories: Sequence[Memory] = (),
    marks_doubt: bool = False,
    existing: Translations = (),
) -> MarkedJob:
    """Decides all of the translation of texts with tags, each sentence alone.

    Args:
        marks_doubt: Whether the document can say that a translation is to be checked.
        existing: Translations that texts have already.
    """
    # With tags in a text, the model would link them with words of the similar one.
    marked, contexts = [row.marked for row in texts], [row.context for row in texts]
    reads = [translator.reader.reads_memory and not text.tags for text in marked]
    written = [text.write() for text in marked]
    found = decide_memory_uses(written, memories, reads, marks_doubt=marks_doubt, contexts=contexts)
    rows = zip_longest(texts, existing, found)
    planned = [_decide(row, done, memories, use) for row, done, use in rows]
    named = (name_tags(text)[0] if options.keep else text for text in marked)
    # The job has nothing to do for a text with an existing translation.
    asked = ["" if done else text.plain for text, done in zip_longest(named, existing)]
    options = replace(options, links=True, in_sentences=True)
    job = translator.plan(asked, options, former=[text.use for text in planned])
    pairs = zip(job.texts, texts, strict=True)
    job = replace(job, texts=[asked._replace(flags=row.flags) for asked, row in pairs])
    return MarkedJob(planned, job)


def _decide(
    row: FileText,
    existing: TextTranslation | None,
    memories: Sequence[Memory],
    found: MemoryUse | None,
) -> PlannedText:
    """Decides the answer that a text has before its translation, and the use of a memory for it.

    The first rule that fits decides:
    1. An existing translation is the answer; no memory is used.
    2. A person gave an equal text other tags at its edges: its translation is the answer.
    3. The translation that a memory has is the answer, if it has the tags of the text.
    4. The model reads the translation that a memory has; there is no answer.
    """
    marked, whole = row.marked, row.marked.whole
    if existing:
        return PlannedText(marked, existing)
    searched = memories if whole.tags != marked.tags else ()  # there are tags at its edges
    exact = (memory.exact(whole.write(), row.context) for memory in searched)
    equal = next((MemoryUse(known, known.target) for known in exact if known), None)
    answer = _answer(whole, equal) or _answer(marked, found)
    is_used = equal or (found and (answer or found.is_read))
    return PlannedText(marked, answer, equal or found) if is_used else PlannedText(marked)


def _with_output(marked: MarkedText, asked: JobText, output: Translation) -> TextTranslation:
    """Returns an output with the tags of its text, or the proposal with words of the output."""
    use, links = asked.former, output.links or NO_LINKS
    if use and use.is_repaired and output.is_complete and not output.untranslated:
        repaired = repair(marked.plain, use.suggestion, output.text, links)
        if proposal := _with_tags_of(marked, repaired):
            return replace(proposal, is_known=True, is_doubtful=True)
    named, names = name_tags(marked) if asked.text != marked.plain else (marked, {})
    return with_named_tags(place_tags(named, output.text, links), names)


def _answer(text: MarkedText, use: MemoryUse | None) -> TextTranslation | None:
    """Returns the translation that a memory has. None: it has none, or a proposal of other tags."""
    if use is None or use.answer is None:
        return None
    marked, is_exact = _with_tags_of(text, use.answer), use.suggestion.is_exact
    marked = marked or (_with_own_tags(text, use.answer) if is_exact else None)
    return marked and replace(marked, is_known=True, is_doubtful=not is_exact)


def _with_tags_of(text: MarkedText, target: str) -> TextTranslation | None:
    """Returns a translation with the tags of its text. None: it has others."""
    left, items = list(text.tags), list[Item]()
    written = "|".join(re.escape(tag.text) for tag in left if tag.text) or "(?!)"
    for index, part in enumerate(re.split(f"({written})", target)):  # texts and tags by turns
        same = next((tag for tag in left if index % 2 and tag.text == part), None)
        if same:
            left.remove(same)
        elif index % 2:
            return None
        items.append(same or part)
    translated = TextTranslation.of(items, text.edges)
    # Parts of a text that look like tags are the same on both sides, too.
    alike = [sorted(match[0] for match in _TAG.finditer(side.plain)) for side in (translated, text)]
    return None if left or alike[0] != alike[1] else translated


def _with_own_tags(text: MarkedText, target: str) -> TextTranslation:
    """Returns a translation of an equal text with the tags that a person gave it."""
    kinds = {match[1]: type(tag) for tag in text.tags if (match := _TAG.match(tag.text))}
    items, last = list[Item](), 0
    for match in _TAG.finditer(target):
        make = kinds.get(match[1], Tag)
        items += [target[last : match.start()], make(0, match[0])]
        last = match.end()
    return TextTranslation.of([*items, target[last:]], text.edges)


def target_of_document(document: MessageDocument, target: str | None) -> str | None:
    """Returns the tag of a target language, which a document that names one must have; or None."""
    own, language = known_tag(document.language), known_tag(target)
    if own and language and closest_tag(own, [language]) is None:
        raise ValueError(
            f"the file is a translation into {document.language}, and the target is {target}: "
            "choose the same target, or take the language out of the file."
        )
    return language


def _values(text: MarkedText) -> list[str]:
    """Returns what takes the next values of a program, such as `%s`, in order, if tags do."""
    coded = (
        item if isinstance(item, str) else f"<ph{item.number}>" * bool(_VALUE.search(item.text))
        for item in text.whole.parts()
    )
    found = _VALUE.findall("".join(coded))
    return found if any(value[0] == "<" for value in found) else []


def write_document(
    document: MessageDocument,
    planned: MarkedJob,
    outputs: Sequence[Translation],
    fuzzy_below: int = 0,
) -> TranslatedDocument:
    """Returns a document with the outputs of its job.

    Args:
        fuzzy_below: Outputs of a lower quality are marked as doubtful, as translations of similar
            texts are.
    """
    made, texts = list[Translation](), list[TextTranslation | None]()
    placed = planned.place_tags(outputs)
    for own, marked, output in zip(planned.texts, placed, outputs, strict=True):
        is_whole = output.text.strip() and output.is_complete and not output.untranslated
        if marked.is_known:
            texts.append(marked)
            output = Translation(marked.plain, from_memory=output.from_memory)
        elif is_whole and _values(marked) == _values(own.marked):
            is_doubtful = output.quality is not None and output.quality < fuzzy_below
            texts.append(replace(marked, is_doubtful=is_doubtful))
        else:
            texts.append(None)
        made.append(output)
    content, written = document.fill(texts, planned.language)
    rows = zip(document.texts, written, strict=True)
    stays = dict.fromkeys(row.location for row, text in rows if text is None)
    return TranslatedDocument(content, made, written, [*document.compared, *stays])
