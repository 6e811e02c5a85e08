"""Runs whose data hold placeholders teach a new model to copy tokens for them."""

import json

import pytest
from made_up_language import arguments, main

from vanilla_transformer import Translator
from vanilla_transformer.commands.program import main as program
from vanilla_transformer.files.loading import load_tokenizer
from vanilla_transformer.model.tokenization_vanilla_transformer import PLACEHOLDERS

SHORT = {"max_steps": 2, "eval_strategy": "no", "tokenizer_kind": "bpe", "vocab_size": 60}


@pytest.fixture
def programs(tmp_path):
    """A folder with texts of which a tenth has a placeholder."""
    for name, count in (("train", 100), ("val", 4), ("test", 4)):
        for suffix, word in (("en", "open"), ("de", "öffne")):
            part = ("%s", *"abcdefghi")
            lines = [f"{word} {part[n % 10]} {n % 7}\n" for n in range(count)]
            (tmp_path / f"{name}.{suffix}").write_text("".join(lines), encoding="utf-8")
    return tmp_path


def weights(out):
    return (out / "model.safetensors").read_bytes()


def test_a_run_teaches_placeholders_where_the_data_have_them(programs, corpus, tmp_path):
    out = tmp_path / "out"
    program(["train", *arguments(programs, out, **SHORT)])
    tokenizer = load_tokenizer(str(out))
    assert tokenizer.placeholders == PLACEHOLDERS
    assert len(tokenizer) == json.loads((out / "config.json").read_text())["vocab_size"]
    assert Translator.from_pretrained(out).translate("open %s b").count("%s") == 1
    program(["train", *arguments(programs, tmp_path / "off", placeholder_share=0, **SHORT)])
    program(["train", *arguments(corpus, tmp_path / "other", max_steps=2)])
    for name in ("off", "other"):
        assert load_tokenizer(str(tmp_path / name)).placeholders == ()


def test_prepared_and_resumed_runs_learn_the_same(programs, tmp_path):
    options = {**SHORT, "save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant"}
    program(["prepare", *arguments(programs, tmp_path / "data", **SHORT)])
    main(arguments(programs, tmp_path / "plain", **options))
    main(arguments(programs, tmp_path / "prepared", prepared=tmp_path / "data", **options))
    main(arguments(programs, tmp_path / "resumed", **{**options, "max_steps": 1}))
    main(arguments(programs, tmp_path / "resumed", resume_from_checkpoint=True, **options))
    assert weights(tmp_path / "plain") == weights(tmp_path / "prepared")
    assert weights(tmp_path / "plain") == weights(tmp_path / "resumed")
