"""Adds tokens to the vocabulary of a saved model: subwords of new texts, tags and languages.

A new row starts as the mean of the rows of the pieces that the old tokenizer cuts its token into.
Its logit is then the mean of theirs, so that greedy decoding never prefers it before training.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers
from transformers import AutoTokenizer

from vanilla_transformer.data.atomic_files import check_output_directory
from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.interop.sentencepiece_models import (
    NEVER,
    read_sentencepiece,
    sentencepiece_backend,
)
from vanilla_transformer.interop.tokenizer_tables import (
    BackendTable,
    PieceTable,
    read_tables,
)
from vanilla_transformer.interop.trimmed_vocabulary import (
    Plan,
    check_texts,
    load_model_and_tokenizer,
    read_texts,
    save_changed_model,
    set_rows,
)
from vanilla_transformer.model.directions import in_language
from vanilla_transformer.model.tokenization_vanilla_transformer import (
    VanillaTransformerTokenizer,
    lower_case,
)

_GAIN = 1e-3  # score of a new unigram piece above that of its two parts together
_Word = tuple[str, ...]


@dataclass(frozen=True)
class Grown:
    """A model with more tokens that was saved.

    Attributes:
        subwords: The new subwords of each vocabulary: one list, or the source's and the target's.
        sizes: Rows of the source and the target before and after.
    """

    subwords: list[list[str]]
    tokens: list[str]
    sizes: tuple[tuple[int, int], tuple[int, int]]


def grow_vocabulary(
    path: str,
    output_dir: str | Path,
    add_for: Sequence[str | Path] = (),
    count: int = 0,
    tokens: Sequence[str] = (),
    overwrite: bool = False,
) -> Grown:
    """Adds subwords of texts and whole tokens to the vocabulary of a model, and saves the model.

    Args:
        output_dir: Directory of the new model. After an error it is as it was.
        add_for: Text files that new subwords are learnt from. Both of two vocabularies get them.
        tokens: Tags or languages, which texts contain as a whole, such as "<2fr>".

    Raises:
        OSError: If a file does not exist.
        ValueError: If the directory is not empty, a file is empty, or the model or its tokenizer is
            of a kind that cannot grow.
    """
    check_output_directory(str(output_dir), overwrite, [path, *map(str, add_for)])
    files = check_texts(add_for)
    model, tokenizer = load_model_and_tokenizer(path)
    plain = in_language(tokenizer, None)
    cut: dict[str, list[list[int]]] = {
        side: [
            plain(**{argument: token}, add_special_tokens=False, verbose=False)["input_ids"]
            or [tokenizer.unk_token_id]
            for token in tokens
        ]
        for side, argument in (("source", "text"), ("target", "text_target"))
    }
    shape = model.config.vocab_size, model.config.decoder_vocab_size
    with TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save_pretrained(folder)
        tables = read_tables(folder) if count else []
        read = [files] * len(tables)
        if count and isinstance(tokenizer, VanillaTransformerTokenizer) and tokenizer.do_lower_case:
            sources = _write_lower_case(files, folder / "sources")
            read[:1] = [[sources] if len(tables) == 2 else [*files, sources]]
        learnt = [
            _learn_pieces(table, texts, count)
            if isinstance(table, PieceTable)
            else _learn_subwords(table, texts, count)
            for table, texts in zip(tables, read, strict=True)
        ]
        load: Any = AutoTokenizer.from_pretrained
        larger, plans = load(folder), list[Plan]()
        for side, size in zip(cut, shape, strict=True):
            at = {"side": side} if getattr(larger, "separate_vocabularies", False) else {}
            if tokens and (at or side == "source"):
                larger.add_tokens(list(tokens), special_tokens=True, **at)
            rows: Plan = [[index] for index in range(size)]
            if learnt:
                new = learnt[0 if side == "source" else -1]
                rows[new.start : new.start] = list(new.pieces.values())
            for token, pieces in zip(tokens, cut[side], strict=True):
                index = int(larger.convert_tokens_to_ids(token, **at))
                rows += [pieces] * (index + 1 - len(rows))  # or it is a row that no token has used
                rows[index] = pieces
            plans.append(rows)
        set_rows(model, *plans)
        subwords = [list(table.pieces) for table in learnt]
        added = sum(map(len, subwords)) + len(tokens)
        save_changed_model(
            (model, larger),
            output_dir,
            path,
            "larger",
            f"It has {added:,} new tokens, whose rows are the means of the pieces that they were "
            "cut into: train it.",
            "Logits of old tokens are those of the source for texts that are cut as before.",
        )
    return Grown(subwords, list(tokens), (shape, (len(plans[0]), len(plans[1]))))


def _write_lower_case(files: Sequence[str | Path], path: Path) -> Path:
    """Writes texts as a tokenizer that lower-cases sources reads them."""
    normalizer = normalizers.Sequence(lower_case())
    lines = (f"{normalizer.normalize_str(line)}\n" for line in read_texts(files))
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(lines)
    return path


# Subwords ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learnt:
    """New subwords of a table.

    Attributes:
        start: The id of the first one; later old ids move up.
        pieces: The old ids that each is made of.
    """

    start: int
    pieces: dict[str, list[int]]


def _learn_pieces(table: PieceTable, files: Sequence[str | Path], count: int) -> Learnt:
    """Learns pieces for each model of SentencePiece of a table: its share of them.

    A backend that cuts as the model does learns them; their scores go into the model.
    """
    words = sorted(table.listed_ids, key=table.listed_ids.__getitem__)
    start, scores, learnt = len(words), list[dict[str, float]](), dict[str, list[int]]()
    if set(table.listed_ids.values()) != set(range(start)):
        raise ValueError("The ids of the vocabulary have gaps: save the tokenizer without them.")
    for path in table.models:
        backend, _ = sentencepiece_backend(path, words, "<unk>")
        words_apart = pre_tokenizers.Split("▁", "merged_with_next")
        steps = filter(None, [backend.pre_tokenizer, words_apart])
        backend.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
        with TemporaryDirectory() as scratch:
            backend.save(str(Path(scratch, "tokenizer.json")))
            scratch_table = BackendTable(Path(scratch, "tokenizer.json"))
            pieces = _learn_subwords(scratch_table, files, count // len(table.models)).pieces
            vocabulary = read_object(scratch_table.path)["model"]["vocab"]
        learnt |= pieces
        if isinstance(vocabulary, list):
            score_of = dict(vocabulary)
            scores.append({piece: score_of[piece] for piece in pieces})
        else:  # pairs are joined in the order of their scores: the new ones come last
            last = min(piece.score for piece in read_sentencepiece(path).pieces)
            scores.append({piece: last - 1 - n for n, piece in enumerate(pieces)})
    table.write({i: i + len(learnt) * (i >= start) for i in table.ids.values()})
    table.append(learnt, scores)
    return Learnt(start, learnt)


def _learn_subwords(table: BackendTable, files: Sequence[str | Path], count: int) -> Learnt:
    """Learns subwords, and writes the larger vocabulary over the old one.

    Unknown characters come first, or unknown words for a vocabulary of words. Then the most
    frequent pair of neighbours is joined, again and again, as byte-pair encoding does.
    """
    model = table.state["model"]
    start = len(model["vocab"])
    if model["type"] not in ("BPE", "Unigram", "WordLevel") or (
        model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    ):
        raise ValueError(
            f"A {model['type']} vocabulary with marks of parts of words cannot get new subwords: "
            "add whole words with --add-tokens."
        )
    names = {token: index for token, index in table.ids.items() if index < start}
    if len(names) < start:
        raise ValueError("The ids of the vocabulary have gaps: save the tokenizer without them.")
    is_word = model["type"] == "WordLevel"
    unknown = model.get("unk_token") or (
        model["vocab"][model["unk_id"]][0] if model.get("unk_id") is not None else None
    )
    learnt: dict[str, list[int]] = {}
    if unknown is not None:
        missing = _count_missing(table.path, files, names, is_word).most_common(count)
        learnt = {token: [names[unknown]] for token, _ in missing}
    scores: dict[str, float] = dict(model["vocab"]) if model["type"] == "Unigram" else {}
    lowest = min((score for score in scores.values() if score > NEVER), default=0.0)
    new_scores, merges = dict.fromkeys(learnt, lowest), dict[str, tuple[str, str]]()
    if not is_word:
        with TemporaryDirectory() as scratch:
            path = Path(shutil.copy(table.path, scratch))
            _append_subwords(path, new_scores, {}, start)
            words = _count_words(path, files)
        merges = _join_pairs(words, count - len(learnt), names.keys() | learnt.keys())
    for token, halves in merges.items():
        parts = [learnt.get(half) or [names[half]] for half in halves]
        learnt[token] = [*parts[0], *parts[1]]
        left, right = (new_scores.get(half) or scores.get(half, 0.0) for half in halves)
        new_scores[token] = left + right + _GAIN
    table.write({i: i + len(learnt) * (i >= start) for i in table.ids.values()})
    _append_subwords(table.path, new_scores, merges, start)
    return Learnt(start, learnt)


def _count_missing(
    path: Path, files: Sequence[str | Path], known: Mapping[str, int], is_word: bool
) -> Counter[str]:
    """Counts the characters, or the words, of texts that have no token."""
    backend, counts = Tokenizer.from_file(str(path)), Counter[str]()
    for line in read_texts(files):
        text = backend.normalizer.normalize_str(line) if backend.normalizer else line
        words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        counts.update(part for word in words for part in ([word] if is_word else word))
    return Counter({part: number for part, number in counts.items() if part not in known})


def _count_words(path: Path, files: Sequence[str | Path]) -> Counter[_Word]:
    """Counts the words of texts as they are cut now; added and unknown tokens end a word."""
    backend, words = Tokenizer.from_file(str(path)), Counter[_Word]()
    unknown = json.loads(backend.to_str())["model"].get("unk_token")
    special = {token.content for token in backend.get_added_tokens_decoder().values()} | {unknown}
    for line in read_texts(files):
        encoded = backend.encode(line, add_special_tokens=False)
        whole: dict[Any, list[str]] = {}
        for word, token, index in zip(encoded.word_ids, encoded.tokens, encoded.ids, strict=True):
            is_known = token not in special and backend.token_to_id(token) == index
            whole.setdefault(word, []).append(token if is_known else "")
        words.update(tuple(parts) for parts in whole.values() if all(parts))
    return words


def _join_pairs(
    words: Mapping[_Word, int], count: int, known: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """Joins the most frequent pair of neighbours, again and again; returns what was joined."""
    parts, numbers = [list(word) for word in words], list(words.values())
    pairs, places = Counter[tuple[str, str]](), dict[tuple[str, str], set[int]]()
    for place, word in enumerate(parts):
        for pair in pairwise(word):
            pairs[pair] += numbers[place]
            places.setdefault(pair, set()).add(place)
    joined, taken = dict[str, tuple[str, str]](), set(known)
    queue = [(-number, pair) for pair, number in pairs.items()]  # may be larger than they are now
    heapify(queue)
    while len(joined) < count and queue:
        number, best = heappop(queue)
        if -number != pairs[best]:
            heappush(queue, (-pairs[best], best))
            continue
        if pairs[best] < 2:
            break
        token = "".join(best)
        if token in taken:
            continue
        taken.add(token)
        joined[token] = best
        new = set[tuple[str, str]]()
        for place in places.pop(best):
            for pair in pairwise(parts[place]):
                pairs[pair] -= numbers[place]
            parts[place] = _join_in(parts[place], best)
            for pair in pairwise(parts[place]):
                pairs[pair] += numbers[place]
                if token in pair:
                    places.setdefault(pair, set()).add(place)
                    new.add(pair)
        for pair in new:
            heappush(queue, (-pairs[pair], pair))
    return joined


def _join_in(word: Sequence[str], pair: tuple[str, str]) -> list[str]:
    parts: list[str] = []
    rest = list(word)[::-1]
    while rest:
        first = rest.pop()
        parts.append(first + rest.pop() if rest and (first, rest[-1]) == pair else first)
    return parts


def _append_subwords(
    path: Path,
    scores: Mapping[str, float],
    merges: Mapping[str, tuple[str, str]],
    start: int,
) -> None:
    """Appends tokens to the model in a file of the library `tokenizers`."""
    state = json.loads(path.read_text(encoding="utf-8"))
    model = state["model"]
    if model["type"] == "Unigram":
        model["vocab"] += [[token, score] for token, score in scores.items()]
    else:
        model["vocab"] |= {token: start + number for number, token in enumerate(scores)}
    if "merges" in model:
        model["merges"] += [list(pair) for pair in merges.values()]
    path.write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
