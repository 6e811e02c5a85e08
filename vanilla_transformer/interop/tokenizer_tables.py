"""Tables of saved tokenizers: which tokens need which others, and how the files are changed.

A table is one vocabulary of a saved tokenizer. It is read from the files, and written into them:
`tokenizer.json` of every tokenizer that the library `tokenizers` runs, or `vocab.json` with models
of SentencePiece (Marian, M2M100). The order of the tokens stays.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers

from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.interop.sentencepiece_models import NORMAL, read_sentencepiece

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_TAG = re.compile(r">>\S+<<")
_CONFIG = "tokenizer_config.json"


def read_tables(folder: Path) -> list["Table"]:
    """Reads the tables of a saved tokenizer: one, or the source's and the target's."""
    paths = [folder / "tokenizer.json", folder / "target_tokenizer.json"]
    if paths[0].is_file():
        return [BackendTable(path) for path in paths if path.is_file()]
    models = sorted([*folder.glob("*.spm"), *folder.glob("*.model")])
    config = read_object(folder / _CONFIG) if (folder / _CONFIG).is_file() else {}
    if (folder / "vocab.json").is_file() and models:
        if (target := folder / "target_vocab.json").is_file():
            sides = ((folder / "vocab.json", "source.spm"), (target, "target.spm"))
            return [PieceTable(path, (folder / name,)) for path, name in sides]
        return [PieceTable(folder / "vocab.json", tuple(models))]
    raise ValueError(
        f"The vocabulary of a {config.get('tokenizer_class', 'tokenizer')} cannot be changed: its "
        "tokenizer must be saved as tokenizer.json, or as vocab.json with models of SentencePiece."
    )


def close_under_parents(table: "Table", kept: Iterable[int]) -> set[int]:
    """Adds to ids the ids of all tokens that their tokens are merged from."""
    tokens = {index: token for token, index in table.ids.items()}
    closed, waiting = set[int](), list(kept)
    while waiting:
        index = waiting.pop()
        if index not in closed:
            closed.add(index)
            if index in tokens:
                waiting += [table.ids[parent] for parent in table.parents(tokens[index])]
    return closed


def characters_of(table: "Table", used: Iterable[int]) -> set[int]:
    """Returns the ids of the single characters that tokens consist of."""
    tokens = {index: token for token, index in table.ids.items()}
    signs = set().union(*(tokens.get(index, "") for index in used))
    return {table.ids[sign] for sign in signs if sign in table.ids}


# tokenizer.json ----------------------------------------------------------------------------------


class BackendTable:
    """The vocabulary in a file of the library `tokenizers`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        backend = Tokenizer.from_file(str(path))
        self.ids: dict[str, int] = backend.get_vocab(with_added_tokens=True)
        self.state: dict[str, Any] = json.loads(backend.to_str())

    @cached_property
    def required(self) -> set[int]:
        """Ids that every smaller vocabulary keeps: special and added tokens, bytes, and a few."""
        model = self.state["model"]
        kept = {token["id"] for token in self.state["added_tokens"]}
        kept |= {index for token, index in self.ids.items() if _BYTE.fullmatch(token)}
        kept |= {self.ids[token] for token in [model.get("unk_token")] if token in self.ids}
        if '"ByteLevel"' in json.dumps([self.state["pre_tokenizer"], self.state["decoder"]]):
            letters = pre_tokenizers.ByteLevel.alphabet()  # they write any text
            kept |= {self.ids[letter] for letter in letters if letter in self.ids}
        if model["type"] == "Unigram":
            # The score of unknown characters depends on the lowest score.
            scores = [score for _, score in model["vocab"]]
            kept.add(scores.index(min(scores)))
            kept |= {model["unk_id"]} - {None}  # Unigram may have none
        return kept

    @cached_property
    def _token_parents(self) -> dict[str, set[str]]:
        model, parents = self.state["model"], dict[str, set[str]]()
        prefix = len(model.get("continuing_subword_prefix") or "")
        for first, second in model.get("merges", ()):
            parents.setdefault(first + second[prefix:], set()).update((first, second))
        return parents

    def parents(self, token: str) -> Iterable[str]:
        """Returns tokens that a token is merged from."""
        return self._token_parents.get(token, ())

    def write(self, new_ids: Mapping[int, int]) -> None:
        """Writes the file of the smaller vocabulary over the old one; kept ids have new ones."""
        state, model = self.state, self.state["model"]
        new = {token: new_ids[index] for token, index in self.ids.items() if index in new_ids}
        if model["type"] == "Unigram":
            entries = enumerate(model["vocab"])
            model["vocab"] = [entry for index, entry in entries if index in new_ids]
            if model["unk_id"] is not None:
                model["unk_id"] = new_ids[model["unk_id"]]
        else:
            model["vocab"] = {token: new[token] for token in model["vocab"] if token in new}
        if "merges" in model:
            prefix = len(model.get("continuing_subword_prefix") or "")
            model["merges"] = [
                [first, second]
                for first, second in model["merges"]
                if all(each in new for each in (first, second, first + second[prefix:]))
            ]
        for token in state["added_tokens"]:
            token["id"] = new_ids[token["id"]]
        if state["padding"]:
            state["padding"]["pad_id"] = new_ids[state["padding"]["pad_id"]]
        _renumber_processor(state["post_processor"], new_ids)
        self.path.write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
        side = "vocab_size" if self.path.name == "tokenizer.json" else "target_vocab_size"
        _rewrite_config(self.path.parent, new_ids, {side: len(new)})


def _renumber_processor(processor: Any, new_ids: Mapping[int, int]) -> None:
    """Changes the ids of the tokens that a post-processor adds, in place."""
    for part in (processor or {}).get("processors", ()):
        _renumber_processor(part, new_ids)
    for name in ("sep", "cls"):  # of BERT and RoBERTa: [token, id]
        if name in (processor or {}):
            processor[name][1] = new_ids[processor[name][1]]
    for token in ((processor or {}).get("special_tokens") or {}).values():
        token["ids"] = [new_ids[index] for index in token["ids"]]


def _rewrite_config(folder: Path, new_ids: Mapping[int, int], sizes: Mapping[str, int]) -> None:
    """Changes ids and sizes in the tokenizer's config, if they are there."""
    path = folder / _CONFIG
    if not path.is_file():
        return
    config = read_object(path)
    if added := config.get("added_tokens_decoder"):
        config["added_tokens_decoder"] = {
            str(new_ids[int(index)]): token for index, token in added.items()
        }
    if options := config.get("training_options"):
        both = {"target_vocab_size": sizes["vocab_size"]} if options.get("shared") else {}
        config["training_options"] = options | sizes | both
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# vocab.json and SentencePiece --------------------------------------------------------------------


@dataclass(frozen=True)
class PieceTable:
    """The vocabulary in `vocab.json`, whose tokens models of SentencePiece cut."""

    path: Path
    models: Sequence[Path]

    @cached_property
    def _sentencepiece_models(self) -> list[Any]:
        return [read_sentencepiece(path) for path in self.models]

    @cached_property
    def listed_ids(self) -> dict[str, int]:
        """The ids in the file; ids of added tokens may come after them."""
        return read_object(self.path)

    @cached_property
    def _added_ids(self) -> dict[str, int]:
        """Added tokens, as both files that may hold them list them."""
        folder = self.path.parent
        added = {}
        if self.path.name == "vocab.json" and (folder / "added_tokens.json").is_file():
            added = read_object(folder / "added_tokens.json")
        decoder = read_object(folder / _CONFIG).get("added_tokens_decoder") or {}
        return added | {token["content"]: int(index) for index, token in decoder.items()}

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token, added tokens included."""
        return self._added_ids | self.listed_ids

    @cached_property
    def required(self) -> set[int]:
        """Ids that every smaller vocabulary keeps."""
        kept = set(self._added_ids.values())
        kept |= {i for token, i in self.ids.items() if _BYTE.fullmatch(token) or _TAG.match(token)}
        kept |= {self.ids[token] for token in ("<unk>", "<pad>") if token in self.ids}
        for proto in self._sentencepiece_models:
            # Pieces that are no tokens stay; so does the lowest score, as unknown characters need.
            foreign = [piece.piece for piece in proto.pieces if piece.piece not in self.ids]
            kept |= {self.ids[one] for piece in foreign for one in self.parents(piece)}
            lowest = min(_normal_pieces(proto), key=lambda piece: piece.score, default=None)
            kept |= {self.ids[one.piece] for one in [lowest] if one and one.piece in self.ids}
        return kept

    @cached_property
    def _merged_pieces(self) -> list[set[str]]:
        """Pieces of the models that merge pairs."""
        protos = [
            proto for proto in self._sentencepiece_models if proto.trainer_spec.model_type == 2
        ]
        return [{piece.piece for piece in _normal_pieces(proto)} for proto in protos]

    def parents(self, token: str) -> Iterable[str]:
        """Returns tokens that a token is merged from; a model may merge each two halves."""
        for pieces in self._merged_pieces:
            for cut in range(1, len(token) if token in pieces else 0):
                halves = token[:cut], token[cut:]
                if pieces.issuperset(halves):
                    yield from (half for half in halves if half in self.ids)

    def write(self, new_ids: Mapping[int, int]) -> None:
        """Writes the files of the smaller vocabulary over the old ones."""
        listed = {token: new_ids[i] for token, i in self.listed_ids.items() if i in new_ids}
        dropped = {token for token, index in self.ids.items() if index not in new_ids}
        for path, proto in zip(self.models, self._sentencepiece_models, strict=True):
            kept = [p for p in proto.pieces if p.type != NORMAL or p.piece not in dropped]
            smaller = type(proto)()
            smaller.CopyFrom(proto)
            smaller.ClearField("pieces")
            smaller.pieces.extend(kept)  # in their order, which the ids follow
            path.write_bytes(smaller.SerializeToString())
        self.path.write_text(json.dumps(listed, ensure_ascii=False), encoding="utf-8")
        if self.path.name == "vocab.json":  # both vocabularies have the added tokens
            if (added := self.path.with_name("added_tokens.json")).is_file():
                table = {token: new_ids[index] for token, index in read_object(added).items()}
                added.write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")
            _rewrite_config(self.path.parent, new_ids, {})


def _normal_pieces(proto: Any) -> list[Any]:
    return [piece for piece in proto.pieces if piece.type == NORMAL]


Table = BackendTable | PieceTable
