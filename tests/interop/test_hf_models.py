"""Models leave as classes of transformers that compute the same, or are refused by field."""

import json

import pytest
import torch
from tiny_models import make_batch, make_model
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.interop.formats import KINDS
from vanilla_transformer.interop.hf_families import FAMILIES
from vanilla_transformer.interop.hf_models import (
    export_to_transformers,
    from_transformers,
    to_transformers,
)
from vanilla_transformer.interop.tokenizers import save_plain_tokenizer, to_plain_tokenizer

PRE = {"norm_placement": "pre"}
EMBEDDING_NORM = {"normalize_embedding": True}
LEARNED = {"position_embedding_type": "learned"}
HALF = {"position_embedding_type": "sinusoidal_half"}
FAIRSEQ = {"position_embedding_type": "sinusoidal_fairseq", "position_offset": 2}
T5_LIKE = {
    **PRE,
    "norm_type": "rms_norm",
    "attention_bias": False,
    "ffn_bias": False,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 32,
    "decoder_layers": 2,
}
THREE_HEADS = {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
RELATIVE = {"position_embedding_type": "relative", "relative_attention_max_distance": 20}
APART = {"decoder_vocab_size": 44, "tie_word_embeddings": False}
MODELS = {
    "our default": ("marian", {}),
    "an odd width": (
        "marian",
        {"d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 5},
    ),
    "no scale, a bias": ("marian", {**HALF, "scale_embedding": False, "lm_head_bias": True}),
    "two vocabularies": ("marian", {**APART, "activation_function": "gelu"}),
    "two vocabularies, tied": ("marian", {"decoder_vocab_size": 44}),
    "grouped": (
        "marian",
        {"encoder_num_key_value_heads": 1, "decoder_num_key_value_heads": 2, "fused_qkv": True},
    ),
    "factors": (
        "marian",
        {"residual_scale": 0.5, "attention_scale": 0.4, "logit_scale": 0.7, "head_dim": 8,
         "decoder_attention_heads": 2},
    ),
    "no start": ("marian", {"decoder_start_token_id": 1, "forced_eos_token_id": 2}),
    "several ends": ("marian", {"eos_token_id": [2, 5]}),
    "pre-norm": ("pegasus", {**PRE, "activation_function": "silu"}),
    "pre-norm, factors": ("pegasus", {**PRE, "logit_scale": 0.7, "residual_scale": 0.7}),
    "fairseq": ("fsmt", FAIRSEQ),
    "fairseq, apart": ("fsmt", {**FAIRSEQ, **APART}),
    "fairseq, pre-norm": ("m2m100", {**PRE, **FAIRSEQ}),
    "bart": ("bart", {**LEARNED, **EMBEDDING_NORM, "lm_head_bias": True}),
    "bart, other rows": ("bart", {**LEARNED, **EMBEDDING_NORM, "position_offset": 5}),
    "bart, sinusoids": ("bart", {**EMBEDDING_NORM, "position_offset": 3}),
    "mbart": ("mbart", {**PRE, **LEARNED, **EMBEDDING_NORM}),
    "mbart, no positions": ("mbart", {**PRE, **EMBEDDING_NORM, "position_embedding_type": "none"}),
    "fairseq with a bias": ("blenderbot", {**PRE, **FAIRSEQ, "lm_head_bias": True}),
    "t5": ("t5", {**T5_LIKE, **RELATIVE}),
    "t5, gated, apart": (
        "t5",
        {**T5_LIKE, **RELATIVE, "gated_ffn": True, "activation_function": "silu", "head_dim": 6,
         "tie_word_embeddings": False, "residual_scale": 0.5},
    ),
    "t5, heads that do not divide the width": (
        "t5",
        {**T5_LIKE, **RELATIVE, **THREE_HEADS, "head_dim": 6},
    ),
    "t5, no scale": (
        "t5",
        {**T5_LIKE, **RELATIVE, "scale_embedding": False, "forced_eos_token_id": 2},
    ),
}  # fmt: skip


def assert_same(theirs, ours, tolerance=1e-5, lengths=((7, 4, 6), (6, 6, 6)), beams=(1, 3)):
    """Logits, and the outputs of greedy and beam search.

    FSMT hides later tokens only if it fills no cache. Fairseq's classes do not count padding.
    """
    sizes = {"vocab": ours.config.vocab_size, "decoder_vocab": ours.config.decoder_vocab_size}
    batch = make_batch(*lengths, **sizes)
    for name in ("labels", "decoder_attention_mask"):
        del batch[name]
    with torch.no_grad():
        expected = ours(**batch).logits
        found = theirs(**batch, use_cache=False).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    del batch["decoder_input_ids"]
    for count in beams:
        settings = {
            "num_beams": count,
            "do_sample": False,
            "max_new_tokens": 8,
            "suppress_tokens": [1],
        }
        outputs = [model.generate(**batch, **settings) for model in (ours, theirs)]
        assert torch.equal(*outputs), count


@pytest.mark.parametrize(("kind", "fields"), MODELS.values(), ids=MODELS)
def test_a_model_leaves_and_comes_back(kind, fields):
    ours = make_model(**fields)
    theirs = to_transformers(ours)
    assert KINDS[theirs.config.model_type] == kind
    assert_same(theirs, ours)
    assert_same(from_transformers(theirs), ours, beams=())


@pytest.mark.parametrize(
    ("fields", "nearest", "problems"),
    [
        ({"norm_type": "rms_norm", "qk_norm": "all"}, "marian", ["norm_type", "qk_norm"]),
        ({"final_layer_norm": True, "gated_ffn": True}, "marian",
         ["final_layer_norm", "gated_ffn"]),
        ({"final_layer_norm": False, **PRE}, "marian", ["norm_placement"]),
        ({**FAIRSEQ, "decoder_start_token_id": 1}, "fsmt", ["decoder_start_token_id"]),
        ({**T5_LIKE, **RELATIVE, "attention_bias": True}, "t5", ["attention_bias"]),
    ],
)  # fmt: skip
def test_what_no_class_computes_is_refused_with_every_field(fields, nearest, problems):
    with pytest.raises(ValueError, match="No class of transformers computes") as error:
        to_transformers(make_model(**fields))
    first, *rest = str(error.value).splitlines()
    name = FAMILIES[nearest].model_class.__name__
    assert f"{len(problems)} problem(s). The nearest is {name}" in first
    assert [line.split("`")[1] for line in rest] == problems


def test_a_half_type_is_kept_where_it_loses_nothing():
    kept, sinusoids = {**LEARNED, **EMBEDDING_NORM}, {}
    for fields, dtype in ((kept, torch.bfloat16), (sinusoids, torch.float32)):
        ours = make_model(**fields).bfloat16()
        theirs = to_transformers(ours)
        assert theirs.dtype == dtype
        assert_same(theirs.float(), ours.float(), beams=())
    folded = make_model(**kept, residual_scale=0.7).bfloat16()
    assert to_transformers(folded).dtype == torch.float32


# --- directories ---------------------------------------------------------------------------------

TEXTS = ["a dog sees a cat.", "Ein Löwe frißt 1.234,50 kg", "</s> no end <s>", "  two  spaces"]
STRANGER = """
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

directory, texts = sys.argv[1], json.loads(sys.argv[3])
model = AutoModelForSeq2SeqLM.from_pretrained(directory)
tokenizer = AutoTokenizer.from_pretrained(directory)
target = AutoTokenizer.from_pretrained(directory, subfolder="target_tokenizer")
batch = tokenizer(texts, return_tensors="pt", padding=True)
tokens = model.generate(**batch, num_beams=2, max_new_tokens=9, suppress_tokens=[1])
modules = [type(each).__module__.split(".")[0] for each in (model, tokenizer, target)]
assert modules == ["transformers"] * 3, modules
assert "vanilla_transformer" not in sys.modules
decoded = target.batch_decode(tokens, skip_special_tokens=True)
print(json.dumps({"ids": batch["input_ids"].tolist(), "tokens": tokens.tolist(), "text": decoded}))
"""


def test_a_directory_works_where_the_package_is_not_installed(load_as_a_stranger, tmp_path):
    tokenizer = VanillaTransformerTokenizer.train(
        TEXTS, ["Ein Hund sieht eine Katze."], kind="char", shared=False
    )
    sizes = {"vocab_size": len(tokenizer), "decoder_vocab_size": tokenizer.target_vocab_size}
    ours = make_model(**sizes)
    _, notes = export_to_transformers(ours, tokenizer, tmp_path / "out", "runs/mine")
    assert "subfolder" in notes[0]
    assert not list((tmp_path / "out").rglob("*.py"))
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["MarianMTModel"]
    assert "auto_map" not in config
    found = load_as_a_stranger(tmp_path / "out", tmp_path / "again", TEXTS, program=STRANGER)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    tokens = ours.generate(**batch, num_beams=2, max_new_tokens=9, suppress_tokens=[1])
    assert found["ids"] == batch["input_ids"].tolist()
    assert found["tokens"] == tokens.tolist()
    assert found["text"] == tokenizer.batch_decode(tokens, skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char", "byte_bpe"])
def test_every_kind_of_tokenizer_keeps_its_ids_and_texts(kind, tmp_path):
    size = 40 if kind == "unigram" else 300
    ours = VanillaTransformerTokenizer.train(
        TEXTS, kind=kind, vocab_size=size, lowercase=kind == "bpe", model_max_length=90
    )
    ours.do_lower_case = kind in ("char", "unigram")
    for tags in ([], ["<2de>"]):
        texts = [*TEXTS, "<2de> a <x> DOG", "ünseen 字 🙂", "", "a\t\u3000\u200bdog"]
        texts += [" a dog ", "\ufeffa dog\n"]
        if tags:  # beside a tag, an export leaves white space around a text to the user
            texts = [text.strip("\ufeff \n") for text in texts]
        ours.add_special_tokens({"extra_special_tokens": tags})
        ours.add_tokens(["<x>"] * len(tags))
        notes = save_plain_tokenizer(ours, tmp_path)
        plain = AutoTokenizer.from_pretrained(tmp_path)
        assert not isinstance(plain, VanillaTransformerTokenizer)
        assert plain.model_max_length == 90
        expected = ours(texts, padding=True)
        assert dict(plain(texts, padding=True)) == dict(expected)
        assert plain(texts[0], max_length=3, truncation=True)["input_ids"][-1] == ours.eos_token_id
        for ids in expected["input_ids"]:
            assert plain.decode(ids) == ours.decode(ids)
            if not tags:
                skipped = (each.decode(ids, skip_special_tokens=True) for each in (plain, ours))
                assert len(set(skipped)) == 1
        assert bool(notes) == bool(tags)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char", "byte_bpe"])
@pytest.mark.parametrize("shared", [True, False])
def test_an_export_keeps_the_space_before_a_placeholder(tmp_path, kind, shared):
    ours = VanillaTransformerTokenizer.train(TEXTS, TEXTS, kind=kind, shared=shared)
    ours.add_placeholders()
    (note,) = [n for n in save_plain_tokenizer(ours, tmp_path) if "White space" in n]
    assert "skip" not in note
    plain = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("a <ph1> b <ph2>.", "<ph1> a", "a<ph1>b", "a <ph1>"):
        assert plain(text)["input_ids"] == ours(text)["input_ids"]


def test_transformers_4_knows_the_names_in_an_export(tmp_path):
    ours = VanillaTransformerTokenizer.train(TEXTS, TEXTS[:1], kind="word", shared=False)
    save_plain_tokenizer(ours, tmp_path)
    plain = to_plain_tokenizer(ours)
    plain.add_special_tokens({"extra_special_tokens": ["<x>"]})
    save_plain_tokenizer(plain, tmp_path / "plain")
    for folder in ("", "target_tokenizer", "plain"):
        config = json.loads((tmp_path / folder / "tokenizer_config.json").read_text())
        assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["additional_special_tokens"] == ["<x>"]
    loaded = AutoTokenizer.from_pretrained(tmp_path / "plain")
    assert loaded.all_special_tokens == plain.all_special_tokens


def test_the_settings_of_generation_go_along(tmp_path):
    ours = make_model()
    wanted = {"num_beams": 3, "length_penalty": 0.6, "max_length": 11, "bad_words_ids": [[1]]}
    for name, value in wanted.items():
        setattr(ours.generation_config, name, value)
    export_to_transformers(ours, None, tmp_path, "mine")
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    for name, value in wanted.items():
        assert getattr(theirs.generation_config, name) == value
    ids = make_batch()["input_ids"][:1]
    assert torch.equal(theirs.generate(ids), ours.generate(ids))


def test_a_small_table_of_sinusoids_is_compared_as_far_as_it_goes(tmp_path):
    limit = 5
    ours = make_model(max_position_embeddings=limit)
    assert export_to_transformers(ours, None, tmp_path, "mine")[0].agrees
    short = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    for length, theirs in ((limit, short), (30, to_transformers(ours, positions=30))):
        batch = make_batch((length,), (length,))
        del batch["labels"], batch["decoder_attention_mask"]
        torch.testing.assert_close(theirs(**batch).logits, ours(**batch).logits, rtol=0, atol=1e-5)
