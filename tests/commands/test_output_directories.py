"""What `--overwrite` of `convert`, `export` and `average` may delete: nothing but a model."""

import pytest

from vanilla_transformer.commands import average, convert, export
from vanilla_transformer.data.model_directory import TOKENIZER_FILES


def check(command, *words):
    check_or_run = command.run if command is convert else command.check
    check_or_run(command.parse([str(word) for word in words]))


def save(folder, *more):
    """Writes the files of a saved model; most are empty."""
    names = ("config.json", "model.safetensors", "model.safetensors.index.json", "probe.json")
    names += ("generation_config.json", "tokenizer.json", "target_tokenizer.json", "README.md")
    names += ("tokenizer_config.json", "special_tokens_map.json", "vocab.json", "source.spm")
    names += ("merges.txt", "sentencepiece.bpe.model", "layers.py", "checksums.sha256")
    names += ("training_args.bin", "trainer_state.json", "all_results.json", "test_results.json")
    names += ("shared_vocabulary.json", "model.bin", "encoder.onnx", "encoder.onnx.data")
    names += ("onnx/encoder_model_quantized.onnx", "target_tokenizer/tokenizer.json")
    for sub_folder in ("onnx", "target_tokenizer"):
        (folder / sub_folder).mkdir(parents=True, exist_ok=True)
    for name in (*names, *more):
        is_config = name in ("config.json", "generation_config.json", *TOKENIZER_FILES)
        (folder / name).write_text('{"model_type": "vanilla_transformer"}' if is_config else "")
    return folder


@pytest.fixture
def out(tmp_path):
    return save(tmp_path / "out")


def test_a_saved_model_is_replaced(out, tmp_path):
    source = save(tmp_path / "source")
    check(export, "--to", "ctranslate2", source, out, "--overwrite")
    check(average, source, "--output", out, "--overwrite")


@pytest.mark.parametrize("name", ["notes.txt", "run.pt", "train.de", "data.json", "x.png"])
def test_other_files_are_never_deleted(out, tmp_path, name):
    source = save(tmp_path / "source")
    (out / name).touch()
    with pytest.raises(ValueError, match=rf"more than a saved model \('{name}'\)"):
        check(convert, "--from", "marian", source, out, "--overwrite")
    (out / name).unlink()
    (out / name).mkdir()
    with pytest.raises(ValueError, match=rf"more than a saved model \('{name}'\)"):
        check(export, "--to", "hf", source, out, "--overwrite")
    (out / name).rename(out / "onnx" / name)
    with pytest.raises(ValueError, match=r"more than a saved model \('onnx'\)"):
        check(export, "--to", "hf", source, out, "--overwrite")


def test_a_directory_without_a_model_is_never_deleted(out, tmp_path):
    (out / "config.json").unlink()
    with pytest.raises(ValueError, match=r"holds no config\.json"):
        check(convert, "--from", "marian", save(tmp_path / "source"), out, "--overwrite")


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_a_source_is_never_deleted(out, tmp_path, overwrite, monkeypatch):
    within = save(out / "source")
    weights = out / "model.bin"
    (tmp_path / "link").symlink_to(out)
    (tmp_path / "linked").symlink_to(within)
    for source in (within, out, tmp_path / "linked"):
        for output in (out, tmp_path / "link"):
            with pytest.raises(ValueError, match="is read, and lies in"):
                check(convert, "--from", "marian", source, output, *overwrite)
            with pytest.raises(ValueError, match="is read, and lies in"):
                check(export, "--to", "hf", source, output, *overwrite)
    with pytest.raises(ValueError, match=r"model\.bin' is read, and lies in"):
        check(convert, "--from", "opennmt-py", weights, out, *overwrite)
    monkeypatch.chdir(out)
    with pytest.raises(ValueError, match="is read, and lies in"):
        check(convert, "--from", "marian", ".", out, *overwrite)


@pytest.mark.parametrize(
    ("kind", "option"),
    [("system-a", "--rename"), ("table", "--table"), ("fairseq", "--dicts")],
)
def test_other_inputs_are_never_deleted(out, tmp_path, kind, option):
    (tmp_path / "run.pt").touch()
    words = ["--from", kind, tmp_path / "run.pt", out, "--overwrite", option, out / "vocab.json"]
    if kind == "system-a":
        words += ["--heads", "2"]
    with pytest.raises(ValueError, match=r"vocab\.json' is read, and lies in"):
        check(convert, *words)
