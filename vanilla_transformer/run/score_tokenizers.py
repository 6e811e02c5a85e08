"""Decides how the texts of a split are cut into words for BLEU, TER and WER."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from datasets import Dataset

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.parallel_data import languages_of_rows
from vanilla_transformer.languages import letters_of, score_tokenizer, tag_of_texts
from vanilla_transformer.names import SCORES_OF_WORDS
from vanilla_transformer.training.metrics import as_lists, make_metric

_SAMPLE = 1000
"""References of a corpus that tell the script of all."""


@dataclass(frozen=True)
class ScoreTokenizers:
    """How the references of a split are cut into words.

    Attributes:
        names: sacrebleu's tokenizer for each text.
        recognised: The language of each corpus that only the script of its references has told.
    """

    names: list[str]
    recognised: Mapping[str, str]

    def describe(self) -> Iterator[str]:
        """Yields a line for each corpus whose script was recognised."""
        for corpus, tag in self.recognised.items():
            references = f"The references of {corpus}" if corpus else "The references"
            yield (
                f"{references} are mostly in the script of {tag}: BLEU, TER and WER compare words "
                f"of sacrebleu's tokenizer {score_tokenizer(tag)} (`bleu_tokenize` chooses "
                "another)."
            )


def choose_score_tokenizers(
    rows: Dataset,
    data: DataArguments,
    metrics: Collection[str],
    language: str | None = None,
    chosen: str | None = None,
) -> ScoreTokenizers:
    """Chooses a tokenizer for each text of a split.

    It is the one that is given, or that of the target's language: of the row, or of all texts if
    their references have letters of its script, or by the script that most references are in.

    Args:
        metrics: The scores. Where none of them compares words, nothing is recognised.
        language: The target's language. None: it is unknown.
        chosen: A tokenizer of sacrebleu. None: the languages decide.

    Raises:
        ModuleNotFoundError: If a tokenizer needs a package that is not installed.
        ValueError: If a language is unknown.
    """
    if not {*SCORES_OF_WORDS} & {*metrics}:
        chosen = "13a"
    corpora = list(rows["corpus"]) if "corpus" in rows.column_names else [""] * len(rows)
    column = "references" if "references" in rows.column_names else "target"
    targets = [target for _, target in languages_of_rows(rows, data.row_languages())]
    groups = list(zip(corpora, targets, strict=True))
    names, recognised = dict[tuple[str, str | None], str](), dict[str, str]()
    for group in dict.fromkeys(groups):
        corpus, tag = group
        if chosen is None and tag is None:
            of_corpus = [row for row, name in enumerate(groups) if name == group][:_SAMPLE]
            texts = [text for texts in as_lists(rows.select(of_corpus)[column]) for text in texts]
            letters = letters_of(language) if language else None
            if letters and letters.search("".join(texts)):
                tag = language
            elif tag := tag_of_texts(texts):
                recognised[corpus] = tag
        names[group] = chosen or ("13a" if tag is None else score_tokenizer(tag))
        make_metric("bleu", names[group])  # its packages are there, or the run does not begin
    return ScoreTokenizers([names[group] for group in groups], recognised)
