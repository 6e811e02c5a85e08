"""The model in the repository loads as its card says, and the subcommands of the README take it."""

import json

import pytest
import torch
from programs import REPOSITORY
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from vanilla_transformer import Translator
from vanilla_transformer.commands.program import main

FOLDER = REPOSITORY / "model_cards" / "pronounce"
SPOKEN = {
    "vanilla": "V AH N IH L AH",
    "transformer": "T R AE N S F AO R M ER",
    "photograph": "F OW T AH G R AE F",
    "attention": "AH T EH N SH AH N",
}


FILES = ["README.md", "config.json", "generation_config.json", "model.safetensors"]
FILES += ["target_tokenizer.json", "tokenizer.json", "tokenizer_config.json"]
CODE = {path.name: path for path in (REPOSITORY / "vanilla_transformer/model").glob("[!_]*.py")}
SHIPPED = sorted(path.parent for path in REPOSITORY.glob("model_cards/*/config.json"))


def test_it_holds_what_is_loaded_and_nothing_else():
    own = {path.name: path.stat().st_size for path in FOLDER.iterdir() if not path.is_symlink()}
    assert sum(own.values()) <= 3_000_000
    assert set(own) == {*FILES}
    weights = load_file(FOLDER / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_each_shipped_model_is_what_is_saved_and_loads_without_the_package(
    folder, load_as_a_stranger, tmp_path
):
    """It may be uploaded as it is: its code is that of today, by links."""
    code = {path.name: path for path in folder.glob("*.py")}
    assert code.keys() == CODE.keys(), "ln -sr vanilla_transformer/model/[!_]*.py model_cards/..."
    assert all(path.is_symlink() and path.samefile(CODE[name]) for name, path in code.items())
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    model.save_pretrained(tmp_path / "saved")
    saved, own = (
        json.loads((path / "config.json").read_text()) for path in (tmp_path / "saved", folder)
    )
    assert saved.pop("transformers_version")
    assert saved == {name: own[name] for name in saved}
    ids = torch.tensor([[5, 6, 7, 2]])
    stranger = load_as_a_stranger(folder, tmp_path / "again", ids.tolist())
    assert stranger["tokens"] == model.generate(ids, max_new_tokens=6).tolist()


@pytest.mark.parametrize("trust", [None, True])
def test_it_loads_without_its_code_and_computes_in_float32(trust):
    tokenizer = AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=trust)
    model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER, trust_remote_code=trust)
    assert type(model).__module__.startswith("vanilla_transformer.")
    assert model.dtype == torch.float32
    inputs = tokenizer(list(SPOKEN), padding=True, return_tensors="pt")
    outputs = tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
    assert outputs == list(SPOKEN.values())


@pytest.mark.parametrize("engine", ["transformers", "ctranslate2"])
def test_every_engine_pronounces_the_words(engine):
    translator = Translator.from_pretrained(str(FOLDER), engine)
    assert translator.translate(list(SPOKEN)) == list(SPOKEN.values())


def test_it_computes_what_it_did():
    translator = Translator.from_pretrained(str(FOLDER), "transformers")
    (score,) = translator.score(["photograph"], [SPOKEN["photograph"]])
    assert sum(score.token_scores) == pytest.approx(-0.44655, abs=1e-4)


def test_capital_letters_and_white_space_change_nothing():
    translator = Translator.from_pretrained(str(FOLDER))
    word, spoken = "photograph", SPOKEN["photograph"]
    texts = [f"{word} ", f"\ufeff{word}\t", word.upper(), f"{word}\r{word}\u00a0"]
    outputs = [f"{spoken} ", f"\ufeff{spoken}\t", spoken, f"{spoken}\r{spoken}\u00a0"]
    assert translator.translate(texts) == outputs
    same = translator.score([word, f" {word.title()}\n"], [spoken, f"{spoken} "])
    assert same[0] == same[1]
    assert translator.align([texts[0]], [spoken]) == translator.align([word], [f" {spoken}"])


def test_the_share_of_unknown_characters_is_told_once(heard):
    translator = Translator.from_pretrained(str(FOLDER))
    texts = ["caf\u00e9 \U0001f60a", "vanilla", "", "caf\u00e9\n\u00e9a"]
    outputs = list(translator.translate(iter(texts), return_tokens=True))
    assert [output.unknown_share for output in outputs] == [0.4, 0.0, 0.0, 2 / 6]
    assert ["4 of 18" in message for message in heard.messages] == [True]
    heard.clear()
    translator.translate(["vanilla", "attention"])
    assert not heard.messages


def test_the_pipeline_pronounces_a_word():
    pipe = pipeline("seq2seq-generation", model=str(FOLDER), device="cpu")
    assert pipe("vanilla")[0]["generated_text"] == SPOKEN["vanilla"]


def test_the_subcommands_take_it(capsys):
    assert not main(["translate", str(FOLDER), *SPOKEN])
    assert capsys.readouterr().out.splitlines() == list(SPOKEN.values())
    assert not main(["inspect", "attention", str(FOLDER), "--text", "photograph"])
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert words == ["target", *SPOKEN["photograph"].split(), "</s>"]
    assert not main(["inspect", "shapes", str(FOLDER), "--text", "photograph"])
    assert "1,339,680" in capsys.readouterr().out
