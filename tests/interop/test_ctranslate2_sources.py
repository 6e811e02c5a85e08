"""Models of OpenNMT-tf, NLLB and mBART come back from directories of CTranslate2."""

import json

import pytest
import torch
from converted_models import save_marian, save_of_many_languages, train_pieces, unigram
from ctranslate2.converters import TransformersConverter
from ctranslate2_models import assert_same_searches, write_spec
from hf_models import make
from tiny_models import make_model
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MBartTokenizer

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.comparison import compare_logits
from vanilla_transformer.interop.ctranslate2_reader import read_ctranslate2
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.hf_models import from_transformers
from vanilla_transformer.weights.ctranslate2 import make_specification

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


def test_a_model_in_the_layout_of_opennmt_tf_comes_back(tmp_path):
    """The last row of each side is that of unknown words, and sources do not end with `</s>`."""
    special = ["<blank>", "<s>", "</s>"]
    tokens = [[*special, *(f"{side}{index}" for index in range(40)), "<unk>"] for side in "st"]
    model = make_model(
        vocab_size=44, norm_placement="pre", lm_head_bias=True, encoder_attention_heads=4,
        position_embedding_type="sinusoidal_fairseq", position_offset=1, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        share_encoder_decoder_embeddings=False, tie_word_embeddings=False,
    )  # fmt: skip
    with torch.no_grad():
        spec = make_specification(model)
    spec.register_source_vocabulary(tokens[0])
    spec.register_target_vocabulary(tokens[1])
    write_spec(spec, tmp_path / "ct2")
    imported = assert_comes_back(tmp_path / "ct2", model.state_dict(), tokens)
    assert imported.model.config.position_embedding_type == "sinusoidal_fairseq"
    assert imported.tokenizer("s3 x")["input_ids"] == [6, 43]  # without </s>


@pytest.mark.parametrize("kind", ["nllb", "mbart-50"])
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
        config |= {"tokenizer_class": "MBart50Tokenizer"}
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


def test_the_converter_of_ctranslate2_takes_an_export_as_marian_if_it_came_from_marian(
    shared_words, tmp_path
):
    (tmp_path / "pieces").mkdir()
    source = save_marian(train_pieces(tmp_path / "pieces"), tmp_path / "marian", separate=False)
    with torch.no_grad():
        source.get_input_embeddings().weight[-1] = 0  # the start, as in OPUS-MT
    source.save_pretrained(tmp_path / "marian")
    convert("marian", str(tmp_path / "marian"), tmp_path / "own")
    run_subcommand("export", ["--to", "hf", str(tmp_path / "own"), str(tmp_path / "hf")])
    TransformersConverter(str(tmp_path / "hf")).convert(str(tmp_path / "ct2"))
    words = json.loads((tmp_path / "ct2" / "shared_vocabulary.json").read_text())
    model = from_transformers(source)
    model.generation_config.forced_eos_token_id = None  # CTranslate2 forces no end
    assert_same_searches(model, tmp_path / "ct2", (words, words))
    # The start of another one has an embedding, which the converter would take for zeros.
    for saved in (make_model(), shared_words):
        saved.save_pretrained(tmp_path / "other")
    run_subcommand("export", ["--to", "hf", str(tmp_path / "other"), str(tmp_path / "hf-other")])
    with pytest.raises(ValueError, match="vocabulary"):
        TransformersConverter(str(tmp_path / "hf-other")).convert(str(tmp_path / "ct2-other"))
