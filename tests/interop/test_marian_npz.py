"""Models of Marian itself compute here what Marian computes, or are refused by name."""

import json
import re

import numpy as np
import pytest
import sentencepiece
import torch
from conftest import make_model
from marian_models import (
    BASE,
    PRE,
    SOURCE,
    TARGET,
    VARIANTS,
    Marian,
    has_one_vocabulary,
    make_arrays,
    save,
)

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.inference.loading import load_model
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.marian_npz import read_marian, read_vocabulary
from vanilla_transformer.interop.marian_npz_writer import export_to_marian

UNLIKE_PYMARIAN = ("learned positions", "gelu of 1.12")
"""What the last version of Marian computes otherwise than the one that trained the model."""


def our_logits(model, source, target):
    """Logits of the former rows after the start and after each target token."""
    start = model.config.decoder_start_token_id
    moved = [index + (index >= start) for index in target]
    with torch.no_grad():
        found = model(
            input_ids=torch.tensor([source]),
            decoder_input_ids=torch.tensor([[start, *moved]]),
        ).logits[0]
    assert bool((found[:, start] < -20).all())  # the start is not generated
    return torch.cat([found[:, :start], found[:, start + 1 :]], dim=1)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_model_computes_what_marian_computes(name, tmp_path):
    options = {**BASE, **VARIANTS[name]}
    arrays = make_arrays(options)
    imported = read_marian(save(tmp_path / "marian", arrays, options))
    for source, target in (([3, 5, 2, 9, 0], [4, 2, 10, 6]), ([7, 0], [])):
        expected = Marian(arrays, options).logits(source, target)
        found = our_logits(imported.model, source, target).double()
        limit = 2e-6 * max(5.0, float(expected.abs().max()))
        torch.testing.assert_close(found, expected, atol=limit, rtol=0)


# Vocabularies -------------------------------------------------------------------------------------


def test_texts_become_the_ids_of_the_vocabularies(tmp_path):
    options = {**BASE, **VARIANTS["two vocabularies"]}
    save(tmp_path / "marian", make_arrays(options), options)
    run_subcommand("convert", [str(tmp_path / "marian"), str(tmp_path / "model")])
    tokenizer = load_model(str(tmp_path / "model"))[1]
    words = "▁dog yes null 007 zzz"
    ids = tokenizer(words, text_target="no ~ 1.0 #")
    assert ids["input_ids"] == [3, 5, 6, 7, 1, 0]
    assert ids["labels"] == [5, 6, 7, 9, 0]


def test_models_of_sentencepiece_cut_texts_as_marian_does(tmp_path):
    texts = ["the dog sees a cat", "cats and dogs find it"] * 20
    files = []
    for side, size in (("en", 30), ("de", 32)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([t[::-1] for t in texts] if side == "de" else texts),
            model_prefix=str(tmp_path / side), vocab_size=size, model_type="bpe", bos_id=-1,
            eos_id=0, unk_id=1, minloglevel=2,
        )  # fmt: skip
        (tmp_path / f"{side}.model").rename(tmp_path / f"{side}.spm")
        files.append(tmp_path / f"{side}.spm")
    options = {**BASE, **VARIANTS["two vocabularies"]}
    path = save(tmp_path / "marian", make_arrays(options, (30, 32)), options)
    run_subcommand(
        "convert",
        [
            *("--from", "marian-npz", str(path), str(tmp_path / "model"), "--vocabularies"),
            *map(str, files),
        ],
    )
    tokenizer = load_model(str(tmp_path / "model"))[1]
    processors = [sentencepiece.SentencePieceProcessor(str(file)) for file in files]
    for text in texts[:2]:
        ids = tokenizer(text, text_target=text[::-1])
        assert ids["input_ids"] == [*processors[0].encode(text), 0]
        assert ids["labels"] == [*processors[1].encode(text[::-1]), 0]


def test_a_vocabulary_is_read_as_marian_reads_it(tmp_path):
    yaml, text, nematus = (tmp_path / name for name in ("v.yml", "v.txt", "v.json"))
    yaml.write_text('"</s>": 0\n<unk>: 1\n? a b\n: 2\nno: 4\n"\\x41": 5\nlate: 99\n', "utf-8")
    assert read_vocabulary(yaml, 6) == ["</s>", "<unk>", "a b", "<row3>", "no", "A"]
    text.write_text("</s>\n<unk>\nx\n", "utf-8")
    assert read_vocabulary(text, 3) == ["</s>", "<unk>", "x"]
    nematus.write_text(json.dumps({"eos": 0, "UNK": 1, "\U0001f642": 2}), "utf-8")
    assert read_vocabulary(nematus, 3) == ["</s>", "<unk>", "\U0001f642"]


# Export -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "learned positions"])
def test_an_export_holds_the_same_arrays(name, tmp_path):
    options = {**BASE, **VARIANTS[name]}
    arrays = make_arrays(options)
    first = read_marian(save(tmp_path / "marian", arrays, options))
    export_to_marian(first.model, first.tokenizer, tmp_path / "again", tmp_path)
    again = dict(np.load(tmp_path / "again" / "model.npz"))
    written = again.pop("special:model.yml").tobytes()
    assert written.endswith(b"\0")
    if name == "tied layers":
        arrays |= {n.replace("l1_", "l2_"): a for n, a in arrays.items() if "decoder_l1_" in n}
    assert again.keys() == arrays.keys()
    assert [n for n, value in arrays.items() if not np.array_equal(again[n], value)] == []
    second = read_marian(tmp_path / "again")
    for field, value in first.model.config.to_dict().items():
        assert second.model.config.to_dict()[field] == value, field
    for text in ("▁dog yes null zz", '" 007'):
        both = first.tokenizer(text, text_target=text), second.tokenizer(text, text_target=text)
        assert dict(both[0]) == dict(both[1])


@pytest.mark.parametrize("penalty", [0.0, 0.6])
def test_an_export_keeps_the_search(penalty, tmp_path):
    first = read_marian(save(tmp_path / "marian", make_arrays(BASE), BASE))
    assert first.model.generation_config.num_beams is None
    first.model.generation_config.update(num_beams=6, length_penalty=penalty)
    export_to_marian(first.model, first.tokenizer, tmp_path / "again", tmp_path)
    search = read_marian(tmp_path / "again").model.generation_config
    assert (search.num_beams, search.length_penalty, search.early_stopping) == (6, penalty, True)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("beam-size: 12", (12, 0)),
        ("beam-size: 6\nnormalize: true", (6, 1)),
        ("beam-size: 1\nnormalize: 1", (None, None)),
        ("beam-size: [6]\nnormalize: 1", (None, None)),
        ("beam-size: 6\nnormalize: much", (None, None)),
    ],
)
def test_the_search_is_that_of_the_options_beside_the_model(lines, expected, tmp_path):
    path = save(tmp_path / "marian", make_arrays(BASE), BASE)
    with path.with_name("decoder.yml").open("a") as stream:
        stream.write(lines)
    search = read_marian(path).model.generation_config
    assert (search.num_beams, search.length_penalty) == expected


def test_an_export_brings_models_of_sentencepiece(tmp_path):
    texts = ["the dog sees a cat", "cats and dogs find it"] * 20
    tokenizer = VanillaTransformerTokenizer.train(texts, kind="unigram", vocab_size=40)
    fields = {"position_embedding_type": "sinusoidal_fairseq", "layer_norm_eps": 1e-6}
    fields |= {"decoder_start_token_id": 1, "decoder_attention_heads": 2, "fused_qkv": True}
    model = make_model(vocab_size=len(tokenizer), attention_bias=False, **fields)
    model.model.shared.weight.data[1] = 0.0
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    export = [str(tmp_path / "model"), str(tmp_path / "marian"), "--to", "marian-npz"]
    run_subcommand("export", export)
    back = convert("marian-npz", tmp_path / "marian", tmp_path / "back")
    kept = [index for index in range(len(tokenizer)) if index != 1]  # padding was in the middle
    rows = [kept.index(index) for index in tokenizer("a dog")["input_ids"]]
    assert back.tokenizer("a dog")["input_ids"] == rows
    with torch.no_grad():
        expected = model(**tokenizer("a dog", return_tensors="pt"), decoder_input_ids=start(model))
        found = back.model(
            **back.tokenizer("a dog", return_tensors="pt"), decoder_input_ids=start(back.model)
        )
    torch.testing.assert_close(found.logits[..., : len(kept)], expected.logits[..., kept])


@pytest.mark.parametrize("name", [n for n in VARIANTS if n not in UNLIKE_PYMARIAN])
def test_marian_itself_scores_an_export_as_the_model_does(name, tmp_path):
    pymarian = pytest.importorskip("_pymarian", reason="needs pymarian 1.12")
    options = {**BASE, **VARIANTS[name]}
    first = read_marian(save(tmp_path / "marian", make_arrays(options), options))
    export_to_marian(first.model, first.tokenizer, tmp_path / "again", tmp_path)
    words = [SOURCE, SOURCE if has_one_vocabulary(options) else TARGET]
    ids = [3, 2, 9, 4], [4, 2, 9, 6, 8, 7]
    files = []
    for side, table, row in zip(("source", "target"), words, ids, strict=True):
        files.append(tmp_path / side)
        files[-1].write_text(" ".join(table[index] for index in row) + "\n", encoding="utf-8")
    folder, scores = tmp_path / "again", tmp_path / "scores"
    vocabularies = sorted(folder.glob("*vocab.yml"))
    command = (
        f"score --model {folder}/model.npz --vocabs {vocabularies[0]} {vocabularies[-1]} "
        f"--train-sets {files[0]} {files[1]} --output {scores} --cpu-threads 1 --word-scores "
        "--max-length 40 --quiet"
    )
    pymarian.main(command.split())
    found = [float(score) for score in scores.read_text().partition("WordScores=")[2].split()]
    logits = our_logits(first.model, [*ids[0], 0], ids[1]).log_softmax(-1)
    expected = [logits[place, index].item() for place, index in enumerate([*ids[1], 0])]
    assert found == pytest.approx(expected, rel=1e-5, abs=2e-5)


def start(model):
    return torch.tensor([[model.config.decoder_start_token_id]])


def test_what_marian_cannot_compute_is_named(shared_words, tmp_path):
    changes = {"position_embedding_type": "sinusoidal_half", "norm_type": "unbiased_std"}
    make_model(**changes, encoder_attention_heads=4).save_pretrained(tmp_path / "model")
    shared_words.save_pretrained(tmp_path / "model")
    export = [str(tmp_path / "model"), str(tmp_path / "out"), "--to", "marian-npz"]
    with pytest.raises(ValueError, match="Marian cannot compute") as refused:
        run_subcommand("export", export)
    for name in (*changes, "layer_norm_eps", "decoder_start_token_id"):
        assert f"`{name}` is" in str(refused.value)
    assert not (tmp_path / "out").exists()


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"},
            "no Transformer: .* is 'rnn' with `dec-cell` 'ssru', a recurrent network",
        ),
        ({"transformer-decoder-autoreg": "average-attention"}, "an average of all former tokens"),
        ({"type": "s2s"}, "`type` is 's2s': only 'transformer'"),
        ({"transformer-postprocess": "dahn"}, r"are \('', 'ahn'\)"),
        ({"transformer-ffn-depth": 3}, "`transformer-ffn-depth` is 3"),
        ({"transformer-ffn-activation": "tanh"}, "`transformer-ffn-activation` is 'tanh'"),
        ({"right-left": True}, "`right-left` is True"),
        ({"transformer-postprocess-top": "a"}, "`transformer-postprocess-top` is 'a'"),
        ({"lemma-dim-emb": 8}, "`lemma-dim-emb` is 8"),
        ({"enc-depth": 10**8}, "too few for its number of layers"),
        ({"enc-depth": 3}, "`encoder_l3_self_Wq` is missing"),
        ({"dec-depth": 1}, "`decoder_l2_context_Wk` has no counterpart"),
        ({"transformer-heads": 3}, "divi"),
        ({"transformer-heads": [[]]}, r"`transformer-heads` is \[\[\]\]"),
        ({"transformer-tied-layers": [1]}, "not a number for each decoder layer"),
    ],
)
def test_what_has_no_counterpart_is_named(changes, reason, tmp_path):
    path = save(tmp_path / "marian", make_arrays(BASE), {**BASE, **changes})
    with pytest.raises(ValueError, match=reason):
        convert("marian-npz", path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_student_in_the_binary_format_is_named(tmp_path, capsys):
    path = tmp_path / "model.enes.intgemm.alphas.bin"
    options = b"a-first: 1\ndec-cell: ssru\ntransformer-decoder-autoreg: rnn\ntype: transformer\n"
    path.write_bytes(bytes([1, *bytes(15)]) + b"special:model.yml\0" + bytes(9) + options)
    with pytest.raises(ValueError, match=r"of the kind 'rnn', a recurrent network, such as"):
        convert("marian-npz", path, tmp_path / "out")
    run_subcommand("inspect", [str(path)])
    printed = capsys.readouterr().out
    assert "Marian's binary format" in printed
    assert re.search("dec-cell +ssru", printed)
    path.write_bytes(b"\1" + bytes(9))
    with pytest.raises(ValueError, match="no file of NumPy"):
        convert("marian-npz", path, tmp_path / "out")


def test_pre_norm_layers_of_an_old_version_are_refused(tmp_path):
    options = {name: value for name, value in {**BASE, **PRE}.items() if not name.endswith("-top")}
    path = save(tmp_path / "marian", make_arrays({**BASE, **PRE}), options)
    with pytest.raises(ValueError, match=r"before 1\.10, which normalised neither"):
        read_marian(path)


def test_a_damaged_or_hostile_file_is_refused_in_a_sentence(tmp_path):
    folder = tmp_path / "marian"
    path = save(folder, make_arrays(BASE), BASE)
    whole = path.read_bytes()
    header = whole.index(b"{'descr'")
    shape = whole.index(b"'shape': (", header) + 10

    def write(content):
        path.write_bytes(content)

    def save_arrays(**arrays):
        np.savez(path, **arrays)

    def nested():
        options = np.frombuffer(b"a: " + b"[" * 90_000, dtype=np.int8)
        save_arrays(**{"special:model.yml": options})

    def a_bomb():
        np.savez_compressed(path, Wemb=np.zeros((1 << 14, 1 << 12), np.float32))

    cases = {
        "is damaged, or no file of NumPy": [
            *(lambda n=n: write(whole[:n]) for n in (0, 3, 99, len(whole) // 2, len(whole) - 9)),
            lambda: write(whole[:shape] + b"9" + whole[shape + 1 :]),
            lambda: write(whole[: header - 10] + bytes(10) + whole[header:]),
            lambda: save_arrays(Wemb=np.array([{"a": 1}], dtype=object)),
            lambda: save_arrays(Wemb=np.array([(1, 2.0)], dtype="i4,f4")),
            a_bomb,
        ],
        "holds no 'special:model.yml'": [
            lambda: save_arrays(Wemb=np.ones((2, 2))),
            lambda: save_arrays(**{"special:model.yml": np.ones(3)}),
        ],
        "is not valid YAML": [nested],
        "holds no options": [lambda: save_arrays(**{"special:model.yml": np.zeros(1, np.int8)})],
    }
    for reason, damages in cases.items():
        for damage in damages:
            damage()
            with pytest.raises(ValueError, match=reason) as refused:
                convert("marian-npz", path, tmp_path / "out")
            assert "\n" not in str(refused.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["marian"]


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("source.vocab.yml", "[1, 2", "is no vocabulary"),
        ("source.vocab.yml", "a: b", "is no vocabulary"),
        ("source.vocab.yml", "a: -1", "negative ids"),
        ("source.vocab.yml", "a: 3", "holds no </s> and no <unk>"),
        ("decoder.yml", "vocabs: [", "decoder.yml is not valid YAML"),
    ],
)
def test_a_damaged_file_beside_the_model_is_refused(file, text, reason, tmp_path):
    path = save(tmp_path / "marian", make_arrays(BASE), BASE)
    (path.parent / file).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=reason):
        read_marian(path)


def test_files_that_are_missing_are_named(tmp_path):
    path = save(tmp_path / "marian", make_arrays(BASE), BASE, compressed=True)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_marian(tmp_path / "nothing.npz")
    with pytest.raises(FileNotFoundError, match=r"holds no model of Marian"):
        read_marian(tmp_path)
    (path.parent / "decoder.yml").unlink()
    assert len(read_marian(path.parent).model.get_input_embeddings().weight) == len(SOURCE) + 1
    (path.parent / "source.vocab.yml").unlink()
    with pytest.raises(FileNotFoundError, match="name them with --vocabularies"):
        read_marian(path)
    (path.parent / "other.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"several models \(model.npz, other.npz\)"):
        read_marian(path.parent)
