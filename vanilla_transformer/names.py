"""Names that options and the library share. This file imports nothing."""

MODEL_TYPE = "vanilla_transformer"
"""`model_type` of the config."""

METRIC_NAMES = ("bleu", "chrf", "ter", "wer", "cer", "per", "mismatch")
"""The scores of generated text; `training.metrics` computes them."""

ERROR_RATES = ("ter", "wer", "cer", "per", "mismatch")
"""The scores of which a lower one is better."""

SCORES_OF_WORDS = ("bleu", "ter", "wer")
"""The scores that count words, as the target's language has them."""


def is_error_rate(name: str) -> bool:
    """Returns whether a logged score, such as "eval_wer", "wer_app" or "app_wer", is an error rate.

    A corpus may have the name of a score: "bleu_per" is the BLEU of a corpus.
    """
    parts = name.removeprefix("eval_").split("_")
    return (parts[0] if parts[0] in METRIC_NAMES else parts[-1]) in ERROR_RATES


SCORE_TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores200", "none")
"""The tokenizers of sacrebleu that cut texts into words for BLEU."""

TOKENIZER_KINDS = ("bpe", "unigram", "word", "char", "byte_bpe")
"""The kinds of vocabulary that `VanillaTransformerTokenizer.train` learns."""

ENGINES = ("auto", "transformers", "ctranslate2")
"""The engines of `Translator`."""

QUANTIZATIONS = ("float32", "bfloat16", "float16", "int16", "int8", "int8_float32", "int8_bfloat16")
"""The types of weights that CTranslate2 stores."""
COMPUTE_TYPES = (*QUANTIZATIONS, "int8_float16", "auto", "default")
"""The types of CTranslate2's computation."""

LEARNT_LINKS = "auto"
"""The `guided_alignment` whose links are learnt from the training pairs."""
ADAMW = "adamw"
MUON = "muon"
"""Value of the option `optim`, and of `algorithm` in the parameter groups that Muon updates."""

NOAM = "noam"
"""Value of the option `lr_scheduler_type` for the schedule of the paper."""

SCHEDULES_OF_A_SCORE = ("reduce_lr_on_plateau", "greedy")
"""Schedules of transformers that follow a score."""
WITHOUT_WARMUP = ("constant", *SCHEDULES_OF_A_SCORE)
"""Schedules of transformers that have no warm-up."""

ANNOTATE = "annotate"
"""The value of `terms` for target terms behind source terms, and likewise of `memory`."""

DOUBTFUL = 40
"""Expected chrF of an output below which a page shows it as doubtful."""
