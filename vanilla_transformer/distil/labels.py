"""The labels of texts: which texts a teacher is asked, and a journal that loses no answer."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import monotonic, sleep

from vanilla_transformer.data.near_twins import is_twin, memory_of_sources
from vanilla_transformer.distil.filters import MaskedText, mask_parts
from vanilla_transformer.distil.teachers import Answer, Teacher
from vanilla_transformer.files.atomic_files import explained_full_disk
from vanilla_transformer.files.file_contents import text_digest
from vanilla_transformer.progress import Progress, print_message, with_progress

PAUSES = (2, 10, 60)
"""Seconds before what has failed is tried again; after an answer they begin anew."""
_MOST_FAILED, _LEAST_FAILED = 0.1, 5
"""Share of failures that ends the labelling, and how many never do. Chosen, not measured."""


def choose_texts(
    texts: Iterable[str], test: Sequence[str], held_out: int, most: int | None
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Chooses the texts of "train", "validation" and "test", each once, and counts the others.

    Held out are the texts of the least digests: more texts later change few of them.

    Args:
        test: Texts of the test. Empty: some of the texts are held out for it, too.
        most: The most texts to learn from.
    """
    lines = (" ".join(line.split()) for text in texts for line in text.splitlines())
    unique = dict.fromkeys(filter(None, lines))
    drawn = sorted(unique.keys() - set(test), key=text_digest)
    count = min(held_out, len(drawn) // 10)
    splits = {"validation": drawn[:count], "test": list(test) or drawn[count : 2 * count]}
    held = dict.fromkeys(text for split in splits.values() for text in split)
    memory = memory_of_sources(held, ())
    others = [text for text in unique if text not in held]
    compared = with_progress(others, "texts", "Comparing with held-out texts")
    train = [text for text in compared if not is_twin(memory, text)]
    if not train or not count:
        raise ValueError(f"{len(unique):,} different texts are too few: give thousands.")
    splits["train"] = train if most is None else covering_sample(train, most)
    twins, spare = len(others) - len(train), len(train) - len(splits["train"])
    return splits, {"like held-out texts": twins, "more than wanted": spare}


def covering_sample(texts: list[str], most: int) -> list[str]:
    """Draws texts: up to half of them because they have three letters in a row that are new."""
    order = sorted(range(len(texts)), key=lambda index: text_digest(texts[index]))
    seen, chosen = set[str](), dict[int, None]()
    for index in order:
        text = f" {texts[index].casefold()} "
        parts = {text[begin : begin + 3] for begin in range(len(text) - 2)}
        if len(chosen) < most // 2 and not parts <= seen:
            chosen[index] = None
            seen |= parts
    rest = [index for index in order if index not in chosen]
    return [texts[index] for index in sorted([*chosen, *islice(rest, most - len(chosen))])]


class Labels:
    """The answers of a teacher by text, in a file that grows by lines of JSON.

    A line that a kill or a full disk has cut off is taken out when the file is opened again.

    Args:
        marks: Whether the teacher reads marks in place of kept parts.
        price: Cost of a million input tokens, and output tokens. Empty: it is not known.
    """

    def __init__(self, path: Path, teacher: Teacher, marks: bool, price: Sequence[float]) -> None:
        path.touch()
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        rows = [json.loads(line) for line in whole.splitlines()]
        self.answers: dict[str, str] = {text: output for text, output, _ in rows}
        self._paid = [tuple(paid) for *_, paid in rows]
        self.failed = dict[str, str]()
        self.teacher, self._marks, self._price = teacher, marks, price
        self._path, self._stream = path, path.open("ab", buffering=0)
        self._stream.truncate(len(whole))

    @property
    def tokens(self) -> tuple[int, int]:
        """The numbers of input and output tokens of the teacher."""
        return sum(inputs for inputs, _ in self._paid), sum(outputs for _, outputs in self._paid)

    def cost(self, tokens: Sequence[float]) -> str:
        """Describes tokens and their cost; "": there are none."""
        cost = sum(price * count / 10**6 for price, count in zip(self._price, tokens, strict=False))
        told = f", {tokens[0]:,.0f} + {tokens[1]:,.0f} tokens" if any(tokens) else ""
        return told + f", cost {cost:,.2f}" * bool(self._price)

    def ask(self, texts: Sequence[str]) -> None:
        """Asks the teacher for what is lacking; failures are tried again after pauses."""
        todo, pauses = [text for text in texts if text not in self.answers], list(PAUSES)
        began = monotonic()
        with Progress(len(texts), "texts", work="Teacher", done=len(texts) - len(todo)) as progress:
            before = progress.done

            def note() -> str:
                rate = (progress.done - before) / (monotonic() - began)
                return f"{rate:,.1f} texts/s{self.cost(self.tokens)}"

            while todo:
                self.failed, count = {}, len(self.answers)
                for rows in self._answers_to(todo):
                    self._add(rows)
                    progress.update(progress.done + len(self.answers.keys() & rows.keys()), note)
                others = [t for t in todo if t not in self.answers and t not in self.failed]
                todo = [*self.failed, *others]
                pauses = list(PAUSES) if len(self.answers) > count else pauses
                if not todo or not pauses:
                    break
                print_message(f"{self.describe_failures()} Next try in {pauses[0]} seconds.")
                sleep(pauses.pop(0))

    def _answers_to(self, texts: Sequence[str]) -> Iterable[dict[str, Answer]]:
        """Yields answers as they come, until too many texts have failed."""
        asked, size = 0, self.teacher.chunk
        for chunk in (texts[n : n + size] for n in range(0, len(texts), size)):
            marked = [mask_parts(text) if self._marks else MaskedText(text) for text in chunk]
            for answers in self.teacher.answer([each.text for each in marked]):
                yield {chunk[index]: marked[index].restore(each) for index, each in answers}
                asked += len(answers)
                if self.has_failed(asked):
                    return

    def _add(self, rows: Mapping[str, Answer]) -> None:
        """Writes answers in one piece, so that a model computes the same batches after a kill."""
        self.failed |= {text: row.reason for text, row in rows.items() if row.output is None}
        good = [(text, row) for text, row in rows.items() if row.output is not None]
        lines = ([text, row.output, row.tokens] for text, row in good)
        content = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode()
        with explained_full_disk(self._path):
            while content:  # a disk that is nearly full takes a part
                content = content[self._stream.write(content) :]
        self.answers |= {text: str(row.output) for text, row in good}
        self._paid += [row.tokens for _, row in good]

    def has_failed(self, num_texts: int) -> bool:
        """Returns whether the teacher fails too often."""
        return len(self.failed) > max(_LEAST_FAILED, _MOST_FAILED * num_texts)

    def describe_failures(self) -> str:
        """Says how many texts have failed, and the most frequent reason."""
        ((reason, _),) = Counter(self.failed.values()).most_common(1)
        return f"The teacher has failed on {len(self.failed):,} texts, most often: {reason}."
