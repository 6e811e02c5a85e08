"""New tokens start as the mean of their pieces, and old texts keep their ids and logits."""

import pytest
import torch
from converted_models import (
    train_pieces,
)
from test_trimmed_vocabulary import SOURCE, TARGET, save_own, save_with_pieces
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.interop.grown_vocabulary import grow_vocabulary
from vanilla_transformer.interop.probe import verify_model
from vanilla_transformer.model.tokenization_vanilla_transformer import KINDS

NEW = ["zażółć gęślą jaźń", "zażółć jaźń", "gęślą jaźń zażółć"]

PAIRS = tuple(zip(SOURCE, TARGET, strict=True))


@pytest.fixture
def new(tmp_path):
    path = tmp_path / "new"
    path.write_text("".join(f"{line}\n" for line in NEW), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    pytest.importorskip("sentencepiece")
    return train_pieces(tmp_path_factory.mktemp("pieces"))


def load(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return AutoTokenizer.from_pretrained(folder), model


def assert_old_texts_are_unchanged(before, after, lines=PAIRS):
    """Tokens, logits of old tokens and greedy outputs are those of the old model."""
    old, larger = load(before), load(after)
    tables = [tokenizer.get_vocab() for tokenizer, _ in (old, larger)]
    assert tables[0].keys() < tables[1].keys()
    rows = {index: tables[1][token] for token, index in tables[0].items()}
    for source, target in lines:
        ids = []
        for tokenizer, _ in (old, larger):
            labels = tokenizer(text_target=target)["input_ids"]
            ids.append((tokenizer(source)["input_ids"], labels))
        if getattr(old[0], "separate_vocabularies", False):
            assert ids[0] == ids[1]
            targets = list(range(old[1].config.decoder_vocab_size))
        else:
            assert [[rows[i] for i in side] for side in ids[0]] == [*map(list, ids[1])]
            targets = None
        logits, outputs = [], []
        for (_, model), (inputs, labels) in zip((old, larger), ids, strict=True):
            inputs = torch.tensor([inputs])
            with torch.no_grad():
                found = model(input_ids=inputs, decoder_input_ids=torch.tensor([labels])).logits
            logits.append(found[0])
            outputs.append(model.generate(inputs, max_length=9, num_beams=1, do_sample=False))
        if targets is None:
            columns = sorted(rows)
            expected, found = logits[0][:, columns], logits[1][:, [rows[i] for i in columns]]
            expected_output = [rows.get(i, -1) for i in outputs[0][0].tolist()]
            assert -1 in expected_output or expected_output == outputs[1][0].tolist()
        else:
            expected, found = logits[0], logits[1][:, targets]
            assert torch.equal(*outputs)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert verify_model(after).agrees
    return old, larger


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [True, False])
def test_new_texts_need_fewer_tokens(kind, shared, new, tmp_path):
    source = save_own(tmp_path / "model", kind, shared)
    done = grow_vocabulary(str(source), tmp_path / "out", [new], 25, ["<2pl>"])
    old, larger = assert_old_texts_are_unchanged(source, tmp_path / "out")
    before, after = (tokenizer(f"<2pl> {NEW[0]}")["input_ids"] for tokenizer, _ in (old, larger))
    unknown = old[0].unk_token_id
    assert after.count(unknown) < before.count(unknown) or len(after) < len(before)
    tag = larger[0].convert_tokens_to_ids("<2pl>")
    assert after.count(tag) == 1
    parts = old[0]("<2pl>", add_special_tokens=False)["input_ids"]
    weights = [model.get_input_embeddings().weight for _, model in (old, larger)]
    torch.testing.assert_close(weights[1][tag], weights[0][parts].mean(0))
    assert all(done.subwords)


def test_a_new_subword_is_the_mean_of_its_old_pieces(tmp_path):
    source, texts = save_own(tmp_path / "model"), tmp_path / "texts"
    texts.write_text("hundsaway\nhundsaway\n")
    done = grow_vocabulary(str(source), tmp_path / "out", [texts], 30)
    old, larger = load(source), load(tmp_path / "out")
    (index,) = larger[0]("hundsaway", add_special_tokens=False)["input_ids"]
    parts = old[0]("hundsaway", add_special_tokens=False)["input_ids"]
    assert len(parts) > 2
    assert larger[0].convert_ids_to_tokens(index) in done.subwords[0]
    weights = [model.get_input_embeddings().weight for _, model in (old, larger)]
    torch.testing.assert_close(weights[1][index], weights[0][parts].mean(0))
    heads = [model.lm_head.bias for _, model in (old, larger)]
    torch.testing.assert_close(heads[1][index], heads[0][parts].mean())


@pytest.mark.parametrize("shared", [True, False])
def test_subwords_of_a_model_that_lower_cases_its_sources(shared, tmp_path):
    source, texts = save_own(tmp_path / "model", "bpe", shared), tmp_path / "texts"
    tokenizer, _ = load(source)
    tokenizer.do_lower_case = True
    tokenizer.save_pretrained(source)
    texts.write_text("HUNDSAWAY\n" * 3)
    grow_vocabulary(str(source), tmp_path / "out", [texts], 30)
    larger = load(tmp_path / "out")[0]
    assert larger.do_lower_case
    assert len(larger("Hundsaway", add_special_tokens=False)["input_ids"]) == 1
    assert len(larger(text_target="HUNDSAWAY", add_special_tokens=False)["input_ids"]) == 1


@pytest.mark.parametrize("kind", ["marian", "marian, apart", "m2m100", "nllb", "t5", "mbart"])
def test_converted_models(kind, new, pieces, tmp_path):
    source = tmp_path / "source"
    convert(save_with_pieces(kind, source, pieces), source, tmp_path / "model")
    done = grow_vocabulary(str(tmp_path / "model"), tmp_path / "out", [new], 24, ["<2pl>"])
    assert all(done.subwords)
    # The small vocabulary of this NLLB lacks the space, so that every text is cut otherwise.
    lines = [] if kind == "nllb" else [("the small cat", "a dog")]
    old, larger = assert_old_texts_are_unchanged(tmp_path / "model", tmp_path / "out", lines)
    tag = larger[0].convert_tokens_to_ids("<2pl>")
    assert tag in larger[0]("<2pl> the cat")["input_ids"]
    lengths = []
    for tokenizer, _ in (old, larger):
        sides = tokenizer(NEW[0]), tokenizer(text_target=NEW[0])
        ids = [index for side in sides for index in side["input_ids"]]
        lengths.append((ids.count(tokenizer.unk_token_id), len(ids)))
    assert lengths[1] < lengths[0]


def refusal(*arguments, **options):
    with pytest.raises(ValueError, match=r"\w") as caught:
        grow_vocabulary(*arguments, **options)
    assert not arguments[1].exists()
    return str(caught.value)


def test_what_cannot_grow_is_refused_and_nothing_is_written(new, tmp_path):
    source, out = str(save_own(tmp_path / "model")), tmp_path / "out"
    new.write_text("\n")
    assert "holds no text" in refusal(source, out, [new], 5)


def test_the_command_trims_and_then_adds(new, tmp_path):
    source, out = save_own(tmp_path / "model"), tmp_path / "out"
    words = ["--keep-for", str(new), "--add-tokens", "<2pl>"]
    run_subcommand("vocabulary", [str(source), str(out), *words])
    run_subcommand("vocabulary", [str(source), f"{out}-trimmed", *words[:2]])
    old, trimmed, both = (
        AutoTokenizer.from_pretrained(path).get_vocab()
        for path in (source, f"{out}-trimmed", str(out))
    )
    assert old.keys() > trimmed.keys()
    assert both.keys() - trimmed.keys() == {"<2pl>"}
    assert verify_model(out).agrees
