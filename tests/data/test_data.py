"""Reads parallel data from good and bad files of every format, and encodes it."""

import csv
import gzip
import json
import os
import random
from functools import partial

import datasets
import pytest
from converted_models import byte_level_tokenizer
from datasets import Dataset, DatasetDict, concatenate_datasets
from transformers import AutoTokenizer

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.batches.encoding import encode
from vanilla_transformer.batches.token_budget import token_lengths
from vanilla_transformer.data import file_formats
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.cased_copies import add_cased_copies
from vanilla_transformer.data.memory_rows import annotate_memory
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.data.placeholders import with_placeholders
from vanilla_transformer.data.term_rows import annotate_terms
from vanilla_transformer.files.text_files import read_lines

PAIRS = {"source": ["one house", "two trees"], "target": ["ein Haus", "zwei Bäume"]}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    path = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(path))
    return path


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write


def load(**arguments):
    return load_parallel_data(DataArguments(**arguments)).splits


def texts_of(rows):
    """The columns of a table but the numbers of its lines."""
    return rows.remove_columns("line").to_dict()


def load_texts(write, source, target):
    return load(train_source=write("s.txt", source), train_target=write("t.txt", target))["train"]


def encoded_rows(write, cache, tokenizer, limit=None):
    """The number of copies in the cache, and the rows."""
    rows = encode(load_texts(write, "a b\nc d\n", "e f\ng\n"), tokenizer, limit)
    return len(list(cache.rglob("index.json"))), rows.to_dict()


def test_the_last_call_of_a_tokenizer_does_not_encode_data_again(write, cache):
    """A checkpoint of BART keeps the padding of the last batch in tokenizer.json."""
    tokenizer = byte_level_tokenizer()
    found = encoded_rows(write, cache, tokenizer)
    tokenizer(["a", "b c"], padding=True, truncation=True, max_length=2)
    assert encoded_rows(write, cache, tokenizer) == found


def test_data_are_encoded_once_for_equal_tokenizers_and_limits(write, tmp_path, cache):
    """A resumed run loads its tokenizer from a checkpoint, whose path must not count."""
    trained = VanillaTransformerTokenizer.train(["a b c d"], ["e f g"], kind="word", shared=False)
    trained.save_pretrained(tmp_path / "checkpoint-2")
    trained.save_pretrained(tmp_path / "checkpoint-4")
    other = VanillaTransformerTokenizer.train(["a b c d e"], ["f"], kind="word", shared=False)
    loaded = [AutoTokenizer.from_pretrained(tmp_path / f"checkpoint-{step}") for step in (2, 4)]

    encoded = partial(encoded_rows, write, cache)
    count, expected = encoded(trained)
    for tokenizer in loaded:
        assert encoded(tokenizer) == (count, expected)
    assert encoded(other)[0] == count + 1
    assert encoded(other)[1] != expected
    assert encoded(loaded[0], 2)[0] == count + 2


CHANGES = {
    "mapped": lambda rows: rows.map(lambda row: {"labels": 2 * row["labels"]}),
    "reordered": lambda rows: concatenate_datasets([rows.select([1]), rows.select([0])]),
    "a part twice": lambda rows: concatenate_datasets([rows.select([1]), rows.select([1])]),
    "unchanged": lambda rows: rows,
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_lengths_of_changed_rows_are_their_own(write, cache, change):
    encoded = encode(load_texts(write, "a b\nc d\n", "e f\ng\n"), byte_level_tokenizer())
    changed = CHANGES[change](encoded)
    for side in ("input_ids", "labels"):
        assert token_lengths(changed, side).tolist() == list(map(len, changed[side]))


# Plain text


def test_splits_and_limits(write):
    def text(number):
        return "".join(f"line {i}\n" for i in range(number))

    arguments = {
        f"{split}_{side}": write(f"{split}.{side}", text(number))
        for split, number in {"train": 9, "validation": 8, "test": 7}.items()
        for side in ("source", "target")
    }
    data = load(**arguments, max_train_samples=5, max_eval_samples=100, max_test_samples=1)
    assert {name: len(split) for name, split in data.items()} == {
        "train": 5,
        "validation": 8,
        "test": 1,
    }
    assert isinstance(data, DatasetDict)
    only_test = {name: path for name, path in arguments.items() if name.startswith("test")}
    assert list(load(**only_test)) == ["test"]


def test_empty_sides_are_skipped_and_counted(write, caplog):
    data = load_texts(write, "a\n\nc\n \t\u3000\ne\n", "1\n2\n\n\n5")
    assert data.to_dict() == {"source": ["a", "e"], "target": ["1", "5"], "line": [1, 5]}
    assert "train: skipped 3 of 5 pairs" in caplog.text
    assert "The first of them is on line 2." in caplog.text


def test_no_pair_left(write):
    with pytest.raises(ValueError, match="Nothing is left of the train data 's' with 2 pairs"):
        load_texts(write, "a\n\n", "\nb\n")


def test_missing_and_empty_files(write, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        load(train_source=write("s.txt", "a"), train_target=str(tmp_path / "nowhere.txt"))
    with pytest.raises(ValueError, match=r"s\.txt and .*t\.txt holds no data"):
        load_texts(write, "", "")
    with pytest.raises(ValueError, match=r"t\.txt' ends before line 6"):
        load_texts(write, "a\n" * 7, "b\n" * 5)
    with pytest.raises(ValueError, match=r"t\.txt, line 3: byte 0xe4 at position 3 is not UTF-8"):
        load_texts(write, "a\nb\nc\n", b"x\ny\nBa\xe4c\n")


def test_damaged_gzip(tmp_path):
    whole = gzip.compress(os.urandom(5000).hex().encode())
    (tmp_path / "cut.gz").write_bytes(whole[:-200])
    (tmp_path / "not.gz").write_bytes(b"plain text\n")
    for name in ("cut.gz", "not.gz"):
        with pytest.raises(ValueError, match=rf"{name} is not an intact gzip file"):
            list(read_lines(tmp_path / name))


def test_a_changed_file_is_read_again(write, cache):
    assert load_texts(write, "old 1\n", "x\n")["source"][:] == ["old 1"]
    path = write("s.txt", "old 1\n")
    before = os.stat(path)
    path = write("s.txt", "new 2\n")  # of the same size and, by utime, of the same age
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = load(train_source=path, train_target=write("t.txt", "x\n"))["train"]
    assert again["source"][:] == ["new 2"]
    assert again.cache_files[0]["filename"].startswith(str(cache))


# Files with columns


def write_columns(write, name, columns):
    if name.endswith("parquet"):
        path = write(name, b"")
        Dataset.from_dict(columns).to_parquet(path)
        return path
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    if ".jsonl" in name:
        return write(name, "".join(json.dumps(row) + "\n" for row in rows))
    if ".json" in name:
        return write(name, json.dumps(rows))
    path = write("plain.csv", "")
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        writer.writerows(rows)
    with open(path, "rb") as file:
        return write(name, file.read())


def test_splits_come_from_text_files_and_tables_together(tmp_path):
    for name, text in (("a.en", "a house\n"), ("a.de", "ein Haus\n"), ("v.tsv", "a dog\tHund\n")):
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in ("a.en", "a.de", "v.tsv")]
    data = load(train_source=paths[0], train_target=paths[1], validation_file=paths[2])
    assert texts_of(data["train"]) == {"source": ["a house"], "target": ["ein Haus"]}
    assert texts_of(data["validation"]) == {"source": ["a dog"], "target": ["Hund"]}
    with pytest.raises(ValueError, match="The train data are given twice"):
        load(train_source=paths[0], train_target=paths[1], train_file=paths[2])


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.json", "x.jsonl.gz", "x.parquet"])
def test_file_formats(write, name):
    texts = {
        "de": ['ein "Haus", groß', "NA", "007", "null"],
        "id": ["1", "2", "3", "4"],
        "en": ["a\u2028house", "None", "1.0", "über"],
    }
    path = write_columns(write, name, texts)
    data = load(validation_file=path, source_column="en", target_column="de")
    assert list(data) == ["validation"]
    assert texts_of(data["validation"]) == {"source": texts["en"], "target": texts["de"]}


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_references_are_kept(write, name):
    columns = {**PAIRS, "references": [["ein Haus", "1 Haus"], ["zwei Bäume"]]}
    data = load(test_file=write_columns(write, name, columns))["test"]
    assert texts_of(data) == columns


@pytest.mark.parametrize("bad", [None, [], "b", ["zwei Bäume", None]])
def test_references_that_cannot_be_scored_are_found_before_the_training(write, bad):
    columns = {**PAIRS, "references": [["ein Haus"], bad]}
    path = write_columns(write, "x.jsonl", columns)
    with pytest.raises(ValueError, match=r"line 2: 'references' holds .* at least one"):
        load(test_file=path)


def test_nulls_are_empty(write, caplog):
    path = write_columns(write, "x.jsonl", {"source": ["a", None], "target": ["b", "c"]})
    assert len(load(train_file=path)["train"]) == 1
    assert "skipped 1 of 2 pairs" in caplog.text


def test_columns_that_are_missing_are_named(write):
    path = write_columns(write, "x.jsonl", PAIRS)
    with pytest.raises(ValueError, match=r"no column 'en'; its columns are \['source', 'target'\]"):
        load(train_file=path, source_column="en")
    with pytest.raises(ValueError, match=r"no column 'translation.en'"):
        load(train_file=path, source_column="translation.en", target_column="translation.de")
    with pytest.raises(ValueError, match="name two columns"):
        load(train_file=path, source_column="target")


@pytest.mark.parametrize("name", ["source_language", "target_language", "corpus"])
@pytest.mark.parametrize("value", [3, ["de"], True])
def test_columns_that_tell_of_texts_hold_text(write, name, value):
    path = write_columns(write, "x.jsonl", {**PAIRS, name: [None, value]})
    with pytest.raises(ValueError, match=f"line 2: column '{name}' holds"):
        load(train_file=path)


def test_columns_of_other_types(write):
    path = write_columns(write, "x.jsonl", {"source": [1, 2], "target": ["a", "b"]})
    with pytest.raises(ValueError, match=r"line 1: column 'source' holds 1: it must"):
        load(train_file=path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "source,target\na,b\n\nHello, you,c\n", "line 4: 3 fields, .* quote texts"),
        ("x.csv", 'source,target\na,"b\n', r"x\.csv, line 2: unexpected end of data"),
        ("x.csv", "", "x.csv holds no data"),
        ("x.csv", "source,target\na,b\nc,\0d\n", "line 3: NUL bytes are no text"),
        ("x.jsonl", '{"source": "a", "target": "b"}\n{"source": \n', "line 2 is not a JSON object"),
        ("x.json", '[{"source": "a", "target": "b"}, 1]', "line 2 is not a JSON object: give one"),
        ("x.json", '{"source": "a", "target": "b"}\n{"source": "a"}', "line 2 has no column 'tar"),
        ("x.json", '{"source": "\\ud800", "target": ""}', "x.json holds half a character: .* surr"),
        ("x.jsonl", b'{"source": "a", "target": ""}\n{"source": "\xff"}\n', "line 2: byte 0xff"),
        ("x.parquet", b"no parquet", "cannot be read as .parquet"),
        ("x.tsv", "a\tb\nc\n", "line 2: it has 1 column,"),
        ("x.txt", "a\tb\n", r"unknown format: give one of \.tsv"),
    ],
)
def test_bad_files(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        load(train_file=write(name, content))


def test_a_first_line_of_names_of_columns_is_no_pair(write):
    path = write("x.tsv", "source\ttarget\na\tb\nsource\ttarget\n")
    assert load(train_file=path)["train"]["source"][:] == ["a", "source"]


def test_long_fields(write):
    text = "word " * 100_000
    path = write_columns(write, "x.csv", {"source": [text], "target": ["a"]})
    assert load(train_file=path)["train"]["source"][0] == text


def test_texts_that_look_like_dates(write):
    columns = {"source": ["2020-01-31", "1999-12-01"], "target": ["2020-01-31 10:00:00", "x"]}
    columns |= {"references": [["2020-01-31"], ["2021-05-05", "2021-05-06"]]}
    path = write_columns(write, "x.jsonl", columns)
    assert texts_of(load(train_file=path)["train"]) == columns
    rows = [{"translation": {"en": text, "de": "2000-01-01"}} for text in columns["source"]]
    path = write("nested.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    data = load(train_file=path, source_column="translation.en", target_column="translation.de")[
        "train"
    ]
    assert texts_of(data) == {"source": columns["source"], "target": ["2000-01-01"] * 2}


def test_a_data_set_of_csv_files_keeps_every_text(write, tmp_path):
    columns = {"source": ["NA", "null", "None"], "target": ["a", "nan", "b"]}
    write_columns(write, "train.csv", columns)
    (tmp_path / "plain.csv").unlink()
    assert texts_of(load(dataset_name=str(tmp_path))["train"]) == columns


# The Hub's forms, from disk


def test_data_sets_of_the_hubs_form(tmp_path):
    rows = Dataset.from_dict({"translation": [{"en": "a", "de": "b"}, {"en": "c", "de": "d"}]})
    languages = datasets.Features({"translation": datasets.Translation(["en", "de"])})
    for split in ("train", "test"):
        rows.cast(languages).to_parquet(tmp_path / f"{split}.parquet")
    name = str(tmp_path)
    data = load(dataset_name=name, source_column="translation.de", target_column="translation.en")
    assert sorted(data) == ["test", "train"]
    assert texts_of(data["test"]) == {"source": ["b", "d"], "target": ["a", "c"]}
    message = r"no column 'translation.fr'; its columns are .*'translation.de'"
    with pytest.raises(ValueError, match=message):
        load(dataset_name=name, source_column="translation.de", target_column="translation.fr")


def test_saved_data_sets(tmp_path):
    DatasetDict({"train": Dataset.from_dict(PAIRS)}).save_to_disk(tmp_path / "good")
    assert texts_of(load(dataset_name=str(tmp_path / "good"))["train"]) == PAIRS
    DatasetDict({"dev": Dataset.from_dict(PAIRS)}).save_to_disk(tmp_path / "odd")
    with pytest.raises(ValueError, match=r"has the splits \['dev'\]"):
        load(dataset_name=str(tmp_path / "odd"))


# Arguments


TMX = {"test_file": "a.tmx.gz", "source_language": "en", "target_language": "de"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "No data are given"),
        ({"dataset_name": "x", "test_file": "y.csv"}, "test data are given twice"),
        ({"test_file": "y.csv", "test_source": "y", "test_target": "z"}, "test data are given tw"),
        ({"test_file": "y.tmx", "target_language": "de"}, "y.tmx needs `languages`"),
        ({"train_source": "a"}, "both `train_source` and `train_target`"),
        ({"train_file": "a.tsv", "source_column": "2"}, "`source_column` '2' names a column of no"),
        (
            {"train_source": "a", "train_target": "b", "target_column": "en"},
            "`target_column` 'en' names a column of no",
        ),
        ({**TMX, "target_column": "en"}, "`target_column` 'en' names a column of no file"),
        ({"corpora": ['{"train": "a.csv"}'], "source_column": "en"}, "`source_column` 'en' names"),
    ],
)
def test_sources_of_data(arguments, message):
    with pytest.raises(ValueError, match=message):
        load(**arguments)


# Tokens


@pytest.fixture(scope="module")
def tokenizer():
    return VanillaTransformerTokenizer.train(["a b c d e"], kind="word")


TEXTS = {"source": ["a b", "a b c", "a"], "target": ["d", "d e", "d e d e"]}


def test_encode(tokenizer, caplog):
    encoded = encode(Dataset.from_dict({**TEXTS, "references": [["x"]] * 3}), tokenizer)
    assert encoded.to_dict() == {
        "input_ids": [[4, 5, 2], [4, 5, 6, 2], [4, 2]],
        "labels": [[7, 2], [7, 8, 2], [7, 8, 7, 8, 2]],
    }
    assert "truncated" not in caplog.text


@pytest.mark.parametrize("num_proc", [None, 2])
def test_truncation_is_counted(tokenizer, caplog, num_proc):
    data = DatasetDict({"train": Dataset.from_dict(TEXTS), "test": Dataset.from_dict(TEXTS)})
    encoded = encode(data, tokenizer, 3, 2, num_proc=num_proc)
    assert encoded["test"]["input_ids"][:] == [[4, 5, 2], [4, 5, 2], [4, 2]]
    assert encoded["test"]["labels"][:] == [[7, 2]] * 3
    assert caplog.text.count("truncated 1 of 3 source texts to 3 tokens") == 2
    assert caplog.text.count("truncated 2 of 3 target texts to 2 tokens") == 2
    assert data["train"].column_names == ["source", "target"]


SIGNS = [
    *"abée<AΣςİ1-漢ﬁ▁\u0301\u0338\t\n\u00a0\u200b\u200d\ufeff",
    *[" "] * 8,
    "</s>",
    "<unk>",
    "<2de>",
]


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("bpe", "lowercase"),
        ("unigram", "do_lower_case"),
        ("char", "fold_white_space"),
    ],
)
def test_pairs_have_the_ids_of_a_call(kind, option):
    rng = random.Random(1)
    words = ["".join(rng.choices("abxyZé漢 ", k=20)) for _ in range(200)]
    options = {option: option != "fold_white_space"}
    tokenizer = VanillaTransformerTokenizer.train(words, kind=kind, vocab_size=80, **options)
    tokenizer.add_tokens(["<2de>"])
    texts = ["".join(rng.choices(SIGNS, k=rng.randint(0, 9))) for _ in range(2000)]
    rows = encode(Dataset.from_dict({"source": texts, "target": texts}), tokenizer)
    expected = tokenizer(texts, text_target=texts)
    for column in ("input_ids", "labels"):
        assert rows[column][:] == expected[column]


DERIVED = {
    "cased copies": partial(add_cased_copies, share=1.0),
    "memory": annotate_memory,
    "terms": annotate_terms,
    "placeholders": partial(with_placeholders, share=1.0),
}


@pytest.mark.parametrize("name", DERIVED)
def test_rows_that_other_code_has_made_of_rows_on_the_disk_are_made_anew(
    tmp_path, monkeypatch, name
):
    Dataset.from_dict({side: 50 * texts for side, texts in PAIRS.items()}).save_to_disk(tmp_path)
    options = {}
    if name == "placeholders":
        words = ["one house two trees ein Haus zwei Bäume"]
        options["tokenizer"] = VanillaTransformerTokenizer.train(words, kind="word")
        options["tokenizer"].add_placeholders()

    def make():
        DERIVED[name](datasets.load_from_disk(tmp_path), **options)
        return len([*tmp_path.glob("cache-*.arrow")])

    first = make()
    assert make() == first > 0
    monkeypatch.setattr(file_formats, "readers_digest", lambda: "another version")
    assert make() == 2 * first
