"""Scores the outputs of saved models for the texts of a split."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from transformers.utils import logging

from vanilla_transformer.columns import languages_of_rows, references_of, with_languages
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.near_twins import TWIN, WITHOUT_TWINS, mark_twins
from vanilla_transformer.data.parallel_data import load_parallel_data, warn_of_swapped_columns
from vanilla_transformer.files.model_directory import check_on_hub
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.language_tags import known_tag
from vanilla_transformer.model.directions import recorded_directions
from vanilla_transformer.run.calibration import calibrate
from vanilla_transformer.run.comparison import ModelComparison, compare_outputs
from vanilla_transformer.run.score_tokenizers import choose_score_tokenizers
from vanilla_transformer.run.tokenizer_and_config import check_added_tokens
from vanilla_transformer.text.memory import Memory
from vanilla_transformer.training.metrics import (
    joint_score_tokenizer,
    number_of_resamples,
    score_texts,
)

logger = logging.get_logger(__name__)

ReadMemory = Callable[[str | None, str | None, Collection[tuple[str, str]]], Memory]
"""Makes a memory for a source and a target language, without the pairs that are scored."""


@dataclass(frozen=True)
class Evaluation:
    """The outputs of a model for a split, and for each metric all values of `score_texts`."""

    scores: dict[str, dict[str, Any]]
    sources: list[str]
    predictions: list[str]
    calibration: str | None = None  # a sentence on the quality that was learnt from them


def evaluate_model(
    model_name_or_path: str,
    data_arguments: DataArguments,
    *,
    split: str = "test",
    metrics: Sequence[str] = ("bleu", "chrf"),
    bleu_tokenize: str | None = None,
    calibrates: bool = False,
    **options: Any,
) -> Evaluation:
    """Translates the sources of a split as `Translator` does, and scores the outputs.

    Args:
        data_arguments: The data. Texts above `max_source_length` tokens are split. If there are
            training data, the scores without texts that are nearly equal to these are added.
        bleu_tokenize: sacrebleu's tokenizer for BLEU, TER and WER; None: that of the target's
            language, or of the script that most references are in.
        calibrates: Whether to write the quality of outputs into the model's folder (`calibrate`).
        **options: `engine`, `device` and `compute_type` of `Translator.from_pretrained`; `memory`,
            a function that makes a memory; `progress`, which shows a bar; and the fields of
            `TranslateOptions`, such as `batch_tokens` and `num_beams`.
    """
    rows, tokenizers = _load_scored(data_arguments, split, metrics, bleu_tokenize)
    tokenize = joint_score_tokenizer(set(tokenizers))
    outputs = _translate(
        model_name_or_path, rows, data_arguments, return_scores=calibrates, **options
    )
    predictions = [output.text for output in outputs]
    references = references_of(rows)

    def score(indices: Sequence[int]) -> dict[str, dict[str, Any]]:
        texts, expected = [predictions[n] for n in indices], [references[n] for n in indices]
        return {
            name: score_texts(name, texts, expected, with_interval=True, tokenize=tokenize)
            for name in metrics
        }

    scores = score(range(len(rows)))
    if TWIN in rows.column_names:
        no_twins = [index for index, is_twin in enumerate(rows[TWIN]) if not is_twin]
        if no_twins:
            for name, figures in score(no_twins).items():
                scores[name][WITHOUT_TWINS] = {"score": figures[name], "texts": len(no_twins)}
    warn_of_copies(rows, predictions)
    calibration = calibrate(model_name_or_path, outputs, rows) if calibrates else None
    return Evaluation(scores, list(rows["source"]), predictions, calibration)


def compare_models(
    models: Sequence[str],
    data_arguments: DataArguments,
    *,
    split: str = "test",
    metrics: Sequence[str] = ("bleu", "chrf"),
    bleu_tokenize: str | None = None,
    tags: Sequence[str] = (),
    **options: Any,
) -> ModelComparison:
    """Evaluates several models on the same texts, and tests their differences.

    The arguments are those of `evaluate_model`. Each model keeps its own value of a setting of the
    search that is not given.

    Args:
        tags: Words that sources begin with. A model that lacks one as a token translates the
            source without it; without this argument, it is an error.
    """
    if len(set(models)) < len(models):
        raise ValueError(f"The models {list(models)} name one twice: give different ones.")
    for model in models:  # a wrong name fails before any model is evaluated
        check_on_hub(model)
    rows, tokenizers = _load_scored(data_arguments, split, metrics, bleu_tokenize)
    if not number_of_resamples(len(rows)):
        raise ValueError(
            f"{len(rows):,} texts are too many for a bootstrap: compare at most 100,000, with "
            "`--max-test-samples`."
        )
    outputs = {
        model: [output.text for output in _translate(model, rows, data_arguments, tags, **options)]
        for model in models
    }
    return compare_outputs(list(rows["source"]), outputs, references_of(rows), metrics, tokenizers)


def _load_scored(
    data_arguments: DataArguments, split: str, metrics: Sequence[str], bleu_tokenize: str | None
) -> tuple[Dataset, list[str]]:
    """Returns a split and sacrebleu's tokenizer for each text."""
    data = load_parallel_data(data_arguments).splits
    if split not in data:
        raise ValueError(f"`split` {split!r} is not in the data: choose from {sorted(data)}.")
    if "train" in data and split != "train":
        data[split] = mark_twins(data[split], data["train"], data_arguments.tags, split)
    return data[split], choose_score_tokenizers(data[split], metrics, bleu_tokenize)


def _translate(
    model: str,
    rows: Dataset,
    data_arguments: DataArguments,
    tags: Sequence[str] = (),
    engine: str = "auto",
    device: str | None = None,
    compute_type: str = "float32",
    memory: ReadMemory | None = None,
    progress: bool = False,
    **options: Any,
) -> list[Translation]:
    """Loads a model, and translates the sources of rows, as `evaluate_model` describes."""
    limit = data_arguments.max_source_length
    translator = Translator.from_pretrained(model, engine, device, compute_type, limit)
    first_words = {source.partition(" ")[0] for source in rows["source"]}
    needed_tags = sorted(first_words & {*data_arguments.tags} - {*tags})
    check_added_tokens(translator.tokenizer, needed_tags, model)
    languages = languages_of_rows(rows)
    texts = _without_unknown_tags(translator.tokenizer, rows["source"], languages, tags)
    sources, src_lang, tgt_lang = map(list, zip(*texts, strict=True))
    request = TranslateOptions.of(src_lang=src_lang, tgt_lang=tgt_lang, **options)
    direction, *_ = translator.directions(len(sources), request)
    if None in languages[0]:  # data that name both languages are compared where they are loaded
        of_model = known_tag(direction.source), known_tag(direction.target)
        warn_of_swapped_columns(with_languages(rows, of_model), "data")
    scored = {*zip(rows["source"], rows["target"], strict=True)}
    memories = [memory(direction.source, direction.target, scored)] if memory else []
    return [row[0] for row in translator.stream(sources, request, memories, progress)]


def _without_unknown_tags(
    tokenizer: Any,
    sources: Iterable[str],
    languages: Iterable[tuple[str | None, str | None]],
    tags: Sequence[str],
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yields sources with their languages, without tags that are no token of the model.

    A model without a tag also lacks its language: it translates into the first of its own.
    """
    unknown = [tag for tag in tags if tag not in tokenizer.get_vocab()]
    other = next((target for _, target, _ in recorded_directions(tokenizer)), None)
    for source, pair in zip(sources, languages, strict=True):
        begin, _, rest = source.partition(" ")
        yield (rest, None, other) if begin in unknown else (source, *pair)


def warn_of_copies(rows: Dataset, outputs: Sequence[str], split: str = "") -> None:
    """Warns of outputs that are no better than the sources themselves."""
    references = references_of(rows)
    translated = score_texts("chrf", outputs, references)["chrf"]
    copied = score_texts("chrf", list(rows["source"]), references)["chrf"]
    if translated <= copied:
        logger.warning(
            f"The {split}outputs are no better than the unchanged sources (chrF {translated:.1f}, "
            f"and {copied:.1f} of the sources). Train longer, or on more pairs."
        )
