"""Loads the data of a run, and completes its options by defaults that fit these data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from transformers.utils import logging

from vanilla_transformer.batches.mixing import Mixture
from vanilla_transformer.columns import with_languages
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.cased_copies import add_cased_copies
from vanilla_transformer.data.corpus_reports import CorpusReport
from vanilla_transformer.data.file_formats import add_links
from vanilla_transformer.data.near_twins import mark_twins
from vanilla_transformer.data.parallel_data import ParallelData, load_parallel_data
from vanilla_transformer.files.atomic_files import check_lies_elsewhere
from vanilla_transformer.files.model_directory import check_model_directory
from vanilla_transformer.names import LEARNT_LINKS
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.defaults import RunFacts, choose_defaults, is_free
from vanilla_transformer.run.machine import Machine
from vanilla_transformer.run.model_size import narrow_to_size
from vanilla_transformer.run.shared_work import compute_on_main_process
from vanilla_transformer.run.tokenizer_and_config import keeps_case, tokenizer_sample
from vanilla_transformer.training.store import OutputDirectory, resolve_output_directory

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class LoadedData:
    """The data of a run; one process loads them for all of a machine."""

    directory: OutputDirectory
    init_from: str | None  # saved model or checkpoint with its first weights; None: a new model
    splits: DatasetDict  # in use, as their files have them
    reports: Sequence[CorpusReport]
    shares: Mapping[str, float] | None
    sample: Dataset  # the training pairs of which a new tokenizer is trained
    facts: RunFacts

    def mixture(self, seed: int) -> Mixture | None:
        """Returns the examples of each epoch by the shares of their corpora. None: all of them."""
        sizes = {report.corpus: report.used + report.copies for report in self.reports}
        return Mixture(sizes, self.shares, seed) if self.shares else None


def load_data(
    arguments: RunArguments,
    data: DatasetDict | None = None,
    directory: OutputDirectory | None = None,
) -> tuple[RunArguments, LoadedData]:
    """Loads the data of a run, and completes its options by defaults that fit the data.

    A resumed run keeps the defaults that it has chosen. A program may pass the splits. The output
    directory is that of the options, and is checked for a training, unless one is passed.
    """
    loaded = compute_on_main_process(arguments.training, _load_data, arguments, data, directory)
    checkpoint, given = loaded.directory.checkpoint, arguments.given
    if checkpoint is None:
        return arguments.changed(choose_defaults(given, loaded.facts)), loaded
    former = checkpoint.inputs.get("defaults", {})
    kept = {name: value for name, value in former.items() if is_free(name, given)}
    return arguments.changed(kept), loaded


def _load_data(
    arguments: RunArguments, data: DatasetDict | None, directory: OutputDirectory | None
) -> LoadedData:
    """Loads the data of a run, and finds the facts that its defaults depend on."""
    training, init_from = arguments.training, arguments.model.model_name_or_path
    directory = directory or _directory_of(arguments)
    if directory.checkpoint is not None:
        init_from = str(directory.checkpoint.path)
    if init_from is not None:
        check_model_directory(init_from)
    found = _load_splits(arguments, _data_options(arguments, init_from), data)
    splits = found.splits
    if "train" not in splits or arguments.given.get("do_train") is False:
        raise ValueError(
            "A run trains: give training data. `vanilla-transformer evaluate` scores a saved model."
        )
    if len(splits["train"]) == 1:
        logger.warning("There is one training pair: a model can only learn it by heart. Give more.")
    sample = tokenizer_sample(splits["train"], arguments.preparation.tokenizer_sample)
    _warn_of_known_pairs(sample, splits)
    wanted = {"validation": training.do_eval, "test": training.do_predict}
    splits = DatasetDict({name: splits[name] for name in splits if wanted.get(name) is not False})
    of_data = RunFacts.of(
        pairs=len(splits["train"]),
        characters=_count_alphabet(sample),
        has_validation="validation" in splits,
        machine=Machine.here(training.use_cpu),
    )
    facts = narrow_to_size(of_data, arguments)
    for split in [name for name in splits if name != "train"]:
        splits[split] = mark_twins(splits[split], splits["train"], arguments.data.tags, split)
    return LoadedData(directory, init_from, splits, found.reports, found.shares, sample, facts)


def _directory_of(arguments: RunArguments) -> OutputDirectory:
    """Decides the output directory; one that the run overwrites may hold nothing that it reads."""
    training = arguments.training
    directory = resolve_output_directory(
        str(training.output_dir), training.resume_from_checkpoint, arguments.model.overwrite
    )
    if directory.overwritten:
        check_lies_elsewhere(_files_of(arguments), directory.folder)
    return directory


def _files_of(arguments: RunArguments) -> list[str]:
    """Returns the files and directories that a run reads."""
    inputs: list[Any] = [Path.cwd(), arguments.recipe and arguments.recipe.path]
    for name, value in arguments.given.items():
        if name != "output_dir":
            inputs += value if isinstance(value, list) else [value]
    inputs += arguments.data.read_from
    return [str(path) for path in inputs if isinstance(path, str | PathLike)]


def _data_options(arguments: RunArguments, init_from: str | None) -> DataArguments:
    """Returns the options of the data, without `case_augment` where it has no effect."""
    options, saved = arguments.data, arguments.tokenizer.tokenizer_name_or_path or init_from
    if options.case_augment is None:
        return options
    if arguments.tokenizer.lowercase if saved is None else not keeps_case(saved):
        logger.warning("`case_augment` adds nothing: the vocabulary lower-cases sources.")
        return replace(options, case_augment=None)
    return options


def _load_splits(
    arguments: RunArguments, options: DataArguments, data: DatasetDict | None
) -> ParallelData:
    """Loads the splits unless a program passes them; adds word links and cased copies."""
    links = arguments.training.guided_alignment
    links = None if links == LEARNT_LINKS else links
    if options.terms and links is not None:
        raise ValueError(
            f"`terms` moves the words that the links in {links!r} number: leave one of them out."
        )
    if data is None:
        prepared = arguments.preparation.prepared
        return load_parallel_data(options, links, None if prepared is None else Path(prepared))
    languages = (options.source_language, options.target_language)
    splits = {name: with_languages(rows, languages) for name, rows in data.items()}
    if "train" in splits:  # or else `_load_data` refuses the data
        if links is not None:
            splits["train"] = add_links(splits["train"], links)
        splits["train"] = add_cased_copies(splits["train"], options.case_augment)
    return ParallelData(DatasetDict(splits))


def _warn_of_known_pairs(training: Dataset, texts: DatasetDict) -> None:
    """Warns of sides that are all equal, and of a split whose pairs are all training pairs."""
    if len(training) > 1 and training["source"][:] == training["target"][:]:
        logger.warning("All targets of the training data are equal to their sources.")
    pairs = _hashes_of(training)
    for name, rows in texts.items():
        if name != "train" and pairs >= _hashes_of(rows):
            logger.warning(
                f"All {name} pairs are training pairs: their scores tell nothing of other texts."
            )


def _hashes_of(rows: Dataset) -> set[int]:
    batches = rows.select_columns(["source", "target"]).iter(10_000)
    return {hash(pair) for batch in batches for pair in zip(*batch.values(), strict=True)}


def _count_alphabet(sample: Dataset) -> int:
    """Counts the different characters of pairs."""
    characters = set[str]()
    for batch in sample.select_columns(["source", "target"]).iter(batch_size=1000):
        for texts in batch.values():
            characters.update("".join(texts))
    return len(characters)
