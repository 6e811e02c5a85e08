"""Corpora of a recipe: what is read of them, what is dropped and counted, and what is refused."""

import gzip
import json

import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict

from vanilla_transformer.columns import languages_of_rows, references_of
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.parallel_data import load_parallel_data, name_row
from vanilla_transformer.run.arguments import parse_arguments

PAIRS = [("a dog", "ein Hund"), ("a cat", "eine Katze"), ("a man", "ein Mann")]


def write(path, *columns):
    path.write_text("".join("\t".join(row) + "\n" for row in columns), encoding="utf-8")
    return str(path)


def read(*entries, **options):
    texts = [json.dumps(entry) for entry in entries]
    return load_parallel_data(DataArguments(corpora=texts, **options))


def load(*entries, **options):
    return read(*entries, **options).splits


def pairs_of(rows):
    return list(zip(rows["source"], rows["target"], strict=True))


def test_files_of_every_kind_are_read(tmp_path):
    sides = [[row[side] for row in PAIRS] for side in (0, 1)]
    texts = [write(tmp_path / f"t.{side}", *([one] for one in sides[side])) for side in (0, 1)]
    tsv = write(tmp_path / "t.tsv", *(("x", b, a) for a, b in PAIRS))
    packed = tmp_path / "t.tsv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "t.tsv").read_bytes()))
    strong = tmp_path / "t2.tsv.zst"
    strong.write_bytes(pa.Codec("zstd").compress((tmp_path / "t.tsv").read_bytes()).to_pybytes())
    rows = (json.dumps({"en": a, "de": b}) for a, b in PAIRS)
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    tuv = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'
    units = "".join(f"<tu>{tuv.format('en-US', a)}{tuv.format('de', b)}</tu>" for a, b in PAIRS)
    (tmp_path / "t.tmx").write_text(f"<tmx><body>{units}</body></tmx>")
    table = Dataset.from_dict({"en": sides[0], "de": sides[1]})
    DatasetDict({"train": table, "test": table.select([])}).save_to_disk(str(tmp_path / "hub"))
    entries = [
        {"name": "texts", "train": texts},
        {"name": "tsv", "train": tsv, "columns": [3, 2]},
        {"name": "gz", "train": str(packed), "columns": [3, 2], "tag": "<bt>"},
        {"name": "zst", "train": str(strong), "columns": [3, 2]},
        {"name": "jsonl", "train": str(tmp_path / "t.jsonl"), "columns": ["en", "de"]},
        {"name": "tmx", "train": str(tmp_path / "t.tmx"), "languages": ["en", "de"]},
        {"name": "mono", "train": [texts[1]] * 2, "tag": "<copy>", "filters": {"identical": False}},
    ]
    found = load(*entries)["train"]
    for number, entry in enumerate(entries):
        tag = f"{entry['tag']} " if "tag" in entry else ""
        wanted = [(f"{tag}{b if entry['name'] == 'mono' else a}", b) for a, b in PAIRS]
        part = found.select(range(3 * number, 3 * number + 3))
        assert pairs_of(part) == wanted, entry["name"]
        assert set(part["corpus"]) == {entry["name"]}
    assert len(found) == 3 * len(entries)


def test_a_document_may_be_a_number_or_lack(tmp_path):
    lines = [{"en": "a", "de": "b", "doc": 7}, {"en": "c", "de": "d"}]
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    found = load({"train": str(file), "columns": ["en", "de", "doc"]})["train"]
    assert list(found["document"]) == ["7", None]


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "hub"])
def test_a_third_column_names_the_document(tmp_path, suffix):
    rows, file = [(*pair, f"d{number}") for number, pair in enumerate(PAIRS)], tmp_path / suffix
    names, columns = ("en", "de", "about"), ["de", "en", "about"]
    table = Dataset.from_list([dict(zip(names, row, strict=True)) for row in rows])
    if suffix == "hub":
        DatasetDict({"train": table}).save_to_disk(str(file))
        entry = {"dataset": str(file), "columns": columns}
    else:
        file = tmp_path / f"t.{suffix}"
        if suffix == "tsv":
            write(file, *rows)
        else:
            {"csv": table.to_csv, "jsonl": table.to_json}[suffix](file)
        entry = {"train": str(file), "columns": [2, 1, 3] if suffix == "tsv" else columns}
    found = load(entry)["train"]
    assert pairs_of(found) == [(b, a) for a, b in PAIRS]
    assert list(found["document"]) == ["d0", "d1", "d2"]


def test_a_data_set_is_read_with_its_splits(tmp_path):
    table = Dataset.from_dict({"en": [a for a, _ in PAIRS], "de": [b for _, b in PAIRS]})
    test = Dataset.from_dict({"en": ["a boat"], "de": ["ein Boot"]})
    DatasetDict({"train": table, "test": test}).save_to_disk(str(tmp_path / "hub"))
    found = load({"dataset": str(tmp_path / "hub"), "columns": ["en", "de"]})
    assert {split: pairs_of(rows) for split, rows in found.items()} == {
        "train": PAIRS,
        "test": [("a boat", "ein Boot")],
    }


@pytest.fixture
def dirty(tmp_path):
    """A recipe of two corpora: one has duplicates, held-out and empty pairs, the other a tag."""
    held_out = write(tmp_path / "valid.tsv", ("A boat!", "ein Boot"), ("a bird", "ein Vogel"))
    rows = [*PAIRS, PAIRS[0], ("a  boat", "Ein Boot"), ("", "leer"), ("OK", "OK")]
    app = write(tmp_path / "app.tsv", *rows)
    other = write(tmp_path / "other.tsv", *PAIRS, ("<2de> a bird", "x y z"))
    (tmp_path / "recipe.yaml").write_text(
        f"corpora:\n  - {{train: {app}, validation: {held_out}}}\n"
        f"  - {{train: {other}, tag: <2de>, weight: 2, filters: false}}\n"
    )
    return tmp_path


def test_dropped_pairs_are_counted_and_named(dirty, capsys):
    entries = [
        {"train": str(dirty / "app.tsv"), "validation": str(dirty / "valid.tsv")},
        {"train": str(dirty / "other.tsv"), "tag": "<2de>", "weight": 2, "filters": False},
    ]
    data = read(*entries)
    train = data.splits["train"]
    assert pairs_of(train)[:3] == PAIRS
    assert train["source"][3] == "<2de> a dog"
    first, second = data.reports
    assert first.dropped == {"duplicate": 1, "held_out": 1, "empty": 1, "identical": 1}
    assert (first.pairs, first.used, second.used) == (7, 3, 4)
    assert (first.share, second.share) == pytest.approx((1 / 3, 2 / 3))
    assert first.describe().startswith("Corpus app: 3 of 7 pairs are used (duplicate 1, held")
    texts = [json.dumps(entry) for entry in entries]
    where = name_row(DataArguments(corpora=texts), "train", train[4], 4)
    assert where == "Line 2 of the corpus 'other'"
    before = sorted(dirty.iterdir())
    run_subcommand("corpora", [str(dirty / "recipe.yaml")])
    printed = capsys.readouterr().out
    assert "app: 3 of 7 pairs are kept\n" in printed
    assert "  held_out drops 1\n    5: a boat → Ein Boot\n" in printed
    assert sorted(dirty.iterdir()) == before
    assert len(load(*entries, max_train_samples=2)["train"]) == 4


@pytest.mark.parametrize("name", ["2024-05-01", "on", "12:30", "2024", "no", "1_0", "0x10", "y"])
def test_a_name_in_a_recipe_is_the_name_of_a_corpus(tmp_path, name):
    pairs = write(tmp_path / "pairs.tsv", *PAIRS)
    (tmp_path / "recipe.yaml").write_text(
        f"corpora:\n  - {{name: {name}, train: {pairs}, languages: [en, no], weight: 1e0}}\n"
        f"  - {{name: other, train: {pairs}}}\n"
    )
    data = parse_arguments([str(tmp_path / "recipe.yaml")]).data
    assert [entry.languages for entry in data.entries] == [["en", "no"], None]
    assert sorted(load_parallel_data(data).shares) == sorted(
        [name.replace("1e3", "1000.0"), "other"]
    )


REFUSED = {
    "weight": ({"weight": 0}, "app: `weight` 0 must be a number above 0"),
    "tag": ({"tag": "<2 de>"}, "`tag` '<2 de>' must be one word"),
    "name": ({"wieght": 2}, "unknown name 'wieght': choose from name, train"),
    "end": ({"name": "low"}, "low: `name` 'low' is that of an end of an interval"),
    "filter": ({"filters": {"sript": 1}}, "app: `filters` has no 'sript': choose from empty"),
    "languages": ({"languages": ["en"]}, r"`languages` \['en'\] must name the source and the"),
    "columns": ({"columns": [2, 3]}, r"app.tsv, line 1: it has 2 columns, but `columns` are"),
    "columns of texts": (
        {"train": ["a", "b"], "columns": [2, 1]},
        "app: `columns` .* have no effect",
    ),
    "columns without files": ({"train": None, "columns": [1, 2]}, "it names no files"),
    "columns of a number": ({"train": 5, "columns": [1, 2]}, "`train` 5 must be one file of pairs"),
    "columns of a tmx": (
        {"train": "a.tmx.gz", "columns": ["de", "en"]},
        "app: `columns` .* no eff",
    ),
    "language": ({"filters": {"language": True}}, "app: the filter `language` needs `languages`"),
    "tmx": ({"train": "app.tmx"}, "app.tmx needs `languages`"),
    "files": ({"train": None}, "names no files"),
    "share": ({"train": None, "test": "app.tsv", "weight": 2}, "app: `weight` is a share of the"),
    "format": ({"train": "app.docx"}, "app.docx"),
    "two": ({"dataset": "x"}, "`dataset` 'x' must be one name, without"),
    "nothing": (
        {"filters": {"longest": 3}},
        r"Nothing is left of the train data 'app' .*longest 5",
    ),
}


@pytest.mark.parametrize("split", ["validation", "test", None])
@pytest.mark.parametrize("name", ["en-de", "de-en"])
def test_a_name_is_not_that_of_a_direction_of_others(tmp_path, name, split):
    """The scores of an entry and of a direction have the same names."""
    pairs = write(tmp_path / "pairs.tsv", *PAIRS)
    own = {"name": name, "train": pairs, "languages": ["en", "de"], "validation": pairs}
    other = {"name": "x", "train": pairs, "languages": name.split("-")}
    texts = [json.dumps(each) for each in (own, other | ({split: pairs} if split else {}))]
    data = DataArguments(corpora=texts)
    if split == "validation":
        with pytest.raises(ValueError, match=f"'{name}' is the direction of others, too"):
            assert data.entries
    else:
        assert [entry.name for entry in data.entries] == [name, "x"]


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_entries_are_refused_in_one_sentence(dirty, monkeypatch, name):
    monkeypatch.chdir(dirty)
    changes, message = REFUSED[name]
    entry = {"name": "app", "train": "app.tsv", **changes}
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        load({key: value for key, value in entry.items() if value is not None})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("limit", "entry_has_validation"), [(None, True), (1, False)])
def test_all_validation_pairs_leave_the_training(tmp_path, limit, entry_has_validation):
    pairs = [*PAIRS, ("a bird", "ein Vogel"), ("a boat", "ein Boot")]
    train = write(tmp_path / "train.tsv", *pairs)
    tag = "" if entry_has_validation else "<app> "
    rows = [*PAIRS, ("a girl", "ein Mädchen")]
    held_out = write(tmp_path / "valid.tsv", *((f"{tag}{a}", b) for a, b in rows))
    entry = {"train": train, "tag": "<app>"}
    options = {"max_eval_samples": limit} if limit else {}
    if entry_has_validation:
        loaded = load({**entry, "validation": held_out}, **options)
    else:
        loaded = load(entry, validation_file=held_out, **options)
    assert pairs_of(loaded["train"]) == [(f"<app> {a}", b) for a, b in pairs[3:]]
    assert pairs_of(loaded["validation"]) == [(f"<app> {a}", b) for a, b in rows[:limit]]


@pytest.mark.parametrize("written", ["", "<app> ", "<bt> "])
def test_no_tag_hides_a_pair_from_the_filters(tmp_path, written):
    rows = [(f"{written}{a}", b) for a, b in [*PAIRS, ("a boat", "ein Boot"), ("OK", "OK")]]
    train = write(tmp_path / "train.tsv", *rows, *PAIRS, ("a boat", "ein Boot"))
    other = write(tmp_path / "other.tsv", ("a girl", "ein Mädchen"))
    held_out = write(tmp_path / "valid.tsv", *PAIRS)
    for tag in ({"tag": "<app>"}, {}):
        entries = {"train": train, **tag}, {"train": other, "tag": "<bt>"}
        others = {"train": other, "name": "third", "tag": "<app>"}
        data = read(*entries, others, validation_file=held_out)
        found = {"held_out": 2 * len(PAIRS), "duplicate": 1, "identical": 1}
        assert data.reports[0].dropped == found


def test_references_of_one_corpus_stand_beside_the_targets_of_others(tmp_path):
    row = {"source": "a dog", "target": "ein Hund", "references": ["ein Hund", "der Hund"]}
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    test = write(tmp_path / "t.tsv", PAIRS[1])
    found = load({"name": "app", "test": str(tmp_path / "t.jsonl")}, {"name": "b", "test": test})
    assert found["test"]["references"][:] == [row["references"], ["eine Katze"]]


def test_a_text_without_references_has_its_target():
    rows = Dataset.from_dict({"target": ["x", "y"], "references": [["x", "z"], None]})
    assert references_of(rows) == [["x", "z"], ["y"]]


@pytest.mark.parametrize("as_entry", [True, False])
def test_a_column_of_one_side_names_a_language(tmp_path, as_entry):
    """The other side has the language of the entry, or of the options."""
    texts = zip("abc", "def", ("de", None, "nl"), strict=True)
    rows = [dict(zip(("source", "target", "target_language"), row, strict=True)) for row in texts]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    if as_entry:
        found = load({"name": "app", "train": str(path), "languages": ["en", "fr"]})
    else:
        options = {"train_file": str(path), "source_language": "en", "target_language": "fr"}
        found = load_parallel_data(DataArguments(**options)).splits
    assert languages_of_rows(found["train"]) == [("en", "de"), ("en", "fr"), ("en", "nl")]


def test_filters_judge_each_row_by_its_own_languages(tmp_path):
    names = ("source", "target", "target_language")
    rows = [("a dog", "собака", "ru"), ("a dog", "ein Hund", "ru"), ("a cat", "кот", None)]
    lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    found = load({"train": str(tmp_path / "t.jsonl"), "languages": ["en", "de"]})
    assert pairs_of(found["train"]) == [("a dog", "собака")]


def test_held_out_sets_and_splits_are_checked(dirty, monkeypatch):
    monkeypatch.chdir(dirty)
    known = load({"train": "app.tsv", "test": write(dirty / "test.tsv", *PAIRS[:2])})
    assert not {*pairs_of(known["train"])} & {*pairs_of(known["test"])}
    with pytest.raises(ValueError, match="two entries 'app'"):
        load({"train": "app.tsv"}, {"train": "app.tsv"})
    with pytest.raises(ValueError, match="The train data are given twice"):
        load({"train": "app.tsv"}, train_source="valid.tsv", train_target="valid.tsv")
    with pytest.raises(ValueError, match=r"`corpora_temperature` 5 and a `weight` .* exclude"):
        load({"train": "app.tsv", "weight": 2}, corpora_temperature=5)
    found = load({"train": "app.tsv"}, test_source="valid.tsv", test_target="valid.tsv")
    assert len(found["test"]) == 2
