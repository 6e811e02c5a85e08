"""Reports of corpora: the pairs that were read, and the pairs that filters have dropped."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.compute as pc  # type: ignore[import-untyped]  # pyarrow ships no types
from datasets import Dataset
from numpy import bool_
from numpy.typing import NDArray

_MOST_EXAMPLES = 3


@dataclass(frozen=True)
class CorpusReport:
    """The training pairs of a corpus.

    Attributes:
        pairs: Number of all its pairs.
        used: Number of the pairs in use.
        copies: Number of their copies in other case.
        share: Share of the pairs of an epoch.
        dropped: Number of pairs that each filter has dropped, by its name.
    """

    corpus: str
    pairs: int
    used: int
    copies: int
    share: float
    dropped: Mapping[str, int]

    @property
    def tells_something(self) -> bool:
        """Whether the corpus is not simply all of an epoch."""
        return bool(self.dropped or self.copies) or self.share < 1

    def describe(self) -> str:
        """Returns the report in words."""
        dropped = f" ({list_reasons(self.dropped)})" if self.dropped else ""
        copies = f", and {self.copies:,} copies in other case" if self.copies else ""
        return (
            f"Corpus {self.corpus}: {self.used:,} of {self.pairs:,} pairs are used{dropped}"
            f"{copies}; {self.share:.1%} of an epoch."
        )


def list_reasons(reasons: Mapping[str, int]) -> str:
    """Returns numbers of dropped pairs in words."""
    return ", ".join(f"{name} {count:,}" for name, count in reasons.items())


def count_reasons(table: Dataset) -> Counter[str]:
    """Counts the pairs that each filter drops from a table, the most frequent reason first."""
    counted = pc.value_counts(table.with_format("arrow")["reason"][:]).to_pylist()
    counts = Counter({row["values"]: row["counts"] for row in counted if row["values"]})
    return Counter(dict(counts.most_common()))


def rows_with_reason(table: Dataset, reason: str) -> NDArray[bool_]:
    """Returns for each row whether a filter drops it; the reason "" finds the kept rows."""
    is_dropped = pc.equal(table.with_format("arrow")["reason"][:], reason)
    rows: NDArray[bool_] = is_dropped.to_numpy(zero_copy_only=False)
    return rows


def dropped_examples(table: Dataset, reason: str) -> Dataset:
    """Returns the first pairs that a filter drops from a table."""
    return table.select(rows_with_reason(table, reason).nonzero()[0][:_MOST_EXAMPLES])
