"""Links of parallel data: files of them, and what becomes of them in encoding and sampling."""

import pytest
from datasets import Dataset, DatasetDict

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.batches.encoding import encode
from vanilla_transformer.batches.subwords import SampledSubwords
from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.file_formats import add_links
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.text.token_words import words_of_encoding
from vanilla_transformer.text.word_alignment import links_of_words, parse_links

SOURCES = ["the small cat sleeps", "a dog", "two birds , three fish"]
TARGETS = ["kleine Katzen schlafen", "ein Hund", "zwei Enten und drei Fische"]
LINES = ["1-0 2-1 3-2", "", "0-0 1-1 2-2 3-3 4-4 1-0"]


def pairs():
    return Dataset.from_dict({"source": SOURCES, "target": TARGETS})


@pytest.fixture
def link_file(tmp_path):
    path = tmp_path / "links.txt"
    path.write_text("\n".join(LINES) + "\n")
    return str(path)


def test_links_follow_their_pairs_when_pairs_are_skipped(tmp_path, link_file):
    files = {"train_source": SOURCES, "train_target": ["", *TARGETS[1:]]}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    names = {name: str(tmp_path / name) for name in files}
    names |= {name.replace("train", "test"): path for name, path in names.items()}
    found = load_parallel_data(DataArguments(**names, max_train_samples=2), link_file).splits
    assert found["train"]["alignment"][:] == LINES[1:]
    assert "alignment" not in found["test"].column_names


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0-0", "0-0 1", ""], "line 2: '1' is no link"),
        (["0-0", "", "4-5"], "line 3: the link 4-5 names word 5 of the target, which has 5 words"),
        (["4-0", "", ""], "line 1: the link 4-0 names word 4 of the source, which has 4 words"),
        ([*LINES, ""], "has 4 lines, but there are 3 training pairs"),
        ([], "holds no data"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_its_line(tmp_path, lines, message):
    path = tmp_path / "links.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(ValueError, match=f"{path}.*{message}"):
        add_links(pairs(), str(path))


def linked(tokenizer, link_file, **limits):
    return encode(DatasetDict(train=add_links(pairs(), link_file)), tokenizer, **limits)["train"]


@pytest.mark.parametrize("kind", ["bpe", "char", "word", "byte_bpe"])
def test_links_of_words_become_links_of_all_their_tokens(kind, link_file):
    tokenizer = VanillaTransformerTokenizer.train(SOURCES, TARGETS, kind=kind, vocab_size=290)
    encoded = linked(tokenizer, link_file)
    assert set(encoded.column_names) == {"input_ids", "labels", "alignment"}
    source = words_of_encoding(tokenizer, SOURCES, tokenizer(SOURCES), "source")
    target = words_of_encoding(tokenizer, TARGETS, tokenizer(text_target=TARGETS), "target")
    for row, line, *words in zip(encoded, LINES, source, target, strict=True):
        assert links_of_words(row["alignment"], *words) == parse_links(line)
    if kind == "char":
        assert len(encoded[0]["alignment"]) == 5 * 6 + 3 * 6 + 6 * 8


def test_links_of_words_beyond_a_limit_are_left_out(link_file):
    tokenizer = VanillaTransformerTokenizer.train(SOURCES, TARGETS, kind="word")
    encoded = linked(tokenizer, link_file, max_source_length=3, max_target_length=4)
    assert encoded["alignment"][:] == [[[1, 0]], [], [[0, 0], [1, 0], [1, 1]]]
    assert all(len(row["input_ids"]) <= 3 for row in encoded)


def test_rows_without_links_come_first_without_harm(tmp_path):
    path = tmp_path / "links.txt"
    path.write_text("\n" * 1500 + "0-0\n")
    rows = Dataset.from_dict({"source": ["a"] * 1501, "target": ["b"] * 1501})
    tokenizer = VanillaTransformerTokenizer.train(["a b"], kind="word")
    encoded = encode(add_links(rows, str(path)), tokenizer)
    assert encoded[0]["alignment"] == []
    assert encoded[1500]["alignment"] == [[0, 0]]


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe"])
def test_links_follow_sampled_subwords(kind, link_file):
    tokenizer = VanillaTransformerTokenizer.train(
        SOURCES * 3, TARGETS * 3, kind=kind, vocab_size=320, shared=False
    )
    texts = add_links(pairs(), link_file)
    unsampled = encode(texts, tokenizer)
    sampled = SampledSubwords(texts, unsampled, tokenizer, bpe_dropout=0.5)
    changed = 0
    for epoch in range(6):
        sampled.set_epoch(epoch)
        for index, line in enumerate(LINES):
            row = sampled[index]
            source, target = (
                words_of_plain_ids(tokenizer, row[name], text, side)
                for name, text, side in (
                    ("input_ids", SOURCES[index], "source"),
                    ("labels", TARGETS[index], "target"),
                )
            )
            assert links_of_words(row["alignment"], source, target) == parse_links(line)
            assert len(row["attention_mask"]) == len(row["input_ids"])
            changed += row["input_ids"] != unsampled[index]["input_ids"]
    assert changed


def words_of_plain_ids(tokenizer, ids, text, side):
    """Returns the word of each token by the characters that it stands for."""
    words, place = [], 0
    joined = "".join(text.split())
    of_character = [number for number, word in enumerate(text.split()) for _ in word]
    for index in ids:
        piece = "".join(tokenizer.decode([index], side=side, skip_special_tokens=True).split())
        length = len(piece) if joined.startswith(piece, place) else 0
        numbers = of_character[place : place + length]
        words.append(range(numbers[0], numbers[-1] + 1) if numbers else range(0))
        place += length
    return words
