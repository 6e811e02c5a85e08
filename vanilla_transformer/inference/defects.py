"""Warnings: outputs that are cut off, untranslated texts, characters that no model reads."""

from collections.abc import Callable, Iterable, Sequence

from transformers.utils import logging

from vanilla_transformer.inference.results import Translation
from vanilla_transformer.text.lines import count_characters

logger = logging.get_logger(__name__)

MOST_NAMED = 10
"""Texts that a warning names."""


def _named(indices: Iterable[int], name_text: Callable[[int], str] | None) -> str:
    """Returns the names of the first texts of some indices, and how many more there are."""
    names = [name_text(n) if name_text else f"text {n + 1}" for n in dict.fromkeys(indices)]
    others = f", and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{others}"


class Defects:
    """Counts the defects of texts and their outputs, to warn of them once."""

    def __init__(self) -> None:
        self.num_texts = self.num_repeated = self.longest = self.num_characters = 0
        self.cut_off: list[int] = []  # for each output that is, the index of its text
        self.untranslated: list[int] = []
        self.num_unknown = 0.0

    def add(self, text: str, outputs: Sequence[Translation], longest: int) -> None:
        """Counts the defects of a text and its outputs, which have at most `longest` tokens."""
        best, cut_off = outputs[0], [output for output in outputs if not output.is_complete]
        self.cut_off += [self.num_texts] * len(cut_off)
        self.num_repeated += sum(output.repeated for output in cut_off)
        if best.untranslated:
            self.untranslated.append(self.num_texts)
        num_characters = count_characters(text)
        self.num_characters += num_characters
        self.num_unknown += num_characters * best.unknown_share
        self.longest = longest
        self.num_texts += 1

    def warn(self, name_text: Callable[[int], str] | None) -> None:
        """Warns of each kind of defect that there is."""
        if self.cut_off:
            logger.warning(
                f"Outputs that are cut off at the longest length of {self.longest} tokens: "
                f"{len(self.cut_off):,}, in {_named(self.cut_off, name_text)}. "
                + (
                    f"{self.num_repeated:,} of them repeat themselves: train the model longer."
                    if self.num_repeated
                    else "Give a larger `max_new_tokens` (--max-new-tokens)."
                )
            )
        if self.untranslated:
            logger.warning(
                f"The source stays in {_named(self.untranslated, name_text)}: placeholders without "
                "numbers, such as %s, would be in another order."
            )
        if self.num_unknown:
            share = self.num_unknown / self.num_characters
            logger.warning(
                f"The vocabulary lacks {self.num_unknown:,.0f} of {self.num_characters:,} "
                f"characters of the texts ({share:.1%}), so the model does not see them. "
                "`unknown_share` of a result (--json) tells the share of its text."
            )
