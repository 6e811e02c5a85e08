"""The translations of similar sources behind the sources of a share of the training pairs."""

from datasets import Dataset

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.columns import with_languages
from vanilla_transformer.data import memory_rows
from vanilla_transformer.data.memory_rows import annotate_memory, has_similar_pairs
from vanilla_transformer.data.placeholders import with_placeholders
from vanilla_transformer.data.term_rows import annotate_terms

TOKEN = "<|memory|>"


def table(pairs):
    data = Dataset.from_dict({"source": [s for s, _ in pairs], "target": [t for _, t in pairs]})
    return with_languages(data, ("en", "de"))


def split(text):
    """Returns a source and the translation behind it."""
    source, *shown = text.split(TOKEN)
    return source, "".join(shown[:1])


def word(number):
    """Returns a word of letters: numbers of a text do not count."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


def similar_pairs(count=200):
    """Returns pairs of which each has one similar one: its neighbour."""
    pairs = []
    for number in range(count // 2):
        about = f"{word(number)} {word(number + 300)}"
        for english, german in (("last", "zwei"), ("first", "eins")):
            pairs.append((f"<2de> open the {about} {english} file", f"{word(number)}: {german}"))
    return pairs


def test_half_of_the_pairs_show_the_translation_of_their_neighbour():
    pairs = similar_pairs()
    rows = annotate_memory(table(pairs), ("<2de>",))
    assert rows["target"] == [target for _, target in pairs]
    shown = list(map(split, rows["source"]))
    assert [source for source, _ in shown] == [source for source, _ in pairs]
    drawn = [number for number, (_, target) in enumerate(shown) if target]
    assert 0.4 * len(pairs) < len(drawn) < 0.6 * len(pairs)
    for number in drawn:
        assert shown[number][1] == f" {pairs[number ^ 1][1]}"
        words = ("last", "first") if number % 2 else ("first", "last")
        assert rows["source"][number].endswith("".join(f"{TOKEN} {word}" for word in words))
    assert rows["source"] == annotate_memory(table(pairs), ("<2de>",), num_proc=2)["source"]


def test_equal_sources_are_not_shown_to_each_other():
    pairs = [("Open the file", "Öffne sie"), ("open the file!", "öffne sie!")] * 100
    others = [(f"{word(n)} {word(n + 7)}", word(n)) for n in range(1000, 1200)]
    for text in annotate_memory(table(pairs + others))["source"][: len(pairs)]:
        assert "sie" not in text
    assert not has_similar_pairs(table(pairs))


def test_some_pairs_show_an_unrelated_text():
    pairs = [(f"{word(n)} {word(n + 7)}", f"Ziel {word(n)}") for n in range(1000, 3000)]
    rows = annotate_memory(table(pairs))
    drawn = [split(text)[1] for text in rows["source"] if TOKEN in text]
    assert 0.02 * len(pairs) < len(drawn) < 0.1 * len(pairs)
    assert {text.strip() for text in drawn} <= {target for _, target in pairs}


def test_each_direction_has_a_memory_of_its_own():
    rows = table([("open the file", "a"), ("open the door", "b")] * 50)
    rows = rows.remove_columns("target_language")
    rows = rows.add_column("target_language", ["de", "fr"] * 50)
    assert not any(TOKEN in text for text in annotate_memory(rows)["source"])


def test_one_similar_pair_in_20_is_enough():
    others = [(f"{word(n)} {word(n + 7)}", word(n)) for n in range(1000, 1900)]
    assert has_similar_pairs(table(similar_pairs(100) + others), ("<2de>",))
    assert not has_similar_pairs(table(similar_pairs(20) + others), ("<2de>",))


def test_tokens_stand_for_the_same_placeholders_in_what_is_shown():
    tokenizer = VanillaTransformerTokenizer.train(["open {a} at %s"], kind="char")
    tokenizer.add_placeholders()
    rows = table([(f"Open {{a}} at %s{TOKEN} %s: {{a}}, {{b}}", "Bei %s {a} öffnen")])
    (row,) = with_placeholders(rows, tokenizer, 1.0)
    assert row["source"] == f"Open <ph1> at <ph2>{TOKEN} <ph2>: <ph1>, {{b}}"
    assert row["target"] == "Bei <ph2> <ph1> öffnen"


def test_terms_are_those_of_the_source_alone():
    pairs = [(f"open {a} {b}{TOKEN} Zeile", f"öffne {a} {b}") for a in "kl" for b in ("xyz", "uvw")]
    for text in annotate_terms(table(pairs * 50))["source"]:
        assert text.endswith(f"{TOKEN} Zeile")


def test_a_pair_is_searched_for_in_its_block(monkeypatch):
    monkeypatch.setattr(memory_rows, "_BLOCK", 20)
    pairs = similar_pairs(60)
    rows = annotate_memory(table(pairs), ("<2de>",))
    shown = [split(text)[1] for text in rows["source"]]
    assert all(target == f" {pairs[n ^ 1][1]}" for n, target in enumerate(shown) if target)
    pairs = pairs[::2] + pairs[1::2]  # each has the other one in another block
    rows = annotate_memory(table(pairs), ("<2de>",))
    shown = [split(text)[1].strip() for text in rows["source"]]
    names = [[text.split(":")[0] for text in texts] for texts in (shown, rows["target"])]
    assert any(names[0])
    assert not any(map(str.__eq__, *names))
