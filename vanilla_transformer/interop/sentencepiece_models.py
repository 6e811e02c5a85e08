"""Makes tokenizers out of models of SentencePiece, and models of SentencePiece out of tokenizers.

A tokenizer normalises and cuts a text as `SentencePieceProcessor.encode` does, and its pieces get
the ids of a given vocabulary. Needs the extra `convert`.
"""

import base64
import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from vanilla_transformer.extras import optional_packages
from vanilla_transformer.interop.sentencepiece_charsmap import charsmap_steps

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

_BREAK = "\ue000"  # a character for private use

NEVER = -1e6
"""Score of tokens that no text is cut into, such as `</s>`, unless nothing else covers it."""

# `\A` and `\z`, as JavaScript knows them too
_START, _END = r"(?<![\s\S])", r"(?![\s\S])"
_SUFFIX = rf"(?<=[\s\S]){_END}"


def read_sentencepiece(path: str | Path) -> Any:
    """Reads a model of SentencePiece."""
    with optional_packages():
        from google.protobuf.message import DecodeError
    model = _empty_model()
    try:
        model.ParseFromString(Path(path).read_bytes())
    except DecodeError:
        model.Clear()
    if not model.pieces or model.trainer_spec.model_type not in (1, 2):
        raise ValueError(
            f"{str(path)!r} is no model of SentencePiece with pieces of the kind unigram or bpe: "
            "give another file."
        )
    return model


def _empty_model() -> Any:
    with optional_packages():
        from sentencepiece import sentencepiece_model_pb2
    generated: Any = sentencepiece_model_pb2  # it makes its classes when it is imported
    return generated.ModelProto()


def sentencepiece_backend(
    path: str | Path, words: Sequence[str], unk_token: str
) -> tuple[Tokenizer, list[str]]:
    """Makes a backend that cuts texts as a model of SentencePiece, with the ids of other words.

    Returns:
        The backend, and pieces that have no id. Texts are cut without them.
    """
    model = read_sentencepiece(path)
    ids = {word: index for index, word in enumerate(words)}
    usable = {p.piece: p for p in model.pieces if p.type in (NORMAL, USER_DEFINED, BYTE)}
    lost = [piece for piece in usable if piece not in ids]
    if 2 * len(lost) > len(usable):
        raise ValueError(
            f"{str(path)!r} has {len(usable):,} pieces, and {len(lost):,} of them are not in the "
            "vocabulary of the model: give the model of SentencePiece that it was trained with."
        )
    byte_fallback = model.trainer_spec.byte_fallback
    in_texts = {p for p, piece in usable.items() if piece.type != BYTE}
    if model.trainer_spec.model_type == 1:
        scores = [(word, usable[word].score if word in in_texts else NEVER) for word in words]
        backend = Tokenizer(models.Unigram(scores, ids[unk_token], byte_fallback))
    else:
        backend = Tokenizer(_make_bpe(model, ids, unk_token, usable))
    spec = model.normalizer_spec
    space = "▁" if spec.escape_whitespaces else " "
    steps: list[Any] = []
    if spec.precompiled_charsmap:
        steps += charsmap_steps(spec.precompiled_charsmap)
    whole = [p for p, piece in usable.items() if piece.type == USER_DEFINED and p in ids]
    whole.sort(key=len, reverse=True)
    # The map does not change symbols: something for private use stands for them meanwhile.
    is_changed = normalizers.Sequence(steps).normalize_str
    stand_ins = {p: chr(0xF0000 + n) for n, p in enumerate(whole) if is_changed(p) != p}
    steps[:0] = [normalizers.Replace(piece, sign) for piece, sign in stand_ins.items()]
    if spec.remove_extra_whitespaces:
        steps.append(normalizers.Replace(Regex(f"{_START} +| +{_END}"), ""))
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    positions = _positions_within(words, in_texts)
    if positions and not byte_fallback:
        steps.append(normalizers.Replace(Regex(positions), _BREAK))
    is_suffix = model.trainer_spec.treat_whitespace_as_suffix
    if spec.add_dummy_prefix:
        suffix = normalizers.Replace(Regex(_SUFFIX), " ")
        steps.append(suffix if is_suffix else normalizers.Prepend(" "))
    steps.append(normalizers.Replace(" ", space))
    steps += [normalizers.Replace(sign, piece) for piece, sign in stand_ins.items()]
    backend.normalizer = normalizers.Sequence(steps)
    cuts = [*map(re.escape, whole), *([positions] if positions and byte_fallback else [])]
    if whole and model.trainer_spec.model_type == 2:
        cuts += _first_parts(backend.model, cuts[: len(whole)], words, in_texts)
    if cuts:
        backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(cuts)), "isolated")
    strip = decoders.Replace(Regex(f" {_END}"), "") if is_suffix else decoders.Strip(" ", 1, 0)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace(space, " "),
            *([decoders.ByteFallback()] if byte_fallback else []),
            decoders.Fuse(),
            *([strip] if spec.add_dummy_prefix else []),
        ]
    )
    return backend, lost


def _positions_within(words: Sequence[str], in_texts: Collection[str]) -> str:
    """Returns a pattern of a position in texts such as `</s>`, which must not become that token.

    The score of the token is worse than any cut into pieces, but not worse than an unknown
    character. The position is behind such a character, so no piece contains it. A second unknown
    one there changes nothing else, as both are one `<unk>`; so does a cut where they become bytes.
    """
    rests = defaultdict[str, list[str]](list)
    for word in words:
        cut = next((n for n, sign in enumerate(word, 1) if sign not in in_texts), None)
        if word not in in_texts and cut is not None:
            rests[re.escape(word[:cut])].append(re.escape(word[cut:]))
    return "|".join(f"(?<={left})(?={'|'.join(right)})" for left, right in rests.items())


def _first_parts(
    model: Any, whole: Sequence[str], words: Sequence[str], in_texts: set[str]
) -> list[str]:
    """Returns patterns that cut texts such as `<s>` between symbols, which must not become tokens.

    A symbol (`whole` holds their patterns) is one token because it is a part of its own, and so
    would such a text be.
    """
    symbols, patterns = "|".join(whole), list[str]()
    before, after = f"{_START}|(?<={symbols})", f"{_END}|(?={symbols})"
    model.ignore_merges = False  # as a text is cut in the midst of others
    for word in words:
        if word and word not in in_texts and in_texts.issuperset(word):
            first = model.tokenize(word)[0].value
            rest = re.escape(word[len(first) :])
            patterns.append(f"(?:{before}){re.escape(first)}(?={rest}(?:{after}))")
    model.ignore_merges = True
    return patterns


def _make_bpe(
    model: Any, ids: Mapping[str, int], unk_token: str, usable: Mapping[str, Any]
) -> models.BPE:
    """Joins the parts of the piece with the best score first."""
    normal = {p: piece.score for p, piece in usable.items() if piece.type == NORMAL and p in ids}
    order = {piece: index for index, piece in enumerate(normal)}
    merges = [
        (-score, order[piece], piece[:cut], piece[cut:])
        for piece, score in normal.items()
        for cut in range(1, len(piece))
        if piece[:cut] in normal and piece[cut:] in normal
    ]
    has_whole_pieces = any(piece.type == USER_DEFINED for piece in usable.values())
    return models.BPE(
        dict(ids),
        [pair[2:] for pair in sorted(merges)],
        unk_token=unk_token,
        fuse_unk=True,
        byte_fallback=model.trainer_spec.byte_fallback,
        ignore_merges=has_whole_pieces,
    )


# Models out of tokenizers -------------------------------------------------------------------------

_STEPS = {"NFC", "Precompiled", "Replace", "Prepend", "Metaspace", "Split"}
"""Steps before a model that SentencePiece takes too, as far as they deal with spaces."""


def sentencepiece_of(backend: Tokenizer, unk_token: str) -> Any:
    """Makes the model of SentencePiece that cuts texts as a backend does.

    With BPE, it joins any neighbours that make a piece, where the backend joins listed pairs. Both
    do the same with the pieces that the backend makes of their own characters: the parts of such a
    piece stand side by side in a text only if they do so in the piece. The backend makes no other
    pieces at all, so they are control tokens.

    Texts lose spaces at both ends and beside other spaces; they are not brought into the normal
    form C.
    """
    content = json.loads(backend.to_str())
    table = content["model"]
    steps = [*_steps_of(content["normalizer"]), *_steps_of(content["pre_tokenizer"])]
    others = sorted({step["type"] for step in steps} - _STEPS)
    is_known = table["type"] in ("Unigram", "BPE")
    if not is_known or others:
        reason = f"the step {others[0]}" if is_known else f"the type {table['type']}"
        raise ValueError(f"SentencePiece cuts no texts as this tokenizer does, which has {reason}")
    if table["type"] == "Unigram":
        scores = dict(table["vocab"])
    else:
        ranks = {tuple(pair): rank for rank, pair in enumerate(table["merges"])}
        scores = {token: _score_of_join(token, ranks) for token in table["vocab"]}
    model = _empty_model()
    special = {token["content"] for token in content["added_tokens"] if token["special"]}
    byte_fallback = bool(table.get("byte_fallback"))
    ids = backend.get_vocab()
    for token in sorted(scores, key=ids.__getitem__):
        kind = UNKNOWN if token == unk_token else NORMAL
        if byte_fallback and re.fullmatch("<0x[0-9A-F]{2}>", token):
            kind = BYTE
        elif kind == NORMAL and (token in special or scores[token] == NEVER):
            kind = CONTROL
        model.pieces.add(piece=token, score=scores[token] if kind == NORMAL else 0.0, type=kind)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type = 1 if table["type"] == "Unigram" else 2
    trainer.byte_fallback, trainer.vocab_size = byte_fallback, len(scores)
    trainer.unk_id = next(n for n, piece in enumerate(model.pieces) if piece.type == UNKNOWN)
    normalizer.name, normalizer.precompiled_charsmap = "identity", b""
    trainer.treat_whitespace_as_suffix = {"Regex": _SUFFIX} in [s.get("pattern") for s in steps]
    starts = [step for step in steps if step.get("prepend_scheme", "never") != "never"]
    starts += [step for step in steps if step.get("prepend") in (" ", "▁")]
    normalizer.add_dummy_prefix = trainer.treat_whitespace_as_suffix or bool(starts)
    for step in steps:
        if step["type"] == "Precompiled":
            normalizer.name = "user_defined"
            normalizer.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"])
    return model


def _score_of_join(piece: str, ranks: Mapping[tuple[str, ...], int]) -> float:
    """Returns the score of the pair that is joined last to a piece, as BPE joins its characters."""
    parts, last = list(piece), 0
    while pairs := [(ranks[two], n) for n, two in enumerate(pairwise(parts)) if two in ranks]:
        last, first = min(pairs)
        parts[first : first + 2] = ["".join(parts[first : first + 2])]
    return -float(last) if len(parts) == 1 else NEVER


def _steps_of(step: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Returns the parts of a normalizer or pre-tokenizer."""
    if step is None:
        return []
    parts = step.get("normalizers", step.get("pretokenizers"))
    return [step] if parts is None else [each for part in parts for each in _steps_of(part)]
