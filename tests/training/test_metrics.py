"""The metrics equal hand-counted and independent values, and work as `compute_metrics`."""

import sys
from unicodedata import normalize

import numpy as np
import pytest
import sacrebleu
from transformers import EvalPrediction

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.names import ERROR_RATES, METRIC_NAMES
from vanilla_transformer.training.metrics import GenerationMetrics, number_of_resamples, score_texts

HYPOTHESES = ["the small dog runs over green grass .", "two birds sit on a wire", "it rains today"]
REFERENCES = ["the small dog runs on green grass .", "two birds sat on the wire", "today it rains"]
SECOND = ["a little dog runs over grass .", "a pair of birds sit on a wire", "it is raining today"]


@pytest.mark.parametrize(
    ("name", "metric"), [("bleu", sacrebleu.BLEU), ("chrf", sacrebleu.CHRF), ("ter", sacrebleu.TER)]
)
@pytest.mark.parametrize("first", [1, 2])
def test_ragged_references(name, metric, first):
    ragged = [[REFERENCES[0], SECOND[0]][:first], [REFERENCES[1], SECOND[1]], [REFERENCES[2]]]
    streams = [REFERENCES, [SECOND[0] if first == 2 else None, SECOND[1], None]]
    result = score_texts(name, HYPOTHESES, ragged)[name]
    assert result == pytest.approx(metric().corpus_score(HYPOTHESES, streams).score)
    doubled = [texts + texts[:1] * (2 - len(texts)) for texts in ragged]
    assert result == pytest.approx(score_texts(name, HYPOTHESES, doubled)[name])


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_perfect_scores_are_percent(name):
    best = 0 if name in ERROR_RATES else 100
    assert score_texts(name, REFERENCES, REFERENCES)[name] == pytest.approx(best)
    assert 0 < abs(best - score_texts(name, HYPOTHESES, REFERENCES)[name]) <= 100


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_the_interval_is_that_of_the_bootstrap_of_sacrebleu(name):
    found = score_texts(name, HYPOTHESES, REFERENCES, with_interval=True)
    if name in (
        "wer",
        "per",
        "cer",
        "mismatch",
    ):  # all that the bootstrap can draw from three texts
        assert 0 <= found["interval"][0] <= found[name] <= found["interval"][1] <= 120
    else:
        metric = {"bleu": sacrebleu.BLEU, "chrf": sacrebleu.CHRF, "ter": sacrebleu.TER}[name]()
        score = metric.corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
        ends = [score._mean - score._ci, score._mean + score._ci]
        assert found["interval"] == pytest.approx(ends)
    assert "|bs:1000|seed:12345|" in found["signature"]


def test_word_errors_are_those_of_words():
    outputs, references = ["a cat sat", "一只大猫"], ["a dog sat", "一只大狗"]
    assert score_texts("wer", outputs[:1], references[:1])["wer"] == pytest.approx(100 / 3)
    assert score_texts("wer", outputs[1:], references[1:])["wer"] == pytest.approx(25)


def test_outputs_without_a_match_have_an_interval():
    assert score_texts("chrf", ["", "x"], ["a", "b"], with_interval=True)["interval"] == [0, 0]
    low, high = score_texts("chrf", ["", "abc"], ["a", "abc"], with_interval=True)["interval"]
    assert 0 <= low < high == 100  # resamples of two texts: both matched, one, or none
    wrong = score_texts("mismatch", ["x", "y"], ["a", "y"], with_interval=True)["interval"]
    assert wrong == [pytest.approx(0, abs=1), 100]
    low, high = score_texts("wer", ["x x x x", "y"], ["a", "y"], with_interval=True)["interval"]
    assert high > 100  # more edits than words


def test_a_bootstrap_that_would_fill_the_memory_is_smaller_or_left_out():
    sizes = {3: 1000, 10_000: 1000, 50_000: 200, 100_001: 0}
    assert {texts: number_of_resamples(texts) for texts in sizes} == sizes


@pytest.mark.parametrize(
    ("predictions", "references"),
    [([], []), (["a", "b"], ["a"]), (["a", "b"], [["a"], []]), (["A"], [""])],
)
def test_what_has_no_score_is_refused(predictions, references):
    with pytest.raises(ValueError, match=r"references"):
        score_texts("per", predictions, references)


@pytest.fixture(scope="module")
def tokenizer():
    return VanillaTransformerTokenizer.train(["a b c d"], kind="word")


PREDICTED = np.array([[0, 4, 5, 2, -100], [0, 4, 5, 6, 2], [0, 7, 2, 1, -100]])
LABELS = np.array([[4, 5, 2, -100], [4, 5, 7, 2], [7, 2, -100, -100]])


def test_generated_ids_are_scored(tokenizer):
    scorer = GenerationMetrics(tokenizer, ["mismatch", "per", "bleu"], ["a b", "a b d", "d"])
    kept = PREDICTED.copy(), LABELS.copy()
    scores = scorer(EvalPrediction(predictions=PREDICTED, label_ids=LABELS))
    assert scorer.last.predictions == ["a b", "a b c", "d"]
    assert scores["mismatch"] == pytest.approx(100 / 3)
    assert scores["per"] == pytest.approx(100 / 6)
    assert scores["gen_len"] == pytest.approx(2.0)
    assert set(scores) == {"mismatch", "per", "bleu", "gen_len"}
    assert all(type(value) is float for value in scores.values())
    assert set(scorer.last.signatures) == {"mismatch", "per", "bleu"}
    scorer.with_intervals = True
    with_ends = scorer(EvalPrediction(predictions=PREDICTED, label_ids=LABELS))
    assert with_ends["mismatch_low"] <= with_ends["mismatch"] <= with_ends["mismatch_high"]
    assert scores.items() <= with_ends.items()
    np.testing.assert_array_equal(PREDICTED, kept[0])
    np.testing.assert_array_equal(LABELS, kept[1])


def test_an_example_may_have_several_references(tokenizer):
    scorer = GenerationMetrics(tokenizer, ["mismatch"], references=[["x", "a b"], ["y"], ["d"]])
    prediction = EvalPrediction(predictions=PREDICTED, label_ids=LABELS)
    assert scorer(prediction)["mismatch"] == pytest.approx(100 / 3)
    scorer.references = ["a b", "a b c", "d"]
    assert scorer(prediction)["mismatch"] == 0
    scorer.references = ["a b"] * 4
    with pytest.raises(ValueError, match="3 predictions and 4 examples"):
        scorer(prediction)


# Languages ----------------------------------------------------------------------------------------

TEXTS = {
    "zh": "我今天在公园里看到一只很大的黑猫。",
    "ja": "今日は公園で大きな黒い猫を見ました。",
    "ko": "오늘 공원에서 큰 검은 고양이를 보았습니다.",
    "th": "วันนี้ฉันเห็นแมวดำตัวใหญ่ในสวนสาธารณะ",
    "km": "ថ្ងៃនេះខ្ញុំបានឃើញឆ្មាខ្មៅធំមួយ",
    "my": "ဒီနေ့ ကျွန်တော် ပန်းခြံထဲမှာ ကြောင်နက်ကြီး",
    "lo": "ມື້ນີ້ຂ້ອຍເຫັນແມວດຳໂຕໃຫຍ່",
    "bo": "དེ་རིང་ངས་ཞི་མི་ནག་པོ་ཞིག་མཐོང་།",
    "en": "Today I saw a big black cat in the park.",
}
WORDS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab", "en": "13a"}


@pytest.mark.parametrize("tag", TEXTS)
def test_the_script_of_the_references_chooses_the_words(tag):
    text = TEXTS[tag]
    changed = text[:6] + "x" + text[7:]
    bleu = score_texts("bleu", [changed], [text])
    assert f"tok:{WORDS.get(tag, 'char')}" in bleu["signature"]
    assert 40 < bleu["bleu"] < 100
    assert score_texts("bleu", [text], [text])["bleu"] == pytest.approx(100)
    assert score_texts("ter", [text], [text])["ter"] == 0
    assert 0 < score_texts("ter", [changed], [text])["ter"] < 20
    assert score_texts("cer", [changed], [text])["cer"] == pytest.approx(100 / len(text))


@pytest.mark.parametrize("name", METRIC_NAMES)
def test_composed_and_decomposed_texts_are_equal(name):
    composed = ["Tiếng Việt là một ngôn ngữ", "Ça a été très naïf", "今日はガスがある。"]
    decomposed = [normalize("NFD", text) for text in composed]
    best = 0 if name in ERROR_RATES else 100
    for pair in ((composed, decomposed), (decomposed, composed)):
        assert score_texts(name, *pair)[name] == pytest.approx(best)


def test_characters_are_counted_with_white_space_between_words():
    found = score_texts("cer", ["a  bc ", "x"], [["a bd", "abcd"], ["xy"]])
    assert (found["edits"], found["characters"]) == (2, 6)


def test_each_part_of_a_mixture_has_its_words(tokenizer):
    scorer = GenerationMetrics(tokenizer, ["bleu"], references=[TEXTS["zh"], TEXTS["en"]])
    scorer.groups, scorer.tokenizers = [["chinese", "english"]], ["zh", "13a"]
    scored = scorer.score([TEXTS["zh"], TEXTS["en"]], [1, 1])
    assert [
        scored.figures[name] for name in ("bleu", "bleu_chinese", "bleu_english")
    ] == pytest.approx([100] * 3)
    assert "tok:zh" in scored.signatures["bleu"]
    scorer.tokenizers = ["char", "13a"]
    scored = scorer.score([TEXTS["zh"], TEXTS["en"]], [1, 1])
    assert "tok:char" in scored.signatures["bleu"]


@pytest.mark.parametrize("tag", ["ja", "ko"])
def test_a_missing_package_for_words_is_named(tag, monkeypatch):
    for module in ("MeCab", "mecab_ko"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=r"\[language\]"):
        score_texts("bleu", [TEXTS[tag]], [TEXTS[tag]])
    assert score_texts("chrf", [TEXTS[tag]], [TEXTS[tag]])["chrf"] == 100
