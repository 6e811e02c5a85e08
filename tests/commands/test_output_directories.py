"""What commands that write a directory may delete: nothing but a model, a run or an export."""

from contextlib import suppress

import pytest

from vanilla_transformer.commands.program import SUBCOMMANDS, main, run_subcommand
from vanilla_transformer.files.atomic_files import check_output_directory
from vanilla_transformer.files.model_directory import TOKENIZER_FILES


def save(folder):
    """Writes the files of a saved model; most are empty."""
    names = ("config.json", "model.safetensors", "model.safetensors.index.json")
    names += ("generation_config.json", "tokenizer.json", "target_tokenizer.json", "README.md")
    names += ("tokenizer_config.json", "special_tokens_map.json", "vocab.json", "source.spm")
    names += ("merges.txt", "sentencepiece.bpe.model", "layers.py", "file_sizes.json")
    names += ("training_args.bin", "trainer_state.json", "all_results.json", "test_results.json")
    names += ("shared_vocabulary.json", "model.bin", "onnx/encoder_model.onnx.data")
    names += ("onnx/encoder_model_quantized.onnx", "target_tokenizer/tokenizer.json")
    for sub_folder in ("onnx", "target_tokenizer"):
        (folder / sub_folder).mkdir(parents=True)
    for name in names:
        is_config = name in ("config.json", "generation_config.json", *TOKENIZER_FILES)
        (folder / name).write_text('{"model_type": "vanilla_transformer"}' if is_config else "")
    return folder


@pytest.fixture
def out(tmp_path):
    return save(tmp_path / "out")


def test_a_saved_model_is_replaced_when_asked(out):
    check_output_directory(str(out), True)
    with pytest.raises(ValueError, match="is not empty: add --overwrite"):
        check_output_directory(str(out), False)


OTHERS = ["notes.txt", "run.pt", "train.de", "data.json", "mine.py", "my.model", "letter.jinja"]
OTHERS += ["vocab-notes.txt", "my_results.json", "thesis.safetensors", "my_vocabulary.json"]
OTHERS += ["tokenizer_ideas.json", "terms.spm", "net.onnx", "optimizer_notes.pt", "vocabulary.json"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_never_deleted(out, name):
    (out / name).touch()
    with pytest.raises(ValueError, match=rf"holds '{name}', part of no model"):
        check_output_directory(str(out), True)
    (out / name).rename(out / "onnx" / name)
    with pytest.raises(ValueError, match="holds 'onnx', part of no model"):
        check_output_directory(str(out), True)


def test_a_directory_without_a_model_is_never_deleted(out):
    (out / "config.json").unlink()
    with pytest.raises(ValueError, match=r"holds 'README\.md', 'all_results\.json', '"):
        check_output_directory(str(out), True)


OWN = {"notes.txt": "mine", "thesis/chapter1.txt": "once", "checkpoint-7/list.csv": "a,b"}
WRITES_A_DIRECTORY = (
    "train --train_file pairs.tsv --output_dir mine --max_steps 1",
    "train recipe.yaml --output_dir mine",
    "convert --from marian out mine",
    "vocabulary out mine --add-tokens x",
    "vocabulary out mine --keep-for pairs.tsv",
    "export --to hf out mine",
    "export --to ctranslate2 out mine",
    "export --to onnx out mine",
    "export --to browser out mine",
    "export --to argos out mine --languages en=English de=German",
    "average out --output mine",
    "adapt out pairs.tsv --output-dir mine",
    "distil out pairs.tsv --output-dir mine",
    "prepare recipe.yaml --vocab_size 0 --output-dir mine",
    "translate out --corpus pairs.tsv --output mine",
)
WRITES_NONE = "corpora evaluate score align inspect page serve env"


def test_all_commands_that_write_a_directory_are_known():
    names = {words.split()[0] for words in WRITES_A_DIRECTORY}
    assert {*SUBCOMMANDS} - names == {*WRITES_NONE.split()}


@pytest.mark.parametrize("command", WRITES_A_DIRECTORY)
@pytest.mark.parametrize("flag", ["", " --overwrite"])
def test_no_command_deletes_files_of_the_user(out, tmp_path, monkeypatch, capfd, command, flag):
    """Nor says that it would do so if it were asked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("a dog\tein Hund\n" * 40)
    (tmp_path / "recipe.yaml").write_text("train_file: pairs.tsv\nmax_steps: 1\n")
    mine = save(tmp_path / "mine")
    (mine / "adapt.json").write_text("{}")
    for name, content in OWN.items():
        (mine / name).parent.mkdir(exist_ok=True)
        (mine / name).write_text(content)
    with suppress(SystemExit):
        assert main((command + flag).split()) != 0
    assert {name: (mine / name).read_text() for name in OWN} == OWN
    assert "--overwrite" not in capfd.readouterr().err.replace("option --overwrite (", "")


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_read_is_never_deleted(out, tmp_path, overwrite, monkeypatch):
    within = save(out / "source")
    (tmp_path / "link").symlink_to(out)
    (tmp_path / "linked").symlink_to(within)
    for source in (within, out, tmp_path / "linked", out / "model.bin"):
        for output in (out, tmp_path / "link"):
            with pytest.raises(ValueError, match="is read, and lies in"):
                check_output_directory(str(output), overwrite, [str(source)])
    monkeypatch.chdir(out)
    with pytest.raises(ValueError, match="is read, and lies in"):
        check_output_directory(str(out), overwrite, ["."])


@pytest.mark.parametrize(
    "words",
    [
        "convert --from marian source out --overwrite",
        "convert --from system-a --heads 2 run.pt out --overwrite --rename out/vocab.json",
        "convert --from table run.pt out --overwrite --table out/vocab.json",
        "convert --from fairseq run.pt out --overwrite --dicts out/vocab.json",
        "export --to hf source out --overwrite",
        "average source --output out --overwrite",
    ],
)
def test_each_command_asks_before_it_works(out, tmp_path, monkeypatch, words):
    save(tmp_path / "source")
    for name in ("run.pt", "out/notes.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    name, *rest = words.split()
    with pytest.raises(ValueError, match=r"part of no model|is read, and lies in"):
        run_subcommand(name, rest)
    assert (out / "notes.txt").exists()
