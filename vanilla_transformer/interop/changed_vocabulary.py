"""Changes the vocabulary of a saved model: trims it to the tokens of some texts, or adds tokens.

A trimmed model computes the same. The rows of dropped tokens leave the embeddings, the output
projection and its bias. Kept tokens keep their order. Texts that need kept tokens only are cut as
before, and the logits of kept tokens are the same.

The row of an added token, a tag or a language, starts as the mean of the rows of the pieces that
the old tokenizer cuts it into. Its logit is then the mean of theirs, so that greedy decoding never
prefers it before training.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from vanilla_transformer.files.atomic_files import check_output_directory, replaced_directory
from vanilla_transformer.files.text_files import read_lines
from vanilla_transformer.interop.funnel import name_of, write_card
from vanilla_transformer.interop.tokenizer_tables import (
    Table,
    characters_of,
    close_under_parents,
    read_tables,
)
from vanilla_transformer.interop.tokenizers import load_tokenizer, save_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.directions import in_language
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.tokenizer_sides import call_tokenizer
from vanilla_transformer.weights.match_weights import raise_problems

_CHECKED_LINES = 1000
"""Number of lines of each side whose ids are compared before the model is saved."""

_ID_LISTS = ("suppress_tokens", "begin_suppress_tokens")
_SIDES = ("source", "target")


@dataclass(frozen=True)
class Size:
    """The size of a vocabulary: rows of both embeddings, parameters, and bytes of the weights."""

    tokens: tuple[int, int]
    parameters: int
    memory_bytes: int


@dataclass(frozen=True)
class Trimmed:
    """A trimmed model that was saved.

    Attributes:
        source_ids, target_ids: The old id of each id.
        lines: Number of lines whose ids were compared.
    """

    before: Size
    after: Size
    source_ids: list[int]
    target_ids: list[int]
    lines: int

    def describe(self) -> str:
        """Returns a sentence on the comparison of both tokenizers."""
        return f"Ids map one to one on {self.lines:,} lines of the texts."


def trim_vocabulary(
    path: str,
    output_dir: str | Path,
    keep_for: Sequence[str | Path],
    keep_for_target: Sequence[str | Path] = (),
    keep_frequent: int = 0,
    overwrite: bool = False,
) -> Trimmed:
    """Trims the vocabulary of a model to the tokens that texts need, and saves the model.

    Kept are special and added tokens, bytes, the tokens of the texts, their single characters, the
    tokens that these are merged from, and every id that the configs name.

    After an error, the output directory is as it was.

    Args:
        keep_for: Text files, plain or `.gz`, of both sides.
        keep_for_target: Text files of the target. `keep_for` then holds the source's.
        keep_frequent: Number of further tokens of each vocabulary. They have the lowest ids, which
            are the most frequent tokens of every sorted vocabulary.
    """
    files = [*map(str, keep_for), *map(str, keep_for_target)]
    check_output_directory(str(output_dir), overwrite, [path, *files])
    for file in files:
        if not any(_read_texts([file])):
            raise ValueError(f"{file!r} holds no text: leave it out, or give another file.")
    texts = {"source": keep_for, "target": keep_for_target or keep_for}
    model, tokenizer = _load_model_and_tokenizer(path)
    with TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save_pretrained(folder)
        tables = read_tables(folder)
        orders = _choose_ids(model, tokenizer, tables, texts, keep_frequent)
        for table, order in zip(tables, orders, strict=False):
            table.write({old: new for new, old in enumerate(order)})
        smaller = load_tokenizer(folder)
        trimmed = deepcopy(model)
        _set_rows(trimmed, *([[index] for index in order] for order in orders))
        lines = _compare_ids(tokenizer, smaller, orders, texts)
        before, after = _measure_model(model), _measure_model(trimmed)
        done = Trimmed(before, after, *orders, lines)
        _save_changed_model(
            (trimmed, smaller),
            output_dir,
            path,
            "smaller",
            f"It has {after.tokens[0]:,} source and {after.tokens[1]:,} target tokens of "
            f"{before.tokens[0]:,} and {before.tokens[1]:,}, and {after.parameters:,} parameters "
            f"of {before.parameters:,}.",
            done.describe(),
        )
    return done


def grow_vocabulary(
    path: str, output_dir: str | Path, tokens: Sequence[str], overwrite: bool = False
) -> None:
    """Adds tokens to the vocabulary of a model, or to both, and saves the model.

    The tokens are tags or languages, which texts contain as a whole, such as "<2fr>". After an
    error, the output directory is as it was.
    """
    check_output_directory(str(output_dir), overwrite, [path])
    model, tokenizer = _load_model_and_tokenizer(path)
    plain = in_language(tokenizer, None)
    cuts = {
        side: [
            call_tokenizer(plain, side, token, add_special_tokens=False)["input_ids"]
            or [tokenizer.unk_token_id]
            for token in tokens
        ]
        for side in _SIDES
    }
    sizes, rows_of_sides = (model.config.vocab_size, model.config.decoder_vocab_size), list[Rows]()
    for (side, cut), size in zip(cuts.items(), sizes, strict=True):
        at = {"side": side} if getattr(tokenizer, "separate_vocabularies", False) else {}
        if at or side == "source":
            tokenizer.add_tokens(list(tokens), special_tokens=True, **at)
        rows: Rows = [[index] for index in range(size)]
        for token, pieces in zip(tokens, cut, strict=True):
            index = int(tokenizer.convert_tokens_to_ids(token, **at))
            rows += [pieces] * (index + 1 - len(rows))  # or it is a row that no token has used
            rows[index] = pieces
        rows_of_sides.append(rows)
    _set_rows(model, *rows_of_sides)
    _save_changed_model(
        (model, tokenizer),
        output_dir,
        path,
        "larger",
        f"It has {len(tokens):,} new tokens, whose rows are the means of the pieces that they were "
        "cut into: train it.",
        "Logits of old tokens equal the source's for texts that are cut as before.",
    )


def _load_model_and_tokenizer(path: str) -> tuple[Any, Any]:
    """Loads a model, with the type of its weights, and its tokenizer."""
    config = VanillaTransformerConfig.from_pretrained(path)
    kind = (config.architectures or [VanillaTransformerForConditionalGeneration.__name__])[0]
    if kind != VanillaTransformerForConditionalGeneration.__name__ or getattr(
        config, "quantization_config", None
    ):
        raise ValueError(
            f"The vocabulary of {path!r}, a {kind}, cannot be changed: give an encoder-decoder "
            "model with an output projection, in float or half precision."
        )
    tokenizer = load_tokenizer(path)
    if tokenizer is None:
        raise ValueError(f"{path!r} holds no tokenizer: save one there with `save_pretrained`.")
    load: Any = VanillaTransformerForConditionalGeneration.from_pretrained
    return load(path, dtype=config.dtype or torch.float32).eval(), tokenizer


# Which tokens ------------------------------------------------------------------------------------


def _read_texts(files: Iterable[str | Path]) -> Iterator[str]:
    """Yields the lines of text files that are not blank."""
    return (line for line in chain.from_iterable(map(read_lines, files)) if line.strip())


def _encode_lines(tokenizer: Any, side: str, lines: Iterable[str]) -> Iterator[list[int]]:
    """Yields the ids of each line."""
    remaining, encoder = iter(lines), tokenizer
    if side == "target":
        encoder = in_language(tokenizer, None)
    while chunk := list(islice(remaining, 1024)):
        yield from call_tokenizer(encoder, side, chunk)["input_ids"]


def _choose_ids(
    model: Any,
    tokenizer: Any,
    tables: Sequence[Table],
    texts: Mapping[str, Sequence[str | Path]],
    keep_frequent: int,
) -> tuple[list[int], list[int]]:
    """Returns the ids of the source and the target that are kept, in order."""
    sizes = model.config.vocab_size, model.config.decoder_vocab_size
    is_shared = model.config.share_encoder_decoder_embeddings
    assert not is_shared if len(tables) == 2 else sizes[0] == sizes[1], "not its tokenizer"
    used: list[set[int]] = [set() for _ in tables]
    for number, side in enumerate(_SIDES):
        used[number % len(tables)].update(
            chain.from_iterable(_encode_lines(tokenizer, side, _read_texts(texts[side])))
        )
    named = _named_ids(model.config.to_dict()) | _named_ids(model.generation_config.to_dict())
    kept = []
    for table, used_ids, size in zip(tables, used, sizes, strict=False):
        ids = table.required | used_ids | characters_of(table, used_ids)
        ids |= {index for index in named if index < size}  # some are of the larger side alone
        rest = sorted(set(table.ids.values()) - ids)
        kept.append(close_under_parents(table, ids | set(rest[:keep_frequent])))
    if len(tables) == 2:
        _align_sides(tables, kept)
    orders = [sorted(ids) for ids in kept]
    return orders[0], orders[-1]


def _align_sides(tables: Sequence[Table], kept: list[set[int]]) -> None:
    """Keeps more tokens until tokens that need one id on both sides, such as `<pad>`, have it."""
    names = [{index: token for token, index in table.ids.items()} for table in tables]
    common = tables[0].required & tables[1].required
    fixed = sorted(i for i in common if names[0].get(i) == names[1].get(i))
    before: list[set[int]] = []
    while before != kept:
        before, start = [set(ids) for ids in kept], 0
        for end in fixed:
            counts = [sum(start <= index < end for index in ids) for ids in kept]
            for side, ids in enumerate(kept):
                free = (index for index in range(start, end) if index not in ids)
                ids.update(list(islice(free, max(counts) - counts[side])))
            start = end
        kept[:] = [close_under_parents(*pair) for pair in zip(tables, kept, strict=True)]


# The ids in configs ------------------------------------------------------------------------------


def _named_ids(fields: Mapping[str, Any]) -> set[int]:
    """Returns the ids that a config names and a model needs."""
    named = (value for name, value in fields.items() if name.endswith("_token_id"))
    ids = chain.from_iterable(each if isinstance(each, list) else [each] for each in named)
    return set(ids) - {None, -1}  # both stand for none


def _renumber_fields(config: Any, new: Mapping[int, int]) -> None:
    """Replaces the ids in a config, in place; a ban on a dropped token is dropped."""
    for name, value in config.to_dict().items():
        if value is None:
            continue
        if name.endswith("_token_id"):
            ids = [
                new.get(index, index) for index in (value if isinstance(value, list) else [value])
            ]
            setattr(config, name, ids if isinstance(value, list) else ids[0])
        elif name in _ID_LISTS:
            setattr(config, name, [new[index] for index in value if index in new] or None)
        elif name == "bad_words_ids":
            rows = [[new[index] for index in row] for row in value if new.keys() >= set(row)]
            setattr(config, name, rows or None)
        elif name == "sequence_bias":
            pairs = value.items() if isinstance(value, dict) else value
            kept = [
                [[new[index] for index in ids], bias]
                for ids, bias in pairs
                if new.keys() >= set(ids)
            ]
            setattr(config, name, kept or None)


# The model ---------------------------------------------------------------------------------------


Rows = list[list[int]]
"""The old rows that each new row is the mean of."""


def _set_rows(model: Any, source: Rows, target: Rows) -> None:
    """Replaces the rows of a model's vocabularies, in place.

    A shared embedding gets the rows of the target.
    """
    config, head = model.config, model.lm_head
    new = {rows[0]: index for index, rows in reversed(list(enumerate(target))) if len(rows) == 1}
    _renumber_fields(config, new)
    _renumber_fields(model.generation_config, new)
    sides = {"encoder.embed_tokens": source, "decoder.embed_tokens": target}
    if config.share_encoder_decoder_embeddings:
        sides["shared"] = target
    tables = [(model.model.get_submodule(name), rows) for name, rows in sides.items()]
    done: dict[nn.Parameter, nn.Parameter] = {}
    for module, rows in [*tables, (head, target)]:
        if module.weight not in done:  # a shared matrix stays one
            done[module.weight] = _mean_rows(module.weight, rows)
        module.weight = done[module.weight]
    for table, rows in tables:
        table.num_embeddings, table.padding_idx = len(rows), config.pad_token_id
    head.out_features = len(target)
    if head.bias is not None:
        head.bias = _mean_rows(head.bias, target)
    config.vocab_size, config.decoder_vocab_size = len(source), len(target)


def _mean_rows(values: torch.Tensor, rows: Rows) -> nn.Parameter:
    old = values.detach()
    new = old[torch.tensor([pieces[0] for pieces in rows])]
    for index, pieces in enumerate(rows):
        if len(pieces) > 1:
            new[index] = old[torch.tensor(pieces)].float().mean(0).to(old.dtype)
    return nn.Parameter(new, values.requires_grad)


# Proof and measures ------------------------------------------------------------------------------


def _compare_ids(
    tokenizer: Any,
    smaller: Any,
    orders: Sequence[Sequence[int]],
    texts: Mapping[str, Sequence[str | Path]],
) -> int:
    """Raises an error if a line is cut otherwise; returns the number of lines."""
    count, problems = 0, []
    for side, order in zip(_SIDES, orders, strict=True):
        lines = list(islice(_read_texts(texts[side]), _CHECKED_LINES))
        pairs = zip(
            *(_encode_lines(each, side, lines) for each in (tokenizer, smaller)), strict=True
        )
        for line, (before, after) in zip(lines, pairs, strict=True):
            count += 1
            if before != [order[index] if index < len(order) else None for index in after]:
                problems.append(f"the {side} {line[:80]!r} is cut otherwise")
    raise_problems("The smaller tokenizer differs from the model's", problems[:5])
    return count


def _measure_model(model: Any) -> Size:
    return Size(
        (model.config.vocab_size, model.config.decoder_vocab_size),
        model.num_parameters(),
        model.get_memory_footprint(),
    )


def _save_changed_model(
    pair: tuple[Any, Any], output_dir: str | Path, path: str, change: str, text: str, proof: str
) -> None:
    """Saves a model and its tokenizer, whose vocabulary has become "smaller" or "larger"."""
    with replaced_directory(output_dir) as folder:
        pair[0].save_pretrained(folder)
        save_tokenizer(pair[1], folder)
        write_card(
            folder,
            path,
            title=f"with a {change} vocabulary",
            text=f"`vanilla-transformer vocabulary` made this model from `{name_of(path)}`. {text}",
            proof=proof,
            tag=f"{change}-vocabulary",
        )
