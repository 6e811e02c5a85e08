"""Jobs: requests with all decisions made. `Translator.plan` makes a job, `run` computes it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from vanilla_transformer.inference.engine import Engine
from vanilla_transformer.inference.memory_use import MemoryUse
from vanilla_transformer.inference.options import Metric, OutputOptions
from vanilla_transformer.model.directions import Direction
from vanilla_transformer.search import Search
from vanilla_transformer.text.edits import SourceSpan
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.text.terms import Glossary


@dataclass(frozen=True)
class Call:
    """The search, the engine and the details of a computation.

    Requests with equal options have equal calls, so that their segments may share batches. A call
    that `Steps.with_search` has made is never compared: it would be equal to that of its request.

    Attributes:
        batch_tokens: Largest number of tokens of a batch, with padding.
        has_optional_retries: Whether outputs that repeat themselves, lack sentences or have values
            in another order are computed again. Copies of a similar text and missing terms always
            are.
        given: The options that decide the search, and with it the engine.
    """

    search: Search = field(compare=False)
    engine: Engine = field(compare=False)
    details: OutputOptions
    batch_tokens: int
    has_optional_retries: bool = True
    given: Mapping[str, Any] = field(default_factory=dict)


class Demands(NamedTuple):
    """The terms, placeholders and further parts of sources that outputs must contain.

    Attributes:
        glossary: Terms with given translations.
        keeps: Whether outputs keep placeholders and the like, and have no other ones.
        patterns: Compiled regular expressions of further parts that they keep.
    """

    glossary: Glossary = Glossary(())
    keeps: bool = True
    patterns: tuple[Any, ...] = ()

    def find_kept(
        self, text: str, unknown: Sequence[SourceSpan] = (), flags: frozenset[str] = frozenset()
    ) -> list[SourceSpan]:
        """Finds the parts of a text that its outputs keep; see `kept_spans`."""
        return kept_spans(text, unknown, self.patterns, flags=flags) if self.keeps else []


NO_DEMANDS = Demands()


class JobText(NamedTuple):
    """A text of a job.

    Attributes:
        former: The use of a former translation. None: there is none.
        flags: The flags of gettext that a message has, such as `c-format`.
        kept: The spans of the parts that its outputs keep. None: the `Reader` finds them.
    """

    text: str
    direction: Direction
    former: MemoryUse | None = None
    flags: frozenset[str] = frozenset()
    kept: Sequence[SourceSpan] | None = None


@dataclass(frozen=True)
class Job:
    """All decisions on a request.

    Attributes:
        metric: Chooses one of several outputs; see `least_risk`. None: all are returned.
        in_sentences: Whether each sentence is translated alone.
    """

    texts: Sequence[JobText]
    call: Call
    demands: Demands = NO_DEMANDS
    metric: Metric | None = None
    in_sentences: bool = False

    def select(self, indices: Iterable[int]) -> "Job":
        """Returns the job of some of the texts."""
        return replace(self, texts=[self.texts[index] for index in indices])

    def for_chunks(self, texts: Iterable[JobText], count: int) -> "Iterator[Job]":
        """Yields jobs with these decisions for `count` texts each, the last one for fewer."""
        remaining = iter(texts)
        while chunk := list(islice(remaining, count)):
            yield replace(self, texts=chunk)
