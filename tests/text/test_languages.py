# ruff: noqa: RUF001 - letters that look like Latin ones are what is tested
"""Tags of languages, their scripts, sentences and tokenizers of scores."""

from itertools import pairwise

import pytest

from vanilla_transformer.language_tags import closest_tag, language_name, standard_tag
from vanilla_transformer.text.capitals import to_title
from vanilla_transformer.text.detection import are_related, detect
from vanilla_transformer.text.languages import (
    asian_language_of,
    is_spaced_script_at,
    letter_pattern_of,
    sentences_have_spaces,
    words_have_spaces,
)
from vanilla_transformer.text.sentences import sentence_ends
from vanilla_transformer.text.words import lemma, word_borders
from vanilla_transformer.training.metrics import joint_score_tokenizer, score_tokenizer


@pytest.mark.parametrize(
    ("spellings", "tag"),
    [
        (("en", "EN", "eng", "eng_Latn", "en_XX"), "en"),
        (("en-US", "en_us", "eng_US"), "en-US"),
        (("he", "iw", "heb_Hebr"), "he"),
        (("zh-Hans", "zh_hans", "zho_Hans"), "zh-Hans"),
        (("zh-Hant", "zt", "zho_Hant"), "zh-Hant"),
        (("pt-BR", "pt_BR", "pt-br", "pb"), "pt-BR"),
        (("sr-Latn", "srp_Latn"), "sr-Latn"),
        (("de", "deu", "ger", "de_DE_no"), "de"),
        (("ko", "kor_Hang", "KOR"), "ko"),
        (("fil", "tl", "tgl"), "fil"),
        (("jv", "jw", "JAV"), "jv"),
        (("qu", "quy_Latn", "que"), "qu"),
        (("nso", "ns", "nso_Latn"), "nso"),
    ],
)
def test_spellings_of_one_tag(spellings, tag):
    assert {standard_tag(spelling) for spelling in spellings[:3]} == {tag}


@pytest.mark.parametrize("tag", ["", "Russian", "q99", "xx", "e", "en de"])
def test_what_is_no_tag(tag):
    with pytest.raises(ValueError, match="is no language"):
        standard_tag(tag)


SERVED = ("pt-BR", "zh-Hans", "zh-Hant", "en", "nb")


@pytest.mark.parametrize(
    ("tag", "closest"),
    [
        *((tag, "pt-BR") for tag in ("pt-br", "pt_BR", "pb", "pt")),
        *((tag, "zh-Hans") for tag in ("zh", "zh-hans", "zh-CN", "zho_Hans", "cmn")),
        *((tag, "zh-Hant") for tag in ("zt", "zh-TW", "zh_HK")),
        *((tag, "en") for tag in ("EN", "en-US", "eng_Latn")),
        *((tag, "nb") for tag in ("no", "nob_Latn")),
        *((tag, None) for tag in ("de", "da", "yue", "es")),
    ],
)
def test_the_closest_of_several_languages(tag, closest):
    assert closest_tag(tag, SERVED) == closest


def test_the_closest_keeps_the_spelling_of_a_model():
    flores = ("eng_Latn", "zho_Hans", "zho_Hant", "arb_Arab", "als_Latn", "pes_Arab", "zsm_Latn")
    wanted = {"zh-CN": "zho_Hans", "ar": "arb_Arab", "sq": "als_Latn", "fa": "pes_Arab"}
    assert {tag: closest_tag(tag, flores) for tag in wanted} == wanted
    assert closest_tag("ro", ("en_XX", "ro_RO")) == "ro_RO"
    one = {"ko": "kor_Hang", "kor_Hang": "ko", "sat": "sat_Beng", "zh": "zt", "ps": "pbt_Arab"}
    one |= {"zh-TW": "zh-Hant", "sr-Latn": "sr", "ku": "kmr_Latn", "por_Latn": "PT", "iw": "he"}
    assert {tag: closest_tag(tag, ("en", code)) for tag, code in one.items()} == one
    with_script = ("srp_Cyrl", "azj_Latn", "zho_Hant", "jpn_Jpan", "uzn_Latn")
    for tag in ("sr-Latn", "sh", "az-Arab", "az-Cyrl", "zh-Hans", "ja-Latn", "uz_Cyrl"):
        assert closest_tag(tag, with_script) is None
    for tag, spelling in {"sr": "srp_Cyrl", "sr-Cyrl": "srp_Cyrl", "uz-Latn": "uzn_Latn"}.items():
        assert closest_tag(tag, with_script) == spelling
    of_group = ("aka_Latn", "twi_Latn", "pbt_Arab", "quy_Latn", "fuv_Latn")
    for tag in ("aka", "twi", "pbt-Arab", "quy-Latn", "FUV-latn"):
        assert closest_tag(tag, of_group)[:3] == tag[:3].lower()
    assert closest_tag("tw", of_group) == "twi_Latn"
    others = {"lb": "de", "bs": "hr", "zh-CN": "zt", "pa-Arab": "pan_Guru", "ckb": "ku"}
    assert not any(closest_tag(tag, ("en", code)) for tag, code in others.items())
    assert closest_tag("zho_Hans", ()) is None


def test_a_basic_form_is_that_of_any_spelling_of_the_language():
    words = {"ko": "파일을", "hr": "datoteke", "de": "Dateien", "es": "archivos"}
    spellings = {
        "ko": ("kor_Hang", "KO", "ko-KR"),
        "hr": ("hrv_Latn", "HR", "hrv"),
        "de": ("deu_Latn", "de_DE", "de-AT"),
        "es": ("spa_Latn", "es_XX", "es-419"),
    }
    for tag, word in words.items():
        assert lemma(word, tag) != word
        assert {lemma(word, spelling) for spelling in spellings[tag]} == {lemma(word, tag)}


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("pt_BR", "Portuguese (Brazil)"),
        ("zt", "Chinese (Traditional)"),
        ("quy", "Ayacucho Quechua"),
        ("nb", "Norwegian Bokmål"),
    ],
)
def test_names(tag, name):
    assert language_name(tag) == name


@pytest.mark.parametrize(
    ("text", "supported", "tag"),
    [
        ("This is a sentence about dogs.", SERVED, "en"),
        ("Isto é um teste muito simples.", SERVED, "pt-BR"),
        ("Dette er en test av systemet.", SERVED, "nb"),
        ("这是什么东西", SERVED, "zh-Hans"),
        ("這是什麼東西", SERVED, "zh-Hant"),
        ("這是什麼東西", ("zho_Hans", "eng_Latn"), "zho_Hans"),
        ("Ovo je test jezika.", ("sr-Cyrl", "sr-Latn", "en"), "sr-Latn"),
        ("Ово је тест језика.", ("sr-Latn", "sr-Cyrl", "en"), "sr-Cyrl"),
    ],
)
def test_the_language_of_a_text(text, supported, tag):
    (best, share), *others = detect(text, supported)
    assert best == tag
    assert sum(other for _, other in others) < share <= 1


def test_a_text_in_another_language_is_probably_none_of_those_that_are_asked_for():
    assert all(share < 0.1 for _, share in detect("Bonjour tout le monde", ("en", "de")))
    assert detect("Bonjour tout le monde", ("kea",)) == []


@pytest.mark.parametrize(
    "pair", ["no nb", "nb nn", "ms id", "hr bs", "hr sr", "sr-Latn hr", "en en"]
)
def test_relatives(pair):
    assert are_related(*pair.split())


@pytest.mark.parametrize("pair", ["en de", "ru uk", "zh ja", "pt es"])
def test_strangers(pair):
    assert not are_related(*pair.split())


@pytest.mark.parametrize(
    ("tag", "text", "count"),
    [
        ("ja", "サーバー、あ漢a1", 6),
        ("zh", "你好abc。", 2),
        ("ko", "한국어 漢", 4),
        ("sr", "ab вг", 4),
        ("sr-Latn", "ab вг", 2),
        ("az-Arab", "ab سلام", 4),
        ("mn-Mong", "ᠮᠣᠩ аб", 3),
        ("my", "မြို့", 5),
    ],
)
def test_letters_of_a_script(tag, text, count):
    assert len(letter_pattern_of(tag).findall(text)) == count


@pytest.mark.parametrize(
    ("tag", "sentences"),
    [
        ("en", ['Dr. Smith said: "Go." ', "Then 3.5 went! ", "Why?"]),
        ("de", ["Das ist z. B. gut. ", "Am 3. Mai kam er."]),
        ("zh", ["他说：“你好。”", "今天很好！", "你呢？"]),
        ("ja", ["「はい。」", "今日はいい天気ですね！", "はい"]),
        ("hi", ["यह पहला है। ", "यह दूसरा है॥ ", "तीसरा?"]),
        ("ur", ["یہ ہے۔ ", "وہ کیا ہے؟ ", "ہاں"]),
        ("km", ["នេះ។ ", "នោះ។"]),
        ("my", ["ဒါက ပထမ။ ", "ဒုတိယ။"]),
        ("am", ["ይህ ነው። ", "ያ።"]),
        ("hy", ["Սա է։ ", "Այն։"]),
        ("el", ["Τι είναι; ", "Αυτό."]),
        ("th", ["สวัสดีครับ วันนี้อากาศดี"]),
        ("bo", ["བོད་ཡིག། ", "གཉིས་པ།། ", "གསུམ་པ"]),
        ("ja", ["彼は「行こう。」と言った。", "『本当？』って。", "「はい。」"]),
        ("my", ["ပထမ၊ ဒုတိယ။ ", "တတိယ။"]),
        ("en", ["He came. ", '"Hello." ', "'Yes!' "]),
        ("he", ["זה משפט. ", '"כן." ', "השני?"]),
        (None, ["你好。 ", "Hello there! ", "How?"]),
    ],
)
def test_sentences(tag, sentences):
    text = "".join(sentences)
    ends = sentence_ends(text, tag)
    assert [text[start:end] for start, end in zip([0, *ends], ends, strict=False)] == sentences


def test_no_sentence():
    assert sentence_ends("", "en") == [0]


def test_the_tokenizer_of_a_score():
    tags = {
        "zh": "zh",
        "zh-TW": "zh",
        "yue": "zh",
        "ja": "ja-mecab",
        "ko": "ko-mecab",
        "kor_Hang": "ko-mecab",
    }
    tags |= dict.fromkeys(("th", "km", "my", "lo", "bo", "dz", "shn", "jv-Java"), "char")
    tags |= dict.fromkeys(("en", "de", "ru", "ar", "hi", "vi", "am", "jv", "zho_Latn"), "13a")
    assert {tag: score_tokenizer(tag) for tag in tags} == tags


@pytest.mark.parametrize(
    ("texts", "tag"),
    [
        (["今天很好。", "GNOME 设置"], "zh"),
        (["今日はいい天気", "漢字"], "ja"),
        (["한국어 문장"], "ko"),
        (["สวัสดีครับ"], "th"),
        (["នេះ។"], "km"),
        (["ꦲꦏ꧀ꦱꦫꦗꦮ"], "jv-Java"),
        (["Ein Satz.", "你"], None),
        (["Это"], None),
        ([], None),
    ],
)
def test_the_language_of_texts(texts, tag):
    assert asian_language_of(texts) == tag


def test_spaces():
    assert [words_have_spaces(tag) for tag in ("zh", "th", "ko", "en")] == [
        False,
        False,
        True,
        True,
    ]
    assert [*map(sentences_have_spaces, ("zh", "ja", "th", "bo"))] == [False, False, True, True]


@pytest.mark.parametrize(
    ("names", "joint"),
    [
        ({"13a"}, "13a"),
        ({"zh", "13a"}, "zh"),
        ({"zh", "char"}, "char"),
        ({"13a", "ko-mecab"}, "char"),
    ],
)
def test_one_tokenizer_for_texts_that_have_several(names, joint):
    assert joint_score_tokenizer(names) == joint


@pytest.mark.parametrize(
    ("text", "spaced"),
    [
        ("Now go", [0, 1, 3, 4, 6]),
        ("按现在。", [4]),
        ("現在のページ", []),
        ("ตอนนี้", []),
        ("N现go", [0, 3, 4]),
        ("", [0]),
    ],
)
def test_spaces_at_the_begin_within_and_at_the_end_of_a_text(text, spaced):
    positions = [0, 1, len(text) // 2, len(text) // 2 + 1, len(text)]
    inside = sorted({position for position in positions if position <= len(text)})
    assert [position for position in inside if is_spaced_script_at(text, position)] == spaced


@pytest.mark.parametrize(
    ("word", "tag", "title"),
    [
        ("'s avonds", "nl", "'s Avonds"),
        ("\u2019t ijs", "nld_Latn", "\u2019t IJs"),
        ("'ijs'", "nl", "'IJs'"),
        ("'s avonds", "en", "'S avonds"),
    ],
)
def test_a_word_begins_with_a_capital_as_its_language_has_it(word, tag, title):
    assert to_title(word, tag) == title


def test_borders_of_words():
    def parts(text, *tokens):
        return [text[begin:end] for begin, end in pairwise(word_borders(text, tokens))]

    assert parts("I don't l'homme 3.5!") == ["I", " ", "don't", " ", "l'", "homme", " ", "3.5", "!"]
    assert parts("我喜欢你。", 1, 3) == ["我", "喜欢", "你", "。"]
    assert parts("สวัสดีครับ", 6) == ["สวัสดี", "ครับ"]
