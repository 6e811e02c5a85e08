"""Vocabularies of models that have no padding token, and tokenizers made out of them.

A model here has the same ids of `<pad>`, `</s>`, `<unk>` and the start in both vocabularies. Where
the source differs, its rows are put into another order. Where a token is missing, a row is added:
with the embedding zero, and with a bias of the logits that never lets it win.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.interop.sentencepiece_models import (
    read_sentencepiece,
    sentencepiece_backend,
    sentencepiece_of,
)
from vanilla_transformer.interop.tokenizers import load_tokenizer, set_ends, word_backend
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.weights.match_weights import (
    SOURCE_TABLE,
    TARGET_TABLE,
    RenamedWeights,
    build_model,
    fit_weights,
    raise_problems,
    sharing_fields,
)

PADS = ("<pad>", "<blank>", "[PAD]")

BIAS_OF_ADDED = -30.0
"""Bias of the logits of added rows: their probability is zero in float32."""

_TRANSFORMERS = ("tokenizer_config.json", "tokenizer.json")
_PIECES = ("source.spm", "target.spm")

Order = list[int | None]
"""The former row of each row; None: an added row."""


@dataclass(frozen=True)
class Vocabularies:
    """Two vocabularies with the same special tokens, or a shared one.

    Attributes:
        source, target: Tokens by id.
        orders: The former rows of both.
        special: Special tokens by their role: "bos_token", "pad_token", "eos_token", "unk_token".
        start: The token that a target begins with. None: the user gives it.
        begins, ends: Whether a source begins with "bos_token", and ends with "eos_token".
    """

    source: list[str]
    target: list[str]
    orders: tuple[Order, Order]
    is_shared: bool
    special: Mapping[str, str]
    start: str | None
    begins: bool
    ends: bool
    notes: tuple[str, ...] = ()

    def token_ids(self) -> dict[str, int | None]:
        """Returns the ids of the special tokens by their fields of the config."""
        ids: dict[str, int | None] = {
            f"{role}_id": self.target.index(token)
            for role, token in self.special.items()
            if token in self.target
        }
        start = None if self.start is None else self.target.index(self.start)
        return {**ids, "decoder_start_token_id": start}

    def spread_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Returns logits of the former rows in the new order; added rows get their bias."""
        by_row = logits.movedim(-1, 0)
        return _rearrange_rows(by_row, self.orders[1], BIAS_OF_ADDED).movedim(0, -1)


def align_vocabularies(
    source: Sequence[str],
    target: Sequence[str],
    settings: Mapping[str, Any],
    zero_start: bool = False,
) -> Vocabularies:
    """Gives both vocabularies the same special tokens with the same ids.

    Args:
        source: Tokens by id. Equal to `target`: the vocabulary is shared.
        settings: `unk_token`, `bos_token`, `eos_token`, `decoder_start_token`, `add_source_bos`
            and `add_source_eos`, as CTranslate2 names them.
        zero_start: Whether a target begins with an embedding of zeros, whatever its token.
    """
    is_shared = list(source) == list(target)
    words = [_make_unique(each) for each in (source, target)]
    pad = next((name for name in PADS if all(name in each for each in words)), None)
    notes = []
    orders: list[Order] = [list(range(len(each))) for each in words]
    if pad is None or zero_start:
        names = (*PADS, *(f"<pad{number}>" for number in range(1, 99)))
        pad = next(name for name in names if not any(name in each for each in words))
        index = min(map(len, words))  # an id that both sides can have
        words[1].insert(index, pad)
        orders[1].insert(index, None)
        notes.append(f"The token {pad} was added, with the embedding zero and the id {index}.")
    start = pad if zero_start else settings.get("decoder_start_token")
    end, unknown = settings["eos_token"], settings["unk_token"]
    for name, token in (("eos_token", end), ("decoder_start_token", start)):
        if token is not None and token not in words[1]:
            raise ValueError(
                f"`{name}` is {token!r}, which is no token of the target's vocabulary."
            )
    candidates = (settings.get("bos_token"), start, end)
    begin = next(token for token in candidates if token is not None and token in words[1])
    special = {"bos_token": begin, "pad_token": pad, "eos_token": end, "unk_token": unknown}
    if is_shared:
        words[0], orders[0] = words[1], orders[1]
    else:
        wanted = {words[1].index(t): t for t in special.values() if t in words[1]}
        orders[0] = _order_with(words[0], wanted)
        words[0] = [
            wanted.get(index, f"<row{index}>") if former is None else words[0][former]
            for index, former in enumerate(orders[0])
        ]
    ends = settings.get("add_source_eos") or pad != "<blank>"  # OpenNMT pads so, and ends no source
    return Vocabularies(
        words[0],
        words[1],
        (orders[0], orders[1]),
        is_shared,
        special,
        start,
        bool(settings.get("add_source_bos")),
        bool(ends),
        tuple(notes),
    )


def _make_unique(words: Sequence[str]) -> list[str]:
    """Renames tokens that are there before, such as T5's `<extra_id_0>`."""
    seen: set[str] = set()
    unique = []
    for index, word in enumerate(words):
        unique.append(f"<row{index}>" if word in seen else word)
        seen.add(word)
    return unique


def _order_with(words: Sequence[str], wanted: Mapping[int, str]) -> Order:
    """Returns an order of rows in which some tokens have given ids; missing ones are added."""
    index_of = {word: index for index, word in enumerate(words)}
    fixed = {target: index_of.get(token) for target, token in wanted.items()}
    rest = [index for index in range(len(words)) if index not in fixed.values()][::-1]
    order: Order = []
    while rest or any(target >= len(order) for target in fixed):
        if len(order) in fixed:
            order.append(fixed[len(order)])
        else:
            order.append(rest.pop() if rest else None)
    return order


def _rearrange_rows(values: torch.Tensor, order: Order, added: float = 0.0) -> torch.Tensor:
    """Returns rows in another order; added ones hold one number."""
    if order == list(range(len(values))):
        return values
    kept = torch.tensor([0 if row is None else row for row in order])
    new = values[kept]
    new[torch.tensor([row is None for row in order])] = added
    return new


def check_tables(renamed: RenamedWeights) -> None:
    """Raises an error if an embedding or the output projection is missing."""
    tables = (SOURCE_TABLE, TARGET_TABLE, "lm_head.weight")
    missing = [f"`{name}` is missing" for name in tables if name not in renamed.weights]
    if missing:
        raise_problems("The weights are not complete", [*renamed.problems, *missing])


def build_with_vocabularies(
    renamed: RenamedWeights,
    fields: Mapping[str, Any],
    vocabularies: Vocabularies,
    changes: Mapping[str, Any] | None = None,
    zeros: Sequence[str] = (),
) -> Any:
    """Builds a model, whose weights have our names and the former order of rows.

    Args:
        fields: Config fields, without the fields of tokens and of shared matrices.
        zeros: Expressions for names whose missing weights are zero.
    """
    check_tables(renamed)
    weights = dict(renamed.weights)
    source, target = vocabularies.orders
    for name, order in ((SOURCE_TABLE, source), (TARGET_TABLE, target), ("lm_head.weight", target)):
        count, rows = len(order) - order.count(None), len(weights[name])
        if count != rows:
            raise ValueError(
                f"A vocabulary has {count:,} tokens, but `{renamed.origins[name]}` has {rows:,} "
                "rows: use the files that were written together."
            )
        weights[name] = _rearrange_rows(weights[name], order)
    if None in target or "lm_head.bias" in weights:
        former = len(target) - target.count(None)
        bias = weights.get("lm_head.bias", torch.zeros(former)).float()
        weights["lm_head.bias"] = _rearrange_rows(bias, target, BIAS_OF_ADDED)
    fields = {**fields, **sharing_fields(weights), **vocabularies.token_ids(), **(changes or {})}
    return build_model(*fit_weights(replace(renamed, weights=weights), fields, zeros))


# Tokenizers ---------------------------------------------------------------------------------------


def make_tokenizer(
    vocabularies: Vocabularies,
    folder: Path | None = None,
    supplied: str | Path | Sequence[Path] | None = None,
    source_eos: bool | None = None,
) -> tuple[Any, tuple[str, ...]]:
    """Makes the tokenizer of a model that was stored with vocabularies only.

    Args:
        folder: Its directory, which may hold a tokenizer or models of SentencePiece.
        supplied: As `tokenizer` of `read_ctranslate2`. None: files of the folder.
        source_eos: Whether sources end with the end token. None: as the vocabularies say.

    Returns:
        A tokenizer of transformers if there is one with the ids of the vocabulary. Otherwise one of
        this package, whose texts are cut by SentencePiece or at spaces; or None. And notes for the
        user on it.
    """
    if isinstance(supplied, Sequence) and not isinstance(supplied, str):
        return _build_tokenizer(vocabularies, (supplied[0], supplied[-1]), source_eos)
    path = folder if supplied is None else supplied
    if path is None:
        return _build_tokenizer(vocabularies, (), source_eos)
    notes: tuple[str, ...] = ()
    if not Path(path).exists() or any(Path(path, name).is_file() for name in _TRANSFORMERS):
        tokenizer = load_tokenizer(path)
        differing = _differing_tokens(tokenizer, vocabularies.source)
        if not differing:
            return tokenizer, ()
        problem = f"The tokenizer of {str(path)!r} has other ids, as of {differing[0]}"
        if supplied is not None:
            raise ValueError(f"{problem}: give the one that the model was trained with.")
        notes = (f"{problem}: it was left out.",)  # no error: nobody has named it
    files = find_pieces(Path(path))
    if supplied is not None and not files:
        raise FileNotFoundError(
            f"{str(supplied)!r} holds no tokenizer: give a model of SentencePiece (.model or "
            ".spm), or a directory."
        )
    built, about = _build_tokenizer(vocabularies, files, source_eos)
    return built, (*notes, *about)


def _build_tokenizer(
    vocabularies: Vocabularies, files: Sequence[Path], source_eos: bool | None
) -> tuple[Any, tuple[str, ...]]:
    """Builds a tokenizer that cuts texts by the models of both sides, or else at spaces."""
    ends = vocabularies.ends if source_eos is None else source_eos
    special = vocabularies.special
    sides = vocabularies.source, vocabularies.target
    if any(special["unk_token"] not in words for words in sides):
        return None, (f"The vocabulary lacks {special['unk_token']}.",)
    backends, lost = [], []
    for side, words in enumerate(sides):
        if files:
            backend, missing = sentencepiece_backend(files[side], words, special["unk_token"])
            lost += missing
        else:
            backend = word_backend(words, special["unk_token"])
        first = special["bos_token"] if vocabularies.begins and side == 0 else None
        last = special["eos_token"] if ends or side == 1 else None
        set_ends(backend, first, last)
        backends.append(backend)
    arguments: dict[str, Any] = {**special, "tokenizer_object": backends[0]}
    alike = vocabularies.is_shared and ends and not vocabularies.begins and len(set(files)) < 2
    if not alike:
        arguments["target_tokenizer_object"] = backends[1]
    names = " and ".join(dict.fromkeys(path.name for path in files))
    cut = f"cut by {names}" if files else "words and subwords between spaces"
    end = f"{'end' if ends else 'do not end'} with {special['eos_token']}"
    notes = [f"Its texts are {cut}; sources {end}."]
    if lost:
        notes.append(
            f"{len(lost):,} pieces of SentencePiece, such as {lost[0]!r}, are not in the "
            "vocabulary: texts are cut without them."
        )
    return VanillaTransformerTokenizer(**arguments), tuple(notes)


def pieces_of(
    tokenizer: Any, folder: str | Path, supplied: str | Path | None = None
) -> tuple[list[bytes], str]:
    """Returns the models of SentencePiece that cut texts as a tokenizer does.

    They are supplied, or lie in the directory of the model, or else are made of the tokenizer: one,
    or the source's and the target's. A sentence tells the limits of models that are made.
    """
    files = [Path(supplied)] if supplied is not None else find_pieces(Path(folder))
    if files:
        return [read_sentencepiece(p).SerializeToString() for p in dict.fromkeys(files)], ""
    sides = [tokenizer]
    if getattr(tokenizer, "separate_vocabularies", False):
        sides.append(tokenizer.target_tokenizer())
    if not all(hasattr(side, "backend_tokenizer") for side in sides):
        raise ValueError(f"the tokenizer is a {type(tokenizer).__name__}")
    models = [sentencepiece_of(side.backend_tokenizer, side.unk_token) for side in sides]
    return [model.SerializeToString() for model in models], (
        "The model of SentencePiece was written from the tokenizer. It takes several spaces for "
        "one, and several unknown signs in a row for one; and it does not bring texts into the "
        "normal form C."
    )


def _differing_tokens(tokenizer: Any, words: Sequence[str]) -> list[str]:
    """Returns tokens that have another id in a vocabulary."""
    if tokenizer is None:
        return ["all"]
    return [
        token
        for token, index in tokenizer.get_vocab().items()
        if index >= len(words)
        or (words[index] != token and not words[index].startswith(("<row", "madeupword")))
    ]


def find_pieces(path: Path) -> tuple[Path, ...]:
    """Returns the models of SentencePiece for source and target; none, if there is no clear one."""
    if path.is_file():
        return (path, path)
    pair = tuple(path / name for name in _PIECES)
    if all(file.is_file() for file in pair):
        return pair
    files = sorted(file for end in ("*.model", "*.spm") for file in path.glob(end))
    return (files[0], files[0]) if len(files) == 1 else ()
