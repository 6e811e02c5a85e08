"""Directories of transformers' models come in and go back: tokenizers, old files, refusals."""

import json
import pickle

import pytest
import torch
from converted_models import TEXTS, save_marian, train_pieces
from hf_models import assert_inspectable, assert_same_weights, make
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel, MarianTokenizer
from unsafe_pickle import Payload

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.hf_models import to_transformers
from vanilla_transformer.tokenizer_sides import vocabularies_of


@pytest.fixture(scope="module")
def trained_pieces(tmp_path_factory):
    return train_pieces(tmp_path_factory.mktemp("pieces"))


@pytest.mark.parametrize("separate", [False, True])
def test_a_directory_with_its_tokenizer_translates_the_same_and_goes_back(
    trained_pieces, tmp_path, separate
):
    source = save_marian(trained_pieces, tmp_path / "source", separate)
    done = convert("marian", tmp_path / "source", tmp_path / "out")
    assert type(done.tokenizer).__name__ == "MarianTokenizer"
    expected, found = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("source", "out"))
    assert isinstance(found, MarianTokenizer)
    texts = [*TEXTS, ">>de<< a mat", "ünknown 字 …", ""]
    for side in ("text", "text_target"):
        ids = [each(**{side: texts})["input_ids"] for each in (expected, found)]
        assert ids[0] == ids[1]
        assert expected.batch_decode(ids[0]) == found.batch_decode(ids[1])
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    batch = found(texts[:3], return_tensors="pt", padding=True)
    for side, words in zip(
        ("text", "text_target"), vocabularies_of(ours.config, found), strict=True
    ):
        pieces = "".join(words[index] for index in found(**{side: TEXTS[0]})["input_ids"][:-1])
        assert pieces.replace("▁", " ").strip() == TEXTS[0], side
    outputs = [each.generate(**batch, num_beams=2, max_length=12) for each in (source, ours)]
    assert torch.equal(*outputs)
    translations = [each.batch_decode(outputs[0], skip_special_tokens=True)
                    for each in (expected, found)]  # fmt: skip
    assert translations[0] == translations[1]
    assert_inspectable(tmp_path / "out", TEXTS[0])
    run_subcommand("export", ["--to", "hf", str(tmp_path / "out"), str(tmp_path / "back")])
    assert_same_weights(source, AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back"))
    back = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert type(back) is type(expected)
    for side in ("text", "text_target"):
        assert expected(**{side: TEXTS})["input_ids"] == back(**{side: TEXTS})["input_ids"]


def test_an_old_checkpoint_of_torch_is_read(tmp_path):
    """As most OPUS-MT models are stored: with every name, and no file of generation settings."""
    source = make("marian")
    source.save_pretrained(tmp_path / "source")
    for name in ("model.safetensors", "generation_config.json"):
        (tmp_path / "source" / name).unlink()
    path = tmp_path / "source" / "config.json"
    old = {"max_length": 11, "num_beams": 3, "bad_words_ids": [[49]], "normalize_before": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | old))
    torch.save(source.state_dict(), tmp_path / "source" / "pytorch_model.bin")
    settings = convert("marian", tmp_path / "source", tmp_path / "out").model.generation_config
    assert (settings.max_length, settings.num_beams, settings.bad_words_ids) == (11, 3, [[49]])
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    ids = torch.randint(3, 45, (2, 7))
    theirs = MarianMTModel.from_pretrained(tmp_path / "source")
    assert torch.equal(ours.generate(ids), theirs.generate(ids))
    assert_same_weights(theirs, to_transformers(ours, kind="marian"))


def test_a_checkpoint_with_code_is_refused_and_not_run(tmp_path, capsys):
    make("marian").save_pretrained(tmp_path / "source")
    (tmp_path / "source" / "model.safetensors").unlink()
    with open(tmp_path / "source" / "pytorch_model.bin", "wb") as file:
        torch.save({"final_logits_bias": Payload()}, file, pickle_module=pickle)
    with pytest.raises(ValueError, match="`print`, whose code is never run") as error:
        convert("marian", tmp_path / "source", tmp_path / "out")
    assert "weights_only" not in str(error.value)
    assert "the payload ran" not in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_weights_that_are_missing_or_left_over_are_listed(tmp_path):
    from safetensors.torch import load_file, save_file

    make("marian").save_pretrained(tmp_path / "source")
    path = tmp_path / "source" / "model.safetensors"
    weights = load_file(path)
    weights["model.encoder.layernorm_embedding.weight"] = torch.ones(16)
    del weights["model.encoder.layers.0.fc1.bias"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="2 problem") as error:
        convert("marian", tmp_path / "source", tmp_path / "out")
    assert "`model.encoder.layers.0.fc1.bias` is missing" in str(error.value)
    assert "`model.encoder.layernorm_embedding.weight` is left over" in str(error.value)


IDS = {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
GENERATIONS = {  # kind, fields of the config, saved settings, settings of a call, the first token
    "forced tokens, repetition rules": (
        "bart", {},
        {"forced_bos_token_id": 5, "forced_eos_token_id": 2, "no_repeat_ngram_size": 2,
         "encoder_no_repeat_ngram_size": 3, "min_length": 6, "max_length": 12, "num_beams": 3,
         "early_stopping": True, **IDS}, {}, 5,
    ),
    "another language token": (
        "nllb", {}, {"forced_bos_token_id": 7, "num_beams": 5, "max_length": 10, **IDS},
        {"forced_bos_token_id": 11}, 11,
    ),
    "beams": ("fsmt", {}, {"num_beams": 5}, {"max_length": 9}, None),
    # As mBART-large-cc25: whoever generates names the language that a target begins with.
    "no start token": (
        "mbart", {"decoder_start_token_id": None, "bos_token_id": 0}, {},
        {"decoder_start_token_id": 7, "max_length": 9}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields", "saved", "given", "first"), GENERATIONS.values(), ids=GENERATIONS
)
def test_a_converted_model_generates_as_the_source(tmp_path, kind, fields, saved, given, first):
    source = make(kind, **fields)
    source.generation_config.update(**saved)
    source.save_pretrained(tmp_path / "source")
    assert convert(kind, tmp_path / "source", tmp_path / "out").comparison.agrees
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert ours.generation_config.to_dict().items() >= saved.items()
    ids = torch.randint(3, 45, (3, 9))
    output = ours.generate(ids, **given)
    assert torch.equal(output, source.generate(ids, **given))
    if first is not None:
        assert set(output[:, 1].tolist()) == {first}


@pytest.mark.parametrize("name", ["forced_bos_token_id", "bad_words_ids"])
def test_a_setting_of_the_config_that_transformers_leaves_out_is_told(tmp_path, name):
    source = tmp_path / "source"
    make("mbart", forced_eos_token_id=None).save_pretrained(source)
    path = source / "config.json"
    value = [[7]] if name == "bad_words_ids" else 7
    config = json.loads(path.read_text(encoding="utf-8")) | {name: value}
    path.write_text(json.dumps(config), encoding="utf-8")
    told = convert("mbart", source, tmp_path / "left out")
    assert getattr(told.model.generation_config, name) is None
    assert [note.split()[0] for note in told.notes] == [f"`{name}`"]
    (source / "generation_config.json").unlink()
    kept = convert("mbart", source, tmp_path / "kept")
    assert getattr(kept.model.generation_config, name) == value
    assert kept.notes == ()
