"""Packages of Argos Translate come back with their texts, and hostile ones write nothing."""

import json
import shutil
import zipfile

import ctranslate2
import pytest
import sentencepiece
import torch
from converted_models import save_marian, train_pieces
from ctranslate2_models import write_spec
from tiny_models import make_model

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.files.loading import load_model
from vanilla_transformer.interop.argos import unpack
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.weights.ctranslate2 import make_specification

TEXTS = ["the dog sees a cat", "a cat likes the dog", "two dogs play", "cats and dogs find it"]
METADATA = {"package_version": "1.0", "argos_version": "1.0", "from_code": "en",
            "from_name": "English", "to_code": "de", "to_name": "German"}  # fmt: skip


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folder of a package, by its documented layout."""
    folder = tmp_path_factory.mktemp("argos") / "translate-en_de-1_0"
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 20), model_prefix=str(folder / "sentencepiece"),
        vocab_size=60, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    (folder / "sentencepiece.vocab").unlink()
    processor = sentencepiece.SentencePieceProcessor(str(folder / "sentencepiece.model"))
    pieces = [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]
    words = ["<unk>", "<blank>", "<s>", "</s>", *sorted(pieces)]
    model = make_model(vocab_size=len(words), norm_placement="pre", layer_norm_eps=1e-5)
    with torch.no_grad():
        spec = make_specification(model)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    write_spec(spec, folder / "model", "int8")
    (folder / "metadata.json").write_text(json.dumps(METADATA), encoding="utf-8")
    (folder / "README.md").write_text("A model.", encoding="utf-8")
    (folder / "stanza").mkdir()
    (folder / "stanza" / "resources.json").write_text("{}", encoding="utf-8")
    return folder


def pack(folder, path, without=(), **more):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            name = str(file.relative_to(folder.parent))
            if file.is_file() and file.name not in without:
                archive.write(file, name)
        for name, content in more.items():
            archive.writestr(name, content)
    return path


def test_texts_go_in_and_come_out_as_with_the_package(unpacked, tmp_path, capsys):
    package = pack(unpacked, tmp_path / "en_de.argosmodel")
    run_subcommand("convert", ["--from", "argos", str(package), str(tmp_path / "model")])
    printed = capsys.readouterr().out
    assert "Compared with CTranslate2 on random input" in printed
    assert "It translates from English to German" in printed
    model, tokenizer = load_model(str(tmp_path / "model"))
    processor = sentencepiece.SentencePieceProcessor(str(unpacked / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(unpacked / "model"), compute_type="float32")
    cut = [processor.encode(text, out_type=str) for text in TEXTS]
    for beams in (1, 4):
        results = translator.translate_batch(cut, beam_size=beams, max_decoding_length=12)
        batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
        found = model.generate(
            **batch, num_beams=beams, max_new_tokens=12, min_new_tokens=1, early_stopping=beams > 1
        )
        expected = [processor.decode_pieces(result.hypotheses[0]) for result in results]
        kept = [[i for i in row if i not in (2, 3)] for row in found.tolist()]
        decoded = [tokenizer.decode(row) for row in kept]
        plain = [text.replace("<s>", "").replace(" \u2047 ", "<unk>") for text in expected]
        assert decoded == plain


def test_a_prefix_is_a_token_of_the_target(unpacked, tmp_path):
    folder = shutil.copytree(unpacked, tmp_path / unpacked.name)
    shared = folder / "model" / "shared_vocabulary.json"
    words = json.loads(shared.read_text(encoding="utf-8"))
    shared.unlink()
    for side, own in (("source", words), ("target", [*words[:4], *reversed(words[4:])])):
        (folder / "model" / f"{side}_vocabulary.json").write_text(json.dumps(own), encoding="utf-8")
    metadata = {**METADATA, "target_prefix": own[9]}
    (folder / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    done = convert("argos", pack(folder, tmp_path / "p.argosmodel"), tmp_path / "model")
    assert done.model.generation_config.forced_bos_token_id == 9


ROOT = "translate-en_de-1_0"


@pytest.mark.parametrize(
    ("without", "more", "reason"),
    [
        (("metadata.json",), {}, "no metadata.json in it"),
        (("model.bin",), {}, "no model/model.bin in it"),
        (("metadata.json",), {f"{ROOT}/metadata.json": "{"}, r"metadata.json' is not valid"),
        (("sentencepiece.model",), {f"{ROOT}/sentencepiece.model": b"\xff"}, "is no model of Sent"),
    ],
)
def test_a_hostile_package_is_refused_in_a_sentence(without, more, reason, unpacked, tmp_path):
    package = pack(unpacked, tmp_path / "p.argosmodel", without, **more)
    with pytest.raises(ValueError, match=reason) as refused:
        convert("argos", package, tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["p.argosmodel"]


def test_files_that_lead_out_of_the_folder_are_not_unpacked(unpacked, tmp_path):
    (tmp_path / "inside").mkdir()
    names = ("../evil", f"{ROOT}/../evil", f"{ROOT}/model/../../evil", f"{ROOT}/model/..")
    package = pack(unpacked, tmp_path / "p.argosmodel", **dict.fromkeys(names, "x"))
    unpack(package, tmp_path / "inside")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "p.argosmodel"]
    assert not list((tmp_path / "inside").rglob("evil"))


def test_a_package_that_is_cut_off_or_changed_is_refused(unpacked, tmp_path):
    content = pack(unpacked, tmp_path / "whole.argosmodel").read_bytes()
    package = tmp_path / "p.argosmodel"
    middle = len(content) // 2
    changed = content[:middle] + bytes(64) + content[middle + 64 :]
    for damaged in (b"", content[:99], content[:middle], content[:-30], changed):
        package.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged|no package"):
            convert("argos", package, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(FileNotFoundError):
        convert("argos", tmp_path / "nothing.argosmodel", tmp_path / "out")


# Export -------------------------------------------------------------------------------------------

LANGUAGES = ["--languages", "en=English", "de=German"]
GERMAN = ["der Hund sieht eine Katze", "eine Katze mag den Hund", "zwei Hunde spielen"]


def save_own(kind, folder, shared):
    options = {"kind": kind, "vocab_size": 60, "shared": shared}
    tokenizer = VanillaTransformerTokenizer.train(TEXTS * 20, GERMAN * 20, **options)
    changes = {"decoder_vocab_size": tokenizer.target_vocab_size, "tie_word_embeddings": False}
    changes = {"lm_head_bias": True, "vocab_size": len(tokenizer), **({} if shared else changes)}
    make_model(**changes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_kind(kind, folder):
    if kind.startswith("marian"):
        save_marian(train_pieces(folder.parent), folder.parent / "source", kind == "marian, apart")
        run_subcommand("convert", [str(folder.parent / "source"), str(folder)])
    else:
        save_own(kind.partition(",")[0], folder, shared="apart" not in kind)
    model, tokenizer = load_model(str(folder))
    ids = [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id]
    model.lm_head.bias.data[[i for i in ids if i is not None]] = -30.0  # trained models rarely do
    model.save_pretrained(folder)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "unigram, apart", "marian, apart"])
def test_an_export_comes_back(kind, tmp_path, capsys):
    save_kind(kind, tmp_path / "model")
    path = tmp_path / "en_de.argosmodel"
    run_subcommand("export", [str(tmp_path / "model"), str(path), "--to", "argos", *LANGUAGES])
    assert "SentencePiece cuts 205 texts as the tokenizer does" in capsys.readouterr().out
    model, tokenizer = load_model(str(tmp_path / "model"))
    back = convert("argos", path, tmp_path / "back")
    assert back.comparison.agrees
    for name, value in model.state_dict().items():
        if "_norm." in name or name.endswith("bias"):
            assert torch.equal(back.model.state_dict()[name], value), name
    for text, target in zip(TEXTS, GERMAN, strict=False):
        both = back.tokenizer(text, text_target=target)
        assert both["input_ids"] == tokenizer(text)["input_ids"]
        assert both["labels"] == tokenizer(text_target=target)["input_ids"]


def test_a_tokenizer_that_is_no_sentencepiece_is_refused(unpacked, trained, tmp_path):
    out = str(tmp_path / "p.argosmodel")
    export = ["export", [str(trained), out, "--to", "argos", *LANGUAGES]]
    with pytest.raises(ValueError, match=r"has the type WordLevel.*--sentencepiece"):
        run_subcommand(*export)
    pieces = str(unpacked / "sentencepiece.model")
    with pytest.raises(ValueError, match=r"SentencePiece cuts .* but the tokenizer into"):
        run_subcommand("export", [*export[1], "--sentencepiece", pieces])
    assert not list(tmp_path.iterdir())
