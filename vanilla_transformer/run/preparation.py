"""Data, texts and tokenizer of a run, which it reads or makes before it is planned."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from transformers import GenerationConfig
from transformers.utils import logging

from vanilla_transformer.columns import directions_of, distinct_directions, with_languages
from vanilla_transformer.data.cased_copies import add_cased_copies
from vanilla_transformer.data.file_formats import add_links
from vanilla_transformer.data.memory_rows import annotate_memory, has_similar_pairs
from vanilla_transformer.data.near_twins import mark_twins
from vanilla_transformer.data.parallel_data import ParallelData, load_parallel_data
from vanilla_transformer.data.placeholders import share_of_placeholders, with_placeholders
from vanilla_transformer.data.term_rows import annotate_terms
from vanilla_transformer.files.atomic_files import check_lies_elsewhere, replaced_directory
from vanilla_transformer.files.file_contents import readers_digest, text_digest
from vanilla_transformer.files.loading import load_generation_settings, load_tokenizer
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.language_tags import closest_tag
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.directions import (
    Direction,
    language_tokens,
    possible_tags,
    record_directions,
    with_first_token,
)
from vanilla_transformer.model.tokenization_vanilla_transformer import MEMORY_TOKEN, TERM_TOKENS
from vanilla_transformer.names import ANNOTATE
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.defaults import (
    RunFacts,
    choose_defaults,
    count_alphabet,
    describe_choice,
    is_free,
)
from vanilla_transformer.run.loading import (
    keeps_case,
    make_config,
    make_tokenizer,
    tokenizer_sample,
)
from vanilla_transformer.run.machine import Machine
from vanilla_transformer.run.model_size import narrow_to_size
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.search import learned_positions
from vanilla_transformer.training.store import OutputDirectory, resolve_output_directory

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class LoadedData:
    """The data that a run loads first; one process loads them for all of a machine."""

    directory: OutputDirectory
    init_from: str | None  # saved model or checkpoint with its first weights; None: a new model
    data: ParallelData  # the splits in use, as their files have them
    facts: RunFacts


@dataclass(frozen=True)
class RunTexts:
    """The texts of a run as its model reads them, with tokenizer, config and settings for them."""

    splits: DatasetDict  # sources have terms, former translations and placeholders in them
    example: str  # a source as a user writes it
    tokenizer: Any  # it knows how many positions the model has learned
    config: VanillaTransformerConfig
    settings: GenerationConfig  # of the saved model, or defaults


def load_data(
    arguments: RunArguments,
    data: DatasetDict | None = None,
    directory: OutputDirectory | None = None,
) -> tuple[RunArguments, LoadedData]:
    """Loads the data of a run, and completes its options by defaults that fit the data.

    A resumed run keeps the defaults that it has chosen. A program may pass the splits. The output
    directory, if it is not given, is checked for a training.
    """
    loaded = compute_on_main_process(arguments.training, _load_data, arguments, data, directory)
    checkpoint, given = loaded.directory.checkpoint, arguments.given
    if checkpoint is None:
        return arguments.changed(choose_defaults(given, loaded.facts)), loaded
    former = (checkpoint.inputs.get("defaults") or {}).get("options", {}).items()
    return arguments.changed(
        {name: value for name, value in former if is_free(name, given)}
    ), loaded


def _load_data(
    arguments: RunArguments, data: DatasetDict | None, directory: OutputDirectory | None
) -> LoadedData:
    training = arguments.training
    if directory is None:
        directory = resolve_output_directory(
            str(training.output_dir), training.resume_from_checkpoint, arguments.model.overwrite
        )
        if directory.overwritten:
            check_lies_elsewhere(_files_of(arguments), directory.folder)
    init_from = arguments.model.model_name_or_path
    if directory.checkpoint is not None:
        init_from = str(directory.checkpoint.path)
    if init_from is not None:
        check_model_directory(init_from)
    parallel = _load_splits(arguments, data, init_from)
    splits = parallel.splits
    if "train" not in splits or arguments.given.get("do_train") is False:
        raise ValueError(
            "A run trains: give training data. `vanilla-transformer evaluate` scores a saved model."
        )
    if len(splits["train"]) == 1:
        logger.warning("There is one training pair: a model can only learn it by heart. Give more.")
    sample = tokenizer_sample(splits["train"], arguments.preparation.tokenizer_sample)
    _warn_of_known_pairs(sample, splits)
    facts = RunFacts.of(
        pairs=len(splits["train"]),
        characters=count_alphabet(sample),
        has_validation="validation" in splits and arguments.given.get("do_eval") is not False,
        machine=Machine.here(training.use_cpu),
    )
    facts = narrow_to_size(facts, arguments)
    wanted = {"validation": training.do_eval, "test": training.do_predict}
    splits = DatasetDict(
        {name: rows for name, rows in splits.items() if wanted.get(name) is not False}
    )
    for split in [name for name in splits if name != "train"]:
        splits[split] = mark_twins(splits[split], splits["train"], arguments.data.tags, split)
    return LoadedData(directory, init_from, replace(parallel, splits=splits), facts)


def prepare_texts(arguments: RunArguments, loaded: LoadedData) -> RunTexts:
    """Makes the texts of a run as its model reads them; loads or trains the tokenizer.

    One process does it for all of a machine.
    """
    return compute_on_main_process(arguments.training, _prepare_texts, arguments, loaded)


def _prepare_texts(arguments: RunArguments, loaded: LoadedData) -> RunTexts:
    # The order counts. The tokenizer is made first, of texts as they are, with the tokens that the
    # next steps write. Former translations are looked up before placeholders change the texts.
    if arguments.defaults and loaded.directory.checkpoint is None:
        logger.info(describe_choice(arguments.defaults, loaded.facts))
    splits, init_from = DatasetDict(loaded.data.splits), loaded.init_from
    sample = tokenizer_sample(splits["train"], arguments.preparation.tokenizer_sample)
    share = share_of_placeholders(sample, arguments.data.placeholder_share)
    tags, num_proc = arguments.data.tags, arguments.preparation.num_proc
    tokens = [*tags, *(TERM_TOKENS if arguments.data.terms else ())]
    if _learns_memory(arguments, splits["train"], init_from):
        tokens.append(MEMORY_TOKEN)
    tokenizer = _open_or_make_tokenizer(arguments, sample, init_from, tokens, share > 0)
    directions = directions_of(splits["train"], possible_tags(tokenizer))
    record_directions(tokenizer, directions, tags)
    if arguments.data.memory != "none" and MEMORY_TOKEN in tokenizer.get_vocab():
        splits["train"] = annotate_memory(splits["train"], tags, num_proc)
    if share:
        splits["train"] = with_placeholders(splits["train"], tokenizer, share, num_proc)
    if arguments.data.terms:
        splits["train"] = annotate_terms(splits["train"], tags, num_proc)
    config = make_config(arguments.architecture, tokenizer, init_from)
    if (positions := learned_positions(config)) is not None:
        tokenizer.model_max_length = positions
    settings = GenerationConfig.from_model_config(config)
    if init_from is not None:
        settings = load_generation_settings(init_from, config)
    if language_tokens(tokenizer):
        settings = _begin_with_language(config, settings, tokenizer, splits)
    example = loaded.data.splits["train"][0]["source"]
    return RunTexts(splits, example, tokenizer, config, settings)


def _begin_with_language(
    config: VanillaTransformerConfig, settings: GenerationConfig, tokenizer: Any, data: DatasetDict
) -> GenerationConfig:
    """Returns settings by which outputs begin with the target's language, if all data have one.

    Models of mBART's kind begin with it in training too: the config is changed, so that it names
    this token.
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
        config.decoder_start_token_id = min(starts)
    return with_first_token(settings, begins.pop()) if len(begins) == 1 else settings


def _files_of(arguments: RunArguments) -> list[str]:
    """Returns the files and directories that a run reads."""
    inputs: list[Any] = [Path.cwd(), arguments.recipe and arguments.recipe.path]
    for name, value in arguments.given.items():
        if name != "output_dir":
            inputs += value if isinstance(value, list) else [value]
    inputs += arguments.data.read_from
    return [str(path) for path in inputs if isinstance(path, str | PathLike)]


def _load_splits(
    arguments: RunArguments, data: DatasetDict | None, init_from: str | None
) -> ParallelData:
    """Loads the splits unless a caller gives them; adds word links of a file, and cased copies."""
    options, links = arguments.data, arguments.training.guided_alignment
    if options.case_augment is not None:
        saved = arguments.tokenizer.tokenizer_name_or_path or init_from
        if arguments.tokenizer.lowercase if saved is None else not keeps_case(saved):
            logger.warning("`case_augment` adds nothing: the vocabulary lower-cases sources.")
            options = replace(options, case_augment=None)
    if options.terms and links is not None:
        raise ValueError(
            f"`terms` moves the words that the links in {links!r} number: leave one of them out."
        )
    if data is None:
        prepared = arguments.preparation.prepared
        return load_parallel_data(options, links, None if prepared is None else Path(prepared))
    languages = (options.source_language, options.target_language)
    splits = {name: with_languages(rows, languages) for name, rows in data.items()}
    if links is not None:
        splits["train"] = add_links(splits["train"], links)
    splits["train"] = add_cased_copies(splits["train"], options.case_augment)
    return ParallelData(DatasetDict(splits))


def _warn_of_known_pairs(training: Dataset, texts: DatasetDict) -> None:
    """Warns of a split whose pairs are all training pairs: its scores say little of other texts."""
    pairs = _hashes_of(training)
    for name, rows in texts.items():
        if name != "train" and pairs >= _hashes_of(rows):
            logger.warning(
                f"All {name} pairs are training pairs: their scores tell nothing of other texts."
            )


def _hashes_of(rows: Dataset) -> set[int]:
    batches = rows.select_columns(["source", "target"]).iter(10_000)
    return {hash(pair) for batch in batches for pair in zip(*batch.values(), strict=True)}


def _learns_memory(arguments: RunArguments, rows: Dataset, init_from: str | None) -> bool:
    """Decides whether a vocabulary must have the token of memories."""
    tokenizer, memory = arguments.tokenizer, arguments.data.memory
    if memory is not None or tokenizer.tokenizer_name_or_path or init_from:
        return memory == ANNOTATE
    # The source vocabulary must know the targets.
    chooses = arguments.model.choose_defaults and not tokenizer.separate_vocabularies
    return chooses and has_similar_pairs(rows, arguments.data.tags)


def _open_or_make_tokenizer(
    arguments: RunArguments,
    sample: Dataset,
    init_from: str | None,
    tokens: Sequence[str],
    has_placeholders: bool,
) -> Any:
    """Loads the tokenizer of a run, or trains one, which prepared data keep."""
    options, prepared = arguments.tokenizer, arguments.preparation.prepared
    if prepared is None or options.tokenizer_name_or_path or init_from:
        return make_tokenizer(options, sample, init_from, tokens, has_placeholders)
    # The number of tokens may be chosen by the machine: what is given counts.
    names = options.__dataclass_fields__.keys() & arguments.given.keys()
    given = {name: arguments.given[name] for name in sorted(names)}
    made_from = [readers_digest(), sample._fingerprint, given, tokens, has_placeholders]
    folder = Path(prepared, f"tokenizer-{text_digest(json.dumps(made_from))[:12]}")
    if not folder.exists():
        if [*folder.parent.glob("tokenizer-*")]:
            raise ValueError(
                f"The tokenizer in {prepared!r} was made of other texts or with other options: "
                "give those that it was made with, or another directory."
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replaced_directory(folder) as unfinished:
            tokenizer = make_tokenizer(options, sample, init_from, tokens, has_placeholders)
            tokenizer.save_pretrained(unfinished)
    return load_tokenizer(str(folder))
