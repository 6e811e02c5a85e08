"""Models of Marian itself compute here what Marian computes, or are refused by name."""

import json

import numpy as np
import pytest
import sentencepiece
import torch
from marian_models import BASE, PRE, SOURCE, VARIANTS, Marian, make_arrays, save

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.files.loading import load_model
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.marian_npz import read_marian, read_vocabulary


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
        found = our_logits(imported.model.double(), source, target)
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
    words = ["</s>", "<unk>", "a\x85b", "\u2028", "\x80", "x\x9f\u2029", "\x7f", "\u0149" * 1100]
    yaml.write_text("".join(f'? "{word}"\n: {n}\n' for n, word in enumerate(words)), "utf-8")
    assert read_vocabulary(yaml, 8) == words
    yaml.write_text("".join(f"{word}: {n}\n" for n, word in enumerate(words[:-1])), "utf-8")
    assert read_vocabulary(yaml, 7) == words[:-1]
    text.write_text("</s>\n<unk>\nx\n", "utf-8")
    assert read_vocabulary(text, 3) == ["</s>", "<unk>", "x"]
    nematus.write_text(json.dumps({"eos": 0, "UNK": 1, "\U0001f642": 2}), "utf-8")
    assert read_vocabulary(nematus, 3) == ["</s>", "<unk>", "\U0001f642"]


# The search ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("beam-size: 12", (12, 0)),
        ("beam-size: 6\nnormalize: true", (6, 1)),
        ("beam-size: 1\nnormalize: 1", (None, None)),
    ],
)
def test_the_search_is_that_of_the_options_beside_the_model(lines, expected, tmp_path):
    path = save(tmp_path / "marian", make_arrays(BASE), BASE)
    with path.with_name("decoder.yml").open("a") as stream:
        stream.write(lines)
    search = read_marian(path).model.generation_config
    assert (search.num_beams, search.length_penalty) == expected


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"transformer-decoder-autoreg": "rnn"}, "`transformer-decoder-autoreg` is 'rnn'"),
        ({"type": "s2s"}, "`type` is 's2s': only 'transformer'"),
        ({"transformer-postprocess": "dahn"}, r"are \('', 'ahn'\)"),
        ({"lemma-dim-emb": 8}, "`lemma-dim-emb` is 8"),
        ({"enc-depth": 10**8}, "`enc-depth` is 100000000, but the file has 2 layers"),
        ({"transformer-heads": 3}, "divi"),
        ({"transformer-tied-layers": [1]}, "`dec-depth` is 2, but the file has 1 layers"),
    ],
)
def test_what_has_no_counterpart_is_named(changes, reason, tmp_path):
    path = save(tmp_path / "marian", make_arrays(BASE), {**BASE, **changes})
    with pytest.raises(ValueError, match=reason):
        convert("marian-npz", path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pre_norm_layers_of_an_old_version_are_refused(tmp_path):
    options = {name: value for name, value in {**BASE, **PRE}.items() if not name.endswith("-top")}
    path = save(tmp_path / "marian", make_arrays({**BASE, **PRE}), options)
    with pytest.raises(ValueError, match=r"before 1\.10, which normalised neither"):
        read_marian(path)


def test_a_damaged_or_hostile_file_is_refused_in_a_sentence(tmp_path):
    path = save(tmp_path / "marian", make_arrays(BASE), BASE)
    whole = path.read_bytes()
    header = whole.index(b"{'descr'")
    shape = whole.index(b"'shape': (", header) + 10
    damaged = [whole[:size] for size in (0, 99, len(whole) // 2, len(whole) - 9)]
    damaged.append(whole[:shape] + b"9" + whole[shape + 1 :])
    damaged.append(whole[: header - 10] + bytes(10) + whole[header:])
    others = [
        {"Wemb": np.array([{"a": 1}], dtype=object)},
        {"Wemb": np.array([(1, 2.0)], dtype="i4,f4")},
        {"Wemb": np.ones((2, 2))},
        {"special:model.yml": np.frombuffer(b"a: " + b"[" * 90_000, dtype=np.int8)},
        {"special:model.yml": np.zeros(1, np.int8)},
    ]
    for content in (*damaged, *others):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            np.savez(path, **content)
        with pytest.raises(ValueError, match=r"model\.npz") as refused:
            read_marian(path)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("source.vocab.yml", "[1, 2", "is no vocabulary"),
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
    with pytest.raises(FileNotFoundError, match="nothing"):
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
