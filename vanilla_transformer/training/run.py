"""One training run, from arguments to a directory that every Hugging Face tool can load."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from transformers import (
    AutoConfig,
    DataCollatorForSeq2Seq,
    TrainerCallback,
    set_seed,
)
from transformers.utils import logging

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.inference import check_model_directory, load_tokenizer, load_weights
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.training.arguments import RunArguments, parse_arguments
from vanilla_transformer.training.averaging import AverageCheckpoints, is_complete
from vanilla_transformer.training.batching import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.callbacks import ShowTranslations
from vanilla_transformer.training.data import encode, load_parallel_data
from vanilla_transformer.training.hub import CompletePushes, check_hub_strategy, push_directory
from vanilla_transformer.training.metrics import METRICS, GenerationMetrics
from vanilla_transformer.training.model_card import write_model_card
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.subwords import SampledSubwords, SubwordEpochs

logger = logging.get_logger(__name__)

# Fields that a model may be trained on with: regularisation, and how far its positions reach.
_FREE_TO_CHANGE = {
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "ffn_dropout",
    "label_smoothing",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "rope_parameters",
    "max_position_embeddings",
}


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Runs what the command line says: the program of `scripts/train.py`.

    Args:
        argv: Arguments; None: those of the process.

    Returns:
        The figures of all_results.json.
    """
    logging.set_verbosity_info()
    arguments = parse_arguments(argv)
    return run(arguments, load_parallel_data(arguments.data))


def run(arguments: RunArguments, data: DatasetDict) -> dict[str, float]:
    """Trains, evaluates, saves the model with everything that belongs to it, and describes it.

    Without training data, or with `do_train` False, it scores a saved model and writes figures
    alone.

    Args:
        arguments: Of the run.
        data: Splits "train", "validation" and "test" (those that there are) with the columns
            "source" and "target", and "references" where an example has several.

    Returns:
        The figures of all_results.json: train_*, eval_* and test_*.

    Raises:
        ValueError: If the output directory is in use, or the arguments contradict each other or
            what is loaded. Nothing has been written or deleted then.
    """
    check_hub_strategy(arguments.training)
    splits = _splits_in_use(arguments, data)
    with arguments.training.main_process_first(desc="output directory"):
        checkpoint = check_output_directory(arguments)
    saved = checkpoint or arguments.model.model_name_or_path
    if saved is not None:
        check_model_directory(saved)
    _check_something_to_do(arguments, splits, saved)
    set_seed(arguments.training.seed)
    tokenizer = make_tokenizer(arguments, data, saved)
    model = make_model(arguments, tokenizer, saved)
    limits = _length_limits(arguments, model, tokenizer)
    with arguments.training.main_process_first(desc="tokenizing"):
        encoded = encode(splits, tokenizer, *limits)
    scorer = GenerationMetrics(tokenizer, arguments.model.metrics)
    trainer = make_trainer(arguments, model, tokenizer, encoded, scorer)
    for callback in _callbacks(arguments, checkpoint):
        trainer.add_callback(callback)
    if "train" in splits and _samples_subwords(arguments):
        _sample_subwords(trainer, arguments, splits["train"], limits)
    if arguments.show.show_every is not None and "train" in splits:
        _show(trainer, splits, arguments.show.show_every, arguments.show.show_examples)

    with arguments.training.main_process_first(desc="output directory"):
        clear_output_directory(arguments)
    figures: dict[str, float] = {}
    if "train" in splits:
        scorer.references = references(splits, "validation")
        figures |= _train(trainer, checkpoint)
    for split, prefix in (("validation", "eval"), ("test", "test")):
        if split in splits:
            scorer.references = references(splits, split)
            figures |= _score(trainer, encoded[split], prefix)
    if "train" in splits:
        _describe(trainer, arguments, figures, scorer, splits, checkpoint)
    return figures


def _splits_in_use(arguments: RunArguments, data: DatasetDict) -> DatasetDict:
    """Leaves out what do_train, do_eval and do_predict forbid."""
    training = arguments.training
    asked = {
        "train": ("`do_train`", training.do_train),
        "validation": ("`do_eval` or `eval_strategy`", training.do_eval),
        "test": ("`do_predict`", training.do_predict),
    }
    for split, (name, wanted) in asked.items():
        if wanted and split not in data:
            raise ValueError(f"{name} needs {split} data: give them, or leave it out.")
    return DatasetDict({name: rows for name, rows in data.items() if asked[name][1] is not False})


def _check_something_to_do(arguments: RunArguments, splits: DatasetDict, saved: str | None) -> None:
    """Refuses a run that would have no effect, or score weights that nobody trained."""
    if not splits:
        raise ValueError("`do_train`, `do_eval` and `do_predict` leave nothing to do.")
    if "train" in splits:
        return
    if saved is None:
        raise ValueError(
            "Nothing is trained here, and there is no saved model to score: give training data, "
            "or `--model_name_or_path`."
        )
    if arguments.training.push_to_hub:
        raise ValueError(
            "`push_to_hub` pushes what a run has trained, and nothing is trained here: leave it "
            "out, or push with `model.push_to_hub`."
        )


def _describe(
    trainer: TokenBudgetSeq2SeqTrainer,
    arguments: RunArguments,
    figures: dict[str, float],
    scorer: GenerationMetrics,
    splits: DatasetDict,
    checkpoint: str | None,
) -> None:
    """Completes the directory of a trained model by its history and its card."""
    trainer.save_state()
    if not trainer.is_world_process_zero():
        return
    write_model_card(
        arguments,
        trainer.model,
        figures,
        scorer.signatures,
        example=next(iter(splits.values()))[0]["source"],
        repo_id=trainer.hub_model_id,
        resumed_from=checkpoint,
    )
    if arguments.training.push_to_hub:
        _push(trainer)


def _push(trainer: Any) -> None:
    """Pushes what the output directory holds at the end, the card in the first place."""
    args = trainer.args
    push_directory(
        str(args.output_dir),
        trainer.hub_model_id,
        token=args.hub_token,
        revision=args.hub_revision,
    )


def _train(trainer: TokenBudgetSeq2SeqTrainer, checkpoint: str | None) -> dict[str, float]:
    figures: dict[str, float] = trainer.train(resume_from_checkpoint=checkpoint).metrics
    figures = {
        name if name.startswith("train_") else f"train_{name}": value
        for name, value in figures.items()
    }
    trainer.save_model()
    trainer.save_metrics("train", figures)
    return figures


def _score(trainer: TokenBudgetSeq2SeqTrainer, rows: Dataset, prefix: str) -> dict[str, float]:
    figures = trainer.evaluate(rows, metric_key_prefix=prefix)
    figures.pop("epoch", None)
    trainer.log_metrics(prefix, figures)
    trainer.save_metrics(prefix, figures)
    return figures


def check_output_directory(arguments: RunArguments) -> str | None:
    """Makes sure that no earlier work will be lost; of several processes the first one does.

    Args:
        arguments: Of the run.

    Returns:
        The checkpoint to resume from, or None.

    Raises:
        ValueError: If the directory holds something, and neither resuming nor overwriting was asked
            for; if overwriting would delete what the run needs; if there is a model and no
            checkpoint to resume from, or the checkpoint asked for is not complete.
        FileNotFoundError: If the checkpoint asked for does not exist.
    """
    training = arguments.training
    folder, resume = Path(str(training.output_dir)), training.resume_from_checkpoint
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`output_dir` {str(folder)!r} is a file: choose another name.")
    if resume and str(resume).lower() != "false":
        return _checkpoint_to_resume(folder, str(resume))
    if training.process_index == 0 and folder.exists() and any(folder.iterdir()):
        if not arguments.model.overwrite_output_dir:
            raise ValueError(
                f"`output_dir` {str(folder)!r} is not empty: go on with its training by "
                "`--resume_from_checkpoint True`, delete its contents by `--overwrite_output_dir "
                "True`, or choose another directory."
            )
        _check_nothing_needed_is_deleted(arguments, folder.resolve())
    return None


def _check_nothing_needed_is_deleted(arguments: RunArguments, folder: Path) -> None:
    options = {**vars(arguments.data), **vars(arguments.model), **vars(arguments.tokenizer)}
    endings = ("_path", "_file", "_source", "_target", "dataset_name")
    inputs = {n: value for n, value in options.items() if value is not None and n.endswith(endings)}
    paths = {f"`{name}`": Path(value) for name, value in inputs.items() if Path(value).exists()}
    paths["the working directory"] = Path.cwd()
    if arguments.recipe is not None:
        paths["the arguments file"] = arguments.recipe
    for what, path in paths.items():
        if path.resolve().is_relative_to(folder):
            raise ValueError(
                f"`overwrite_output_dir` would delete {what} ({str(path)!r}): choose another "
                "`output_dir`."
            )


def clear_output_directory(arguments: RunArguments) -> None:
    """Deletes what `overwrite_output_dir` allows to; to be called when nothing can be refused.

    Args:
        arguments: Of the run.
    """
    training = arguments.training
    resumes = str(training.resume_from_checkpoint or False).lower() != "false"
    if training.process_index or resumes or not arguments.model.overwrite_output_dir:
        return
    for path in Path(str(training.output_dir)).glob("*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _checkpoint_to_resume(folder: Path, resume: str) -> str | None:
    if resume.lower() != "true":
        if not Path(resume).is_dir():
            raise FileNotFoundError(f"`resume_from_checkpoint` {resume!r} does not exist.")
        if not is_complete(Path(resume)):
            raise ValueError(
                f"`resume_from_checkpoint` {resume!r} is no complete checkpoint: the run was "
                "stopped while it was written. Use an earlier one, or `True` for the newest."
            )
        return resume
    numbered = {
        int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*[0-9]")
    }
    for _, path in sorted(numbered.items(), reverse=True):
        if is_complete(path):
            return str(path)
        logger.warning(f"{str(path)!r} is not complete and is passed over.")
    if (folder / "config.json").exists():
        raise ValueError(
            f"`output_dir` {str(folder)!r} holds a model, and no checkpoint to resume from: train "
            "it on by `--model_name_or_path`, in another directory."
        )
    logger.warning(f"There is no checkpoint in {str(folder)!r} yet: training starts anew.")
    return None


def make_tokenizer(arguments: RunArguments, data: DatasetDict, saved: str | None) -> Any:
    """Loads the tokenizer that belongs to the run, or trains one on the training split.

    Args:
        arguments: Of the run.
        data: The splits.
        saved: Checkpoint that the run resumes from, or saved model that it starts from.

    Returns:
        A tokenizer.

    Raises:
        ValueError: If one must be trained and there is no training split, or a saved one is not
            what the options say, or not that of the saved model.
    """
    options = arguments.tokenizer
    given = options.tokenizer_name_or_path
    if (path := given or saved) is not None:
        tokenizer = load_tokenizer(path)
        _check_training_options(options.training_options(), tokenizer, path)
        if given is not None and saved is not None:
            _check_same_tokens(tokenizer, given, saved)
        return tokenizer
    if "train" not in data:
        raise ValueError(
            "A new tokenizer needs a training split: give one, or `--tokenizer_name_or_path`."
        )
    if options.target_tokenizer_kind and not options.separate_vocabularies:
        raise ValueError("`target_tokenizer_kind` needs `--separate_vocabularies True`.")
    return VanillaTransformerTokenizer.train(
        data["train"]["source"], data["train"]["target"], **options.training_options()
    )


def _check_training_options(asked: dict[str, Any], tokenizer: Any, path: str) -> None:
    """Refuses options that a saved tokenizer contradicts."""
    known = getattr(tokenizer, "training_options", {})
    sizes = {"vocab_size": len(tokenizer)}
    sizes["target_vocab_size"] = getattr(tokenizer, "target_vocab_size", len(tokenizer))
    for name, value in asked.items():
        found = known.get(name, sizes.get(name))
        # A saved vocabulary without a record may have been allowed more tokens than it holds.
        larger = name in sizes and name not in known and value > sizes[name]
        if larger:
            logger.warning(f"`{name}` {value} has no effect: {path!r} has {found} tokens.")
        elif value not in (found, sizes.get(name)):
            option, value, found = _as_option(name, value, found)
            raise ValueError(
                f"`{option}` is {value!r}, but the tokenizer in {path!r} was trained with "
                f"{found!r}: leave the option out, or train a new model."
            )


def _as_option(name: str, value: Any, found: Any) -> tuple[str, Any, Any]:
    """Puts an option of the tokenizer's `train` in the words of the command line."""
    if name == "shared":
        return "separate_vocabularies", not value, None if found is None else not found
    names = {"kind": "tokenizer_kind", "target_kind": "target_tokenizer_kind"}
    return names.get(name, name), value, found


def _check_same_tokens(tokenizer: Any, given: str, saved: str) -> None:
    """Refuses a tokenizer whose ids mean other tokens than those of the model's own."""
    if Path(saved).is_dir() and not list(Path(saved).glob("tokenizer*.json")):
        return  # converted weights may come without one
    own = load_tokenizer(saved)
    for side in ("source", "target"):
        ids = _vocabulary(tokenizer, side)
        for token, index in _vocabulary(own, side).items():
            if ids.get(token) != index:
                raise ValueError(
                    f"`tokenizer_name_or_path` {given!r} gives {token!r} the id "
                    f"{ids.get(token)}, but the model in {saved!r} learned it as {index} "
                    f"({side}): leave the option out, or train a new model."
                )


def _vocabulary(tokenizer: Any, side: str) -> dict[str, int]:
    options = {"side": side} if hasattr(tokenizer, "separate_vocabularies") else {}
    vocabulary: dict[str, int] = tokenizer.get_vocab(**options)
    return vocabulary


def make_model(arguments: RunArguments, tokenizer: Any, saved: str | None) -> Any:
    """Loads the model to go on with, or builds a new one for the tokenizer.

    Args:
        arguments: Of the run.
        tokenizer: Gives the sizes of the vocabularies.
        saved: Checkpoint that the run resumes from, or saved model that it starts from.

    Returns:
        A model whose generation config holds the search that the run evaluates with.

    Raises:
        ValueError: If the weights cannot be read, or do not fit the architecture asked for or the
            tokenizer.
    """
    changes = arguments.architecture_changes()
    if saved is None:
        config = new_config(tokenizer, changes)
        model = VanillaTransformerForConditionalGeneration(config)
    else:
        _check_architecture(saved, changes)
        model = load_weights(saved, **changes)
        _check_tokenizer_fits(model.config, tokenizer, saved)
    model.set_attn_implementation(_attention(arguments))
    _set_search(model, arguments, is_new=saved is None)
    return model


def _attention(arguments: RunArguments) -> str:
    training = arguments.training
    is_slow = training.device.type == "cpu" and (training.bf16 or training.fp16)
    return arguments.model.attn_implementation or ("eager" if is_slow else "sdpa")


def _check_architecture(saved: str, changes: dict[str, Any]) -> None:
    """Refuses fields that would make another function of the saved weights."""
    config = AutoConfig.from_pretrained(saved)
    unfit = [
        f"`{name}` {value!r} (saved: {getattr(config, name)!r})"
        for name, value in changes.items()
        if name not in _FREE_TO_CHANGE and value != getattr(config, name)
    ]
    if unfit:
        raise ValueError(
            f"{', '.join(unfit)} do not fit the architecture of the model in {saved!r}: leave them "
            "out, or train a new model."
        )


def _check_tokenizer_fits(config: VanillaTransformerConfig, tokenizer: Any, saved: str) -> None:
    wanted = _fields_of(tokenizer)
    sizes = ("vocab_size", "decoder_vocab_size")
    unfit = [
        f"`{name}` {getattr(config, name)} (tokenizer: {value})"
        for name, value in wanted.items()
        if value is not None
        and (getattr(config, name) < value if name in sizes else getattr(config, name) != value)
    ]
    if unfit:
        raise ValueError(
            f"The tokenizer does not fit the model in {saved!r}, which has {', '.join(unfit)}: "
            "give the tokenizer that the model was trained with."
        )


def new_config(tokenizer: Any, changes: dict[str, Any]) -> VanillaTransformerConfig:
    """Makes the config of a new model.

    Args:
        tokenizer: Gives the sizes of the vocabularies and the special tokens.
        changes: Architecture fields that differ from their defaults.

    Returns:
        The config.
    """
    separate = getattr(tokenizer, "separate_vocabularies", False)
    start = tokenizer.bos_token_id
    return VanillaTransformerConfig(
        **_fields_of(tokenizer),
        decoder_start_token_id=tokenizer.pad_token_id if start is None else start,
        **{"share_encoder_decoder_embeddings": not separate, **changes},
    )


def _fields_of(tokenizer: Any) -> dict[str, Any]:
    """Returns the fields of the config that a tokenizer decides."""
    return {
        "vocab_size": len(tokenizer),
        "decoder_vocab_size": getattr(tokenizer, "target_vocab_size", len(tokenizer)),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }


def _set_search(model: Any, arguments: RunArguments, is_new: bool) -> None:
    """Saves with the model how it was evaluated, so that a plain `generate()` repeats it.

    What was saved with a model stays as it is, where the arguments say nothing else.
    """
    training, search = arguments.training, model.generation_config
    if is_new:
        training.generation_num_beams = training.generation_num_beams or 1
    if search.max_length is None and search.max_new_tokens is None:
        training.generation_max_length = training.generation_max_length or 256
    if (longest := training.generation_max_length) is not None:
        if model.config.position_embedding_type == "learned":
            longest = min(longest, model.config.max_position_embeddings)
        training.generation_max_length = longest
        search.update(max_length=longest, max_new_tokens=None)
    if (beams := training.generation_num_beams) is not None:
        stays = beams > 1 and (search.num_beams or 1) > 1
        stop = search.early_stopping if stays else beams > 1
        search.update(num_beams=beams, early_stopping=stop)


def _length_limits(arguments: RunArguments, model: Any, tokenizer: Any) -> list[int | None]:
    """Returns the most tokens of a source and of a target; learned positions set a limit too."""
    given = [arguments.data.max_source_length, arguments.data.max_target_length]
    if model.config.position_embedding_type != "learned":
        return given
    positions = model.config.max_position_embeddings
    tokenizer.model_max_length = positions
    return [min(limit or positions, positions) for limit in given]


def make_trainer(
    arguments: RunArguments,
    model: Any,
    tokenizer: Any,
    encoded: DatasetDict,
    scorer: GenerationMetrics,
) -> TokenBudgetSeq2SeqTrainer:
    """Puts the stock trainer together.

    Args:
        arguments: Of the run.
        model: The model.
        tokenizer: Its tokenizer.
        encoded: The splits, as token ids.
        scorer: Scores generated text.

    Returns:
        The trainer.
    """
    training, first = arguments.training, arguments.model.metrics[0]
    training.predict_with_generate = True
    by_score = training.load_best_model_at_end or training.early_stopping_patience is not None
    by_score = by_score or arguments.averaging.average_best is not None
    if by_score and training.metric_for_best_model in (None, "loss"):
        training.metric_for_best_model = first
        training.greater_is_better = not METRICS[first].lower_is_better
    return TokenBudgetSeq2SeqTrainer(
        model=model,
        args=training,
        train_dataset=encoded.get("train"),
        eval_dataset=encoded.get("validation"),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=scorer,
        callbacks=[CompletePushes()] if training.push_to_hub else None,
    )


def _callbacks(arguments: RunArguments, checkpoint: str | None) -> list[TrainerCallback]:
    """Makes the callback for the average that was asked for."""
    options, made = arguments.averaging, list[TrainerCallback]()
    if options.ema_decay is not None:
        made.append(ExponentialMovingAverage(options.ema_decay, checkpoint))
    if options.average_last is not None:
        made.append(AverageCheckpoints(options.average_last))
    if options.average_best is not None:
        made.append(AverageCheckpoints(options.average_best, best=True))
    return made


def _samples_subwords(arguments: RunArguments) -> bool:
    options = arguments.subwords
    return options.bpe_dropout is not None or options.unigram_alpha is not None


def _sample_subwords(
    trainer: TokenBudgetSeq2SeqTrainer,
    arguments: RunArguments,
    texts: Dataset,
    limits: Sequence[int | None],
) -> None:
    """Lets the training set fall into other subwords in each epoch."""
    training, options = arguments.training, arguments.subwords
    tokenizer: Any = trainer.processing_class
    rows = SampledSubwords(
        texts,
        trainer.train_dataset,
        tokenizer,
        bpe_dropout=options.bpe_dropout,
        unigram_alpha=options.unigram_alpha,
        sides=options.sampled_sides,
        seed=training.seed if training.data_seed is None else training.data_seed,
        max_source_length=limits[0],
        max_target_length=limits[1],
    )
    trainer.train_dataset = rows
    trainer.add_callback(SubwordEpochs(rows))


def _show(trainer: TokenBudgetSeq2SeqTrainer, data: DatasetDict, every: int, count: int) -> None:
    """Shows the first validation examples while training; training ones where there are none."""
    rows = data["validation" if "validation" in data else "train"]
    shown = rows.select(range(min(count, len(rows))))
    sources, targets = list(shown["source"]), list(shown["target"])
    trainer.add_callback(ShowTranslations(trainer, sources, targets, every))


def references(data: DatasetDict, split: str) -> Any:
    """Returns the reference texts of a split, one or several per example; None: no such split."""
    if split not in data:
        return None
    rows = data[split]
    return rows["references"] if "references" in rows.column_names else rows["target"]
