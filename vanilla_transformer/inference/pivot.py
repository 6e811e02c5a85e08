"""A translation by way of a third language: a job for each of two models, one after the other.

Kept parts are found in the source, and the second job is told where they are in the outputs of the
first one, which it reads. Memories answer for the source. Only the second job uses the glossary.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vanilla_transformer.inference.job import Job
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator


def without_read_memories(job: Job) -> Job:
    """Returns a job that reads no memory: the translations there are not in its target language."""
    unread = [text.former and text.former._replace(is_read=False) for text in job.texts]
    pairs = zip(job.texts, unread, strict=True)
    return replace(job, texts=[text._replace(former=former) for text, former in pairs])


def plan_from_pivot(
    translator: Translator, options: TranslateOptions, first: Job, outputs: Sequence[Translation]
) -> Job:
    """Plans the translation of the outputs of a first job, which have their marks."""
    options = replace(options, links=first.call.details.links, in_sentences=first.in_sentences)
    former = [text.former for text in first.texts]
    # An untranslated text keeps its source: the second job has nothing to translate.
    given = ["" if output.untranslated else output.text for output in outputs]
    planned = translator.plan(given, options, former=former)
    texts = []
    for text, source, output in zip(planned.texts, first.texts, outputs, strict=True):
        kept = [(mark.begin, mark.end) for mark in output.marks if mark.kind == "kept"]
        texts.append(text._replace(flags=source.flags, kept=kept))
    return replace(planned, texts=texts)


def combine_translations(source: str, first: Translation, second: Translation) -> Translation:
    """Returns the translation of a source that two jobs have made."""
    untranslated = first.untranslated or second.untranslated
    if first.links and second.links:
        second = replace(second, links=first.links.then(second.links))
    qualities = [each.quality for each in (first, second) if each.quality is not None]
    # The tokens and words of these fields are of the third language.
    names = ("alignment", "source_tokens", "word_alignment")
    cleared: dict[str, Any] = {name: () for name in names if getattr(second, name) is not None}
    restored = Counter(first.restored) | Counter(second.restored)
    return replace(
        second,
        **cleared,
        text=source if untranslated else second.text,  # `second` may have the third language
        untranslated=untranslated,
        restored=() if untranslated else (*restored.elements(),),
        is_complete=first.is_complete and second.is_complete,
        repeated=first.repeated or second.repeated,
        unknown_share=max(first.unknown_share, second.unknown_share),
        quality=min(qualities) if len(qualities) == 2 else None,
    )
