"""Directories of CTranslate2 become models again that compute the same, or are refused by name."""

import json
import struct

import ctranslate2
import pytest
import torch
from ctranslate2.converters import opennmt_py
from ctranslate2.specs import model_spec
from ctranslate2_models import (
    FAMILIES,
    as_version_5,
    assert_same_searches,
    make_family,
    write_family,
    write_spec,
)
from ctranslate2_variants import VARIANTS
from opennmt_models import SOURCE, TARGET, reference_model
from opennmt_models import save as save_opennmt
from tiny_models import make_batch, make_model

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.comparison import compare_logits
from vanilla_transformer.interop.ctranslate2_reader import read_ctranslate2
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.hf_models import from_transformers
from vanilla_transformer.tokenizer_sides import vocabularies_of
from vanilla_transformer.weights.ctranslate2 import (
    convert_to_ctranslate2,
    make_specification,
    set_vocabularies,
)
from vanilla_transformer.weights.model_bin import read_model_bin

TYPES = ("int8", "int16", "float16", "bfloat16")
ANEW = ("scaled residuals", "learned from 2")
"""Exports of these models hold other weights: factors are in them, or rows are left out."""


def compare(imported):
    """The comparison of a model with CTranslate2's logits."""
    return compare_logits(imported.model, imported.library, imported.source_logits)


def assert_equal_weights(model, expected):
    found = model.state_dict()
    assert found.keys() == expected.keys()
    assert [name for name, value in expected.items() if not torch.equal(found[name], value)] == []


@pytest.mark.parametrize("name", VARIANTS)
def test_our_own_exports_compute_the_same_and_come_back(
    name, shared_words, separate_words, tmp_path
):
    changes = VARIANTS[name]
    tokenizer = separate_words if "decoder_vocab_size" in changes else shared_words
    model = make_model(**changes)
    convert_to_ctranslate2(model, tokenizer, tmp_path / "ct2")
    imported = read_ctranslate2(tmp_path / "ct2")
    if name not in ANEW:
        assert_equal_weights(imported.model, model.state_dict())
    batch = make_batch(decoder_vocab=model.config.decoder_vocab_size)
    with torch.no_grad():
        found, expected = (each(**batch).logits for each in (imported.model, model))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert compare(imported).agrees
    tokens = vocabularies_of(model.config, tokenizer)
    assert_same_searches(model, tmp_path / "ct2", tokens, beams=(3,))
    same = ("pad_token_id", "eos_token_id", "decoder_start_token_id", "norm_placement",
            "position_embedding_type", "share_encoder_decoder_embeddings")  # fmt: skip
    assert [n for n in same if getattr(model.config, n) != getattr(imported.model.config, n)] == []


@pytest.mark.parametrize(
    ("scheme", "positions"), [("relative", 1024), ("sinusoidal", 1024), ("learned", 64)]
)
def test_learned_positions_alone_limit_a_model(scheme, positions, shared_words, tmp_path):
    """A table of relative positions has 32 rows, one for each bucket of distances."""
    model = make_model(position_embedding_type=scheme)
    convert_to_ctranslate2(model, shared_words, tmp_path / "ct2")
    config = read_ctranslate2(tmp_path / "ct2").model.config
    assert config.max_position_embeddings == positions


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_of_weights_is_read(kind, shared_words, tmp_path):
    model = make_model(norm_placement="pre", final_layer_norm=False)
    convert_to_ctranslate2(model, shared_words, tmp_path / "ct2", quantization=kind)
    imported = read_ctranslate2(tmp_path / "ct2")
    name = "model.encoder.layers.1.feed_forward.fc1.weight"
    exact, found = model.state_dict()[name], imported.model.state_dict()[name]
    if kind == "int8":
        largest = exact.abs().amax(dim=1, keepdim=True)
        expected = torch.round(exact * (127 / largest)) / (127 / largest)
    elif kind == "int16":
        expected = torch.round(exact * (1024 / exact.abs().max())) / (1024 / exact.abs().max())
    else:
        expected = exact.to(getattr(torch, kind)).float()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    if "float16" not in kind:  # there, sinusoids are rounded
        assert compare(imported).agrees
        assert_same_searches(
            imported.model, tmp_path / "ct2", vocabularies_of(model.config, shared_words)
        )


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("name", FAMILIES)
def test_models_of_transformers_come_back(name, quantization, tmp_path):
    source, tokens = write_family(name, tmp_path / "ct2", quantization)
    imported = read_ctranslate2(tmp_path / "ct2")
    assert compare(imported).agrees
    assert_same_searches(imported.model, tmp_path / "ct2", (tokens, tokens), forced="▁w3")
    if quantization is None:
        expected = from_transformers(make_family(name)[0]).state_dict()
        found = imported.model.state_dict()
        assert found.keys() >= expected.keys()
        for weight, value in expected.items():
            kept = found[weight]
            if "embed_positions" in weight and name in ("bart", "mbart"):
                value = value[2:]  # the rows before the first position are left out
            elif name == "marian" and len(value) == source.config.vocab_size:
                value, kept = value[:-1], kept[:-1]  # the row of padding is made anew
            assert torch.equal(kept, value), weight


def test_a_checkpoint_of_opennmt_py_comes_back(tmp_path):
    torch.manual_seed(0)
    path = save_opennmt(tmp_path / "model.pt", reference_model())
    converter = opennmt_py.OpenNMTPyConverter(str(path), unsafe_deserialization=True)
    converter.convert(str(tmp_path / "ct2"))
    imported = read_ctranslate2(tmp_path / "ct2")
    assert compare(imported).agrees
    assert_same_searches(imported.model, tmp_path / "ct2", (SOURCE, TARGET))
    ids = imported.tokenizer("w3 w0", text_target="das us")
    assert ids["input_ids"] == [SOURCE.index("w3"), SOURCE.index("w0")]  # without </s>
    assert ids["labels"] == [TARGET.index("das"), TARGET.index("us"), TARGET.index("</s>")]
    ended = read_ctranslate2(tmp_path / "ct2", source_eos=True)
    assert ended.tokenizer("w3")["input_ids"] == [SOURCE.index("w3"), SOURCE.index("</s>")]


def test_vocabularies_with_other_special_tokens_are_brought_together(tmp_path):
    """As in OpenNMT-py 1, whose sources have neither `<s>` nor `</s>`."""
    path = save_opennmt(tmp_path / "model.pt", reference_model())
    converter = opennmt_py.OpenNMTPyConverter(str(path), unsafe_deserialization=True)
    converter.convert(str(tmp_path / "ct2"))
    old = [token for token in SOURCE if token not in ("<s>", "</s>")]
    tokens = ["<unk>", "<blank>", "x1", "x2", *old[2:]]
    (tmp_path / "ct2" / "source_vocabulary.json").write_text(json.dumps(tokens))
    imported = read_ctranslate2(tmp_path / "ct2")
    assert imported.model.config.vocab_size == len(tokens) + 2
    ids = imported.tokenizer("x1 w5")["input_ids"]
    translator = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    (expected,) = translator.translate_batch([["x1", "w5"]], beam_size=1, max_decoding_length=9)
    found = imported.model.generate(torch.tensor([ids]), max_new_tokens=9)
    words = imported.tokenizer.convert_ids_to_tokens(found[0, 1:], side="target")
    assert [word for word in words if word != "</s>"] == expected.hypotheses[0]


def test_sinusoids_that_are_not_stored_are_those_of_the_engine(shared_words, tmp_path):
    model = make_model(position_embedding_type="sinusoidal_fairseq", position_offset=1)
    with torch.no_grad():
        spec = make_specification(model)
    set_vocabularies(spec, model.config, shared_words)
    for stack in (spec.encoder, spec.decoder):
        stack.position_encodings.encodings = model_spec.OPTIONAL
    write_spec(spec, tmp_path / "ct2")
    imported = read_ctranslate2(tmp_path / "ct2")
    assert_equal_weights(imported.model, model.state_dict())
    assert compare(imported).agrees


def test_the_table_of_sources_of_an_old_file_has_no_number(shared_words, tmp_path):
    model = make_model(share_encoder_decoder_embeddings=False, tie_word_embeddings=False)
    convert_to_ctranslate2(model, shared_words, tmp_path / "ct2")
    path = tmp_path / "ct2" / "model.bin"
    new, old = (f"encoder/embeddings{end}/weight\0".encode() for end in ("_0", ""))
    stored = [struct.pack("<H", len(name)) + name for name in (new, old)]
    path.write_bytes(path.read_bytes().replace(*stored))
    assert "encoder/embeddings/weight" in read_model_bin(path).variables
    assert_equal_weights(read_ctranslate2(tmp_path / "ct2").model, model.state_dict())


@pytest.mark.parametrize(("norm", "epsilon"), [("layer_norm", 1e-5), ("rms_norm", 1e-6)])
def test_an_epsilon_that_is_not_stored_is_that_of_the_engine(norm, epsilon, shared_words, tmp_path):
    quiet = {"initializer": "normal", "noise": 0.002, "scale_embedding": False}
    model = make_model(
        norm_type=norm, norm_placement="pre", position_embedding_type="none", **quiet
    )
    convert_to_ctranslate2(model, shared_words, tmp_path / "ct2")
    path = tmp_path / "ct2" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "layer_norm_epsilon": None}))
    imported = read_ctranslate2(tmp_path / "ct2")
    assert imported.model.config.layer_norm_eps == epsilon
    assert compare(imported).difference < 1e-6


def test_version_5_is_read(shared_words, tmp_path):
    model = make_model()
    convert_to_ctranslate2(model, shared_words, tmp_path / "ct2")
    as_version_5(tmp_path / "ct2", with_source_eos=1, with_target_bos=0)
    imported = read_ctranslate2(tmp_path / "ct2")
    assert imported.model.config.decoder_start_token_id == 2  # without <s>, a target begins so
    assert_equal_weights(imported.model, model.state_dict())
    assert imported.tokenizer("w1")["input_ids"][-1] == 2
    translator = ctranslate2.Translator(str(tmp_path / "ct2"))
    (expected,) = translator.translate_batch([["w1", "w2"]], beam_size=1, max_decoding_length=5)
    ids = imported.tokenizer("w1 w2", return_tensors="pt")
    found = imported.model.generate(**ids, max_new_tokens=5, min_new_tokens=1)[0]
    words = imported.tokenizer.convert_ids_to_tokens(found[1:])
    assert [word for word in words if word != "</s>"] == expected.hypotheses[0]


def test_what_has_no_counterpart_is_named(shared_words, tmp_path):
    model = make_model(**VARIANTS["rope"])
    with torch.no_grad():
        spec = make_specification(model)
    set_vocabularies(spec, model.config, shared_words)
    attention = spec.encoder.layer[0].self_attention
    attention.rotary_interleave = True
    vars(attention)["relative_position_keys"] = torch.ones(5, 4)
    write_spec(spec, tmp_path / "ct2")
    with pytest.raises(ValueError, match="2 problem") as refused:
        convert("ctranslate2", tmp_path / "ct2", tmp_path / "out")
    for name in ("rotary_interleave", "relative_position_keys"):
        assert name in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_other_kinds_of_models_are_named(deployed, tmp_path):
    content = (deployed / "model.bin").read_bytes()
    assert content[6:22] == b"TransformerSpec\0"
    text = b"WhisperSpec\0"
    path = tmp_path / "model.bin"
    path.write_bytes(content[:4] + struct.pack("<H", len(text)) + text + content[22:])
    with pytest.raises(ValueError, match="of the kind 'WhisperSpec'"):
        read_ctranslate2(tmp_path)


# Damaged files ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deployed(shared_words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployed") / "ct2"
    small = {"encoder_layers": 1, "decoder_layers": 1, "position_embedding_type": "learned"}
    convert_to_ctranslate2(make_model(**small), shared_words, folder, quantization="int8")
    return folder


def test_a_damaged_or_hostile_file_is_refused_in_a_sentence(deployed, tmp_path):
    content = (deployed / "model.bin").read_bytes()
    count = 22 + 4  # after version, name and revision
    name = content.index(b"decoder/activation\0")
    axes = name + len(b"decoder/activation\0")  # then the type and the size
    alias = b"decoder/projection/weight\0"
    place = content.rindex(alias) + len(alias) + 2  # of what it is an alias of

    def with_bytes(place, new):
        return content[:place] + new + content[place + len(new) :]

    files = [
        *(content[:size] for size in (*range(0, 200, 7), *range(200, len(content), 4999))),
        *(with_bytes(place, b"\xff\xff\xff\xff") for place in (count, axes + 2)),
        *(with_bytes(place, b"\xff") for place in (0, name, axes, axes + 1)),
        with_bytes(place, alias),
        content + b"more",
    ]
    for damaged in files:
        (tmp_path / "model.bin").write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged, or no model") as refused:
            read_ctranslate2(tmp_path)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("shared_vocabulary.json", '["<s>", "</s>", "<pad>"]', "has 3 tokens, but .* 40 rows"),
        ("shared_vocabulary.json", '["<s>", "</', "is no vocabulary"),
        ("config.json", '{"eos_token": "</nothing>"}', "`eos_token` is '</nothing>'"),
        ("config.json", "[]", "not an object"),
    ],
)
def test_a_damaged_file_beside_the_weights_is_refused(deployed, file, text, reason, tmp_path):
    for path in deployed.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=reason):
        read_ctranslate2(tmp_path)


# From the command line ----------------------------------------------------------------------------


def test_an_export_brings_its_tokenizer_along(tmp_path):
    texts = ["two dogs play", "a dog plays", "dogs and cats"]
    tokenizer = VanillaTransformerTokenizer.train(texts, kind="bpe", vocab_size=60)
    make_model(vocab_size=len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    export = [str(tmp_path / "model"), str(tmp_path / "ct2"), "--to", "ctranslate2"]
    run_subcommand("export", export)
    again = read_ctranslate2(tmp_path / "ct2").tokenizer
    assert again("two cats </s>")["input_ids"] == tokenizer("two cats </s>")["input_ids"]
