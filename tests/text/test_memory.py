"""Pairs are found again by what is equal or similar, with the parts of the text."""

from threading import Thread

import pytest

from vanilla_transformer.text.memory import Memory, Pair, Suggestion, memory_suffix

FILE = Pair("Cannot open %s.", "%s kann nicht geöffnet werden.")


def exact(pairs, text, **options):
    found = Memory(Pair(*pair) for pair in pairs).exact(text, **options)
    return found and found.target


def similar(pairs, text):
    found = Memory(Pair(*pair) for pair in pairs).similar(text, 0.6)
    assert found is None or not found.is_exact
    return found and found.target


@pytest.mark.parametrize(
    ("pair", "text", "target"),
    [
        (FILE, FILE[0], FILE[1]),
        (FILE, "  Cannot open %s.\n", "  %s kann nicht geöffnet werden.\n"),
        (("Open it ", "Öffne es\n"), "Open it", "Öffne es"),
        (("Open it\n", "Öffne es"), "Open it\n", "Öffne es"),
        (("Caf\u00e9", "Kaffeehaus"), "Cafe\u0301", "Kaffeehaus"),
        # Other names of placeholders.
        (("Open {path}", "{path} öffnen"), "Open {file}", "{file} öffnen"),
        (("%(a)s of %(b)d", "%(b)d: %(a)s"), "%(b)s of %(n)d", "%(n)d: %(b)s"),
        (("Hi ${name}", "Hallo ${name}"), "Hi ${user}", "Hallo ${user}"),
        (
            ("{{ a | upper }} by $x", "$x: {{ a | upper }}"),
            "{{ b | upper }} by $y",
            "$y: {{ b | upper }}",
        ),
        (("{a} of %s", "%s von {a}"), "{n} of %s", "%s von {n}"),
        # An identical text has its translation, whatever its parts are.
        (
            ("See https://a.org/en", "Siehe https://a.org/de"),
            "See https://a.org/en",
            "Siehe https://a.org/de",
        ),
        (("%m/%d/%Y at %H:%M", "%d.%m.%Y um %H:%M"), "%m/%d/%Y at %H:%M", "%d.%m.%Y um %H:%M"),
        (
            ("Cut &amp; paste", "Ausschneiden und einfügen"),
            "Cut &amp; paste",
            "Ausschneiden und einfügen",
        ),
        (("Done 🎉", "Fertig"), "Done 🎉", "Fertig"),
        (("Save %s", "Sichern"), "Save %s", "Sichern"),
        (("Save it", "%s sichern"), "Save it", "%s sichern"),
        (("%s of %s", "%2$s von %1$s"), "%s of %s", "%2$s von %1$s"),
        (("100 %", "100\u00a0%"), "100 %", "100\u00a0%"),
        (("a\nb", "a b"), "a\nb", "a b"),
    ],
)
def test_an_equal_text_has_its_translation(pair, text, target):
    assert exact([pair], text) == target


@pytest.mark.parametrize(
    ("pair", "text", "proposal"),
    [
        # A text with other signs at its end, numbers or case may need another translation.
        (
            ("Delete the file?", "ファイルを削除しますか\uff1f"),
            "Delete the file",
            "ファイルを削除しますか",
        ),
        (("No:", "Nr.:"), "No", "Nr"),
        (("No.", "Nr."), "No", "Nr"),
        (("No", "Nein"), "No.", "Nein."),
        (("Really?", "¿De verdad?"), "Really", "De verdad"),
        (("Page 3 of 3", "全3ページの3"), "Page 2 of 7", None),
        (("Page 3 of 5", "全5ページの3"), "Page 2 of 7", "全7ページの2"),
        (("3 of 3 files", "3 von 3 Dateien"), "4 of 4 files", "4 von 4 Dateien"),
        (("2 minutes", "2 минуты"), "5 minutes", "5 минуты"),
        (("2 files", "2 pliki"), "22 files", "22 pliki"),
        (("15 min", "15 Minuten"), "1 min", "1 Minuten"),
        (("Zoom to 75%", "縮小"), "Zoom to 100%", None),
        (("Show 10", "全部"), "Show 20", None),
        (("Pin", "Anheften"), "PIN", "ANHEFTEN"),
        (("Us", "Uns"), "US", "UNS"),
        (("New", "Yeni"), "NEW", "YENI"),
        (("File", "Datei"), "file", "Datei"),
        (("open %s", "öffne %s"), "Open %s", "Öffne %s"),
        (("Not known: \\U", "Unbekannt: \\U"), "Not known: \\u", "Unbekannt: \\U"),
        # Of placeholders, only names may differ.
        (FILE, "Cannot open %d", "%d kann nicht geöffnet werden"),
        (FILE, "Cannot open {path}.", "{path} kann nicht geöffnet werden."),
        (("%1$s of %2$s", "%2$s: %1$s"), "%s of %s", None),  # each %s takes the next value
        (("%1$s of %2$s", "%2$s: %1$s"), "%s of {n}", "{n}: %s"),
        (("%1$s of %2$s", "%2$s: %1$s"), "%1$d of %2$d", "%2$d: %1$d"),
        (("Use {a} or {a}", "{a} oder {a}"), "Use {a} or {b}", None),
        (("Use {a}", "{a}: {a}"), "Use {b}", None),
        (("Use {a}", "Benutzen"), "Use {b}", None),
        (("See https://a.org/x.", "Siehe https://a.org/x."), "See /b/c", "Siehe /b/c"),
        (("Use --all for it", "Dazu dient --all"), "Use --any for it", "Dazu dient --any"),
        (FILE, "Cannot open it.", None),
        (("Open file", "Datei öffnen"), "Open\nfile", None),
        (("Name\tSize", "Name\tGröße"), "Name size", None),
    ],
)
def test_the_translation_of_any_other_text_is_a_proposal(pair, text, proposal):
    assert exact([pair], text) is None
    assert similar([pair], text) == proposal


@pytest.mark.parametrize("pair", [("Save", ""), ("Save", " "), (" ", "x"), ("", "")])
def test_what_nobody_has_translated_is_no_pair(pair):
    assert len(Memory([Pair(*pair)])) == 0


@pytest.mark.parametrize(
    ("pair", "other"),
    [
        (("OK", "OK"), "ok"),
        (("...", "…"), "!"),
        (("12", "zwölf"), "13"),
        (("%s: %d", "%s : %d"), "%d: %s"),
    ],
)
def test_numbers_signs_and_names_that_stay_count_for_equal_texts_alone(pair, other):
    assert exact([pair], pair[0]) == pair[1]
    assert similar([pair], other) is None


def test_ends_are_those_that_the_memory_has_for_them():
    pairs = [("Size:", "Taille :"), ("Wait...", "Attendez…"), ("Why?", "¿Por qué?")]
    for text, target in (("Name: ", "Nom : "), ("Name...", "Nom…"), ("Name?", "¿Nom?")):
        assert similar([*pairs, ("Name", "Nom")], text) == target
    assert similar([("Size:", "サイズ:"), ("Name", "名前")], "Name:") == "名前:"
    assert similar([("Name", "名称")], "Name:") == "名称\uff1a"


def test_each_text_has_its_own_translation():
    pairs = [("No", "Nein"), ("No.", "Nr."), ("no.", "nr.")]
    assert [exact(pairs, source) for source, _ in pairs] == [target for _, target in pairs]
    pairs = [("Open {a}", "{a} öffnen"), ("Open {b}", "Offen: {b}")]
    assert [exact(pairs, source) for source, _ in pairs] == [target for _, target in pairs]


def test_a_correction_may_be_the_text_itself():
    assert exact([("Download", "Download", None, False, True)], "Download")


@pytest.mark.parametrize("others", [[], [("Open", "Öffnen")] * 3, [("File", "D"), ("Open", "Auf")]])
def test_the_last_correction_counts_whatever_stands_beside_the_others(others):
    words = {"File": "Datei", "Open": "Öffnen", "Close": "Schließen"}
    pairs = [(*row, None, False, True) for row in [*words.items(), ("Open", "Aufmachen")]]
    assert exact([*pairs, *others], "Open", before="File", after="Close") == "Aufmachen"


def test_a_long_text_that_repeats_a_word_is_found():
    text = "very " * 70_000
    assert Memory([Pair(text, "sehr")]).similar(text, 0.6).target.strip() == "sehr"


def test_of_several_translations_context_neighbours_frequency_and_the_last_one_decide():
    pairs = [
        ("File", "Datei"),
        ("Open", "Öffnen", "menu"),
        ("Door", "Tür"),
        ("Open", "Offen", "state"),
        ("Open", "Auf"),
        ("Open", "Auf"),
        ("Open", "Geöffnet"),
        ("open", "offen"),
    ]
    assert exact(pairs, "Open", context="menu") == "Öffnen"
    assert exact(pairs, "Open", context="state") == "Offen"
    assert exact(pairs, "Open", context="other") in ("Auf", "Geöffnet")
    assert exact(pairs, "Open") == "Auf"
    assert exact(pairs, "open") == "offen"
    assert exact([*pairs[:-3], ("Open", "Weit offen")], "Open") == "Weit offen"
    near = [
        ("File", "Datei"),
        ("Open", "Öffnen"),
        ("Sky", "Himmel"),
        ("Open", "Weit"),
        ("Open", "Weit"),
    ]
    assert exact(near, "Open", before="File") == "Öffnen"
    assert exact(near, "Open", after="Sky") == "Öffnen"
    assert exact(near, "Open", after="Sky") == "Öffnen"
    ends = [("Open", "Öffnen"), ("Sky", "Himmel"), ("Open", "Auf")]
    assert exact(ends, "Open", before="", after="Door") == "Öffnen"
    assert exact([ends[0], *ends], "Open", before="Door", after="") == "Auf"
    assert exact([ends[0], *ends], "Open") == "Öffnen"  # the most frequent: it stands alone


def test_a_message_without_a_context_is_another_one_than_that_with_one():
    assert exact([("Control", "Strg", "key")], "Control", context="") is None
    assert exact([("Control", "Steuerung", "")], "Control", context="key") is None
    assert exact([("Control", "Steuerung")], "Control", context="key") == "Steuerung"
    pairs = [("Control", "Steuerung", ""), ("Control", "Strg", "key")]
    assert exact(pairs, "Control") == "Steuerung"  # of a text without contexts, such as a line


def test_similar_texts_are_found_by_their_words():
    memory = Memory(
        [
            Pair("Could not open the file %s.", "Die Datei %s konnte nicht geöffnet werden."),
            Pair("Could not open the folder.", "Der Ordner konnte nicht geöffnet werden."),
            Pair("Close", "Schließen"),
        ]
    )
    found = memory.similar("could not close the file {name}", 0.6)
    assert found.target == "Die Datei {name} konnte nicht geöffnet werden"
    assert (found.similarity, found.is_exact) == (pytest.approx(5 / 6), False)
    assert memory.similar("Nothing of it", 0.6) is None
    assert memory.similar("", 0.6) is None
    assert Memory().similar("Close", 0.1) is None


def test_a_similar_text_with_a_part_that_the_text_lacks_is_no_match():
    memory = Memory([Pair("Use --all for it", "Dazu dient --all")])  # no option beside other words
    assert memory.similar("Use them for it", 0.6) is None


def test_a_doubtful_translation_is_that_of_a_similar_text():
    memory = Memory([Pair("Open it", "Öffne sie", is_doubtful=True)])
    assert memory.exact("Open it") is None
    found = memory.similar("Open it", 0.6)
    assert (found.target, found.similarity, found.is_exact) == ("Öffne sie", 1.0, False)
    memory.add(Pair("Open it", "Öffne es"))
    memory.add(Pair("Open it", "Öffne sie", is_doubtful=True))
    assert memory.exact("Open it").target == "Öffne es"


def test_similar_texts_in_scripts_without_spaces_are_found_by_their_letters():
    memory = Memory([Pair("文件无法打开", "The file cannot be opened")])
    assert memory.similar("文件无法关闭", 0.6).target == "The file cannot be opened"


def brute_force(pairs, text, least):
    """The similarity of the best pair, compared with all."""
    from rapidfuzz.distance import Levenshtein

    return max(
        Levenshtein.normalized_similarity(text.split(), source.split()) for source, _ in pairs
    )


def test_the_index_misses_no_similar_text():
    from random import Random

    chance = Random(3)
    words = [f"w{'abcdefghij'[n]}" for n in range(10)]

    def draw():
        return " ".join(chance.choices(words, k=chance.randint(1, 9)))

    pairs = [(draw(), "x") for _ in range(300)]
    memory = Memory(Pair(*pair) for pair in pairs)
    for _ in range(100):
        text = draw()
        best, found = brute_force(pairs, text, 0.5), memory.similar(text, 0.5)
        assert (found.similarity if found else 0) == pytest.approx(best if best >= 0.5 else 0)


@pytest.mark.parametrize("count", [0xD7FE, 0x10FFFE, 0x110000])
def test_a_memory_has_as_many_words_as_it_likes(count):
    memory = Memory()
    memory._words._ids.update(
        (str(n), n) for n in range(count)
    )  # texts of so many words take minutes
    memory.add(Pair("open the old file", "die alte Datei öffnen"))
    memory.add(Pair("print the page", "die Seite drucken"))
    assert memory.similar("open the new file", 0.6) == Suggestion(
        "open the old file", "die alte Datei öffnen", 0.75
    )
    assert memory.similar("keep the other page here", 0.4).similarity == 0.4
    assert memory.similar("unknown words alone", 0.4) is None


def test_several_threads_add_and_search():
    memory = Memory()

    def add(name):
        for number in range(200):
            memory.add(Pair(f"{name} opens the door {'again ' * number}", f"{name} Tür"))
            assert memory.similar(f"{name} opens the door", 0.5)

    threads = [Thread(target=add, args=(name,)) for name in ("he", "she")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memory) == 400


@pytest.mark.parametrize(
    ("text", "known", "shown"),
    [
        ("Open {a} now.", FILE[1], " %s kann nicht geöffnet werden.| Cannot| | | now"),
        ("Cannot close the %s", "A", " A| open| close the"),
        ("cannot open %d", " A ", " A"),
        ("Cannot open", "無法", "無法| | "),
    ],
)
def test_a_model_reads_in_which_words_similar_texts_differ(text, known, shown):
    known = Suggestion(FILE.source, known, 0.5)
    assert memory_suffix(text, known) == f"|{shown}".replace("|", "<|memory|>")
