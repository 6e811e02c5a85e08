"""The texts of a run as its model reads them, with tokenizer, config and settings for them."""

import json
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from transformers import GenerationConfig
from transformers.utils import logging

from vanilla_transformer.columns import directions_of, distinct_directions
from vanilla_transformer.data.memory_rows import annotate_memory, has_similar_pairs
from vanilla_transformer.data.placeholders import share_of_placeholders, with_placeholders
from vanilla_transformer.data.term_rows import annotate_terms
from vanilla_transformer.files.atomic_files import replaced_directory
from vanilla_transformer.files.file_contents import readers_digest, text_digest
from vanilla_transformer.files.loading import load_generation_settings, load_tokenizer
from vanilla_transformer.language_tags import closest_tag
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.directions import (
    Direction,
    Row,
    keep_targets,
    language_tokens,
    languages_of_model,
    possible_tags,
    record_directions,
    recorded_directions,
    with_first_token,
)
from vanilla_transformer.model.tokenization_vanilla_transformer import MEMORY_TOKEN, TERM_TOKENS
from vanilla_transformer.names import ANNOTATE
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.defaults import describe_choice
from vanilla_transformer.run.loaded_data import LoadedData
from vanilla_transformer.run.tokenizer_and_config import (
    make_config,
    open_tokenizer,
    train_tokenizer,
)
from vanilla_transformer.search import learned_positions

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class RunTexts:
    """The texts of a run as its model reads them, with tokenizer, config and settings for them."""

    splits: DatasetDict  # sources have terms, former translations and placeholders in them
    example: str  # a source as a user writes it
    tokenizer: Any  # it knows how many positions the model has learned
    config: VanillaTransformerConfig
    settings: GenerationConfig  # of the saved model, or defaults


def prepare_texts(arguments: RunArguments, loaded: LoadedData) -> RunTexts:
    """Makes the texts of a run as its model reads them; loads or trains the tokenizer."""
    # The order counts. The tokenizer comes first: it is trained on the texts as they are, and gets
    # the tokens that the next steps write. Memories are searched before placeholders change texts.
    if arguments.defaults and loaded.directory.checkpoint is None:
        logger.info(describe_choice(arguments.defaults, loaded.facts))
    rows, init_from = loaded.splits["train"], loaded.init_from
    share = share_of_placeholders(loaded.sample, arguments.data.placeholder_share)
    tokenizer = _make_tokenizer(arguments, loaded, has_stand_ins=share > 0)
    _record_directions(arguments, rows, init_from, tokenizer)
    splits = DatasetDict({**loaded.splits, "train": _annotated(arguments, rows, tokenizer, share)})
    config = make_config(arguments.architecture, tokenizer, init_from)
    if (positions := learned_positions(config)) is not None:
        tokenizer.model_max_length = positions
    settings = GenerationConfig.from_model_config(config)
    if init_from is not None:
        settings = load_generation_settings(init_from, config)
    if language_tokens(tokenizer):
        config, settings = _begin_with_language(config, settings, tokenizer, splits)
    return RunTexts(splits, rows[0]["source"], tokenizer, config, settings)


def _record_directions(
    arguments: RunArguments, rows: Dataset, init_from: str | None, tokenizer: Any
) -> None:
    """Records the directions of the training pairs in the tokenizer, as a saved model has them."""
    directions = directions_of(rows, possible_tags(tokenizer))
    if arguments.tokenizer.tokenizer_name_or_path and not arguments.model.model_name_or_path:
        if directions:
            keep_targets(tokenizer, {target for _, target, _ in directions})
    elif init_from is not None:
        directions = [spelt_by_model(row, tokenizer, init_from) for row in directions]
    record_directions(tokenizer, directions, arguments.data.tags)


def _annotated(arguments: RunArguments, rows: Dataset, tokenizer: Any, share: float) -> Dataset:
    """Puts former translations, placeholders and terms into training pairs."""
    options, num_proc = arguments.data, arguments.preparation.num_proc
    if options.memory != "none" and MEMORY_TOKEN in tokenizer.get_vocab():
        rows = annotate_memory(rows, options.tags, num_proc)
    if share:
        rows = with_placeholders(rows, tokenizer, share, num_proc)
    return annotate_terms(rows, options.tags, num_proc) if options.terms else rows


def spelt_by_model(direction: Row, tokenizer: Any, init_from: str) -> Row:
    """Returns a direction of the data with its target as the saved model spells it.

    Raises:
        ValueError: If the model lacks the target, and no tag asks for it.
    """
    (source, target, tag), (_, targets) = direction, languages_of_model(tokenizer)
    if tag:
        rows = recorded_directions(tokenizer)
        code_of = {known: code for any_source, code, known in rows if any_source is None}
        return source, code_of.get(tag, target), tag
    if not targets or language_tokens(tokenizer):
        return direction
    if (spelt := closest_tag(target, targets)) is None:
        raise ValueError(
            f"The model in {init_from!r} has no target language {target!r}: it knows "
            f"{', '.join(sorted(targets))}. A tag can teach it another one (docs/languages.md)."
        )
    return source, spelt, tag


def _begin_with_language(
    config: VanillaTransformerConfig, settings: GenerationConfig, tokenizer: Any, data: DatasetDict
) -> tuple[VanillaTransformerConfig, GenerationConfig]:
    """Returns config and settings by which outputs begin with the language of all targets.

    The config differs for models of mBART's kind alone, which begin with it in training too. The
    settings are the same if the data have several languages.
    """
    begins = {
        Direction.resolve(tokenizer, settings, source, target, closest_tag).begin
        for rows in data.values()
        for source, target, _ in distinct_directions(rows)
    }
    starts = {
        index for begin in begins for name, index in begin if name == "decoder_start_token_id"
    }
    if len(starts) > 1:
        raise ValueError(
            "The data have several target languages, but targets of this model begin with "
            "`decoder_start_token_id`, which is one language: train it on one of them at a time."
        )
    if starts:
        config = deepcopy(config)
        config.decoder_start_token_id = min(starts)
    return config, with_first_token(settings, begins.pop()) if len(begins) == 1 else settings


def _learns_memory(arguments: RunArguments, rows: Dataset, init_from: str | None) -> bool:
    """Returns whether the vocabulary needs the token of memories."""
    tokenizer, memory = arguments.tokenizer, arguments.data.memory
    if memory is not None or tokenizer.tokenizer_name_or_path or init_from:
        return memory == ANNOTATE
    # The source vocabulary must know the targets.
    chooses = arguments.model.choose_defaults and not tokenizer.separate_vocabularies
    return chooses and has_similar_pairs(rows, arguments.data.tags)


def _make_tokenizer(arguments: RunArguments, loaded: LoadedData, has_stand_ins: bool) -> Any:
    """Loads the tokenizer of a run, or trains one, which is saved with prepared data."""
    options, prepared = arguments.tokenizer, arguments.preparation.prepared
    added_tokens = [*arguments.data.tags, *(TERM_TOKENS if arguments.data.terms else ())]
    if _learns_memory(arguments, loaded.splits["train"], loaded.init_from):
        added_tokens.append(MEMORY_TOKEN)
    if options.tokenizer_name_or_path or loaded.init_from:
        wanted = options.training_options()
        if "vocab_size" not in arguments.given:  # a chosen size is no demand on a saved vocabulary
            del wanted["vocab_size"]
        named = options.tokenizer_name_or_path
        return open_tokenizer(named, loaded.init_from, added_tokens, wanted)
    train = partial(train_tokenizer, options, loaded.sample, added_tokens, has_stand_ins)
    if prepared is None:
        return train()
    # Only given options count: the chosen number of tokens may differ between machines.
    names = options.__dataclass_fields__.keys() & arguments.given.keys()
    given = {name: arguments.given[name] for name in sorted(names)}
    fingerprint = loaded.sample._fingerprint
    made_from = [readers_digest(), fingerprint, given, added_tokens, has_stand_ins]
    folder = Path(prepared, f"tokenizer-{text_digest(json.dumps(made_from))[:12]}")
    if not folder.exists():
        if [*folder.parent.glob("tokenizer-*")]:
            raise ValueError(
                f"The tokenizer in {prepared!r} was made of other texts or with other options: "
                "give those that it was made with, or another directory."
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replaced_directory(folder) as unfinished:
            train().save_pretrained(unfinished)
    return load_tokenizer(str(folder))
