"""The interface of engines, and their result: the target tokens of a source."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformers import GenerationConfig

from vanilla_transformer.search import Search

Ids = Sequence[int]
OnBatch = Callable[[int], object]
"""A function that is called after each batch, with the number of its sources."""


@dataclass(frozen=True)
class Hypothesis:
    """The target tokens that an engine found for one source.

    Attributes:
        ids: Target tokens, without the start and the end.
        end: The token that ended the search. None: the output reached the longest length.
        aligned: The index of the aligned source token for each token. None: the engine has not
            aligned them.
    """

    ids: tuple[int, ...]
    end: int | None
    aligned: tuple[int, ...] | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids with the end, if there is one."""
        return self.ids if self.end is None else (*self.ids, self.end)


class Engine(ABC):
    """Computes the outputs of a model, and the scores of given targets.

    Sources are ids with the end.
    """

    name: str

    @property
    @abstractmethod
    def device_type(self) -> str:
        """The kind of the device, such as "cpu" or "cuda"."""

    @property
    def batch_tokens(self) -> int:
        """The tokens of a batch for which no option gives a number.

        A CPU's caches hold few: batches of 1,024 tokens take 0.7 to 0.8 of the time of 4,096 with
        transformers, and 0.8 to 1.04 with CTranslate2 (docs/log.md).
        """
        return 1024 if self.device_type == "cpu" else 4096

    def problems(self, search: Search) -> list[str]:
        """Lists the settings of a search that the engine cannot do; by default, there are none."""
        return []

    def token_problems(self, settings: GenerationConfig) -> list[str]:
        """Lists the settings of end tokens that differ from the end of the engine."""
        return []

    @abstractmethod
    def generate(
        self,
        sources: Sequence[Ids],
        search: Search,
        batch_tokens: int,
        align: bool = False,
        on_batch: OnBatch = lambda _: None,
    ) -> list[list[Hypothesis]]:
        """Computes `search.n_best` outputs for each source, best first.

        Args:
            batch_tokens: Largest number of tokens of a batch, with padding.
            align: Whether to align the outputs too, if the engine can do so as it searches.
        """

    @abstractmethod
    def token_scores(
        self, sources: Sequence[Ids], targets: Sequence[Ids], batch_tokens: int, start: int
    ) -> list[list[float]]:
        """Computes the log-probability in nats of each token of given targets.

        Args:
            targets: Ids of each target, the end included, without the start.
            start: The token before each target.
        """
