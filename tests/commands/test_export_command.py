"""`vanilla-transformer export`: a directory that the other engine loads, or a clear refusal."""

from functools import partial
from pathlib import Path

import ctranslate2
import pytest
from onnx_graphs import OnnxGraphs
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.commands.program import run_subcommand

export = partial(run_subcommand, "export")


@pytest.fixture(params=["trained", "padded"])
def model_path(request):
    """A model whose rows all have a token, and one where others would win every step."""
    return request.getfixturevalue(request.param)


def test_an_export_translates_without_the_package(model_path, tmp_path, capsys):
    options = [str(model_path), str(tmp_path / "out"), "--to", "ctranslate2"]
    export([*options, "--quantization", "int8", "--positions", "100"])
    assert "exported" in capsys.readouterr().out
    translator = ctranslate2.Translator(str(tmp_path / "out"))
    (found,) = translator.translate_batch([[*["a", "dog", "sees", "a", "cat", "."], "</s>"]])
    assert found.hypotheses[0] == ["Hund", "sieht", "Katze", "."]
    with pytest.raises(ValueError, match="add --overwrite"):
        export(options)
    export([*options, "--overwrite"])


def test_an_export_fills_the_working_directory(trained, tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for more in ([], ["--overwrite"]):
        export([str(trained), ".", "--to", "ctranslate2", *more])
        assert (folder / "model.bin").samefile("model.bin")
        assert not list(folder.glob(".*"))
    assert list(tmp_path.iterdir()) == [folder]


def test_an_export_to_transformers_translates_and_proves_itself(model_path, tmp_path, capsys):
    options = [str(model_path), str(tmp_path / "out"), "--to", "hf"]
    export([*options, "--positions", "100"])
    printed = capsys.readouterr().out
    assert "PegasusForConditionalGeneration on random input" in printed
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert model.config.max_position_embeddings == 100
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    found = model.generate(**tokenizer("a dog sees a cat .", return_tensors="pt"))
    assert tokenizer.batch_decode(found, skip_special_tokens=True) == ["Hund sieht Katze ."]
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    sentence = next(line for line in printed.splitlines() if "largest difference" in line)
    assert sentence in card
    assert str(tmp_path) not in card
    assert "Pad sources on the right" in card
    assert f"`{Path(model_path).name}` as a `PegasusForConditionalGeneration`" in card


@pytest.mark.slow
def test_an_export_to_onnx_translates(model_path, tmp_path, capsys):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extra `onnx`")
    options = ["--to", "onnx", "--quantization", "int8"]
    export([str(model_path), str(tmp_path / "out"), *options])
    printed = capsys.readouterr().out
    assert "In 8 bits, the largest difference of two logits is " in printed
    export([str(model_path), str(tmp_path / "out"), *options, "--overwrite"])
    graphs, config = OnnxGraphs(tmp_path / "out"), AutoConfig.from_pretrained(model_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    source = tokenizer("a dog sees a cat .", return_tensors="pt")
    found = graphs.generate(config, 9, **source)
    assert tokenizer.batch_decode(found, skip_special_tokens=True) == ["Hund sieht Katze ."]
