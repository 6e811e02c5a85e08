"""How a request uses former translations of its texts."""

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
    """How a former translation of a text is used; by default, the result only tells of it.

    Attributes:
        answer: The output of the text, which no model computes. None: a model does.
        is_read: Whether the model reads the translation, which is of a similar text.
        is_repaired: Whether the output is this translation, with the words of the model where the
            texts differ.
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
    tells: bool = False,
    contexts: Iterable[str | None] = (),
) -> Iterator[MemoryUse | None]:
    """Decides the use of former translations of texts, by all thresholds but those of training.

    The decision on a text is made when it is needed, and needs the next text.

    For each text, the first rule that fits decides:
    1. A memory has an equal text: its translation is the answer. The first such memory counts.
    2. An answer can be marked as a proposal, and the model does not read the most similar text, or
       this has the same words: its translation is the answer.
    3. The model reads the most similar text; its translation is repaired if an answer can be marked
       as a proposal, and the texts are similar enough for it.
    4. The most similar text is only told.

    Args:
        texts: The texts of one file, in their order.
        reads: Whether the model reads a similar text, for each text.
        marks_doubt: Whether an answer can be marked as a proposal.
        tells: Whether a similar text is told where nothing uses its translation.
        contexts: The context of each text, as of a pair. Empty: they are unknown.
    """
    first, second, third = tee(texts, 3)
    around = zip(chain([""], first), second, chain(islice(third, 1, None), [""]), strict=False)
    rows = zip(around, contexts or repeat(None), reads, strict=False)
    for (before, text, behind), context, is_read in rows:
        equal = (memory.exact(text, context, before, behind) for memory in memories)
        if found := next(filter(None, equal), None):
            yield MemoryUse(found, answer=found.target)
            continue
        least = LEAST_READ if is_read else LEAST_SIMILARITY
        searched = memories if is_read or marks_doubt or tells else ()
        near = (memory.similar(text, least) for memory in searched)
        found = max(filter(None, near), key=lambda pair: pair.similarity, default=None)
        if found is None:
            yield None
        elif marks_doubt and (found.similarity == 1 or not is_read):
            yield MemoryUse(found, answer=found.target)
        else:
            is_repaired = is_read and marks_doubt and found.similarity >= LEAST_REPAIRED
            yield MemoryUse(found, is_read=is_read, is_repaired=is_repaired)
