"""Turns text into token ids."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from logging import INFO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
from datasets import Dataset, DatasetDict, Features, List, Value
from datasets.table import InMemoryTable
from transformers import GenerationConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from vanilla_transformer.batches.shards import Shards, make_shards
from vanilla_transformer.columns import LINKS, languages_of
from vanilla_transformer.files.atomic_files import explained_full_disk
from vanilla_transformer.files.file_contents import (
    content_digest,
    read_object,
    readers_digest,
    rows_digest,
    text_digest,
)
from vanilla_transformer.files.tables import cache_folder
from vanilla_transformer.grouping import map_grouped
from vanilla_transformer.language_tags import closest_tag
from vanilla_transformer.model.directions import (
    Direction,
    in_language,
    language_tokens,
    recorded_directions,
    tags_of_sources,
)
from vanilla_transformer.progress import Progress, without_messages
from vanilla_transformer.text.token_words import without_first_word, words_of_encoding
from vanilla_transformer.text.word_alignment import links_of_tokens, parse_links
from vanilla_transformer.tokenizer_sides import call_tokenizer, ids_of_texts, target_side

logger = logging.get_logger(__name__)

_ORIGIN = ("name_or_path", "is_local", "local_files_only", "auto_map", "_commit_hash")
"""Fields of a saved tokenizer that tell where it comes from."""
_LAST_CALL = ("truncation", "padding")
"""Parts of tokenizer.json that follow the last call of a tokenizer; `encode` sets both."""

_ROWS_OF_A_CALL = 1000

D = TypeVar("D", Dataset, DatasetDict)
R = TypeVar("R")


def encode(
    data: D,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
    num_proc: int | None = None,
    folder: Path | None = None,
    settings: GenerationConfig | None = None,
) -> D:
    """Encodes pairs of texts as token ids; a warning counts the texts that are truncated.

    Links between words become links between all their tokens. Pairs that are in files are encoded
    into files, shard by shard; shards that are there already are kept.

    Args:
        data: A data set, or several splits, with the text columns "source" and "target", and
            optionally "alignment" (lines of word links in Pharaoh's format) and the languages of
            each row, for a model of many languages.
        tokenizer: Encodes the source as `text` and the target as `text_target`.
        max_source_length, max_target_length: Largest number of tokens of a text, special tokens
            included. None: no limit.
        num_proc: Number of processes. None: the current process does the work.
        folder: Folder of the files; each of several splits has a folder in it. None: the cache, or
            memory for texts that are there.
        settings: The settings of the model's search, which may name the target's language.

    Returns:
        New data with the same rows and the columns "input_ids" and "labels", without the text
        columns. With links, "alignment" holds pairs of token indices.
    """
    if isinstance(data, DatasetDict):
        options = tokenizer, max_source_length, max_target_length, num_proc
        folders = {name: None if folder is None else folder / name for name in data}
        return DatasetDict(
            {name: encode(rows, *options, folders[name], settings) for name, rows in data.items()}
        )
    limits = {"source": max_source_length, "target": max_target_length}
    tells = logger.isEnabledFor(INFO)
    with Progress(len(data), "pairs", work="Encoding", shown=tells, bar=False) as shown:
        directions = RowDirections(tokenizer, settings)
        encoder = PairEncoder(tokenizer, limits, directions)
        make = partial(_encode_rows, data, encoder)
        if folder is None and not data.cache_files:
            table, facts = make(range(len(data)), tell=shown.update)
            encoded, facts_of_parts = Dataset(InMemoryTable(table)), [facts]
        else:
            origin = [readers_digest(), data._fingerprint, tokenizer_digest(tokenizer), limits]
            if directions.matter:
                origin.append(repr(directions.settings.to_dict()))
            key = text_digest(json.dumps(origin))
            folder = folder or cache_folder() / key
            if num_proc is None:
                make = partial(make, tell=shown.update)
            shards = make_shards(folder, key, len(data), make, num_proc, shown.update)
            encoded, facts_of_parts = shards.open(), shards.shards
    for side, limit in limits.items():
        if truncated := sum(part["truncated"][side] for part in facts_of_parts):
            logger.warning(
                f"The tokenizer truncated {truncated} of {len(data)} {side} texts to {limit} "
                "tokens."
            )
    return encoded


def encoded_digest(texts: Dataset, encoded: Dataset) -> str:
    """Returns the digest of texts; the files of encoded texts hold it."""
    shards = Shards.of(encoded)
    if shards is None:
        return rows_digest(texts)
    digests = [str(shard["texts"]) for shard in shards.shards]
    return digests[0] if len(digests) == 1 else text_digest(" ".join(digests))


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Returns a digest of a tokenizer's files, without its origin and its last options."""
    plain: Any = copy(tokenizer)
    plain._auto_class = None  # without the code of this version
    # Without messages: there is one for each file.
    with without_messages(), TemporaryDirectory() as folder, explained_full_disk(Path(folder)):
        plain.save_pretrained(folder)
        files: dict[str, Any] = {file.name: content_digest(file) for file in Path(folder).iterdir()}
        for file in files.keys() & {"tokenizer_config.json", "tokenizer.json"}:
            content = read_object(Path(folder, file)).items()
            dropped = (*_ORIGIN, *_LAST_CALL)
            files[file] = {name: value for name, value in content if name not in dropped}
    return text_digest(json.dumps(files, sort_keys=True))


def _encode_rows(
    data: Dataset, encoder: "PairEncoder", rows: range, tell: Callable[[int], None] = lambda _: None
) -> tuple[pa.Table, dict[str, Any]]:
    """Encodes some rows; returns them, how much truncation took, and the digest of the texts."""
    ids = Value("uint16" if encoder.num_ids <= 2**16 else "uint32")  # half the size on the disk
    features = {"input_ids": List(ids), "labels": List(ids)}
    if LINKS in data.column_names:
        features[LINKS] = List(List(Value("int32")))
    schema, tables = Features(features).arrow_schema, []
    for start in range(rows.start, rows.stop, _ROWS_OF_A_CALL):  # in bounded memory
        stop = min(start + _ROWS_OF_A_CALL, rows.stop)
        tables.append(pa.Table.from_pydict(encoder(data[start:stop]), schema))
        tell(stop)
    facts = {"truncated": encoder.take_counts(), "texts": rows_digest(data.select(rows))}
    return (pa.concat_tables(tables) if tables else schema.empty_table()), facts


class RowDirections:
    """Decides how a model is asked for the languages of each row."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, settings: GenerationConfig | None = None
    ) -> None:
        self.tokenizer, self.settings = tokenizer, settings or GenerationConfig()
        self.matter = bool(language_tokens(tokenizer) or recorded_directions(tokenizer))
        self._tags = tags_of_sources(tokenizer)
        self._known: dict[Any, Direction] = {}

    def of(self, rows: Mapping[str, Sequence[Any]]) -> list[Direction]:
        """Returns the direction of each row, without a tag where a source has one itself."""
        count = len(rows["source"])
        if not self.matter:
            return [Direction()] * count
        pairs = languages_of(rows, count)
        for pair in {*pairs}.difference(self._known):
            self._known[pair] = Direction.resolve(
                self.tokenizer, self.settings, *pair, closest=closest_tag
            )
        return [
            self._known[pair].for_text(source, self._tags)
            for source, pair in zip(rows["source"], pairs, strict=True)
        ]


class PairEncoder:
    """Encodes pairs, given by side, as `encode` does, and counts the truncated texts."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        limits: dict[str, int | None],
        directions: RowDirections,
    ) -> None:
        self.tokenizer, self.limits, self.directions = tokenizer, limits, directions
        self.num_ids = max(len(tokenizer), len(target_side(tokenizer)))
        self._views: dict[tuple[str, str | None], Any] = {}
        self._truncated = Counter[str]()

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Returns the columns of the pairs; links become links of tokens."""
        directions = self.directions.of(batch)
        read = [each.read(text) for each, text in zip(directions, batch["source"], strict=True)]
        texts = {"source": read, "target": batch["target"]}
        languages = {
            "source": [direction.source for direction in directions],
            "target": [direction.target for direction in directions],
        }

        def encode(side: str, method: Callable[[str, Any, list[str]], list[R]]) -> list[R]:
            return map_grouped(
                texts[side],
                languages[side],
                lambda language, some: method(side, self._view(side, language), some),
            )

        if LINKS not in batch:
            source, target = (encode(side, self._ids) for side in texts)
            return {"input_ids": source, "labels": target}
        ids, words, links = [], [], []
        for side in texts:
            encoded = encode(side, self._ids_and_words)
            ids.append([row[0] for row in encoded])
            words.append([row[1] for row in encoded])
        words[0] = [
            without_first_word(row) if direction.tag else row
            for row, direction in zip(words[0], directions, strict=True)
        ]
        for line, *of_pair in zip(batch[LINKS], *words, strict=True):
            links.append(links_of_tokens(parse_links(line), *of_pair))
        return {"input_ids": ids[0], "labels": ids[1], LINKS: links}

    def _view(self, side: str, language: str | None) -> Any:
        """Returns the tokenizer of a side and language."""
        if (side, language) not in self._views:
            make = {"source": in_language, "target": target_side}[side]
            self._views[side, language] = make(self.tokenizer, language)
        return self._views[side, language]

    def _ids(self, side: str, view: Any, texts: list[str]) -> list[list[int]]:
        """Returns the ids of texts; the tokenizer truncates a text that is too long."""
        ids, limit = ids_of_texts(view, side, texts), self.limits[side]
        if limit and (long := [index for index, row in enumerate(ids) if len(row) > limit]):
            self._truncated[side] += len(long)
            some = [texts[index] for index in long]
            cut = call_tokenizer(view, side, some, truncation=True, max_length=limit)["input_ids"]
            for index, row in zip(long, cut, strict=True):
                ids[index] = row
        return ids

    def _ids_and_words(
        self, side: str, view: Any, texts: list[str]
    ) -> list[tuple[list[int], list[range]]]:
        """Returns the ids of texts, and the words of their tokens."""
        ids, limit = self._ids(side, view, texts), self.limits[side]
        encoding = call_tokenizer(view, side, texts, truncation=bool(limit), max_length=limit)
        return list(zip(ids, words_of_encoding(view, texts, encoding, side), strict=True))

    def take_counts(self) -> dict[str, int]:
        """Returns how many texts of each side were truncated since the last call."""
        truncated = {name: self._truncated[name] for name in self.limits}
        self._truncated.clear()
        return truncated
