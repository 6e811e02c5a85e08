"""One training run, from arguments to a directory that every Hugging Face tool can load."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    TrainerCallback,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import logging

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.inference import check_model_directory, load_weights
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.training.arguments import RunArguments, parse_arguments
from vanilla_transformer.training.averaging import AverageCheckpoints
from vanilla_transformer.training.batching import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.callbacks import ShowTranslations
from vanilla_transformer.training.data import encode, load_parallel_data
from vanilla_transformer.training.hub import CompletePushes, check_hub_strategy, push_directory
from vanilla_transformer.training.metrics import METRICS, GenerationMetrics
from vanilla_transformer.training.model_card import write_model_card
from vanilla_transformer.training.moving_average import ExponentialMovingAverage
from vanilla_transformer.training.subwords import SampledSubwords, SubwordEpochs

logger = logging.get_logger(__name__)


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

    Args:
        arguments: Of the run.
        data: Splits "train", "validation" and "test" (those that there are) with the columns
            "source" and "target", and "references" where an example has several.

    Returns:
        The figures of all_results.json: train_*, eval_* and test_*.

    Raises:
        ValueError: If the output directory is in use, or the arguments contradict each other.
    """
    check_hub_strategy(arguments.training)
    if arguments.model.model_name_or_path is not None:
        check_model_directory(arguments.model.model_name_or_path)
    with arguments.training.main_process_first(desc="output directory"):
        checkpoint = prepare_output_directory(arguments)
    set_seed(arguments.training.seed)
    tokenizer = make_tokenizer(arguments, data, checkpoint)
    model = make_model(arguments, tokenizer)
    limits = _length_limits(arguments, model, tokenizer)
    with arguments.training.main_process_first(desc="tokenizing"):
        encoded = encode(data, tokenizer, *limits)
    scorer = GenerationMetrics(tokenizer, arguments.model.metrics)
    trainer = make_trainer(arguments, model, tokenizer, encoded, scorer)
    for callback in _callbacks(arguments, checkpoint):
        trainer.add_callback(callback)
    if "train" in data and _samples_subwords(arguments):
        _sample_subwords(trainer, arguments, data["train"], limits)
    if arguments.show.show_every is not None and "train" in data:
        _show(trainer, data, arguments.show.show_every, arguments.show.show_examples)

    figures: dict[str, float] = {}
    if "train" in data:
        scorer.references = references(data, "validation")
        figures |= _train(trainer, checkpoint)
    for split, prefix in (("validation", "eval"), ("test", "test")):
        if split in data:
            scorer.references = references(data, split)
            figures |= _score(trainer, encoded[split], prefix)
    trainer.save_state()
    if trainer.is_world_process_zero():
        example = next(iter(data.values()))[0]["source"]
        write_model_card(
            arguments, model, figures, scorer.signatures, example, repo_id=trainer.hub_model_id
        )
        if arguments.training.push_to_hub:
            _push(trainer)
    return figures


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


def prepare_output_directory(arguments: RunArguments) -> str | None:
    """Makes sure that no earlier work is lost; of several processes the first one does.

    Args:
        arguments: Of the run.

    Returns:
        The checkpoint to resume from, or None.

    Raises:
        ValueError: If the directory holds something, and neither resuming nor overwriting was asked
            for.
        FileNotFoundError: If the checkpoint asked for does not exist.
    """
    training = arguments.training
    folder, resume = Path(str(training.output_dir)), training.resume_from_checkpoint
    if resume and str(resume).lower() != "false":
        return _checkpoint_to_resume(folder, str(resume))
    if training.process_index == 0 and folder.exists() and any(folder.iterdir()):
        if not arguments.model.overwrite_output_dir:
            raise ValueError(
                f"`output_dir` {str(folder)!r} is not empty: go on with its training by "
                "`--resume_from_checkpoint True`, delete its contents by `--overwrite_output_dir "
                "True`, or choose another directory."
            )
        shutil.rmtree(folder)
    return None


def _checkpoint_to_resume(folder: Path, resume: str) -> str | None:
    if resume.lower() != "true":
        if not Path(resume).is_dir():
            raise FileNotFoundError(f"`resume_from_checkpoint` {resume!r} does not exist.")
        return resume
    newest = get_last_checkpoint(folder) if folder.is_dir() else None
    if newest is None:
        logger.warning(f"There is no checkpoint in {str(folder)!r} yet: training starts anew.")
    return newest


def make_tokenizer(arguments: RunArguments, data: DatasetDict, checkpoint: str | None) -> Any:
    """Loads the tokenizer that belongs to the run, or trains one on the training split.

    Args:
        arguments: Of the run.
        data: The splits.
        checkpoint: Checkpoint that the run resumes from, whose tokenizer is used again.

    Returns:
        A tokenizer.

    Raises:
        ValueError: If one must be trained and there is no training split.
    """
    options = arguments.tokenizer
    saved = checkpoint or options.tokenizer_name_or_path or arguments.model.model_name_or_path
    if saved is not None:
        return AutoTokenizer.from_pretrained(saved)
    if "train" not in data:
        raise ValueError(
            "A new tokenizer needs a training split: give one, or `--tokenizer_name_or_path`."
        )
    if options.target_tokenizer_kind and not options.separate_vocabularies:
        raise ValueError("`target_tokenizer_kind` needs `--separate_vocabularies True`.")
    return VanillaTransformerTokenizer.train(
        data["train"]["source"],
        data["train"]["target"],
        kind=options.tokenizer_kind,
        target_kind=options.target_tokenizer_kind,
        vocab_size=options.vocab_size,
        target_vocab_size=options.target_vocab_size,
        shared=not options.separate_vocabularies,
        lowercase=options.lowercase,
    )


def make_model(arguments: RunArguments, tokenizer: Any) -> Any:
    """Loads the model to go on with, or builds a new one for the tokenizer.

    Args:
        arguments: Of the run.
        tokenizer: Gives the sizes of the vocabularies.

    Returns:
        A model whose generation config holds the search that the run evaluates with.

    Raises:
        ValueError: If the weights cannot be read, or do not fit the architecture asked for.
    """
    saved, changes = arguments.model.model_name_or_path, arguments.architecture_changes()
    if saved is None:
        config = new_config(tokenizer, changes)
        model = VanillaTransformerForConditionalGeneration(config)
    else:
        model = load_weights(saved, **changes)
    model.set_attn_implementation(_attention(arguments))
    _set_search(model, arguments)
    return model


def _attention(arguments: RunArguments) -> str:
    training = arguments.training
    is_slow = training.device.type == "cpu" and (training.bf16 or training.fp16)
    return arguments.model.attn_implementation or ("eager" if is_slow else "sdpa")


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
        vocab_size=len(tokenizer),
        decoder_vocab_size=getattr(tokenizer, "target_vocab_size", len(tokenizer)),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id if start is None else start,
        **{"share_encoder_decoder_embeddings": not separate, **changes},
    )


def _set_search(model: Any, arguments: RunArguments) -> None:
    """Saves with the model how it was evaluated, so that a plain `generate()` repeats it."""
    training = arguments.training
    longest = training.generation_max_length or 256
    if model.config.position_embedding_type == "learned":
        longest = min(longest, model.config.max_position_embeddings)
    training.generation_max_length = longest
    training.generation_num_beams = training.generation_num_beams or 1
    model.generation_config.update(
        max_length=longest,
        num_beams=training.generation_num_beams,
        early_stopping=training.generation_num_beams > 1,
    )


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
    """Makes the callbacks for the early stop and the average that were asked for."""
    options, made = arguments.averaging, list[TrainerCallback]()
    if (patience := arguments.training.early_stopping_patience) is not None:
        made.append(EarlyStoppingCallback(patience))
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
