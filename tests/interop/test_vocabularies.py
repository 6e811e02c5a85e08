"""Tokenizers out of vocabularies: cut as SentencePiece cuts, numbered as the model numbers."""

import json
import random
from pathlib import Path
from unicodedata import normalize

import pytest
import sentencepiece
from programs import REPOSITORY
from tiny_models import make_model

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.interop.ctranslate2_reader import read_ctranslate2
from vanilla_transformer.interop.sentencepiece_models import sentencepiece_backend, sentencepiece_of
from vanilla_transformer.interop.vocabularies import align_vocabularies, make_tokenizer
from vanilla_transformer.weights.ctranslate2 import convert_to_ctranslate2

TEXTS = [
    *(REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines(),
    "Ein Löwe frißt 1.234,50 kg; «naïve» cafés — d\u2019accord? ﬁn ①",
    "  two  spaces\tand a tab ",
    "▁ a literal mark ▁▁",
    "</s> <s> <unk> <pad>",
    "Привет 你好 🙂🙂",
    "",
]
SCRIPTS = """
    Tiếng Việt có dấu: ế ộ ữ ằ ẫ; Yorùbá: ọ̀rọ̀ ẹ̀kọ́ ṣùgbọ́n ọjọ́; ΐ ά ᾧ ᾄ Ἄνθρωπος ῷ
    ﾊﾟｿｺﾝ ｶﾞﾗｽ ﾃﾞｰﾀ がぎぐ パピプ; 한국어 가나다 값 뚫; مُحَمَّدٌ شَدَّةٌ الْعَرَبِيَّة
    தொகுதி கொடு போ கௌ; കൊ കോ കൗ; කො කෝ කෞ කේ; ဦး ဥပမာ မြို့; ﬁn ½ ① ㎏ x\u00b4y \uff45̂ é́ ế ậ 👨‍👩‍👧 ☹️
"""
OPTIONS = {
    "default": {},
    "bytes": {"byte_fallback": True},
    "suffix": {"treat_whitespace_as_suffix": True},
    "symbols": {"user_defined_symbols": ["<sep>", "①", "ﬁ"], "byte_fallback": True},
    "known signs": {"user_defined_symbols": ["<sep>", "①"], "required_chars": "</s>unk0x41"},
    "as it is": {
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
    },
}
SETTINGS = {"unk_token": "<unk>", "eos_token": "</s>", "decoder_start_token": "<s>"}


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def pieces(request, tmp_path_factory):
    """A model of SentencePiece."""
    folder = tmp_path_factory.mktemp(request.param)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(folder / "spm"),
        vocab_size=300,
        model_type=request.param,
        character_coverage=0.98,
        byte_fallback=False,
        user_defined_symbols=["<sep>"],
        minloglevel=2,
    )
    return folder / "spm.model"


def words_of(processor):
    """The pieces in another order, with other special tokens."""
    words = [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]
    random.Random(0).shuffle(words)
    return ["<unk>", "<blank>", "<s>", "</s>", *words]


def made_lines(count):
    """Words of many scripts in several normal forms, and their characters in disorder."""
    choose, words = random.Random(0), SCRIPTS.split()
    forms = [normalize(form, word) for word in words for form in ("NFC", "NFD", "NFKD")]
    for number in range(count):
        parts, separator = (forms, " ") if number % 2 else ("".join(forms), "")
        yield separator.join(choose.choices(parts, k=choose.randint(1, 12)))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_backend_cuts_texts_as_sentencepiece(kind, name, tmp_path):
    lines = [*TEXTS, *made_lines(300)]
    lines += ["one<sep>two <sep> three", "½", "a<s>b", "<0x41>", "x\ny", "\u0301a", " ", "①́"]
    lines += ["<sep><s>", "①</s>ﬁ<s>①<s>a", "<sep><unk>", "<sep><0x41>", "<s>", "<sep><sep><s>①"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*lines[:400], *lines[400::9]]),
        model_prefix=str(tmp_path / "spm"),
        vocab_size=700,
        model_type=kind,
        character_coverage=0.98,
        minloglevel=2,
        **OPTIONS[name],
    )
    processor = sentencepiece.SentencePieceProcessor(str(tmp_path / "spm.model"))
    words = words_of(processor)
    backend, lost = sentencepiece_backend(tmp_path / "spm.model", words, "<unk>")
    assert lost == []
    id_of = {word: index for index, word in enumerate(words)}
    for line in lines:
        cut, ids = processor.encode(line, out_type=str), backend.encode(line).ids
        expected = [id_of.get(piece, 0) for piece in cut]
        if kind == "unigram" and ids != expected and sorted(ids) == sorted(expected):
            continue  # equal scores but for rounding: SentencePiece adds up in float32
        assert ids == expected, line
        if 0 not in ids:
            text = processor.decode(cut)
            assert backend.decode(ids) == (text.removesuffix(" ") if name == "suffix" else text)
    remade = sentencepiece_of(backend, "<unk>").SerializeToString()
    text = "Ein Lo\u0308we: " + SCRIPTS.split()[0]
    encode = sentencepiece.SentencePieceProcessor(model_proto=remade).encode
    assert encode(text, out_type=str) == processor.encode(text, out_type=str)


def test_pieces_that_the_model_lacks_are_told(pieces):
    processor = sentencepiece.SentencePieceProcessor(str(pieces))
    words = words_of(processor)
    missing = [word for word in words[4:] if len(word) > 3][:9]
    backend, lost = sentencepiece_backend(pieces, [w for w in words if w not in missing], "<unk>")
    assert sorted(lost) == sorted(missing)
    assert not set(backend.encode(TEXTS[0]).tokens) & set(missing)
    with pytest.raises(ValueError, match="are not in the vocabulary of the model"):
        sentencepiece_backend(pieces, words[:40], "<unk>")


def test_what_lies_beside_the_model_becomes_its_tokenizer(pieces, tmp_path):
    words = words_of(sentencepiece.SentencePieceProcessor(str(pieces)))
    vocabularies = align_vocabularies(words, words, SETTINGS)
    (tmp_path / "sentencepiece.model").write_bytes(pieces.read_bytes())
    tokenizer, notes = make_tokenizer(vocabularies, tmp_path)
    assert notes[-1] == "Its texts are cut by sentencepiece.model; sources do not end with </s>."
    ids = tokenizer("the model", text_target="the model")
    assert ids["labels"] == [*ids["input_ids"], 3]
    assert tokenizer.decode(ids["labels"], skip_special_tokens=True) == "the model"
    given, _ = make_tokenizer(vocabularies, Path("nowhere"), supplied=pieces)
    assert given("the model")["input_ids"] == ids["input_ids"]
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes(pieces.read_bytes())
    assert "source.spm and target.spm" in make_tokenizer(vocabularies, tmp_path)[1][-1]
    (tmp_path / "target.spm").unlink()  # two models, and nothing tells which
    assert "between spaces" in make_tokenizer(vocabularies, tmp_path)[1][-1]
    with pytest.raises(FileNotFoundError, match="holds no tokenizer"):
        make_tokenizer(vocabularies, tmp_path, supplied=tmp_path)
    (tmp_path / "broken.model").write_bytes(b"\xffno model")
    with pytest.raises(ValueError, match="is no model of SentencePiece"):
        make_tokenizer(vocabularies, tmp_path, supplied=tmp_path / "broken.model")


def test_a_tokenizer_with_other_ids_is_left_out(tmp_path):
    tokenizer = VanillaTransformerTokenizer.train(["a b c d"], kind="word")
    convert_to_ctranslate2(make_model(vocab_size=len(tokenizer)), tokenizer, tmp_path / "ct2")
    other = VanillaTransformerTokenizer.train(["d e f g"], kind="word")
    other.save_pretrained(tmp_path / "ct2")
    imported = read_ctranslate2(tmp_path / "ct2")
    assert "it was left out" in imported.notes[0]
    assert imported.tokenizer("a b")["input_ids"] == tokenizer("a b")["input_ids"]
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match="has other ids"):
        read_ctranslate2(tmp_path / "ct2", tokenizer=tmp_path / "other")


def test_padding_is_added_where_both_vocabularies_lack_it():
    source, target = ["a", "</s>", "<unk>"], ["<unk>", "b", "c", "</s>", "<s>"]
    made = align_vocabularies(source, target, SETTINGS)
    assert made.target == ["<unk>", "b", "c", "<pad>", "</s>", "<s>"]
    assert made.orders[1] == [0, 1, 2, None, 3, 4]
    assert made.source == ["<unk>", "a", "<row2>", "<pad>", "</s>", "<s>"]
    assert made.orders[0] == [2, 0, None, None, 1, None]
    assert made.token_ids() == {
        "bos_token_id": 5,
        "pad_token_id": 3,
        "eos_token_id": 4,
        "unk_token_id": 0,
        "decoder_start_token_id": 5,
    }
    with pytest.raises(ValueError, match="`eos_token` is '</end>'"):
        align_vocabularies(source, target, {**SETTINGS, "eos_token": "</end>"})


def test_sources_end_as_the_config_says(tmp_path):
    words = ["<blank>", "<s>", "</s>", "<unk>", "a"]
    for name, begins, ends, expected in [
        ("plain", False, False, [4]),
        ("ends", False, True, [4, 2]),
        ("both", True, True, [1, 4, 2]),
    ]:
        settings = {
            **SETTINGS,
            "bos_token": "<s>",
            "add_source_bos": begins,
            "add_source_eos": ends,
        }
        tokenizer, _ = make_tokenizer(align_vocabularies(words, words, settings), tmp_path)
        assert tokenizer("a")["input_ids"] == expected, name
        assert tokenizer(text_target="a")["input_ids"] == [4, 2]
    assert json.loads(tokenizer.backend_tokenizer.to_str())["model"]["type"] == "WordLevel"
