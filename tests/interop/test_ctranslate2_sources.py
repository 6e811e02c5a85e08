"""Models of fairseq, Eole, OpenNMT-tf, NLLB and mBART come back from CTranslate2's converters."""

import json

import pytest
import torch
from conftest import make_model
from converted_models import save_of_many_languages, unigram
from converter_stand_ins import (
    as_opennmt_tf,
    install_fairseq,
    install_opennmt_tf,
)
from ctranslate2.converters import OpenNMTTFConverter, TransformersConverter, fairseq
from ctranslate2_models import assert_same_searches
from fairseq_models import FSMT, SIZES, filled, weights_of
from fairseq_models import save as save_fairseq
from hf_models import make
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    FSMTConfig,
    FSMTForConditionalGeneration,
    MBartTokenizer,
)

from vanilla_transformer.interop.ctranslate2_reader import read_ctranslate2
from vanilla_transformer.interop.hf_models import from_transformers
from vanilla_transformer.interop.probe import compare_logits

EQUAL_HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}


def assert_comes_back(folder, expected, words, forced=None, rows_before=0):
    """The weights are equal to the bit, and so are the outputs. Returns what was read.

    `rows_before` counts the rows of learned positions before the first one that is used.
    """
    imported = read_ctranslate2(folder)
    assert compare_logits(imported.model, imported.library, imported.source_logits).agrees
    found = imported.model.state_dict()
    assert found.keys() >= expected.keys()
    for name, value in expected.items():
        value = value[rows_before:] if "embed_positions" in name else value
        assert torch.equal(found[name], value), name
    assert_same_searches(imported.model, folder, words, forced)
    return imported


def make_fairseq(kind):
    if kind == "fsmt":
        fields = {**FSMT, **SIZES, **EQUAL_HEADS}
        return filled(FSMTForConditionalGeneration(FSMTConfig(**fields)))
    model = make(kind, **EQUAL_HEADS)
    if kind != "m2m100":
        model.final_logits_bias.zero_()  # fairseq has none
    return model


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("fsmt", {}),  # sinusoids of fairseq, post-norm, two vocabularies
        ("m2m100", {"encoder_normalize_before": True, "decoder_normalize_before": True}),
        ("bart", {"layernorm_embedding": True}),
        ("mbart", {"encoder_normalize_before": True, "decoder_normalize_before": True,
                   "layernorm_embedding": True}),
    ],
)  # fmt: skip
def test_models_of_fairseq_come_back(kind, options, tmp_path, monkeypatch):
    model = make_fairseq(kind)
    config = model.config
    expected = from_transformers(make_fairseq(kind)).state_dict()
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    sizes = [len(each.weight) for each in ends]
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    words = [[*special, *(f"w{index}" for index in range(size - 4))] for size in sizes]
    sizes = {name: getattr(config, name) for name in ("encoder_layers", "decoder_layers")}
    path = save_fairseq(
        tmp_path / "model.pt", weights_of(model), **{**options, **EQUAL_HEADS, **sizes}
    )
    install_fairseq(monkeypatch, model, words)
    model.requires_grad_(False)
    converter = fairseq.FairseqConverter(str(path), str(tmp_path), unsafe_deserialization=True)
    converter.convert(str(tmp_path / "ct2"))
    learned = 2 if config.model_type in ("bart", "mbart") else 0
    words = [["<s>", "<blank>", *each[2:]] for each in words]  # as CTranslate2 calls them
    imported = assert_comes_back(tmp_path / "ct2", expected, words, rows_before=learned)
    ids = imported.tokenizer("w3 w0")["input_ids"]
    assert ids == [words[0].index(word) for word in ("w3", "w0", "</s>")]


def test_models_of_opennmt_tf_come_back(tmp_path, monkeypatch):
    special = ["<blank>", "<s>", "</s>"]
    words = [[*special, *(f"{side}{index}" for index in range(40))] for side in "st"]
    model = make_model(
        vocab_size=44, norm_placement="pre", lm_head_bias=True, encoder_attention_heads=4,
        position_embedding_type="sinusoidal_fairseq", position_offset=1, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        share_encoder_decoder_embeddings=False, tie_word_embeddings=False,
    )  # fmt: skip
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    install_opennmt_tf(monkeypatch)
    model.requires_grad_(False)
    OpenNMTTFConverter(as_opennmt_tf(model, words)).convert(str(tmp_path / "ct2"))
    tokens = [[*each, "<unk>"] for each in words]  # the last row is that of unknown words
    imported = assert_comes_back(tmp_path / "ct2", expected, tokens)
    assert imported.model.config.position_embedding_type == "sinusoidal_fairseq"
    assert imported.tokenizer("s3 x")["input_ids"] == [6, 43]  # without </s>


@pytest.mark.parametrize("kind", ["nllb", "mbart", "mbart-50"])
def test_models_of_many_languages_come_back_with_their_tokenizers(kind, tmp_path):
    source = tmp_path / "source"
    if kind == "nllb":
        save_of_many_languages("nllb", source, (None, None))
        german = "deu_Latn"
    else:
        german = "de_DE"
        pieces = unigram(["<s>", "<pad>", "</s>", "<unk>"], [*"▁abcdefghijklmnopqrst"])
        tokenizer = MBartTokenizer(pieces, src_lang="en_XX", tgt_lang="de_DE")
        make("mbart", vocab_size=len(tokenizer), **EQUAL_HEADS).save_pretrained(source)
        tokenizer.save_pretrained(source)
        config = json.loads((source / "config.json").read_text())
        config |= {"normalize_before": True, "normalize_embedding": True}  # as in old configs
        config |= {"tokenizer_class": "MBart50Tokenizer"} if kind == "mbart-50" else {}
        (source / "config.json").write_text(json.dumps(config))
    TransformersConverter(str(source)).convert(str(tmp_path / "ct2"))
    words = json.loads((tmp_path / "ct2" / "shared_vocabulary.json").read_text())
    original = AutoModelForSeq2SeqLM.from_pretrained(source)
    expected = from_transformers(original).state_dict()
    before = 0 if kind == "nllb" else 2
    assert_comes_back(tmp_path / "ct2", expected, (words, words), german, before)
    own = AutoTokenizer.from_pretrained(source)
    again = read_ctranslate2(tmp_path / "ct2", tokenizer=source).tokenizer
    assert again("abc de")["input_ids"] == own("abc de")["input_ids"]
