"""Copies of training pairs in capitals and in title case."""

import json

import pytest
from datasets import Dataset
from made_up_language import arguments

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.adapt.adaptation_data import split_data
from vanilla_transformer.adapt.options import AdaptArguments
from vanilla_transformer.columns import with_languages
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.cased_copies import add_cased_copies
from vanilla_transformer.data.parallel_data import load_parallel_data, name_row
from vanilla_transformer.run.arguments import parse_arguments
from vanilla_transformer.run.loaded_data import load_data
from vanilla_transformer.run.texts import prepare_texts


def pairs_of(rows):
    return list(zip(rows["source"], rows["target"], strict=True))


def test_copies_follow_the_pairs_in_title_case_and_in_capitals():
    rows = Dataset.from_dict(
        {
            "source": ["bt a dog's <b>x</b> runs, %s {name} on.", "bt two wörter"],
            "target": ["istanbul \u0131ş\u0131k <2de> ǆ", "iyi 2km Σας"],
            "source_language": ["de", "de"],
            "target_language": ["tr", "tr"],
        }
    )
    assert pairs_of(add_cased_copies(rows, 1.0, "bt")) == [
        *pairs_of(rows),
        ("bt A Dog's <b>x</b> Runs, %s {name} On.", "İstanbul Iş\u0131k <2de> ǅ"),
        ("bt TWO WÖRTER", "İYİ 2km ΣΑΣ"),
    ]
    assert add_cased_copies(rows, None) is rows


def test_a_pair_whose_source_would_stay_as_it_is_has_no_copy():
    """A second target for one source would contradict the first."""
    pairs = [
        ("\u4fdd\u5b58\u6587\u4ef6", "save the file"),  # no case
        ("\u0627\u062d\u0641\u0638", "save"),
        ("Save As", "Speichern unter"),  # in title case already
        ("OK", "in Ordnung"),
        ("%d / %d", "%d von %d"),
        ("--force", "erzwingen"),
        ("open it", "\u00f6ffnen"),
    ]
    open_it = [("Open It", "\u00d6ffnen"), ("OPEN IT", "\u00d6FFNEN")]
    for first, copies in ((0, open_it[:1]), (1, [("SAVE AS", "SPEICHERN UNTER"), open_it[1]])):
        chosen = [{"source": source, "target": target} for source, target in pairs[first:]]
        rows = add_cased_copies(Dataset.from_list(chosen), 1.0)
        assert pairs_of(rows) == [*pairs[first:], *copies]


@pytest.mark.parametrize(
    ("text", "language", "capitals", "title"),
    [
        ("use --force, -v", "en", "USE --force, -v", "Use --force, -v"),
        ("edit config.json at example.org", "en", "EDIT config.json AT example.org", None),
        ("see a.m. or so.", "en", "SEE A.M. OR SO.", "See A.m. Or So."),
        (
            "\u03ba\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1",
            "el",
            "\u039a\u0391\u039b\u0397\u039c\u0395\u03a1\u0391",
            None,
        ),
        (
            "\u03bc\u03ac\u03b9\u03bf\u03c2",
            "el",
            "\u039c\u0391\u03aa\u039f\u03a3",
            "\u039c\u03ac\u03b9\u03bf\u03c2",
        ),
        (
            "\u03ac\u03bb\u03bb\u03bf \u03ae",
            "el",
            "\u0391\u039b\u039b\u039f \u0389",
            "\u0386\u03bb\u03bb\u03bf \u0389",
        ),
        (
            "\u0391\u0301\u03c5\u03bb\u03bf\u03c2 \u0389",
            "ell_Grek",
            "\u0391\u03ab\u039b\u039f\u03a3 \u0389",
            None,
        ),
        ("'ijsland ijs", "nl", "'IJSLAND IJS", "'IJsland IJs"),
        ("'s avonds \u2019t ijs", "nl", "'S AVONDS \u2019T IJS", "'s Avonds \u2019t IJs"),
        ("ilk", "azj_Latn", "\u0130LK", "\u0130lk"),
        ("ijsland", "en", "IJSLAND", "Ijsland"),
    ],
)
def test_capitals_are_those_of_a_language(text, language, capitals, title):
    rows = Dataset.from_dict({"source": [text] * 2, "target": ["a"] * 2})
    copies = add_cased_copies(with_languages(rows, (language, None)), 1.0)["source"][2:]
    assert copies[-1] == capitals
    assert title is None or copies[0] == title


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.tsv"
    lines = [f"see the {word}\tdas {word} sehen\n" for word in map(word_of, range(100))]
    path.write_text("\t\n" + "".join(lines), encoding="utf-8")
    return path


def word_of(number):
    """A word of letters for each number."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:02}")


def test_a_share_of_the_training_pairs_is_copied(file):
    data = {"train_file": str(file), "validation_file": str(file), "max_train_samples": 80}
    options = DataArguments(**data, case_augment=0.25)
    loaded = load_parallel_data(options).splits
    pairs = pairs_of(loaded["train"])
    assert len(loaded["validation"]) == 100
    assert len(pairs) == 80 + 20
    assert len({source.casefold() for source, _ in pairs[80:]}) == 20
    assert {(s.casefold(), t.casefold()) for s, t in pairs[80:]} <= set(pairs[:80])
    assert sum(source.isupper() and target.isupper() for source, target in pairs) == 10
    assert sum(source.istitle() and target.istitle() for source, target in pairs) == 10
    line = 2 + pairs.index(tuple(text.casefold() for text in pairs[-1]))
    assert name_row(options, "train", loaded["train"][99], 99) == f"Line {line} of {file}"
    assert pairs_of(load_parallel_data(options).splits["train"]) == pairs


def test_a_corpus_has_its_copies_and_its_share(file):
    entries = [
        json.dumps({"name": name, "train": str(file), "weight": weight})
        for name, weight in (("a", 1), ("b", 3))
    ]
    options = DataArguments(corpora=entries, case_augment=0.1)
    loaded = load_parallel_data(options)
    assert loaded.splits["train"]["corpus"][:] == ["a"] * 110 + ["b"] * 110
    assert [report.used + report.copies for report in loaded.reports] == [110, 110]
    assert [report.share for report in loaded.reports] == [0.25, 0.75]
    described = loaded.reports[0].describe()
    assert "100 of 101 pairs are used (empty 1), and 10 copies in other case" in described


@pytest.mark.parametrize("lowers_case", [False, True])
def test_a_vocabulary_that_lower_cases_gets_no_copies(corpus, tmp_path, lowers_case):
    """It would read each copy as a second target of one source."""
    sources = (corpus / "train.en").read_text().splitlines()
    targets = (corpus / "train.de").read_text().splitlines()
    for name, change in (("saved", {"do_lower_case": lowers_case}), ("new", {})):
        options = {"case_augment": 0.1, "max_steps": 1}
        if name == "saved":
            words = VanillaTransformerTokenizer.train(sources, targets, kind="word", **change)
            words.save_pretrained(tmp_path / "tokenizer")
            options["tokenizer_name_or_path"] = tmp_path / "tokenizer"
        else:
            options["lowercase"] = lowers_case
        argv = arguments(corpus, tmp_path / name, "train", **options)
        if name == "saved":
            place = argv.index("--tokenizer_kind")
            del argv[place : place + 2]
        parsed = parse_arguments(argv)
        read = prepare_texts(*load_data(parsed)).splits["train"]
        assert len(read) == len(sources) + (0 if lowers_case else len(sources) // 10)


def test_an_adaptation_copies_training_pairs_alone(file):
    options = AdaptArguments("model", [str(file)], "out", held_out=10, case_augment=0.5)
    splits, plain = split_data(options), split_data(AdaptArguments("model", [str(file)], "out"))
    splits.add_cased_copies(0.5)
    (training,) = splits.training.values()
    (without,) = plain.training.values()
    assert splits.held_out == plain.held_out
    assert training[: len(without)] == without
    assert len(training) == len(without) + 40
    assert training[-1].source != training[-1].source.casefold()
    held_out = {
        pair.source
        for corpora in splits.held_out.values()
        for pairs in corpora.values()
        for pair in pairs
    }
    assert not held_out & {pair.source.casefold() for pair in training}
