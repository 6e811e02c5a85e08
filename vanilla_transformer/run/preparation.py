"""What a run has before it makes its model: data as token ids, made in its cache or beforehand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from transformers.utils import logging

from vanilla_transformer.data.arguments import SPLITS
from vanilla_transformer.data.atomic_files import check_lies_elsewhere
from vanilla_transformer.data.cased_copies import add_cased_copies
from vanilla_transformer.data.directory_lock import locked_directory
from vanilla_transformer.data.encoding import encode
from vanilla_transformer.data.file_formats import add_links
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.data.parallel_data import directions_of, load_parallel_data, name_row
from vanilla_transformer.data.placeholders import share_of_placeholders, with_placeholders
from vanilla_transformer.data.term_rows import annotate_terms
from vanilla_transformer.data.text_files import existing_file
from vanilla_transformer.data.token_budget import check_longest, token_lengths
from vanilla_transformer.data.unknown_characters import check_characters
from vanilla_transformer.inference.loading import load_tokenizer
from vanilla_transformer.model.directions import record_directions, tags_of_sources
from vanilla_transformer.model.tokenization_vanilla_transformer import TERM_TOKENS
from vanilla_transformer.run.defaults import (
    RunFacts,
    choose_defaults,
    count_characters,
    describe_choice,
    is_free,
)
from vanilla_transformer.run.loading import make_tokenizer, tokenizer_sample
from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.run.plan import RunPlan, make_plan, saved_model, splits_in_use
from vanilla_transformer.run.prepared_data import PreparedFolder
from vanilla_transformer.training.store import OutputDirectory, resolve_output_directory

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class Preparation:
    """What a run has before it makes its model; one process makes it for all of a machine.

    Attributes:
        given: The options that are given; prepared data give further ones.
        defaults: The options that the run has chosen itself.
        texts: The splits in use. Those of prepared training data may be the first ones alone.
        inputs: What a resumed run compares.
    """

    directory: OutputDirectory
    given: Mapping[str, Any]
    defaults: Mapping[str, Any]
    texts: DatasetDict
    tokenizer: Any
    encoded: DatasetDict
    inputs: dict[str, Any]


def prepare(
    arguments: RunArguments,
    data: DatasetDict | None = None,
    into: PreparedFolder | None = None,
) -> Preparation:
    """Loads the data of a run, trains its tokenizer and encodes the data; or opens prepared data.

    Args:
        data: Splits that a program passes; None: the data that the options name.
        into: Folder of prepared data that is made; None: the data are encoded in the cache.
    """
    if into is None:
        directory = resolve_output_directory(arguments.training, arguments.model.overwrite)
        if directory.overwritten:
            check_lies_elsewhere(_inputs_of(arguments), directory.folder)
    else:
        directory = OutputDirectory(into.folder, None, False)
    init_from = saved_model(arguments, directory)
    if init_from is not None:
        check_model_directory(init_from)

    prepared = None
    if (path := arguments.preparation.prepared) is not None and into is None:
        if data is not None:
            raise ValueError(f"`prepared` {path!r} replaces the data: pass one of both.")
        prepared = PreparedFolder.read(Path(path))
        given = prepared.options_of_run(arguments)
        arguments = replace(arguments, given=given).with_defaults({})
    texts = _load_data(arguments, data) if prepared is None else prepared.texts()
    if "train" not in texts or arguments.given.get("do_train") is False:
        raise ValueError(
            "A run trains: give training data. `vanilla-transformer evaluate` scores a saved model."
        )
    sample = tokenizer_sample(texts["train"], arguments.preparation.tokenizer_sample)
    _warn_of_known_pairs(sample, texts)
    counts = {"pairs": len(texts["train"]), "characters": count_characters(sample)}
    if prepared is not None:
        counts = prepared.manifest["facts"]
    has_validation = "validation" in texts and arguments.given.get("do_eval") is not False
    arguments = _with_defaults(arguments, directory, counts, has_validation)
    texts = splits_in_use(arguments.training, texts)

    share = 0.0 if prepared else share_of_placeholders(sample, arguments.data.placeholder_share)
    tags, num_proc = arguments.data.tags, arguments.preparation.num_proc
    tokens = [*tags, *(TERM_TOKENS if arguments.data.terms else ())]
    tokenizer = make_tokenizer(arguments.tokenizer, sample, init_from, tokens, share > 0)
    directions = directions_of(texts["train"], arguments.data, tags_of_sources(tokenizer))
    record_directions(tokenizer, directions)
    if into is not None:
        tokenizer.save_pretrained(into.tokenizer)
        tokenizer = load_tokenizer(str(into.tokenizer))
    if share:
        texts["train"] = with_placeholders(texts["train"], tokenizer, share, num_proc)
    if arguments.data.terms and prepared is None:
        known = arguments.data.row_languages()
        texts["train"] = annotate_terms(texts["train"], known, tags, num_proc)
    plan = make_plan(arguments, directory, texts, tokenizer)
    if plan.positions is not None:
        tokenizer.model_max_length = plan.positions
    if prepared is not None:
        encoded = prepared.open(plan)
    else:
        if directory.checkpoint is None:
            names = {"train": "training", "validation": "validation"}
            learnt = {names[name]: rows for name, rows in texts.items() if name in names}
            logger.info(check_characters(tokenizer, learnt))
        encoded = encode(
            texts,
            tokenizer,
            plan.max_source_length,
            plan.max_target_length,
            arguments.preparation.num_proc,
            None if into is None else into.folder,
            arguments.data.row_languages(),
            plan.search.settings,
        )
    _check_lengths(plan, encoded["train"])
    if into is not None:
        into.finish(plan, encoded, counts)
    return Preparation(
        directory,
        arguments.given,
        arguments.defaults,
        texts,
        tokenizer,
        encoded,
        plan.inputs(encoded),
    )


def prepare_directory(arguments: RunArguments) -> None:
    """Prepares the data that options name in `output_dir`, for any number of runs.

    What a killed preparation has left there is used.

    Raises:
        ValueError: If the directory holds other files, or was prepared with other options.
        OSError: If the disk is too small.
    """
    folder = Path(str(arguments.training.output_dir))
    with locked_directory(folder, is_main=True):
        into = PreparedFolder.begin(arguments)
        given = into.options(arguments.given)
        made = prepare(replace(arguments, given=given).with_defaults({}), into=into)
    pairs = sum(map(len, made.encoded.values()))
    logger.info(f"Prepared {pairs:,} pairs in {str(folder)!r}: train with `--prepared {folder}`.")


def _inputs_of(arguments: RunArguments) -> list[str]:
    """Returns the files and directories that a run reads."""
    inputs: list[Any] = [Path.cwd(), arguments.recipe and arguments.recipe.path]
    for name, value in arguments.given.items():
        if name != "output_dir":
            inputs += value if isinstance(value, list) else [value]
    for corpus in arguments.data.entries:
        inputs += [corpus.dataset, *(path for split in SPLITS for path in corpus.paths(split))]
    return [str(path) for path in inputs if isinstance(path, str | PathLike)]


def _load_data(arguments: RunArguments, data: DatasetDict | None) -> DatasetDict:
    """Loads the splits unless a caller gives them; adds word links of a file, and cased copies."""
    links = arguments.training.guided_alignment
    path = None if links is None else str(existing_file(links))
    if arguments.data.terms and path is not None:
        raise ValueError(
            f"`terms` moves the words that the links in {path!r} number: leave one of them out."
        )
    if data is None:
        return load_parallel_data(arguments.data, path)
    rows = data["train"] if path is None else add_links(data["train"], path)
    known, share = arguments.data.row_languages(), arguments.data.case_augment
    return DatasetDict({**data, "train": add_cased_copies(rows, share, known)})


def _warn_of_known_pairs(training: Dataset, texts: DatasetDict) -> None:
    """Warns of a split whose pairs are all training pairs: its scores say little of other texts."""
    pairs = set(map(hash, zip(training["source"], training["target"], strict=True)))
    for name, rows in texts.items():
        if name != "train" and pairs.issuperset(
            map(hash, zip(rows["source"], rows["target"], strict=True))
        ):
            logger.warning(
                f"All {name} pairs are training pairs: their scores tell nothing of other texts."
            )


def _with_defaults(
    arguments: RunArguments,
    directory: OutputDirectory,
    counts: Mapping[str, int],
    has_validation: bool,
) -> RunArguments:
    """Chooses the options that are not given, once; a resumed run keeps what it has chosen.

    Args:
        counts: Numbers of training pairs and of different characters.
    """
    given, training = arguments.given, arguments.training
    defaults: Mapping[str, Any] = {}
    if directory.checkpoint is not None:
        record = directory.checkpoint.inputs.get("defaults") or {}
        if given.get("choose_defaults", True):
            former = record.get("options", {}).items()
            defaults = {name: value for name, value in former if is_free(name, given)}
    else:
        facts = RunFacts.on_this_machine(
            **counts, has_validation=has_validation, use_cpu=training.use_cpu
        )
        if defaults := choose_defaults(given, facts):
            logger.info(describe_choice(defaults, facts))
    return arguments.with_defaults(defaults)


def _check_lengths(plan: RunPlan, rows: Dataset) -> None:
    """Refuses training pairs that are too long for a batch."""
    prepared, limit = plan.options.preparation.prepared, plan.training.max_tokens
    if limit is None:
        return

    def name(row: int) -> str:
        if prepared is None:
            return name_row(plan.options.data, "train", row)
        return f"Pair {row + 1} of {str(Path(prepared, 'train'))!r}"

    check_longest(token_lengths(rows, "input_ids"), token_lengths(rows, "labels"), limit, name)
