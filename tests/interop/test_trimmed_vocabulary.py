"""A trimmed vocabulary cuts texts as before, and the model computes the same logits."""

import json

import pytest
import torch
from converted_models import save_of_kind, train_pieces
from tiny_models import make_model
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.changed_vocabulary import trim_vocabulary
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

SOURCE = [
    "the small cat sat on the mat",
    "a dog ran away 7 times",
    "lower lowest newer newest wider",
]
TARGET = ["ein kleiner Hund läuft", "die Katze saß auf der Matte", "neuer neueste breiter"]
VOCABULARIES = [
    ("bpe", True),
    ("unigram", True),
    ("word", False),
    ("char", True),
    ("byte_bpe", False),
]
"""The kind of the source's vocabulary, and whether the target has the same one."""
KEPT = ["the dog sat", "a newest cat"]
KEPT_TARGET = ["ein Hund saß", "die neueste Matte"]


@pytest.fixture
def files(tmp_path):
    paths = []
    for name, lines in (("en", KEPT), ("de", KEPT_TARGET)):
        paths.append(tmp_path / f"kept.{name}")
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def save_own(folder, kind="bpe", shared=True, **fields):
    target = {} if shared else {"target_kind": "unigram", "target_vocab_size": 60}
    tokenizer = VanillaTransformerTokenizer.train(
        SOURCE,
        TARGET,
        kind=kind,
        vocab_size=330 if kind == "byte_bpe" else 90,
        shared=shared,
        **target,
    )
    sizes = {"vocab_size": len(tokenizer), "decoder_vocab_size": tokenizer.target_vocab_size}
    alone = {} if shared else {"share_encoder_decoder_embeddings": False}
    model = make_model(
        VanillaTransformerForConditionalGeneration, **sizes, **alone, lm_head_bias=True, **fields
    )
    torch.nn.init.normal_(model.lm_head.bias)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def assert_same(before, after, done, texts=KEPT, targets=KEPT_TARGET):
    """Ids map one to one, and logits of kept tokens are equal to the bit."""
    tokenizers = [AutoTokenizer.from_pretrained(each) for each in (before, after)]
    models = [AutoModelForSeq2SeqLM.from_pretrained(each).eval() for each in (before, after)]
    for line, target in zip(texts, targets, strict=True):
        ids = [
            {"input_ids": each(line)["input_ids"], "labels": each(text_target=target)["input_ids"]}
            for each in tokenizers
        ]
        assert [done.source_ids[index] for index in ids[1]["input_ids"]] == ids[0]["input_ids"]
        assert [done.target_ids[index] for index in ids[1]["labels"]] == ids[0]["labels"]
        decoded = [
            each.decode(one["labels"], skip_special_tokens=True)
            for each, one in zip(tokenizers, ids, strict=True)
        ]
        assert decoded[0] == decoded[1]
        with torch.no_grad():
            logits = [
                model(
                    input_ids=torch.tensor([one["input_ids"]]),
                    decoder_input_ids=torch.tensor([one["labels"]]),
                ).logits
                for model, one in zip(models, ids, strict=True)
            ]
        assert torch.equal(logits[0][..., done.target_ids], logits[1])
    assert done.after.parameters < done.before.parameters
    assert done.after.memory_bytes < done.before.memory_bytes
    return models


@pytest.mark.parametrize(("kind", "shared"), VOCABULARIES)
def test_every_kind_of_vocabulary(kind, shared, files, tmp_path):
    source = save_own(tmp_path / "model", kind, shared)
    given = files[:1], files[1:]
    done = trim_vocabulary(str(source), tmp_path / "out", *given)
    assert_same(source, tmp_path / "out", done)
    assert done.source_ids[:4] == done.target_ids[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["marian", "marian, apart", "m2m100", "nllb", "t5", "mbart"])
def test_converted_tokenizers(kind, files, tmp_path, pieces):
    source = tmp_path / "source"
    convert(save_of_kind(kind, source, pieces), source, tmp_path / "model")
    done = trim_vocabulary(str(tmp_path / "model"), tmp_path / "out", files[:1], files[1:])
    before, after = assert_same(tmp_path / "model", tmp_path / "out", done)
    for field in ("pad_token_id", "decoder_start_token_id", "forced_bos_token_id"):
        was, now = (getattr(each.generation_config, field, None) for each in (before, after))
        assert (now if now is None else done.target_ids[now]) == was


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    pytest.importorskip("sentencepiece")
    return train_pieces(tmp_path_factory.mktemp("pieces"))


def test_parents_of_a_kept_token_are_kept(files, tmp_path):
    source = save_own(tmp_path / "model")
    trim_vocabulary(str(source), tmp_path / "out", files)
    state = json.loads((tmp_path / "out" / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = state["model"]["vocab"]
    made = {first + second for first, second in state["model"]["merges"]}
    assert made
    assert all({first, second} <= vocab.keys() for first, second in state["model"]["merges"])
    added = {token["content"] for token in state["added_tokens"]}
    assert all(len(token) == 1 or token in made for token in vocab.keys() - added)
    assert sorted(vocab.values()) == list(range(len(vocab)))


def test_a_text_of_other_words_still_becomes_known_characters(files, tmp_path):
    source = save_own(tmp_path / "model")
    trim_vocabulary(str(source), tmp_path / "out", files)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.unk_token_id not in tokenizer("these hats")["input_ids"]


def test_frequent_tokens_are_kept_on_demand(files, tmp_path):
    source = str(save_own(tmp_path / "model"))
    few = trim_vocabulary(source, tmp_path / "few", files)
    more = trim_vocabulary(source, tmp_path / "more", files, keep_frequent=10)
    assert len(few.source_ids) + 10 <= len(more.source_ids) < few.before.tokens[0]
    assert set(few.source_ids) < set(more.source_ids)


def test_ids_in_the_generation_config_follow(files, tmp_path):
    source = save_own(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(source)
    kept, lost = tokenizer("the")["input_ids"][0], tokenizer("lowest")["input_ids"][0]
    model = AutoModelForSeq2SeqLM.from_pretrained(source)
    model.generation_config.bad_words_ids = [[kept], [lost], [kept, kept]]
    model.generation_config.suppress_tokens = [lost, kept]
    model.save_pretrained(source)
    done = trim_vocabulary(str(source), tmp_path / "out", files)
    assert lost not in done.target_ids
    new = done.target_ids.index(kept)
    saved = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").generation_config
    assert saved.bad_words_ids == [[new], [new, new]]
    assert saved.suppress_tokens == [new]


def test_added_tokens_are_kept(files, tmp_path):
    source = save_own(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.add_tokens(["<2de>"])
    model = AutoModelForSeq2SeqLM.from_pretrained(source)
    model.resize_token_embeddings(len(tokenizer))
    for each in (model, tokenizer):
        each.save_pretrained(source)
    done = trim_vocabulary(str(source), tmp_path / "out", files)
    texts = [f"<2de> {line}" for line in KEPT]
    assert_same(source, tmp_path / "out", done, texts)
    assert AutoTokenizer.from_pretrained(tmp_path / "out")(texts[0])["input_ids"][0] == (
        done.after.tokens[0] - 1
    )


def refusal(source, out, *files, **options):
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        trim_vocabulary(str(source), out, *files, **options)
    assert not (out / "config.json").exists()
    return str(caught.value)


def test_what_cannot_be_trimmed_is_refused_and_nothing_is_written(files, tmp_path):
    source, out = save_own(tmp_path / "model"), tmp_path / "out"
    empty = tmp_path / "empty"
    empty.write_text("\n \n")
    assert "holds no text" in refusal(source, out, [files[0], empty])
    assert "nothing" in refusal(source, out, [tmp_path / "nothing"])
    out.mkdir()
    (out / "notes.txt").touch()
    assert "holds 'notes.txt'" in refusal(source, out, files)


def test_the_command_prints_sizes_before_and_after(files, tmp_path, capsys):
    source = save_own(tmp_path / "model")
    out = str(tmp_path / "out")
    run_subcommand("vocabulary", [str(source), out, "--keep-for", *map(str, files)])
    printed = capsys.readouterr().out
    rows = {line[:26].strip(): line[26:].split() for line in printed.splitlines()}
    for name in ("source tokens", "parameters", "weights, bytes"):
        before, after = (int(number.replace(",", "")) for number in rows[name])
        assert after < before
