"""Compares a student with a model of Firefox in the package fxtranslate: chrF, parts, and time.

    pip install fxtranslate
    python scripts/experiments/beside_fxtranslate.py runs/enpt/model firefox-enpt test.tsv

The second directory holds `model*.bin` and `vocab*.spm` of Firefox, the file lines of source, tab
and human translation. Both compute with one thread and take turns; processor time counts. The
package has no batches: its time for many texts is that of one after the other.
"""

import argparse
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import process_time

os.environ["OMP_NUM_THREADS"] = "1"  # torch and CTranslate2 read it when they are imported

from sacrebleu import corpus_chrf

from vanilla_transformer import Translator
from vanilla_transformer.text.patterns import find_patterns

BATCH = 60
Ways = dict[str, Callable[[list[str]], list[str]]]


def time_turns(ways: Ways, parts: list[list[str]]) -> None:
    """Prints the median processor time of a text for each way, and its ratio to the last way."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for part in parts:
        for name, translate in ways.items():
            begun = process_time()
            translate(part)
            seconds[name].append((process_time() - begun) / len(part))
    *_, last = seconds.values()
    for name, times in seconds.items():
        ratio = median(one / other for one, other in zip(times, last, strict=True))
        total = sum(times) / sum(last)
        print(f"  {name}: {1000 * median(times):.1f} ms, {ratio:.2f} (of the sums {total:.2f})")


def share_of_kept(sources: list[str], outputs: list[str]) -> str:
    """Counts the placeholders and addresses of sources that the outputs have."""
    kept = total = 0
    for source, output in zip(sources, outputs, strict=True):
        parts = Counter(source[begin:end] for (begin, end), _ in find_patterns(source))
        total += parts.total()
        kept += sum(min(count, output.count(part)) for part, count in parts.items())
    return f"{kept} of {total}"


def main(argv: Sequence[str] | None = None) -> None:
    """Prints scores, kept parts and times of both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("firefox", type=Path)
    parser.add_argument("test")
    parser.add_argument("--compute-type", default="int8")
    parser.add_argument("--source-language", default="en")
    parser.add_argument("--target-language", default="pt")
    options = parser.parse_args(argv)
    import fxtranslate  # no extra installs it, and the help text needs none

    lines = Path(options.test).read_text(encoding="utf-8").splitlines()
    sources, references = map(list, zip(*(line.split("\t")[:2] for line in lines), strict=True))
    student = Translator.from_pretrained(
        options.model, "ctranslate2", "cpu", compute_type=options.compute_type
    )
    (weights,), (vocabulary,) = (
        options.firefox.glob(name) for name in ("model*.bin", "vocab*.spm")
    )
    words = vocabulary.read_bytes()
    firefox = fxtranslate.Translator(model=weights.read_bytes(), src_vocab=words, trg_vocab=words)
    languages = {"src_lang": options.source_language, "tgt_lang": options.target_language}
    ways: Ways = {
        "student": lambda texts: student.translate(texts, **languages),
        "fxtranslate": lambda texts: list(map(firefox.translate, texts)),
    }
    for name, translate in {**ways, "copying": list[str]}.items():
        outputs = translate(sources)
        score = corpus_chrf(outputs, [references]).score
        print(f"{name}: chrF {score:.1f}, {share_of_kept(sources, outputs)} parts kept")
    print("One by one:")
    time_turns(ways, [[text] for text in sources])
    print(f"{BATCH} together:")
    time_turns(ways, [sources[n : n + BATCH] for n in range(0, len(sources), BATCH)])


if __name__ == "__main__":
    main()
