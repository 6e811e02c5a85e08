"""The uses of former translations in a request, and the choice among these."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat, tee
from typing import NamedTuple

from vanilla_transformer.text.memory import LEAST_READ, LEAST_SIMILARITY, Memory, Suggestion

LEAST_REPAIRED = 0.7
"""Smallest similarity at which a repaired translation is proposed in place of the model's output.

Chosen on the catalogues of 13 programs. Texts with the same words have the stored translation as it
is: they differ in placeholders, numbers, case or signs at the end.
"""


class MemoryUse(NamedTuple):
    """The use of a former translation of a text. By default, the result only shows it.

    Attributes:
        answer: The output of the text. None: a model computes it.
        is_read: Whether the model reads the translation, which belongs to a similar text.
        is_repaired: Whether the output is this translation with the words of the model at the
            differences of the texts.
    """

    suggestion: Suggestion
    answer: str | None = None
    is_read: bool = False
    is_repaired: bool = False


def decide_memory_uses(
    texts: Iterable[str],
    memories: Sequence[Memory],
    reads: Iterable[bool],
    *,
    marks_doubt: bool = False,
    shows_similar: bool = False,
    contexts: Iterable[str | None] = (),
) -> Iterator[MemoryUse | None]:
    """Yields the use of former translations for each text.

    The stored translation of an equal text is the answer. That of a similar text is an answer only
    if it can be marked as doubtful, and if the words are the same or the model cannot read it.
    Otherwise the model reads it, if it can, and the result shows it. Each decision reads one text
    ahead.

    Args:
        texts: The texts of one file, in their order.
        reads: Whether the model reads a similar text, for each text.
        marks_doubt: Whether an answer can be marked as a proposal.
        shows_similar: Whether the result shows a similar text that nothing uses.
        contexts: The context of each text, as in `Pair`. Empty: the contexts are unknown.
    """
    rows = zip(_with_neighbours(texts), contexts or repeat(None), reads, strict=False)
    for (before, text, after), context, is_read in rows:
        use = exact_use(memories, text, context, before, after)
        if use is None and (is_read or marks_doubt or shows_similar):
            use = _similar_use(memories, text, is_read, marks_doubt)
        yield use


def exact_use(
    memories: Sequence[Memory],
    text: str,
    context: str | None,
    before: str | None = None,
    after: str | None = None,
) -> MemoryUse | None:
    """Returns the translation of an equal text as its answer. None: no memory has one."""
    found = (memory.exact(text, context, before, after) for memory in memories)
    return next((MemoryUse(known, known.target) for known in found if known), None)


def _similar_use(
    memories: Sequence[Memory], text: str, is_read: bool, marks_doubt: bool
) -> MemoryUse | None:
    """Returns the use of the translation of the most similar text. None: none is near enough."""
    least = LEAST_READ if is_read else LEAST_SIMILARITY
    similar = filter(None, (memory.similar(text, least) for memory in memories))
    found = max(similar, key=lambda suggestion: suggestion.similarity, default=None)
    if found is None:
        return None
    if marks_doubt and (found.similarity == 1 or not is_read):
        return MemoryUse(found, answer=found.target)  # as a proposal
    is_repaired = is_read and marks_doubt and found.similarity >= LEAST_REPAIRED
    return MemoryUse(found, is_read=is_read, is_repaired=is_repaired)


def _with_neighbours(texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yields each text between the one before it and the one after it; "": there is none."""
    before, same, after = tee(texts, 3)
    return zip(chain([""], before), same, chain(islice(after, 1, None), [""]), strict=False)
