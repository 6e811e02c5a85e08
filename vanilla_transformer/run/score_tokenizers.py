"""How a score cuts the references of a split into words."""

from collections.abc import Collection
from itertools import chain

from datasets import Dataset
from transformers.utils import logging

from vanilla_transformer.columns import languages_of_rows, references_of
from vanilla_transformer.grouping import map_grouped
from vanilla_transformer.names import SCORES_OF_WORDS
from vanilla_transformer.text.languages import asian_language_of
from vanilla_transformer.training.metrics import make_metric, score_tokenizer

logger = logging.get_logger(__name__)


def choose_score_tokenizers(
    rows: Dataset, metrics: Collection[str], chosen: str | None = None
) -> list[str]:
    """Chooses sacrebleu's tokenizer for each text of a split; says where a script decides.

    It is the one that is given, or that of the language of the row's target, or by the script that
    most references are in. Where none of the metrics compares words, nothing is recognised.
    """
    if not {*SCORES_OF_WORDS} & {*metrics}:
        chosen = score_tokenizer(None)

    def choose(group: tuple[str, str | None], references: list[list[str]]) -> list[str]:
        corpus, tag = group
        if chosen is None and tag is None and (tag := asian_language_of(chain(*references))):
            of_corpus = f" of {corpus}" if corpus else ""
            logger.warning_once(
                f"The references{of_corpus} are mostly in the script of "
                f"{tag}: BLEU, TER and WER compare words of sacrebleu's tokenizer "
                f"{score_tokenizer(tag)} (`bleu_tokenize` chooses another)."
            )
        name = chosen or score_tokenizer(tag)
        make_metric("bleu", name)  # to fail now if a package of this tokenizer is missing
        return [name] * len(references)

    corpora = list(rows["corpus"]) if "corpus" in rows.column_names else [""] * len(rows)
    targets = [target for _, target in languages_of_rows(rows)]
    groups = list(zip(corpora, targets, strict=True))
    return map_grouped(references_of(rows), groups, choose)
