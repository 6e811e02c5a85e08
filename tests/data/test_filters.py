"""The table of filters: what each drops, and what it keeps."""

import tracemalloc
from functools import partial
from unicodedata import normalize

import pytest

from vanilla_transformer.data import filters
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.filters import active_filters, pair_key, reasons_to_drop
from vanilla_transformer.data.parallel_data import load_parallel_data

DROPPED = [
    ("empty", " ", "Hund", {}),
    ("identical", "PrintOut", "PrintOut ", {}),
    ("longest", "a b " * 600, "a c " * 600, {}),
    ("length_ratio", "a dog", "ein Hund, und noch vieles mehr dazu", {}),
    ("letters", "3 + 4 = 7", "3 und 4 = 7", {}),
    ("script", "a dog", "собака", {}),
    ("language", "a dog runs in the snow", "un chien court dans la neige", {"language": True}),
    ("placeholders", "open %s of %d", "öffne %s", {}),
    ("placeholders", "hi {name}", "hallo {Name}", {}),
    ("placeholders", "%(count)s files", "%(anzahl)s Dateien", {}),
    ("placeholders", "hi {{ name }}", "hallo {{ Name }}", {}),
    ("placeholders", "%1 of %12 files", "%1 von 13 Dateien", {}),
    ("placeholders", "%10d files", "Dateien", {}),
    ("placeholders", "open $file", "öffne", {}),
    ("placeholders", "$1 of $2", "$1 von", {}),
    ("placeholders", "{{ n | length }} files", "Dateien", {}),
    ("placeholders", "hi %<name>s", "hallo", {}),
    ("markup", "a <b>dog</b>", "ein <b>Hund", {}),
    ("digits", "in 1989", "in 1998", {"digits": True}),
]
KEPT = [
    ("a dog", "ein Hund", {}),
    ("open %1$s of %2$d", "von %2$d öffne %1$s", {}),
    ("100 % der", "100 % of", {}),
    ("-f <file> is read", "-f <Datei> wird gelesen", {}),
    ("price 1,000.5", "Preis 1.000,5", {"digits": True}),
    ("PrintOut", "PrintOut", {"identical": False}),
    ("a dog", "ein Hund, und noch vieles mehr dazu", {"length_ratio": 9}),
    ("OK", "Gut", {}),
    ("%1 of %12 files", "von %12 Dateien %1", {}),
    ("open %1$s, then %5.2f", "erst %5.2f, dann %s öffnen", {}),
    ("5% off today", "bugün %5 indirim", {}),
    ("12.5 percent today", "bugün %12,5 indirim", {}),
    ("50% of cases", "kasuen %50i", {}),
    ("It costs CAN$100.", "Prix : 100 $CAN.", {}),
    ("US$20 million", "20 millions $US", {}),
    ("US$20 million", "20 millones de $CAN", {}),
    ("Some US$ 3 billion", "Rund 3 Mrd. $US", {}),
    ("It costs $5 today.", "Es kostet heute 5 $.", {}),
    ("%d%% of %s", "%d %% de %s", {}),
    ("open %s of %s", "%2$s: %1$s öffnen", {}),
    ("\\emph{a} dog", "ein \\emph{Hund}", {}),
    ("in 50% of cases", "kasuen %50ean da", {}),
    ("in 35 days", "in ٣٥ Tagen", {"digits": True}),
    ("a dog runs in the snow", "ein Hund läuft durch den Schnee", {"language": True}),
    ("a dog", "un chien", {"language": True}),
]


def reason(source, target, chosen, languages=("en", "de"), held_out=()):
    return reasons_to_drop(active_filters(chosen), frozenset(held_out))(source, target, languages)


@pytest.mark.parametrize(("name", "source", "target", "chosen"), DROPPED)
def test_a_filter_drops(name, source, target, chosen):
    assert reason(source, target, chosen) == name
    if name != "empty":
        assert reason(source, target, {**chosen, name: False}) == ""


@pytest.mark.parametrize(("source", "target", "chosen"), KEPT)
def test_filters_keep(source, target, chosen):
    assert reason(source, target, chosen) == ""


NAMES = "plugin for gnome-panel to show NotifierItems"


@pytest.mark.parametrize(
    ("language", "target"),
    [
        ("pt", "plugin para gnome-panel para mostrar NotifierItems"),
        ("es", "complemento de gnome-panel para mostrar NotifierItems"),
        ("de", "Plugin von gnome-panel für NotifierItems"),
    ],
)
def test_names_tell_no_language(language, target):
    assert reason(NAMES, target, {"language": True}, ("en", language)) == ""


@pytest.mark.parametrize("language", ["pt", "es", "de"])
@pytest.mark.parametrize(
    "target",
    [
        "greffon de gnome-panel pour afficher les NotifierItems",
        "gnome-panel-lisäosa joka näyttää NotifierItems-kuvakkeet",
        "wtyczka gnome-panel, która pokazuje NotifierItems",
    ],
)
def test_own_words_beside_names_tell_a_language(language, target):
    assert reason(NAMES, target, {"language": True}, ("en", language)) == "language"


@pytest.mark.parametrize("language", ["pt", "es", "de"])
def test_a_near_copy_is_in_the_language_of_its_source(language):
    source = "the list of all files that are open in the window"
    target = "the list of all files that are open in the window."
    assert reason(source, target, {"language": True}, ("en", language)) == "language"


@pytest.mark.parametrize("language", ["nb", "no", "nob_Latn"])
def test_the_detector_knows_a_language_by_its_relatives(language):
    chosen, languages = {"language": True}, ("en", language)
    source = "a dog runs in the snow"
    assert reason(source, "en hund løper i den hvite snøen", chosen, languages) == ""
    assert reason(source, "un chien court dans la neige", chosen, languages) == "language"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("собака", "ru"),
        ("子犬とこいぬ", "ja"),
        ("강아지", "ko"),
        ("कुत्ता", "hi"),
        ("スーパー", "ja"),
        ("我在 Microsoft 工作", "zho_Hans"),
        ("မြို့", "my"),
        ("ü", "de_AT"),
        ("x", "tlh"),
    ],
)
def test_scripts_of_languages(text, language):
    assert reason("a dog", text, {"letters": False}, ("en", language)) == ""
    assert reason("a dog", "ωω", {"letters": False}, ("en", "el-GR")) == ""


@pytest.mark.parametrize(
    ("target", "language"),
    [
        ("磁盘已满无法保存该文件", "zh"),
        ("디스크가 가득 차서 저장할 수 없습니다.", "ko"),
    ],
)
def test_lengths_of_dense_scripts(target, language):
    source = "The file could not be saved, because the disk is full and no room is left on it."
    assert reason(source, target, {}, ("en", language)) == ""
    assert reason(source, target[:4], {}, ("en", language)) == "length_ratio"


def judge(held_out):
    """The judgement of pairs of unknown languages by the filters that are on by default."""
    return partial(
        reasons_to_drop(active_filters(None), frozenset(held_out)), languages=(None, None)
    )


def test_pairs_are_compared_with_others():
    drop = judge([pair_key("The dog.", "Hund!")])
    found = [drop(*pair) for pair in (("a", "b"), ("a", "b"), ("a", "c"), ("the  DOG", "hund"))]
    assert found == ["", "duplicate", "", "held_out"]
    composed, decomposed = (
        ("Ça été", "Tiếng"),
        tuple(normalize("NFD", t) for t in ("Ça été", "Tiếng")),
    )
    assert [drop(*pair) for pair in (composed, decomposed)] == ["", "duplicate"]
    assert drop(composed[1], decomposed[1]) == "identical"
    korean = normalize("NFD", "디스크가 가득 차서 저장할 수 없습니다.")
    assert drop(korean, "The disk is full.") == ""
    drop = judge([pair_key(*composed)])
    assert drop(*decomposed) == "held_out"
    assert set(active_filters(False)) == {"empty", "held_out"}
    assert active_filters({"held_out": False, "letters": True, "script": 0.2}) == {
        **active_filters(None),
        "script": 0.2,
    }


def test_a_pair_is_remembered_by_8_bytes(monkeypatch):
    monkeypatch.setattr(filters, "_RECENT_PAIRS", 500)
    tracemalloc.start()
    drop = partial(reasons_to_drop({"duplicate": True}, frozenset()), languages=(None, None))
    assert sum(drop(str(n % 30_000), "") == "duplicate" for n in range(40_000)) == 10_000
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept / 30_000 < 12


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"lenght_ratio": 3}, "no 'lenght_ratio': choose from empty, identical"),
        ({"length_ratio": "4"}, "'length_ratio' is '4': give true, false or a limit"),
        ({"duplicate": 0}, "'duplicate' is 0: give true, false"),
        ({"digits": 1.0}, r"'digits' is 1\.0: give true, false"),
    ],
)
def test_wrong_choices_are_refused(chosen, message):
    with pytest.raises(ValueError, match=message):
        active_filters(chosen)


def test_codes_of_three_letters_count_and_unknown_codes_are_refused():
    assert reason("a dog", "собака", {}, ("eng_Latn", "deu")) == "script"
    with pytest.raises(ValueError, match="Russian"):
        reason("a dog", "собака", {}, ("en", "Russian"))


def test_swapped_columns_are_told(tmp_path, caplog):
    english = ["The file could not be opened because it does not exist.", "Save the changes now?"]
    german = ["Die Datei existiert nicht und wurde nicht geöffnet.", "Änderungen jetzt speichern?"]
    file = tmp_path / "train.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in zip(german, english, strict=True)))
    for source, target, is_told in (("en", "de", True), ("de", "en", False), ("nb", "da", False)):
        caplog.clear()
        options = {"source_language": source, "target_language": target}
        load_parallel_data(DataArguments(train_file=str(file), **options))
        assert ("swapped" in caplog.text) == is_told
