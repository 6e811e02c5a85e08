"""Links between words: the format, and the words of tokens of every tokenizer."""

import pytest
from converted_models import save_marian, train_pieces
from transformers import MarianTokenizer

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.model.tokenization_vanilla_transformer import KINDS
from vanilla_transformer.text.token_words import spans_of_ids, unknown_spans, words_of_encoding
from vanilla_transformer.text.word_alignment import (
    format_links,
    links_of_tokens,
    links_of_words,
    parse_links,
)
from vanilla_transformer.text.words import words_of_spans

TEXTS = [
    "hello wörld , the cat's  mat .",
    " Leading space and a cafe\u0301 ☃ snow",
    "abcdefghij",
    "one\ttab <s> 你好 世界",
]


def test_links_are_read_in_order_and_written_again():
    assert parse_links(" 2-1  0-0 2-1 10-3\t") == ((0, 0), (2, 1), (10, 3))
    assert parse_links("") == ()
    assert format_links(parse_links("0-0 1-2")) == "0-0 1-2"


@pytest.mark.parametrize("line", ["0-0 1", "a-b", "-1-2", "0-0,1-1", "1-2-3", "0p1", "²-1"])
def test_a_part_that_is_no_link_is_refused(line):
    with pytest.raises(ValueError, match="is no link"):
        parse_links(line)


def test_links_go_from_words_to_tokens_and_back():
    source = words_of_spans("ab cd", [(0, 1), (1, 2), (2, 5), (5, 5)])
    target = words_of_spans("x yz", [(0, 1), (1, 3), (3, 4)])
    assert source == [range(0, 1), range(0, 1), range(1, 2), range(0)]
    links = links_of_tokens([(0, 1), (1, 0), (7, 0)], source, target)
    assert links == ((0, 1), (0, 2), (1, 1), (1, 2), (2, 0))
    assert links_of_words(links, source, target) == ((0, 1), (1, 0))
    assert links_of_words([(3, 0)], source, target) == ()
    assert links_of_words([(1, 0), (0, 0)], [range(1), range(1)], [range(2, 3)]) == ((0, 2),)


def test_a_token_over_white_space_belongs_to_all_its_words():
    assert words_of_spans("a b c", [(0, 3), (3, 5), (1, 2)]) == [range(2), range(2, 3), range(0)]


def test_a_word_lies_between_ascii_spaces():
    text = "10\u00a0000\u202f% \u3000 a\tb"
    assert words_of_spans(text, [(0, 2), (3, 6), (7, 8), (9, 10), (11, 12), (13, 14)]) == [
        *[range(1)] * 3,
        range(1, 2),
        range(2, 3),
        range(3, 4),
    ]


def words_in_order(text, words):
    """Every word has tokens, in its place."""
    seen = [word for group in words for word in group]
    assert seen == sorted(seen)
    assert set(seen) == set(range(len(text.split())))


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tokenizer_tells_the_words_of_a_text(kind, lowercase):
    tokenizer = VanillaTransformerTokenizer.train(
        [*TEXTS, "the mat hello", "a b c d e f g"],
        [*TEXTS, "zwei Wörter"],
        kind=kind,
        vocab_size=320,
        shared=False,
        lowercase=lowercase,
    )
    texts = [*TEXTS, "unseen ☂ words über all", ""]
    for argument, side in (("text", "source"), ("text_target", "target")):
        found = words_of_encoding(tokenizer, texts, tokenizer(**{argument: texts}), side)
        for text, words in zip(texts, found, strict=True):
            words_in_order(text, words)
            assert words[-1] == range(0)  # the end


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tokenizer_tells_the_words_of_an_output(kind):
    tokenizer = VanillaTransformerTokenizer.train(TEXTS, kind=kind, vocab_size=290)
    for text in (text.lstrip() for text in TEXTS):
        ids = tokenizer(text)["input_ids"]
        output = tokenizer.decode(ids, skip_special_tokens=True)
        words = words_of_encoding(tokenizer, [text], tokenizer([text]), "source")[0]
        tokens = zip(tokenizer.convert_ids_to_tokens(ids), words, strict=True)
        expected = [range(0) if token == "▁" else word for token, word in tokens]
        assert words_of_spans(output, spans_of_ids(tokenizer, ids, output)) == expected
    assert spans_of_ids(tokenizer, [], "") == []


def test_unknown_words_of_an_output_belong_to_no_word():
    tokenizer = VanillaTransformerTokenizer.train(["a b c"], kind="word")
    ids = tokenizer("a z c")["input_ids"]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert (text, words_of_spans(text, spans_of_ids(tokenizer, ids, text))) == (
        "a c",
        [range(1), range(0), range(1, 2), range(0)],
    )


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """A tokenizer of SentencePiece that is not fast."""
    folder = tmp_path_factory.mktemp("marian")
    save_marian(train_pieces(folder), folder / "model", separate=False)
    return MarianTokenizer.from_pretrained(folder / "model")


def test_a_tokenizer_without_offsets_is_read_by_its_marks(marian):
    texts = ["the mat  sat on cat", "unseen qüxq words", "x"]
    assert not marian.is_fast
    for argument, side in (("text", "source"), ("text_target", "target")):
        found = words_of_encoding(marian, texts, marian(**{argument: texts}), side)
        for text, words in zip(texts, found, strict=True):
            words_in_order(text, words)
    ids = marian(text_target=texts[:1])["input_ids"][0]
    output = marian.decode(ids, skip_special_tokens=True)
    words_in_order(output, words_of_spans(output, spans_of_ids(marian, ids, output)))


def test_unknown_characters_are_counted_with_and_without_offsets(marian):
    texts = ["a dog \u2603\u2603 sees", "\u2603", "a dog"]
    kinds = {"char": [2, 1, 0], "bpe": [2, 1, 0], "unigram": [2, 1, 0], "byte_bpe": [0, 0, 0]}
    kinds["word"] = [2, 1, 0]

    def count(tokenizer):
        spans = unknown_spans(tokenizer, texts)
        return [sum(end - begin for begin, end in row) for row in spans]

    for kind, counts in kinds.items():
        tokenizer = VanillaTransformerTokenizer.train(["a dog sees"], kind=kind)
        assert count(tokenizer) == counts
    assert count(marian) == [2, 1, 0]


def test_white_space_within_a_word_divides_no_word(marian):
    text = "the\u00a0mat \u3000 cat\u3000sat on"
    (words,) = words_of_encoding(marian, [text], marian([text]), "source")
    tokens = marian.convert_ids_to_tokens(marian([text])["input_ids"][0])
    begins = [group for token, group in zip(tokens, words, strict=True) if token[0] == "▁"]
    assert begins == [range(1), range(1), range(2, 3), range(2, 3), range(3, 4)]


def test_letters_that_a_tokenizer_writes_otherwise_have_the_place_between_the_others(marian):
    text = "the a\u00a8b \u2603\u2603 cat"
    (words,) = words_of_encoding(marian, [text], marian([text]), "source")
    words_in_order(text, words)
    cut = marian(["the cat sat"], truncation=True, max_length=3)
    assert words_of_encoding(marian, ["the cat sat"], cut, "source")[0][0] == range(1)
