"""New tokens start as the mean of their pieces, and old texts keep their ids and logits."""

import pytest
import torch
from converted_models import save_of_kind
from test_trimmed_vocabulary import (
    SOURCE,
    TARGET,
    VOCABULARIES,
    pieces,  # noqa: F401 - a fixture
    save_own,
)
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.changed_vocabulary import grow_vocabulary
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.tokenizer_sides import vocabulary_of

TAG = "<2pl>"
PAIRS = tuple(zip(SOURCE, TARGET, strict=True))


def load(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return AutoTokenizer.from_pretrained(folder), model


def assert_grown(before, after, lines=PAIRS):
    """Old texts keep ids, logits and outputs; the tag is one token, the mean of its pieces."""
    old, larger = load(before), load(after)
    columns = sorted(vocabulary_of(old[0], "target").values())
    for source, target in lines:
        texts = {"text": source, "text_target": target}
        ids, labels = (torch.tensor([old[0](**texts)[name]]) for name in ("input_ids", "labels"))
        assert [larger[0](**texts)[name] for name in ("input_ids", "labels")] == [
            ids[0].tolist(),
            labels[0].tolist(),
        ]
        with torch.no_grad():
            expected, found = (
                each(input_ids=ids, decoder_input_ids=labels).logits[..., columns]
                for _, each in (old, larger)
            )
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        search = {"max_length": 9, "num_beams": 1, "do_sample": False}
        assert torch.equal(*(each.generate(ids, **search) for _, each in (old, larger)))
    is_apart = getattr(old[0], "separate_vocabularies", False)
    tables = [
        {"source": each.get_input_embeddings(), "target": each.lm_head} for _, each in (old, larger)
    ]
    for side, name in (("source", "text"), ("target", "text_target")):
        tag = larger[0].convert_tokens_to_ids(TAG, **({"side": side} if is_apart else {}))
        text = {name: f"{TAG} a"}
        assert list(larger[0](**text)["input_ids"]).count(tag) == 1
        parts = old[0](**{name: TAG}, add_special_tokens=False)["input_ids"]
        mean = tables[0][side].weight[parts].mean(0)
        torch.testing.assert_close(tables[1][side].weight[tag], mean)


@pytest.mark.parametrize(("kind", "shared"), VOCABULARIES)
def test_a_tag_is_one_token_that_starts_as_its_pieces(kind, shared, tmp_path):
    source = save_own(tmp_path / "model", kind, shared)
    grow_vocabulary(str(source), tmp_path / "out", [TAG])
    assert_grown(source, tmp_path / "out")


@pytest.mark.parametrize("kind", ["marian", "marian, apart", "m2m100", "nllb", "t5", "mbart"])
def test_converted_models(kind, pieces, tmp_path):  # noqa: F811
    source = tmp_path / "source"
    convert(save_of_kind(kind, source, pieces), source, tmp_path / "model")
    grow_vocabulary(str(tmp_path / "model"), tmp_path / "out", [TAG])
    # The small vocabulary of this NLLB lacks the space, so that every text is cut otherwise.
    lines = [] if kind == "nllb" else [("the small cat", "a dog")]
    assert_grown(tmp_path / "model", tmp_path / "out", lines)


def test_nothing_that_was_said_of_the_former_model_goes_along(tmp_path):
    source, texts = save_own(tmp_path / "model"), tmp_path / "texts"
    texts.write_text("the dog ran\n", encoding="utf-8")
    (source / "README.md").write_text("It scores 38.5 BLEU.", encoding="utf-8")
    (source / "all_results.json").write_text("{}", encoding="utf-8")
    for name, words in (("small", ["--keep-for", str(texts)]), ("large", ["--add-tokens", TAG])):
        run_subcommand("vocabulary", [str(source), str(tmp_path / name), *words])
        assert not (tmp_path / name / "all_results.json").exists()
        card = (tmp_path / name / "README.md").read_text(encoding="utf-8")
        assert "made this model from `model`" in card
        assert "BLEU" not in card
