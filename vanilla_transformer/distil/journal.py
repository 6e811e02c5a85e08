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
_MOST_FAILED, _LEAST_FAILED = 0.1, 5
"""Failures are too many above this share, and above this number. Chosen, not measured."""


def are_too_many(failed: int, asked: int) -> bool:
    """Returns whether a teacher fails too often."""
    return failed > max(_LEAST_FAILED, _MOST_FAILED * asked)


class Journal:
    """The answers of a teacher by text, in a file that grows by lines of JSON.

    A line that a kill or a full disk has cut off is removed when the file is opened again.

    Args:
        marks: Whether the teacher reads marks in place of kept parts.
        price: Cost of a million input tokens, and output tokens. Empty: it is not known.
    """

    def __init__(self, path: Path, teacher: Teacher, marks: bool, price: Sequence[float]) -> None:
        path.touch()
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        rows = [json.loads(line) for line in whole.splitlines()]
        self.answers: dict[str, str] = {text: answer for text, answer, _ in rows}
        self.tokens = [sum(side) for side in zip((0, 0), *(row[2] for row in rows), strict=True)]
        """The numbers of input and output tokens of the teacher."""
        self.failed = dict[str, str]()
        self.teacher, self._marks, self._price = teacher, marks, price
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
        pauses = list(PAUSES)
        while left := self.missing(texts):
            self.ask_once(texts)
            still = self.missing(left)
            pauses = list(PAUSES) if len(still) < len(left) else pauses
            if not still or not pauses:
                break
            print_message(f"{self.describe_failures()} Next try in {pauses[0]} seconds.")
            sleep(pauses.pop(0))

    def ask_once(self, texts: Sequence[str]) -> None:
        """Asks the teacher once for each missing answer, until too many texts have failed."""
        left, began = self.missing(texts), monotonic()
        before = len(texts) - len(left)
        with Progress(len(texts), "texts", work="Teacher", done=before) as progress:

            def note() -> str:
                rate = (progress.done - before) / (monotonic() - began)
                use = describe_use(self.tokens, self.cost(self.tokens))
                return ", ".join([f"{rate:,.1f} texts/s", *use])

            for rows in self._answers_to(left, before):
                self._add(rows)
                progress.update(progress.done + len(self.answers.keys() & rows.keys()), note)

    def _answers_to(self, texts: Sequence[str], asked: int) -> Iterator[dict[str, Answer]]:
        """Yields answers as they come, until too many of the asked texts have failed."""
        failed, size = 0, self.teacher.chunk
        for chunk in (texts[begin : begin + size] for begin in range(0, len(texts), size)):
            masked = [mask_parts(text) if self._marks else (text, {}) for text in chunk]
            for answers in self.teacher.answer([text for text, _ in masked]):
                yield {chunk[n]: restore_parts(each, masked[n][1]) for n, each in answers}
                asked += len(answers)
                failed += sum(each.text is None for _, each in answers)
                if are_too_many(failed, asked):
                    return

    def _add(self, rows: Mapping[str, Answer]) -> None:
        """Writes answers in one piece, so that a model computes the same batches after a kill."""
        good = [(text, row.text, row.tokens) for text, row in rows.items() if row.text is not None]
        content = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in good).encode()
        with explained_full_disk(self._path):
            while content:  # a disk that is nearly full takes a part
                content = content[self._stream.write(content) :]
        self.answers |= {text: answer for text, answer, _ in good}
        paid = (tokens for *_, tokens in good)
        self.tokens = [sum(side) for side in zip(self.tokens, *paid, strict=True)]
        self.failed |= {text: row.reason for text, row in rows.items() if row.text is None}
        for text, *_ in good:
            self.failed.pop(text, None)

    def describe_failures(self) -> str:
        """Says how many texts have failed, and the most frequent reason."""
        ((reason, _),) = Counter(self.failed.values()).most_common(1)
        return f"The teacher has failed on {len(self.failed):,} texts, most often: {reason}."


def describe_use(tokens: Sequence[float], cost: float | None) -> list[str]:
    """Describes the tokens of a teacher and their cost, as far as there are any."""
    told = [f"{tokens[0]:,.0f} + {tokens[1]:,.0f} tokens"] if any(tokens) else []
    return told if cost is None else [*told, f"cost {cost:,.2f}"]
