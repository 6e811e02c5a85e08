"""What a run has before it makes its model: data as token ids, made in its cache or beforehand."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict, load_from_disk
from transformers.utils import logging

from vanilla_transformer import __version__
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.atomic_files import write_atomic
from vanilla_transformer.data.corpora import tags_of
from vanilla_transformer.data.directory_lock import locked_directory
from vanilla_transformer.data.encoding import encode, tokenizer_digest
from vanilla_transformer.data.file_contents import content_digest, read_object, text_digest
from vanilla_transformer.data.file_formats import add_links
from vanilla_transformer.data.model_directory import check_model_directory
from vanilla_transformer.data.parallel_data import load_parallel_data, name_row
from vanilla_transformer.data.shards import INDEX, Shards
from vanilla_transformer.data.text_files import existing_file
from vanilla_transformer.data.token_budget import check_longest, token_lengths
from vanilla_transformer.inference.loading import load_tokenizer
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.names import OWN_ALIGNMENT
from vanilla_transformer.run.defaults import (
    ChosenDefaults,
    Facts,
    choose_defaults,
    recorded_defaults,
)
from vanilla_transformer.run.loading import (
    limit_length,
    load_generation_settings,
    make_config,
    make_tokenizer,
    tokenizer_sample,
)
from vanilla_transformer.run.options import TokenizerArguments
from vanilla_transformer.run.parsing import RunArguments
from vanilla_transformer.run.plan import RunPlan, make_plan, splits_in_use
from vanilla_transformer.run.shared_work import Report
from vanilla_transformer.run.store import OutputDirectory, resolve_output_directory

logger = logging.get_logger(__name__)

MANIFEST = "manifest.json"
_FORMAT = 1
_TEXTS, _TOKENIZER = "texts", "tokenizer"
_FIRST_TEXTS = 100  # of the training data: for the model card, and to show outputs
_PACKAGES = ("transformers", "tokenizers", "datasets")
_DATA_FILES = ("_file", "_source", "_target")
_BY_LENGTH = ("group_by_length", "batch_rebalance")  # samplers of transformers
_LIMITS = ("max_source_length", "max_target_length")
_DECIDING = (
    *(one.name for topic in (DataArguments, TokenizerArguments) for one in fields(topic)),
    *("tokenizer_sample", "guided_alignment"),
)
"""The options that decide what prepared data hold."""


@dataclass(frozen=True)
class Preparation:
    """What a run has before it makes its model; one process makes it for all of a machine.

    Attributes:
        given: The options that are given; prepared data give further ones.
        defaults: The options that the run has chosen itself; None: none.
        texts: The splits in use. Those of prepared training data may be the first ones alone.
        inputs: What a resumed run compares; empty if nothing is trained.
    """

    directory: OutputDirectory
    given: Mapping[str, Any]
    defaults: ChosenDefaults | None
    texts: DatasetDict
    tokenizer: Any
    encoded: DatasetDict
    inputs: dict[str, Any]


def prepare(arguments: RunArguments, data: DatasetDict | None, report: Report) -> Preparation:
    """Loads the data of a run, trains its tokenizer and encodes the data; or opens prepared data.

    Args:
        data: Splits that a program passes; None: the data that the options name.
    """
    directory = resolve_output_directory(arguments)
    if (init_from := _saved_model(arguments, directory)) is not None:
        check_model_directory(init_from)
    if (prepared := arguments.preparation.prepared) is not None:
        if data is not None:
            raise ValueError(f"`prepared` {prepared!r} replaces the data: pass one of both.")
        return _open_prepared(arguments, directory, Path(prepared))
    report("read the data")
    data = _load_data(arguments, data)
    sample = _sample_of(arguments, data)
    arguments = _with_defaults(arguments, data, sample, directory)
    texts = splits_in_use(arguments.training, data, init_from)
    report(f"make the tokenizer for {_number_of_pairs(texts)}")
    tokenizer = make_tokenizer(arguments.tokenizer, sample, init_from, tags_of(arguments.data))
    return _encode_splits(arguments, directory, texts, tokenizer, report)


def prepare_directory(arguments: RunArguments) -> None:
    """Prepares the data that options name in `output_dir`, for any number of runs.

    What a killed preparation has left there is used.

    Raises:
        ValueError: If the directory holds other files, or was prepared with other options.
        OSError: If the disk is too small.
    """
    folder = Path(str(arguments.training.output_dir))
    with locked_directory(folder, is_main=True):
        request = {name: arguments.given[name] for name in _DECIDING if name in arguments.given}
        begun = _begun_manifest(folder, json.loads(json.dumps(request)))
        directory = OutputDirectory(folder, None, False)
        init_from = arguments.model.model_name_or_path
        data = _load_data(arguments, None)
        if (sample := _sample_of(arguments, data)) is None:
            raise ValueError("A preparation needs training data: give them.")
        use_cpu, pairs = arguments.training.use_cpu, len(data["train"])
        facts = Facts.of(pairs, sample, "validation" in data, use_cpu)
        arguments = _with_facts(arguments, directory, facts)
        texts = splits_in_use(arguments.training, data, init_from)
        asked = [sample._fingerprint, asdict(arguments.tokenizer), init_from]
        key, path = text_digest(json.dumps(asked)), folder / _TOKENIZER
        if begun.get("tokenizer_of") != key or not path.is_dir():
            tags = tags_of(arguments.data)
            tokenizer = make_tokenizer(arguments.tokenizer, sample, init_from, tags)
            tokenizer.save_pretrained(path)
            begun = {"request": request, "tokenizer_of": key, "complete": False}
            _write_manifest(folder, begun)
        tokenizer = load_tokenizer(str(path))
        made = _encode_splits(arguments, directory, texts, tokenizer, lambda _: None, folder)
        plan, _ = plan_run(arguments, directory, texts, tokenizer)
        whole = arguments.subwords.enabled
        first = texts["train"].select(range(min(_FIRST_TEXTS, len(texts["train"]))))
        kept = texts if whole else DatasetDict({**texts, "train": first})
        kept.save_to_disk(folder / _TEXTS)
        chosen = {**vars(arguments.data), **vars(arguments.tokenizer), **request}
        manifest = {
            **begun,
            "complete": True,
            "command": list(arguments.command),
            "recipe": arguments.recipe_text,
            "versions": {name: version(name) for name in _PACKAGES},
            "options": {name: value for name, value in chosen.items() if value is not None},
            "limits": {name: getattr(plan, name) for name in _LIMITS},
            "facts": {"pairs": facts.pairs, "characters": facts.characters},
            "tokenizer": tokenizer_digest(tokenizer),
            "holds_all_texts": whole,
            "splits": {
                name: {"pairs": len(rows), "index": content_digest(folder / name / INDEX)}
                for name, rows in made.encoded.items()
            },
        }
        _write_manifest(folder, manifest)
    logger.info(
        f"Prepared {_number_of_pairs(made.encoded)} in {str(folder)!r}: train with "
        f"`--prepared {folder}`."
    )


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    made_by = {"format": _FORMAT, "vanilla_transformer": __version__}
    write_atomic(folder / MANIFEST, json.dumps({**made_by, **manifest}, indent=1) + "\n")


def _begun_manifest(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the manifest of a preparation that goes on; empty for a new one."""
    if not (folder / MANIFEST).is_file():
        if any(folder.iterdir()):
            raise ValueError(
                f"`output_dir` {str(folder)!r} is not empty, and holds no prepared data: choose "
                "another directory."
            )
        _write_manifest(folder, {"request": request, "complete": False})
        return {}
    begun = _read_manifest(folder)
    former = begun.get("request", {})
    for name in sorted({*former, *request}):
        if former.get(name) != request.get(name):
            raise ValueError(
                f"{str(folder)!r} was prepared with `{name}` {former.get(name)!r}, not "
                f"{request.get(name)!r}: choose another directory, or delete this one."
            )
    return begun


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not (folder / MANIFEST).is_file():
        raise ValueError(
            f"{str(folder)!r} holds no prepared data: make them with `vanilla-transformer prepare`."
        )
    manifest = read_object(folder / MANIFEST)
    if manifest.get("format") != _FORMAT:
        raise ValueError(
            f"{str(folder)!r} was prepared by version {manifest.get('vanilla_transformer')} of "
            f"this package, whose format {manifest.get('format')} is not {_FORMAT}: prepare the "
            "data again, in another directory."
        )
    return manifest


def _open_prepared(
    arguments: RunArguments, directory: OutputDirectory, folder: Path
) -> Preparation:
    """Opens prepared data; nothing is read but the manifest, the indices and the tokenizer."""
    manifest = _read_manifest(folder)
    if not manifest["complete"]:
        raise ValueError(
            f"{str(folder)!r} is not prepared to its end: give the command of its preparation "
            "again, which goes on where it was."
        )
    limits = dict(manifest["limits"])
    known = {**manifest["options"], **limits}
    for name in _DECIDING:
        if name in arguments.given and arguments.given[name] != known.get(name):
            raise ValueError(
                f"`{name}` is {arguments.given[name]!r}, but {str(folder)!r} was prepared with "
                f"{known.get(name)!r}: leave the option out, or prepare the data again."
            )
    if arguments.subwords.enabled and not manifest["holds_all_texts"]:
        raise ValueError(
            f"Sampled subwords need the texts, which {str(folder)!r} lacks: prepare the data with "
            "the same option (`bpe_dropout` or `unigram_alpha`)."
        )
    given = {
        **arguments.given,
        **{name: known[name] for name in _DECIDING if known.get(name) is not None},
        "tokenizer_name_or_path": str(folder / _TOKENIZER),
    }
    arguments = replace(arguments, given=given).with_defaults(None)
    texts = load_from_disk(str(folder / _TEXTS))
    facts = Facts.on_this_machine(
        **manifest["facts"],
        has_validation="validation" in texts and given.get("do_eval") is not False,
        use_cpu=arguments.training.use_cpu,
    )
    arguments = _with_facts(arguments, directory, facts)
    init_from = _saved_model(arguments, directory)
    texts = splits_in_use(arguments.training, texts, init_from)
    tokenizer = make_tokenizer(arguments.tokenizer, None, init_from, tags_of(arguments.data))
    if tokenizer_digest(tokenizer) != manifest["tokenizer"]:
        raise ValueError(
            f"The tokenizer in {str(folder / _TOKENIZER)!r} is not the one that encoded the pairs: "
            "prepare the data again, in another directory."
        )
    plan, _ = plan_run(arguments, directory, texts, tokenizer)
    for name in _LIMITS:
        if getattr(plan, name) != limits[name]:
            raise ValueError(
                f"The model takes at most {getattr(plan, name)} tokens, but {str(folder)!r} was "
                f"prepared with `{name}` {limits[name]}: prepare the data again with that limit."
            )
    encoded = DatasetDict({name: _open_split(folder, name, manifest) for name in texts})
    _check_budget(arguments, encoded, lambda row: f"Pair {row + 1} of {str(folder / 'train')!r}")
    return _with_inputs(arguments, directory, texts, tokenizer, encoded, plan)


def _open_split(folder: Path, name: str, manifest: Mapping[str, Any]) -> Dataset:
    if content_digest(folder / name / INDEX) != manifest["splits"][name]["index"]:
        raise ValueError(
            f"{str(folder / name / INDEX)!r} is not the one that {MANIFEST} names: copy the whole "
            "folder again, or prepare the data again."
        )
    shards = Shards.read(folder / name)
    shards.check()
    return shards.open()


def _encode_splits(
    arguments: RunArguments,
    directory: OutputDirectory,
    texts: DatasetDict,
    tokenizer: Any,
    report: Report,
    folder: Path | None = None,
) -> Preparation:
    """Encodes the splits, in the cache or in a folder."""
    plan, _ = plan_run(arguments, directory, texts, tokenizer)
    total = _number_of_pairs(texts)
    report(f"encode {total}")
    encoded = encode(
        texts,
        limit_length(tokenizer, plan.positions),
        plan.max_source_length,
        plan.max_target_length,
        arguments.preparation.num_proc,
        folder,
        lambda done: report(f"encode {done:,} of {total}"),
    )
    _check_budget(arguments, encoded, partial(name_row, plan.options.data, "train"))
    return _with_inputs(arguments, directory, texts, tokenizer, encoded, plan)


def _check_budget(arguments: RunArguments, encoded: DatasetDict, name: Any) -> None:
    """Refuses training pairs that are too long for a batch."""
    if "train" in encoded and (budget := arguments.training.max_tokens) is not None:
        rows = encoded["train"]
        source, target = token_lengths(rows, "input_ids"), token_lengths(rows, "labels")
        check_longest(source, target, budget, name)


def _with_inputs(
    arguments: RunArguments,
    directory: OutputDirectory,
    texts: DatasetDict,
    tokenizer: Any,
    encoded: DatasetDict,
    plan: RunPlan,
) -> Preparation:
    inputs = plan.inputs(encoded) if "train" in texts else {}
    training = arguments.training
    by_length = training.max_tokens is None and training.train_sampling_strategy in _BY_LENGTH
    if "train" in texts and by_length and training.remove_unused_columns:
        rows = encoded["train"]
        sides = token_lengths(rows, "input_ids"), token_lengths(rows, "labels")
        lengths = np.add(*sides, dtype=np.int64)
        encoded["train"] = rows.add_column(training.length_column_name, lengths)
    given, defaults = arguments.given, arguments.defaults
    return Preparation(directory, given, defaults, texts, tokenizer, encoded, inputs)


def _number_of_pairs(texts: DatasetDict) -> str:
    return f"{sum(len(rows) for rows in texts.values()):,} pairs"


def _saved_model(arguments: RunArguments, directory: OutputDirectory) -> str | None:
    """Returns the checkpoint or the saved model that a run starts from."""
    if directory.checkpoint is not None:
        return str(directory.checkpoint.path)
    return arguments.model.model_name_or_path


def _sample_of(arguments: RunArguments, data: DatasetDict) -> Dataset | None:
    """Returns the pairs that a new tokenizer is trained on."""
    if "train" not in data:
        return None
    return tokenizer_sample(data["train"], arguments.preparation.tokenizer_sample)


def plan_run(
    arguments: RunArguments, directory: OutputDirectory, texts: DatasetDict, tokenizer: Any
) -> tuple[RunPlan, VanillaTransformerConfig]:
    """Makes the plan of a run, and the config of its model."""
    init_from = _saved_model(arguments, directory)
    config = make_config(arguments.architecture, tokenizer, init_from)
    settings = load_generation_settings(config, init_from)
    return make_plan(arguments, directory, init_from, texts, config, settings), config


def _with_defaults(
    arguments: RunArguments, data: DatasetDict, sample: Dataset | None, directory: OutputDirectory
) -> RunArguments:
    """Chooses the options that are not given; data are looked at only where this is needed."""
    facts = None
    if directory.checkpoint is None and sample is not None:
        scores = "validation" in data and arguments.given.get("do_eval") is not False
        facts = Facts.of(len(data["train"]), sample, scores, arguments.training.use_cpu)
    return _with_facts(arguments, directory, facts)


def _with_facts(
    arguments: RunArguments, directory: OutputDirectory, facts: Facts | None
) -> RunArguments:
    """Chooses the options that are not given, once; a resumed run keeps what it has chosen."""
    given, defaults = arguments.given, None
    if directory.checkpoint is not None:
        record = directory.checkpoint.record.get("inputs", {}).get("defaults")
        defaults = recorded_defaults(record, given)
    elif facts is not None and arguments.training.do_train is not False:
        defaults = choose_defaults(given, facts)
    if defaults is not None and arguments.training.process_index == 0:
        logger.info(defaults.sentence)
    return arguments.with_defaults(defaults)


def _load_data(arguments: RunArguments, data: DatasetDict | None) -> DatasetDict:
    """Loads the splits unless a caller gives them, and adds the word links of a file."""
    links = arguments.training.guided_alignment
    path = None if links in (None, OWN_ALIGNMENT) else str(existing_file(str(links)))
    if data is None:
        for name, value in vars(arguments.data).items():
            if name.endswith(_DATA_FILES) and value is not None:
                existing_file(value)
        return load_parallel_data(arguments.data, path)
    if path is None or "train" not in data:
        return data
    return DatasetDict({**data, "train": add_links(data["train"], path)})
