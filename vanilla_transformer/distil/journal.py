"""The journal of a teacher: a file of its answers, none of which is lost or asked for twice."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep

from vanilla_transformer.distil.filters import mask_parts, restore_parts
from vanilla_transformer.distil.teachers import Answer, Teacher
from vanilla_transformer.files.atomic_files import explained_full_disk
from vanilla_transformer.progress import Progress, print_message

PAUSES = (2, 10, 60)
"""Pauses in seconds before failed texts are asked again; any answer resets them."""
_MOST_FAILED, _LEAST_FAILED, _MOST_IN_A_ROW = 0.1, 5, 20
"""Failures are too many above this share and this number, or above the last number in a row.

All three are chosen, not measured.
"""


def are_too_many(failed: int, asked: int) -> bool:
    """Returns whether a teacher fails too often."""
    return failed > max(_LEAST_FAILED, _MOST_FAILED * asked)


class Journal:
    """The answers of a teacher by text, in a file that grows by lines of JSON.

    The file holds failures, too, so that their texts are asked last. A line that a kill or a full
    disk has cut off is removed when the file is opened again.

    Args:
        marks: Whether the teacher reads marks in place of kept parts.
        price: Cost of a million input tokens, and output tokens. Empty: it is not known.

    Attributes:
        failed: The reasons of the texts that have failed so far, in the order of their failures.
        tokens: The numbers of input and output tokens of the teacher.
    """

    def __init__(self, path: Path, teacher: Teacher, marks: bool, price: Sequence[float]) -> None:
        self.answers, self.failed, self.tokens = dict[str, str](), dict[str, str](), [0, 0]
        self.teacher, self._marks, self._price = teacher, marks, price
        path.touch()
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        for text, *answer in map(json.loads, whole.splitlines()):
            self._note(text, Answer(*answer))
        self._path, self._stream = path, path.open("ab", buffering=0)
        self._stream.truncate(len(whole))

    def cost(self, tokens: Sequence[float]) -> float | None:
        """Returns the cost of input and output tokens. None: it is not known."""
        if not self._price:
            return None
        return sum(price * count / 10**6 for price, count in zip(self._price, tokens, strict=True))

    def missing(self, texts: Iterable[str]) -> list[str]:
        """Returns the texts that have no answer."""
        return [text for text in texts if text not in self.answers]

    def ask(self, texts: Sequence[str]) -> None:
        """Asks the teacher for all missing answers; failed texts are asked again after pauses."""
        left, pauses = self._failed_last(self.missing(texts)), list(PAUSES)
        asked = {*left}
        self.failed = {text: reason for text, reason in self.failed.items() if text in asked}
        while left:
            self.ask_once(left, len(texts) - len(left))
            still = self._failed_last(self.missing(left))
            if len(still) < len(left):
                pauses = list(PAUSES)
            if not still or not pauses:
                break
            print_message(f"{self.describe_failures()} Next try in {pauses[0]} seconds.")
            sleep(pauses.pop(0))
            left = still

    def _failed_last(self, texts: Sequence[str]) -> list[str]:
        """Sorts texts: those that have not failed, then those that have failed first."""
        rank = {text: number for number, text in enumerate(self.failed)}
        return sorted(texts, key=lambda text: rank.get(text, -1))

    def ask_once(self, texts: Sequence[str], before: int = 0) -> None:
        """Asks the teacher once for each text, until too many texts have failed.

        Args:
            before: Number of other texts that have an answer.
        """
        began = monotonic()
        with Progress(before + len(texts), "texts", work="Teacher", done=before) as progress:

            def note() -> str:
                rate = (progress.done - before) / (monotonic() - began)
                use = describe_use(self.tokens, self.cost(self.tokens))
                return ", ".join([f"{rate:,.1f} texts/s", *use])

            for rows in self._answers_to(texts, before):
                self._add(rows)
                progress.update(progress.done + len(self.answers.keys() & rows.keys()), note)

    def _answers_to(self, texts: Sequence[str], asked: int) -> Iterator[dict[str, Answer]]:
        """Yields answers as they come, until too many of the asked texts have failed."""
        failed, in_a_row, size = 0, 0, self.teacher.chunk
        for chunk in (texts[begin : begin + size] for begin in range(0, len(texts), size)):
            masked = [mask_parts(text) if self._marks else (text, {}) for text in chunk]
            for answers in self.teacher.answer([text for text, _ in masked]):
                yield {chunk[n]: restore_parts(each, masked[n][1]) for n, each in answers}
                asked += len(answers)
                for _, answer in answers:
                    failed += answer.text is None
                    in_a_row = in_a_row + 1 if answer.text is None else 0
                if in_a_row > _MOST_IN_A_ROW or are_too_many(failed, asked):
                    return

    def _add(self, rows: Mapping[str, Answer]) -> None:
        """Writes answers in one piece, so that a model computes the same batches after a kill."""
        lines = (json.dumps((text, *row), ensure_ascii=False) for text, row in rows.items())
        content = "".join(f"{line}\n" for line in lines).encode()
        with explained_full_disk(self._path):
            while content:  # a disk that is nearly full takes a part
                content = content[self._stream.write(content) :]
        for text, row in rows.items():
            self._note(text, row)

    def _note(self, text: str, answer: Answer) -> None:
        self.failed.pop(text, None)
        if answer.text is None:
            self.failed[text] = answer.reason  # behind those that have failed before it
            return
        self.answers[text] = answer.text
        self.tokens = [sum(side) for side in zip(self.tokens, answer.tokens, strict=True)]

    def describe_failures(self) -> str:
        """Says how many texts have failed, and the most frequent reason."""
        ((reason, _),) = Counter(self.failed.values()).most_common(1)
        return f"The teacher has failed on {len(self.failed):,} texts, most often: {reason}."


def describe_use(tokens: Sequence[float], cost: float | None) -> list[str]:
    """Describes the tokens of a teacher and their cost, as far as there are any."""
    told = [f"{tokens[0]:,.0f} + {tokens[1]:,.0f} tokens"] if any(tokens) else []
    return told if cost is None else [*told, f"cost {cost:,.2f}"]
