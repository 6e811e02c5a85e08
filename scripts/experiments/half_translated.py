"""Finishes half-translated PO files, with and without their own memory.

Of each catalogue a share of the messages is hidden, in blocks of neighbours. They are translated by
the model alone, by the target of the most similar message that is left, and with the memory of what
is left, or with --unrelated of what is left of the catalogue before: as texts, and as a PO file,
which has the repaired translations of very similar texts. The table has the scores by the
similarity to that message: BLEU, chrF, and the share of outputs that equal the person's.

    python scripts/experiments/half_translated.py model_cards/program-texts catalogues --language de

With --leave-one-out, no model runs. Each message is searched for among all other messages of all
programs. The line has the numbers of messages, of exact matches, and of those that equal the
translation of the message; some that do not equal it follow.

The directory holds `PROGRAM/LANGUAGE.po`, or `.po.gz`.
"""

import argparse
import gzip
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from random import Random

import sacrebleu
from sacrebleu.significance import PairedTest

from vanilla_transformer import Translator
from vanilla_transformer.documents.marked_text import MarkedText
from vanilla_transformer.documents.places import FileText
from vanilla_transformer.documents.po import PoFile
from vanilla_transformer.documents.translation import plan_marked
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.text.memory import Memory, Pair
from vanilla_transformer.training.metrics import score_tokenizer

CLASSES = (0.8, 0.6, 0.4, 0.0)
BLOCK = 10
"""Messages of a block that is hidden."""


def hide(pairs: Sequence[Pair], share: float, chance: Random) -> tuple[list[Pair], list[Pair]]:
    """Divides the messages of a file into those that are left and those that are hidden."""
    begins = range(0, len(pairs), BLOCK)
    hidden = set(chance.sample(begins, round(share * len(begins))))
    rows: tuple[list[Pair], list[Pair]] = [], []
    for number, pair in enumerate(pairs):
        rows[number - number % BLOCK in hidden].append(pair)
    return rows


def leave_one_out(files: Sequence[Sequence[Pair]], shown: int = 40) -> None:
    """Prints how many exact matches among all other messages are what the person has."""
    memory, places, found = Memory(), list[int](), list[tuple[Pair, str]]()
    for pair in chain.from_iterable(files):
        places.append(len(memory))
        memory.add(pair)
    stored, remaining = memory._pairs, iter(places)
    for pairs in files:
        around = ["", *(pair.source for pair in pairs), ""]
        for before, pair, behind, place in zip(around, pairs, around[2:], remaining, strict=False):
            is_stored = place < len(stored) and stored[place] is pair
            if is_stored:  # which hides it
                stored[place] = pair._replace(is_doubtful=True)
            exact = memory.exact(pair.source, pair.context, before, behind)
            if exact and pair.target and not pair.is_doubtful:
                found.append((pair, exact.target))
            if is_stored:
                stored[place] = pair
    others = [(pair, target) for pair, target in found if pair.target != target]
    num_translated = sum(
        bool(pair.target) and not pair.is_doubtful for pair in chain.from_iterable(files)
    )
    print(f"| {num_translated} | {len(found)} | {len(found) - len(others)} |")
    for pair, target in Random(1).sample(others, min(shown, len(others))):
        print(f"{pair.source!r} ({pair.context}): {pair.target!r}, found {target!r}")


def finished(
    translator: Translator,
    sources: Sequence[str],
    language: str,
    memories: Sequence[Memory] = (),
    marks_doubt: bool = False,
) -> list[str]:
    """Returns the translations of messages, as in a document with memories."""
    marked, options = (
        [FileText(MarkedText(source)) for source in sources],
        TranslateOptions(target_language=language),
    )
    planned = plan_marked(translator, marked, options, memories, marks_doubt)
    outputs = [row[0] for row in translator.run(planned.job)]
    return [text.plain for text in planned.place_tags(outputs)]


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("catalogues", type=Path)
    parser.add_argument("--language", required=True, help="that of the targets, such as de")
    parser.add_argument("--programs", nargs="+", help="those of the catalogues; all by default")
    parser.add_argument("--share", type=float, default=0.3, help="of the messages that are hidden")
    parser.add_argument("--most", type=int, default=300, help="hidden messages of a catalogue")
    parser.add_argument("--unrelated", action="store_true", help="memory of another catalogue")
    parser.add_argument("--leave-one-out", action="store_true", help="score exact matches alone")
    options = parser.parse_args(argv)
    files: dict[str, list[Pair]] = {}
    for path in sorted(options.catalogues.glob(f"*/{options.language}.po*")):
        if options.programs and path.parent.name not in options.programs:
            continue
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        files[path.parent.name] = [pair for pair in PoFile(content).pairs if pair.source.strip()]
    if options.leave_one_out:
        leave_one_out(list(files.values()))
        return
    translator = Translator.from_pretrained(options.model)
    former = Memory()
    rows: dict[float, list[tuple[str, ...]]] = {least: [] for least in CLASSES}
    for pairs in files.values():
        left, hidden = hide(pairs, options.share, Random(1))
        hidden, memory = hidden[: options.most], Memory(left)
        if options.unrelated:
            memory, former = former, memory
        sources = [pair.source for pair in hidden]
        language = options.language
        systems = (
            finished(translator, sources, language),
            finished(translator, sources, language, [memory]),
            finished(translator, sources, language, [memory], marks_doubt=True),
        )
        for pair, *texts in zip(hidden, *systems, strict=True):
            nearest = memory.similar(pair.source, 0.0)
            similarity, copied = (nearest.similarity, nearest.target) if nearest else (0.0, "")
            group = next(least for least in CLASSES if similarity >= least)
            rows[group].append((pair.target, copied, *texts))
    tokenizer = score_tokenizer(options.language)
    print("| similarity | messages | system | BLEU | chrF | equal | p |\n" + "|---" * 7 + "|")
    for least, of_class in rows.items():
        if not of_class:
            continue
        references, copies, plain_texts, with_memory, of_file = (
            list(side) for side in zip(*of_class, strict=True)
        )
        bleu, chrf = sacrebleu.BLEU(tokenize=tokenizer), sacrebleu.CHRF()
        of_system = {"copied": copies, "model": plain_texts, "with memory": with_memory}
        of_system["PO file"] = of_file
        scores = {
            name: bleu.corpus_score(of_system[name], [references]).score for name in of_system
        }
        better = max(("copied", "model"), key=lambda name: scores[name])
        compared: list[tuple[str, Sequence[str]]] = [
            (better, of_system[better]),
            ("PO file", of_file),
        ]
        _, results = PairedTest(compared, {"BLEU": bleu}, [references], test_type="bs")()
        p_values = {"PO file": f"{results['BLEU'][1].p_value:.3f}"}  # type: ignore[union-attr]  # sacrebleu says "str | Result"
        for name, outputs in of_system.items():
            equal = sum(map(str.__eq__, outputs, references)) / len(references)
            cells = (
                *(f"{least:.0%}", len(references), name, f"{scores[name]:.1f}"),
                f"{chrf.corpus_score(outputs, [references]).score:.1f}",
                *(f"{equal:.1%}", p_values.get(name, "")),
            )
            print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
