"""Target terms behind source terms in a share of the training pairs."""

import re
from itertools import product

from datasets import Dataset

from vanilla_transformer.columns import with_languages
from vanilla_transformer.data.term_rows import annotate_terms

DETERMINERS = {"the": "die", "no": "keine", "my": "meine", "one": "eine"}
NOUNS = {
    "files": "Dateien",
    "keys": "Tasten",
    "words": "Wörter",
    "lines": "Zeilen",
    "config pages": "Einrichtungsseiten",
    "tasks": "Aufgaben",
}
VERBS = {"opens": "öffnet", "needs": "braucht", "removes": "entfernt", "shows": "zeigt"}
TERM = re.compile(r"<\|term\|> ?(.+?)<\|trans\|> ?(.+?)<\|end\|>")
LEMMAS = {"Datei", "Taste", "Wort", "Zeile", "Aufgabe", "öffnen", "brauchen", "entfernen", "zeigen"}


def pairs():
    rows = [
        (f"he {verb} {determiner} {noun}.", f"er {VERBS[verb]} {DETERMINERS[determiner]} {target}.")
        for (noun, target), verb, determiner in product(NOUNS.items(), VERBS, DETERMINERS)
    ]
    return [(f"<2de> {source}", target) for source, target in rows]


def annotated(rows, tags=("<2de>",), **columns):
    data = Dataset.from_dict(
        {"source": [row[0] for row in rows], "target": [row[1] for row in rows], **columns}
    )
    return annotate_terms(with_languages(data, ("en", "de")), tags)


def test_half_of_the_pairs_show_terms_that_translate_each_other():
    rows = pairs()
    done = annotated(rows)
    assert done["target"] == [target for _, target in rows]
    changed = [text for text in done["source"] if "<|term|>" in text]
    assert 0.4 * len(rows) < len(changed) < 0.6 * len(rows)
    known = {**NOUNS, **VERBS, **DETERMINERS}
    shown = [match.groups() for text in changed for match in TERM.finditer(text)]
    surface = sum(known.get(source) == target for source, target in shown)
    basic = sum(target in LEMMAS for _, target in shown)
    assert surface + basic >= 0.9 * len(shown)
    assert min(surface, basic) > 0.2 * len(shown)
    assert ("config pages", "Einrichtungsseiten") in shown
    plain = [TERM.sub(r" \1", text).replace("  ", " ") for text in done["source"]]
    assert plain == [source for source, _ in rows]
    assert all(text.startswith("<2de> ") for text in done["source"])
    assert done["source"] == annotated(rows)["source"]


def test_placeholders_and_addresses_are_no_terms():
    kept = "{name} https://a.org/files "
    rows = [(kept + source, kept + target) for source, target in pairs()]
    shown = [m[1] for text in annotated(rows)["source"] for m in TERM.finditer(text)]
    assert shown
    assert not any("name" in term or "http" in term or "org" in term for term in shown)


def test_languages_of_rows_have_words_of_their_own():
    rows = [(s.removeprefix("<2de> "), t) for s, t in pairs()]
    chinese = dict(zip(NOUNS, ["文件", "按键", "单词", "任务", "页面", "数据"], strict=True))
    chinese |= dict(zip(VERBS, ["打开", "需要", "删除", "显示"], strict=True))
    other = [
        (source, "".join(target for word, target in chinese.items() if f" {word}" in source))
        for source, _ in rows
    ]
    languages = ["de"] * len(rows) + ["zh"] * len(other)
    done = annotated(
        rows + other, (), source_language=["en"] * len(languages), target_language=languages
    )
    shown = [m[2] for text in done["source"][len(rows) :] for m in TERM.finditer(text)]
    assert {"文件", "按键", "打开"} <= set(shown)
    assert sum(term in chinese.values() for term in shown) >= 0.9 * len(shown)
