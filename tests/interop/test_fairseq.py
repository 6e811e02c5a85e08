"""Checkpoints of fairseq, against transformers' classes that compute the same function."""

import sys
from argparse import Namespace
from collections import defaultdict
from types import ModuleType

import pytest
import torch
from fairseq_models import FSMT, OPTIONS, SEARCH, SIZES, filled, save, weights_of
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    FSMTConfig,
    FSMTForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
)

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.fairseq import read_fairseq


def compare(imported, reference, vocab=27):
    ids = torch.randint(4, vocab, (3, 9))
    ids[1, 5:] = 1
    inputs = {"input_ids": ids, "attention_mask": (ids != 1).long()}
    targets = torch.cat([torch.full((3, 1), 2), torch.randint(4, vocab, (3, 6))], dim=1)
    # With a cache, FSMT applies no causal mask.
    expected = reference(**inputs, decoder_input_ids=targets, use_cache=False).logits
    found = imported.model(**inputs, decoder_input_ids=targets).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for beams in (1, 3):
        outputs = [
            model.generate(**inputs, num_beams=beams, decoder_start_token_id=2, **SEARCH)
            for model in (imported.model, reference)
        ]
        assert torch.equal(*outputs)


def test_a_post_norm_model_computes_what_fsmt_computes(tmp_path):
    reference = filled(FSMTForConditionalGeneration(FSMTConfig(**FSMT, **SIZES)))
    unused = {  # of fairseq 0.12.2: a buffer without a value, and copies that it makes anew
        "encoder.embed_positions._float_tensor": torch.ones(1),
        **{f"encoder.layers.{layer}.{name}": torch.zeros(3) for layer in range(2)
           for name in ("in_proj_weight", "out_proj_bias", "fc1_weight", "fc2_bias")},
    }  # fmt: skip
    weights = weights_of(reference, **unused)
    imported = read_fairseq(save(tmp_path / "model.pt", weights, dropout=0.3))
    compare(imported, reference)
    config = imported.model.config
    assert (config.dropout, config.label_smoothing, config.tie_word_embeddings) == (0.3, 0.1, False)
    assert imported.tokenizer is None


def test_a_pre_norm_model_computes_what_m2m100_computes(tmp_path):
    changes = {"vocab_size": 27, "decoder_start_token_id": 2, "activation_function": "gelu_new"}
    reference = filled(M2M100ForConditionalGeneration(M2M100Config(**SIZES, **changes)))
    path = save(
        tmp_path / "model.pt",
        weights_of(reference),
        form="cfg",
        encoder_normalize_before=True,
        decoder_normalize_before=True,
        share_all_embeddings=True,
        activation_fn="gelu_accurate",
        decoder_input_dim="${model.decoder.embed_dim}",
    )
    imported = read_fairseq(path)
    compare(imported, reference)
    config = imported.model.config
    assert config.share_encoder_decoder_embeddings
    assert config.tie_word_embeddings
    assert config.label_smoothing == 0.1


def test_learned_positions_and_a_norm_of_embeddings_compute_what_bart_computes(tmp_path):
    changes = {"vocab_size": 27, "decoder_start_token_id": 2, "max_position_embeddings": 12}
    reference = filled(BartForConditionalGeneration(BartConfig(**SIZES, **changes)))
    path = save(
        tmp_path / "model.pt",
        weights_of(reference),
        encoder_learned_pos=True,
        decoder_learned_pos=True,
        layernorm_embedding=True,
        no_scale_embedding=True,
        share_all_embeddings=True,
        activation_fn="gelu",
    )
    imported = read_fairseq(path)
    compare(imported, reference)
    assert imported.model.config.max_position_embeddings == 12


def test_names_of_the_first_versions_are_known(tmp_path):
    reference = filled(FSMTForConditionalGeneration(FSMTConfig(**FSMT, **SIZES)))
    expected = read_fairseq(save(tmp_path / "new.pt", weights_of(reference))).model.state_dict()
    old, norms = {}, {
        "encoder": ("self_attn_layer_norm", "final_layer_norm"),
        "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
    }  # fmt: skip
    for name, tensor in weights_of(reference).items():
        for number, norm in enumerate(norms[name.split(".")[0]]):
            name = name.replace(norm, f"layer_norms.{number}")
        if "q_proj" in name:
            parts = [weights_of(reference)[name.replace("q_proj", f"{p}_proj")] for p in "qkv"]
            old[name.replace("q_proj.", "in_proj_")] = torch.cat(parts).half()
        elif "k_proj" not in name and "v_proj" not in name:
            old[name.replace("output_projection.weight", "embed_out")] = tensor.half()
    old |= {"encoder.version": torch.ones(1), "encoder.embed_positions.weights": torch.ones(4, 16)}
    torch.save({"args": Namespace(**OPTIONS), "model": old}, tmp_path / "old.pt",
               _use_new_zipfile_serialization=False)  # fmt: skip
    found = read_fairseq(tmp_path / "old.pt").model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor.half().float()) for name, tensor in expected.items())
    del old["encoder.version"], old["decoder.version"]  # no version: no norm ends a stack
    before = {f"{stack}_normalize_before": True for stack in ("encoder", "decoder")}
    imported = read_fairseq(save(tmp_path / "before.pt", old, **before))
    assert imported.model.config.norm_placement == "pre"
    assert not imported.model.config.final_layer_norm


def test_all_options_without_a_counterpart_are_listed(tmp_path):
    options = {
        "arch": "lstm",
        "adaptive_softmax_cutoff": "100,200",
        "cross_self_attention": True,
        "quant_noise_pq": 0.1,
        "encoder_learned_pos": True,
        "decoder_output_dim": 8,
        "activation_fn": "swish",
        "decoder_attention_heads": None,
        "encoder_normalize_before": True,
    }
    path = save(tmp_path / "model.pt", {"encoder.version": torch.tensor([3.0])}, **options)
    with pytest.raises(ValueError, match="10 problem") as error:
        read_fairseq(path)
    for name in options:
        assert f"`{name.removeprefix('encoder_')}` is" in str(error.value)
    assert "`final norm` is True in the encoder and False in the decoder" in str(error.value)


def test_a_file_without_weights_or_options_is_refused(tmp_path):
    torch.save({"weights": {}}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"holds no weights of fairseq .* \['weights'\]"):
        read_fairseq(tmp_path / "other.pt")
    torch.save({"model": {}}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="holds no options"):
        read_fairseq(tmp_path / "other.pt")


# Objects in the file -----------------------------------------------------------------------------


@pytest.fixture
def foreign_classes(monkeypatch):
    """Classes that pickles of omegaconf and fairseq name; `Harmful` would run code."""
    made = {}

    def make(module, name, base=object, **members):
        for part in (module.split(".")[0], module):
            monkeypatch.setitem(sys.modules, part, sys.modules.get(part) or ModuleType(part))
        kind = type(name, (base,), {"__module__": module, **members})
        setattr(sys.modules[module], name, kind)
        made[name] = kind

    for module, name in (
        ("omegaconf.dictconfig", "DictConfig"),
        ("omegaconf.nodes", "AnyNode"),
        ("omegaconf.base", "ContainerMetadata"),
    ):
        make(module, name)

    def run(*args):
        print("the payload ran")

    make("fairseq.harmful", "Harmful", __setstate__=run, __init__=run)
    return made


def omegaconf_of(value, classes):
    """The layout in which omegaconf stores a value: nodes with `_val` or `_content`."""
    kind = "DictConfig" if isinstance(value, dict) else "AnyNode"
    node = classes[kind].__new__(classes[kind])
    metadata = classes["ContainerMetadata"].__new__(classes["ContainerMetadata"])
    metadata.__dict__ |= {"ref_type": dict, "key": "x", "resolver_cache": defaultdict(dict)}
    node.__dict__["_metadata"] = metadata
    if isinstance(value, dict):
        node.__dict__["_content"] = {k: omegaconf_of(v, classes) for k, v in value.items()}
    else:
        node.__dict__["_val"] = value
    return node


def test_objects_of_omegaconf_are_read_and_no_code_runs(
    tmp_path, foreign_classes, monkeypatch, capsys
):
    reference = filled(FSMTForConditionalGeneration(FSMTConfig(**FSMT, **SIZES)))
    harmful = foreign_classes["Harmful"].__new__(foreign_classes["Harmful"])
    harmful.__dict__["x"] = 1
    config = {"model": {**OPTIONS, "_name": "transformer"}, "task": {}, "criterion": None}
    content = {"cfg": omegaconf_of(config, foreign_classes), "extra_state": {"harmful": harmful}}
    torch.save({**content, "model": weights_of(reference)}, tmp_path / "model.pt")
    compare(read_fairseq(tmp_path / "model.pt"), reference)  # not even where it is installed
    assert "payload" not in capsys.readouterr().out
    torch.load(tmp_path / "model.pt", weights_only=False)
    assert "the payload ran" in capsys.readouterr().out
    for name in list(sys.modules):
        if name.split(".")[0] in ("omegaconf", "fairseq"):
            monkeypatch.delitem(sys.modules, name)
    compare(read_fairseq(tmp_path / "model.pt"), reference)


# Dictionaries ------------------------------------------------------------------------------------


def write_dictionaries(folder, english, german):
    for name, words in (("en", english), ("de", german)):
        lines = "".join(f"{word} {count}\n" for count, word in enumerate(words, start=3))
        (folder / f"dict.{name}.txt").write_text(lines, encoding="utf-8")


ENGLISH = ["the", "ho@@", "use", *(f"w{i}" for i in range(23)), "madeupword0000"]
GERMAN = ["das", "Ha@@", "us", ".", *(f"v{i}" for i in range(19))]


def test_dictionaries_become_a_tokenizer(tmp_path):
    reference = filled(FSMTForConditionalGeneration(FSMTConfig(**FSMT, **SIZES)))
    save(tmp_path / "model.pt", weights_of(reference))
    write_dictionaries(tmp_path, ENGLISH, GERMAN)
    out = str(tmp_path / "out")
    run_subcommand("convert", ["--from", "fairseq", str(tmp_path / "model.pt"), out])
    tokenizer = AutoTokenizer.from_pretrained(out)
    encoded = tokenizer(["the  ho@@ use xyz"], text_target=["das Ha@@ us ."])
    assert encoded["input_ids"] == [[4, 5, 6, 3, 2]]
    assert encoded["labels"] == [[4, 5, 6, 7, 2]]
    assert tokenizer.decode([2, 4, 5, 6, 7, 2], skip_special_tokens=True) == "das Haus ."
    assert tokenizer.decode([4, 5], skip_special_tokens=True) == "das Ha"
    assert (len(tokenizer), tokenizer.target_vocab_size) == (31, 27)
    model = AutoModelForSeq2SeqLM.from_pretrained(out)
    inputs = tokenizer(["the ho@@ use"], return_tensors="pt")
    assert tokenizer.batch_decode(model.generate(**inputs, max_new_tokens=4))


def test_pieces_of_sentencepiece_are_joined(tmp_path):
    words = ["▁das", "▁Ha", "us", *(f"▁v{i}" for i in range(20))]
    reference = FSMTForConditionalGeneration(FSMTConfig(**{**FSMT, "src_vocab_size": 27}, **SIZES))
    weights = weights_of(reference)
    write_dictionaries(tmp_path, words, words)
    tokenizer = read_fairseq(save(tmp_path / "model.pt", weights)).tokenizer
    assert not tokenizer.separate_vocabularies
    assert tokenizer("▁das ▁Ha us")["input_ids"] == [4, 5, 6, 2]
    assert tokenizer.decode([4, 5, 6, 2], skip_special_tokens=True) == "das Haus"


def read_with(tmp_path, english, **options):
    """Reads a model with a dictionary of English."""
    weights = weights_of(FSMTForConditionalGeneration(FSMTConfig(**FSMT, **SIZES)))
    path = save(tmp_path / "model.pt", weights, **options)
    write_dictionaries(tmp_path, ENGLISH, GERMAN[:-3])
    (tmp_path / "dict.en.txt").write_text("".join(f"{line}\n" for line in english))
    return read_fairseq(path).tokenizer


def test_a_word_that_is_overwritten_has_its_last_id(tmp_path):
    lines = [f"{word} 1" for word in ENGLISH[:-2]]
    lines += ["the 0 #fairseq:overwrite", "</s> 0 #fairseq:overwrite"]
    tokenizer = read_with(tmp_path, lines)
    assert tokenizer("the use")["input_ids"] == [29, 6, 2]
    short = read_with(tmp_path, lines[:-4])
    assert len(tokenizer) == len(short) == 31


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ({"langs": "en,de"}, ["__en__", "__de__"]),
        ({"langs": ["en", "de"], "lang_tok_style": "mbart"}, ["[en]", "[de]", "<mask>"]),
    ],
)
def test_tokens_of_languages_follow_the_dictionary(tmp_path, options, tokens):
    lines = [f"{word} 1" for word in ENGLISH[: len(ENGLISH) - len(tokens)]]
    tokenizer = read_with(tmp_path, lines, **options)
    assert tokenizer.convert_tokens_to_ids(tokens) == [*range(31 - len(tokens), 31)]


@pytest.mark.parametrize("pairs", ["en-de,de-en", ["en-de", "de-en"]])
def test_a_model_of_several_pairs_has_the_dictionaries_of_the_first(tmp_path, pairs):
    no_languages = {"source_lang": None, "target_lang": None}
    lines = [f"{word} 1" for word in ENGLISH]
    tokenizer = read_with(tmp_path, lines, **no_languages, lang_pairs=pairs)
    assert tokenizer("the", text_target="us")["labels"] == [6, 2]
    words = [f"{word} 1" for word in GERMAN]
    (tmp_path / "all.txt").write_text("\n".join(words), encoding="utf-8")
    fixed = {**no_languages, "lang_pairs": pairs, "fixed_dictionary": "/old/place/all.txt"}
    tokenizer = read_with(tmp_path, lines, **fixed)
    assert tokenizer("Ha@@ us", text_target="us")["input_ids"] == [5, 6, 2]


def test_wrong_dictionaries_are_refused(tmp_path):
    weights = weights_of(FSMTForConditionalGeneration(FSMTConfig(**FSMT, **SIZES)))
    path = save(tmp_path / "model.pt", weights)
    write_dictionaries(tmp_path, ENGLISH, [*GERMAN, "more"])
    with pytest.raises(ValueError, match="gives 28 symbols, but the embedding has 27 rows"):
        read_fairseq(path)
    (tmp_path / "dict.en.txt").write_text("the 3\nbroken\nthe 4\n")
    with pytest.raises(ValueError, match="is not a dictionary") as error:
        read_fairseq(path)
    assert "line 2 is not a symbol and its count: 'broken'" in str(error.value)
    assert "line 3 repeats 'the'" in str(error.value)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(FileNotFoundError, match=r"elsewhere/dict\.en\.txt"):
        read_fairseq(path, dicts=tmp_path / "elsewhere")
