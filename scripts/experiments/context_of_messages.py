"""Does a message translate better when the model reads what stands around it in its catalogue?

Trains a model on whole catalogues and scores it on those of every fourth program. Behind a source
stands nothing (`none`), the message before it (`before`), or its `msgctxt` or else its extracted
comment (`note`), as a memory would. Batches, steps and seeds are equal for all three.

    vanilla-transformer vocabulary model_cards/program-texts grown --add-tokens "<|context|>"
    python scripts/experiments/context_of_messages.py grown catalogues before before.json
"""

import argparse
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import ctranslate2
import polib
import sacrebleu
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, get_scheduler

from vanilla_transformer.interop.ctranslate2 import convert_to_ctranslate2
from vanilla_transformer.training.muon import make_muon

TOKEN, LONGEST, MOST_SHOWN, MOST_TESTED, BATCH = "<|context|>", 128, 32, 150, 2048

Encoded = tuple[int, list[int], list[int]]  # number of tokens without context, source, target


def plain(text: str) -> str:
    """Returns a text on one line, without the signs of keys."""
    text = re.sub(r"&(?=\w)(?!\w+;)", "", " ".join(text.split()))
    return text.replace("_", "") if text.count("_") == 1 and " _" in f" {text}" else text


def rows_of(content: str) -> Iterator[dict[str, str]]:
    """Yields the messages of a catalogue; nothing, if their order is that of their sources."""
    entries = [entry for entry in polib.pofile(content) if not entry.obsolete]
    keys = [(entry.msgctxt or "", entry.msgid) for entry in entries]
    before = ""
    for entry in entries if keys != sorted(keys) else ():
        target = plain(entry.msgstr_plural.get(0, "") if entry.msgid_plural else entry.msgstr)
        note = re.sub(r"^[\s=*-]+|TRANSLATORS:?", "", entry.comment, flags=re.M | re.I)
        source, note = plain(entry.msgid), " ".join((entry.msgctxt or note).split())
        usable = re.search(r"[^\W\d_]", source) and source != target and len(source.split()) <= 60
        if usable and target and "fuzzy" not in entry.flags:
            yield {"source": source, "target": target, "before": before, "note": note}
        before = source


def read(folder: Path) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Returns the messages for training and for the test."""
    trained, tested = list[dict[str, str]](), list[dict[str, str]]()
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    families = [re.sub("-(manual|help|userguide)$", "", name) for name in names]
    for name, family in zip(names, families, strict=True):
        # The first model has learnt the texts of thonny; polib cannot read handbrake.
        is_tested = sorted({*families}).index(family) % 4 == 3 and name != "thonny"
        for path in sorted((folder / name).glob("[df][er].po.gz")) if name != "handbrake" else ():
            content, language = gzip.decompress(path.read_bytes()).decode(), path.name[:2]
            rows = [row | {"language": language} for row in rows_of(content)]
            if is_tested:
                rows = Random(name).sample(rows, min(MOST_TESTED, len(rows)))
            (tested if is_tested else trained).extend(rows)
    return trained, tested


def encode(tokenizer: Any, rows: Sequence[dict[str, str]], form: str) -> Iterator[Encoded]:
    """Encodes sources, with what stands behind them, and targets."""
    for row in rows:
        ids = tokenizer(f"<2{row['language']}> {row['source']}")["input_ids"][:-1][:LONGEST]
        shown = tokenizer(f"{TOKEN} {row[form]}")["input_ids"][:-1] if row.get(form) else []
        target = tokenizer(text_target=row["target"])["input_ids"][:LONGEST]
        source = [*ids, *shown[: MOST_SHOWN + 1], tokenizer.eos_token_id]
        yield len(ids) + len(target), source, target


def batches(encoded: Sequence[Encoded], chance: Random) -> Iterator[list[Encoded]]:
    """Yields batches by lengths without contexts, so that they are equal for all forms."""
    while True:
        made = [list[Encoded]()]
        for row in sorted(encoded, key=lambda row: row[0] + chance.random() * 4):
            if (len(made[-1]) + 1) * row[0] > BATCH:
                made.append([])
            made[-1].append(row)
        yield from chance.sample(made, len(made))


def train(model: Any, encoded: Sequence[Encoded], steps: int, seed: int) -> None:
    """Trains for a number of steps."""
    chosen, pad = batches(encoded, Random(seed)), model.config.pad_token_id
    torch.manual_seed(seed)
    optimizer = make_muon(model.train(), lr=0.002, muon_lr=0.01, betas=(0.9, 0.98))
    schedule = get_scheduler("linear", optimizer, 100, steps)
    for _ in range(steps):
        _, *sides = (map(torch.tensor, side) for side in zip(*next(chosen), strict=True))
        ids, labels = (pad_sequence([*sides[i]], True, (pad, -100)[i]) for i in range(2))
        model(input_ids=ids, attention_mask=(ids != pad).long(), labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def translate(model: Any, tokenizer: Any, encoded: Iterator[Encoded]) -> list[str]:
    """Returns outputs of a beam of 5."""
    with TemporaryDirectory() as folder:
        convert_to_ctranslate2(model.eval(), tokenizer, Path(folder, "model"))
        engine = ctranslate2.Translator(str(Path(folder, "model")), intra_threads=1)
    sources = [tokenizer.convert_ids_to_tokens(ids) for _, ids, _ in encoded]
    found = engine.translate_batch(sources, beam_size=5, max_batch_size=64)
    ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in found]
    return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]


def main() -> None:
    """Trains, translates, and prints the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("catalogues", type=Path)
    parser.add_argument("form", choices=("none", "before", "note"))
    parser.add_argument("output", type=Path, help="messages and outputs, also of wrong contexts")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    form, tokenizer = options.form, AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForSeq2SeqLM.from_pretrained(options.model)
    learnt, tested = read(options.catalogues)
    train(model, [*encode(tokenizer, learnt, form)], options.steps, options.seed)
    shown, chance = [row[form] for row in tested if row.get(form)], Random(1)
    wrong = [row | ({form: chance.choice(shown)} if row.get(form) else {}) for row in tested]
    for column, rows in ("output", tested), ("wrong", wrong):
        outputs = translate(model, tokenizer, encode(tokenizer, rows, form))
        tested = [row | {column: text} for row, text in zip(tested, outputs, strict=True)]
        for language in ("de", "fr"):
            some = [row for row in tested if row["language"] == language]
            texts, targets = ([row[side] for row in some] for side in (column, "target"))
            print(language, column, len(some), sacrebleu.corpus_chrf(texts, [targets]))
    options.output.write_text(json.dumps(tested, ensure_ascii=False, indent=0))


if __name__ == "__main__":
    main()
