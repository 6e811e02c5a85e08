"""Translates the texts of documents."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from transformers.utils import logging

from vanilla_transformer.documents.marked_text import MarkedText, TextTranslation, Translations
from vanilla_transformer.documents.markup import place_tags
from vanilla_transformer.documents.messages import MessageDocument, target_of_document
from vanilla_transformer.documents.named_tags import Names, name_tags, with_named_tags
from vanilla_transformer.documents.places import FileText
from vanilla_transformer.documents.repair import repair
from vanilla_transformer.documents.stored_tags import with_own_tags, with_tags_of
from vanilla_transformer.inference.job import Job, JobText
from vanilla_transformer.inference.memory_use import MemoryUse, decide_memory_uses, exact_use
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.segments import NO_LINKS
from vanilla_transformer.inference.translator import TEXTS_PER_CHUNK, Translator
from vanilla_transformer.text.edits import Edit, apply_edits
from vanilla_transformer.text.kept import Copies, kept_spans
from vanilla_transformer.text.memory import Memory

logger = logging.get_logger(__name__)

# A tag with a value in it, as `_values` writes it, or a placeholder of printf.
_VALUE = re.compile(r"<ph\d+>|%[-+#0]*[\d.*]*(?:hh?|ll?|[zjt])?[diouxXeEfgGcs@](?![\w%])")
_IN_TAG = re.compile(rf"(?!%[2-9a-fA-F][\da-fA-F])(?:{_VALUE.pattern})")  # %27 is a character


@dataclass(frozen=True)
class PlannedText:
    """A text with tags, and the plan of its translation.

    Attributes:
        marked: The text.
        named: The text with placeholders for tags that stand for a word, as the model reads it.
        names: The tags that each of these placeholders stands for.
        answer: The existing translation, or one of a memory. None: the model makes it.
        use: The use of a memory for it. None: there is none.
    """

    marked: MarkedText
    named: MarkedText
    names: Names = field(default_factory=dict)
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
        return [
            planned.answer or _with_output(planned, asked, output)
            for planned, asked, output in zip(self.texts, self.job.texts, outputs, strict=True)
        ]


@dataclass(frozen=True)
class TranslatedDocument:
    """A document with its texts translated.

    Attributes:
        outputs: The output of each text, without tags.
        written: The translation of each text, with tags. None: the source stays.
        untranslated: Locations of the texts that stay untranslated: the output has no word, is cut
            off, lacks a placeholder or reorders values, or the file compares with the text.
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

    A text whose output is empty or cut off stays; a warning names its location.

    Args:
        document: The document, as `documents.formats.read_document` returns it.
        memories: Former translations; the model does not translate texts that they have.
        existing: The existing translations of its texts.
        fuzzy_below: As for `write_document`.
        progress: As for `Translator.translate`, as all other options are.
    """
    plan = plan_document(translator, document, TranslateOptions.of(**options), memories, existing)
    return run_document(translator, document, plan, fuzzy_below, progress)


def plan_document(
    translator: Translator,
    document: MessageDocument,
    options: TranslateOptions,
    memories: Sequence[Memory] = (),
    existing: Translations = (),
    target: str | None = None,
) -> MarkedJob:
    """Plans the translation of a document.

    Args:
        target: The language of the translations. None: the options decide it.
    """
    (direction,) = translator.directions(1, options)
    target = target or options.target_language or direction.target
    language = target_of_document(document, target)
    marks_doubt = document.marks_doubt
    planned = plan_marked(translator, document.texts, options, memories, marks_doubt, existing)
    return replace(planned, language=language)


def plan_marked(
    translator: Translator,
    texts: Sequence[FileText],
    options: TranslateOptions,
    memories: Sequence[Memory] = (),
    marks_doubt: bool = False,
    existing: Translations = (),
) -> MarkedJob:
    """Plans the translation of texts with tags, each sentence alone.

    Args:
        marks_doubt: Whether the document can mark a translation as doubtful.
        existing: The existing translations of the texts.
    """
    found = decide_memory_uses(
        [text.marked.write() for text in texts],
        memories,
        # The model reads no similar text for one with tags: it would link them with its words.
        [translator.reader.reads_memory and not text.marked.tags for text in texts],
        marks_doubt=marks_doubt,
        contexts=[text.context for text in texts],
    )
    planned = list[PlannedText]()
    for text, done, use in zip_longest(texts, existing, found):
        named, names = name_tags(text.marked) if options.keep else (text.marked, {})
        planned.append(PlannedText(text.marked, named, names, *_decide(text, done, memories, use)))
    # The job has nothing to do for a text with an existing translation.
    lines = ["" if done else text.named.plain for text, done in zip_longest(planned, existing)]
    options = replace(options, links=True, in_sentences=True)
    job = translator.plan(lines, options, former=[text.use for text in planned])
    asked = [row._replace(flags=text.flags) for row, text in zip(job.texts, texts, strict=True)]
    return MarkedJob(planned, replace(job, texts=asked))


def _decide(
    text: FileText,
    existing: TextTranslation | None,
    memories: Sequence[Memory],
    found: MemoryUse | None,
) -> tuple[TextTranslation | None, MemoryUse | None]:
    """Returns the answer to a text, for which no model is asked, and the use of a memory for it.

    The first rule that fits decides:
    1. The existing translation is the answer; no memory is used.
    2. A person gave an equal text other tags at its edges: its translation is the answer.
    3. The translation of an equal text in a memory is the answer.
    4. A `.tmx` has the text with an empty code for each tag: its translation is the answer.
    5. The translation of a similar text is the answer if it has the tags of the text.
    6. The model reads the translation of a similar text; there is no answer.
    """
    if existing:  # rule 1
        return existing, None
    marked = text.marked
    whole = marked.whole
    has_edge_tags = whole.tags != marked.tags
    with_edges = exact_use(memories, whole.write(), text.context) if has_edge_tags else None
    exact = found if found and found.suggestion.is_exact else None
    for asked, use in ((whole, with_edges), (marked, exact)):  # rules 2 and 3
        if answer := _answer(asked, use):
            return answer, use
    tag_by_code = {f"<ph{number}>": tag.text for number, tag in enumerate(marked.tags, start=1)}
    coded = marked.with_tag_texts(tag_by_code.keys())
    with_codes = exact_use(memories, coded.write(), text.context) if tag_by_code else None
    if with_codes and (answer := with_tags_of(coded, with_codes.suggestion.target)):  # rule 4
        decoded = answer.with_tag_texts(tag_by_code[tag.text] for tag in answer.tags)
        return replace(decoded, is_known=True), with_codes
    if answer := _answer(marked, found):  # rule 5
        return answer, found
    return None, found if found and found.is_read else None


def _answer(text: MarkedText, use: MemoryUse | None) -> TextTranslation | None:
    """Returns the translation in a memory. None: there is none, or it proposes other tags."""
    if use is None or use.answer is None:
        return None
    is_exact = use.suggestion.is_exact
    marked = with_tags_of(text, use.answer)
    if marked is None and is_exact:
        marked = with_own_tags(text, use.answer)
    return marked and replace(marked, is_known=True, is_doubtful=not is_exact)


def run_document(
    translator: Translator,
    document: MessageDocument,
    plan: MarkedJob,
    fuzzy_below: int = 0,
    progress: bool = False,
) -> TranslatedDocument:
    """Computes the job of a document."""
    jobs = plan.job.for_chunks(plan.job.texts, TEXTS_PER_CHUNK)
    location_of = [text.location for text in document.texts].__getitem__
    rows = translator.run_jobs(jobs, len(plan.texts), progress, location_of)
    translated = write_document(document, plan, [best for best, *_ in rows], fuzzy_below)
    if translated.untranslated:
        logger.warning(f"The source stays in {', '.join(translated.untranslated)}.")
    return translated


def write_document(
    document: MessageDocument, plan: MarkedJob, outputs: Sequence[Translation], fuzzy_below: int = 0
) -> TranslatedDocument:
    """Returns a document with the outputs of its job.

    Args:
        fuzzy_below: Smallest quality of an output that is not marked as doubtful.
    """
    results = list[Translation]()
    translations = list[TextTranslation | None]()
    rows = zip(plan.texts, plan.job.texts, plan.place_tags(outputs), outputs, strict=True)
    for text, asked, marked, output in rows:
        if text.answer or marked.is_known:
            results.append(Translation(marked.plain, from_memory=output.from_memory))
            translations.append(marked)
            continue
        is_doubtful = output.quality is not None and output.quality < fuzzy_below
        is_usable = _is_usable(text.marked, marked, output) and not _lacks_words(asked, output.text)
        results.append(output)
        translations.append(replace(marked, is_doubtful=is_doubtful) if is_usable else None)
    content, written = document.fill(translations, plan.language)
    kept = (text for text, marked in zip(document.texts, written, strict=True) if marked is None)
    stays = dict.fromkeys(text.location for text in kept)
    return TranslatedDocument(content, results, written, [*document.untranslatable, *stays])


def _with_output(planned: PlannedText, asked: JobText, output: Translation) -> TextTranslation:
    """Returns an output with the tags of its text, or a proposal repaired with the output."""
    use = asked.former
    marked = planned.marked
    links = output.links or NO_LINKS
    if use and use.is_repaired and output.is_complete and not output.untranslated:
        repaired = repair(marked.plain, use.suggestion, output.text, links)
        if proposal := with_tags_of(marked, repaired):
            return replace(proposal, is_known=True, is_doubtful=True)
    return with_named_tags(place_tags(planned.named, output.text, links), planned.names)


def _is_usable(source: MarkedText, marked: TextTranslation, output: Translation) -> bool:
    """Returns whether an output is complete, and has values as its source has them."""
    is_whole = output.text.strip() and output.is_complete and not output.untranslated
    return bool(is_whole and _values(marked) == _values(source))


def _lacks_words(source: JobText, output: str) -> bool:
    """Returns whether an output has kept parts and signs of its source, but none of its words."""
    kept = kept_spans(source.text, flags=source.flags)
    copies = Copies.find(source.text, kept, output, source.flags).in_output
    of_source = set(apply_edits(source.text, [Edit(*span, "") for span in kept]))
    of_output = set("".join(apply_edits(output, [Edit(*span, "") for span in copies]).split()))
    has_signs_alone = of_output <= of_source and not any(map(str.isalnum, of_output))
    return bool(copies) and has_signs_alone and any(map(str.isalpha, of_source))


def _values(text: MarkedText) -> list[str]:
    """Returns the placeholders of a text in the order of their values; none if no tag has one."""
    whole = text.whole
    codes = (f"<ph{tag.number}>" if _IN_TAG.search(tag.text) else "" for tag in whole.tags)
    found = _VALUE.findall(whole.with_tag_texts(codes).write())
    return found if any(value.startswith("<ph") for value in found) else []
