"""The texts of a distillation: which of them are learned from, and which are held out."""

from collections.abc import Iterable, Sequence
from itertools import islice

from vanilla_transformer.data.near_twins import is_twin, memory_of_sources
from vanilla_transformer.files.file_contents import text_digest
from vanilla_transformer.progress import print_message, with_progress


def choose_texts(
    texts: Iterable[str], test: Sequence[str], held_out: int, most: int | None
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Chooses the texts of "train", "validation" and "test", and says how many there are.

    The texts with the smallest digests are held out, so that more texts later change few of them.

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
    counts = {name: len(split) for name, split in splits.items()}
    counts["like held-out texts"] = len(others) - len(train)
    counts["more than wanted"] = len(train) - len(splits["train"])
    print_message(f"Texts: {', '.join(f'{name} {n:,}' for name, n in counts.items())}.")
    return splits, counts


def covering_sample(texts: list[str], most: int) -> list[str]:
    """Draws texts in a fixed order; a text with a new sequence of three letters goes first.

    At most half of the sample is drawn for its letters.
    """
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
