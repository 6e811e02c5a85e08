"""The metrics equal hand-counted and independent values, and work as `compute_metrics`."""

import numpy as np
import pytest
import sacrebleu
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import EvalPrediction, PreTrainedTokenizerFast

from vanilla_transformer.training.generation_metrics import GenerationMetrics
from vanilla_transformer.training.metrics import (
    METRICS,
    Bleu,
    ChrF,
    PhonemeErrorRate,
    Ter,
    WordErrorRate,
)

HYPOTHESES = ["the small dog runs over green grass .", "two birds sit on a wire", "it rains today"]
REFERENCES = ["the small dog runs on green grass .", "two birds sat on the wire", "today it rains"]
SECOND = ["a little dog runs over grass .", "a pair of birds sit on a wire", "it is raining today"]


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_single_reference_is_the_score_of_sacrebleu(name):
    corpus = {
        "bleu": sacrebleu.corpus_bleu,
        "chrf": sacrebleu.corpus_chrf,
        "ter": sacrebleu.corpus_ter,
    }[name]
    result = METRICS[name]().compute(predictions=HYPOTHESES, references=REFERENCES)
    assert result[name] == pytest.approx(corpus(HYPOTHESES, [REFERENCES]).score)
    assert "version:" in result["signature"]


def test_several_references_are_transposed():
    result = Bleu().compute(
        predictions=HYPOTHESES, references=list(map(list, zip(REFERENCES, SECOND, strict=True)))
    )
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES, SECOND])
    assert result["bleu"] == pytest.approx(expected.score)
    assert result["brevity_penalty"] == pytest.approx(expected.bp)
    assert "nrefs:2" in result["signature"]


@pytest.mark.parametrize("metric", [Bleu, ChrF, Ter])
@pytest.mark.parametrize("first", [1, 2])
def test_ragged_references(metric, first):
    ragged = [[REFERENCES[0], SECOND[0]][:first], [REFERENCES[1], SECOND[1]], [REFERENCES[2]]]
    streams = [REFERENCES, [SECOND[0] if first == 2 else None, SECOND[1], None]]
    result = metric().compute(predictions=HYPOTHESES, references=ragged)
    expected = metric.score_class().corpus_score(HYPOTHESES, streams).score
    assert result[metric.name_of_score] == pytest.approx(expected)
    doubled = [texts + texts[:1] * (2 - len(texts)) for texts in ragged]
    same = metric().compute(predictions=HYPOTHESES, references=doubled)
    assert result[metric.name_of_score] == pytest.approx(same[metric.name_of_score])


@pytest.mark.parametrize(("name", "best"), [("bleu", 100), ("chrf", 100), ("ter", 0)])
def test_perfect_scores_are_percent(name, best):
    result = METRICS[name]().compute(predictions=REFERENCES, references=REFERENCES)
    assert result[name] == pytest.approx(best)


def test_options_reach_sacrebleu():
    result = Bleu().compute(
        predictions=["猫坐在垫子上"], references=["猫坐在垫子下"], tokenize="zh"
    )
    assert "tok:zh" in result["signature"]
    assert result["bleu"] > 0


def test_a_word_is_right_when_any_pronunciation_is():
    predictions = ["R IY D", "K  AE T", "D AO", "B ER D"]
    references = [["R EH D", "R IY D"], ["K AE T"], ["D AO G"], ["B ER D Z", "B AH R D"]]
    result = WordErrorRate().compute(predictions=predictions, references=references)
    assert result == {"wer": 50.0, "wrong": 2, "total": 4}


def test_phoneme_errors_count_against_the_closest_reference():
    predictions = ["R IY D Z", "K AE T", ""]
    references = [["W AH N D ER F AH L", "R IY D"], ["K AE P T", "K AE"], ["D AO G"]]
    result = PhonemeErrorRate().compute(predictions=predictions, references=references)
    # one deletion for 3 phonemes; one edit for the first of two equally close ones, of 4; 3 for 3
    assert result == {"per": pytest.approx(50.0), "edits": 5, "phonemes": 10}


def test_phonemes_are_whole_tokens():
    result = PhonemeErrorRate().compute(predictions=["AE K"], references=["AH K"])
    assert result["per"] == 50.0


def test_batches_can_be_added():
    metric = WordErrorRate()
    metric.add_batch(predictions=["A", "B"], references=["A", "C"])
    metric.add(prediction="D", reference="D")
    assert metric.compute()["wer"] == pytest.approx(100 / 3)


@pytest.mark.parametrize("metric", METRICS.values())
def test_bad_input(metric):
    with pytest.raises(ValueError, match="nothing to score"):
        metric().compute(predictions=[], references=[])
    with pytest.raises(ValueError, match="nothing to score"):
        metric().compute()
    with pytest.raises(ValueError, match="2 predictions but 1 references"):
        metric().compute(predictions=["a", "b"], references=["a"])
    with pytest.raises(ValueError, match="Example 1 has no reference"):
        metric().compute(predictions=["a", "b"], references=[["a"], []])


def test_references_without_phonemes():
    with pytest.raises(ValueError, match="no phoneme"):
        PhonemeErrorRate().compute(predictions=["A"], references=[""])


def test_lower_is_better():
    lower = [name for name, metric in METRICS.items() if metric.lower_is_better]
    assert lower == ["ter", "wer", "per"]


def test_nothing_is_written_to_the_cache(tmp_path):
    metric = Bleu(cache_dir=str(tmp_path))
    metric.add_batch(predictions=HYPOTHESES, references=REFERENCES)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert metric.compute()["bleu"] > 0


@pytest.fixture(scope="module")
def tokenizer():
    words = ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "c", "d"]
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
    )


PREDICTED = np.array([[0, 4, 5, 2, -100], [0, 4, 5, 6, 2], [0, 7, 2, 1, -100]])
LABELS = np.array([[4, 5, 2, -100], [4, 5, 7, 2], [7, 2, -100, -100]])


def test_generated_ids_are_scored_against_labels(tokenizer):
    scorer = GenerationMetrics(tokenizer, ["wer", "per", "bleu"])
    kept = PREDICTED.copy(), LABELS.copy()
    scores = scorer(EvalPrediction(predictions=PREDICTED, label_ids=LABELS))
    assert scorer.last_predictions == ["a b", "a b c", "d"]
    assert scores["wer"] == pytest.approx(100 / 3)
    assert scores["per"] == pytest.approx(100 / 6)
    assert scores["gen_len"] == pytest.approx(2.0)
    assert set(scores) == {"wer", "per", "bleu", "gen_len"}
    assert all(type(value) is float for value in scores.values())
    assert set(scorer.signatures) == {"bleu"}
    np.testing.assert_array_equal(PREDICTED, kept[0])
    np.testing.assert_array_equal(LABELS, kept[1])


def test_references_come_before_labels(tokenizer):
    scorer = GenerationMetrics(tokenizer, ["wer"], references=[["x", "a b"], ["y"], ["d"]])
    prediction = EvalPrediction(predictions=PREDICTED, label_ids=LABELS)
    assert scorer(prediction)["wer"] == pytest.approx(100 / 3)
    scorer.references = ["a b", "a b c", "d"]
    assert scorer(prediction)["wer"] == 0
    scorer.references = ["a b"] * 4
    with pytest.raises(ValueError, match="3 predictions but 4 references"):
        scorer(prediction)


def test_options_by_name(tokenizer):
    scorer = GenerationMetrics(tokenizer, ["bleu"], options={"bleu": {"tokenize": "char"}})
    scorer(EvalPrediction(predictions=PREDICTED, label_ids=LABELS))
    assert "tok:char" in scorer.signatures["bleu"]


def test_bad_predictions(tokenizer):
    scorer = GenerationMetrics(tokenizer, ["wer"])
    with pytest.raises(ValueError, match="predict_with_generate=True"):
        scorer(EvalPrediction(predictions=np.zeros((2, 3, 8)), label_ids=LABELS))
    with pytest.raises(ValueError, match="evaluation set is empty"):
        scorer(EvalPrediction(predictions=np.zeros((0, 3), dtype=int), label_ids=LABELS))
    with pytest.raises(ValueError, match="no references"):
        scorer(EvalPrediction(predictions=PREDICTED, label_ids=None))
    with pytest.raises(ValueError, match="metric 'rouge' is unknown: choose from bleu, chrf"):
        GenerationMetrics(tokenizer, ["rouge"])


def test_a_tokenizer_without_padding():
    bare = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0})))
    with pytest.raises(ValueError, match="pad_token_id"):
        GenerationMetrics(bare, ["wer"])
