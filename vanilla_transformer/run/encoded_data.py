"""The token ids of a run, in the cache or in a folder that the user names."""

from pathlib import Path

from datasets import DatasetDict
from transformers.utils import logging

from vanilla_transformer.batches.encoding import encode
from vanilla_transformer.batches.token_budget import check_longest, token_lengths
from vanilla_transformer.data.parallel_data import name_row
from vanilla_transformer.data.unknown_characters import check_characters
from vanilla_transformer.files.directory_lock import locked_directory
from vanilla_transformer.run.arguments import RunArguments
from vanilla_transformer.run.loaded_data import load_data
from vanilla_transformer.run.plan import RunPlan, make_plan
from vanilla_transformer.training.store import OutputDirectory

logger = logging.get_logger(__name__)


def encode_texts(plan: RunPlan) -> DatasetDict:
    """Returns the token ids of the splits of a plan, from the cache if they are there."""
    preparation, splits = plan.arguments.preparation, plan.texts.splits
    if plan.checkpoint is None:
        names = {"train": "training", "validation": "validation"}
        read = {names[name]: rows for name, rows in splits.items() if name in names}
        if message := check_characters(plan.texts.tokenizer, read):
            if plan.loaded.init_from is None:
                message += " A larger `vocab_size` has more of them, and the kind byte_bpe each."
            logger.info(message)
    encoded = encode(
        splits,
        plan.texts.tokenizer,
        plan.max_source_length,
        plan.max_target_length,
        preparation.num_proc,
        None if preparation.prepared is None else Path(preparation.prepared),
        plan.search.settings,
    )
    if (limit := plan.training.max_tokens) is not None:
        rows = encoded["train"]
        check_longest(
            token_lengths(rows, "input_ids"),
            token_lengths(rows, "labels"),
            limit,
            lambda row: name_row(plan.arguments.data, "train", splits["train"][row], row),
        )
    return encoded


def prepare_directory(arguments: RunArguments) -> None:
    """Makes tokenizer and token ids in `output_dir`, for any number of runs with these options.

    A preparation that was interrupted goes on where it stopped.
    """
    folder = Path(str(arguments.training.output_dir))
    with locked_directory(folder, is_main=True):
        arguments = arguments.changed(prepared=str(folder))
        arguments, loaded = load_data(arguments, directory=OutputDirectory(folder))
        plan = make_plan(arguments, loaded)
        encoded = encode_texts(plan)
    pairs = sum(map(len, encoded.values()))
    logger.info(
        f"Prepared {pairs:,} pairs in {str(folder)!r}: train with the same options and "
        f"`--prepared {folder}`."
    )
