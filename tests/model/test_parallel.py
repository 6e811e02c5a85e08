"""Models split over two processes: tensor parallel and fully sharded, by the model's own plans."""

import json
from pathlib import Path

import pytest
from parallel_run import KINDS
from several_processes import run_in_two_processes

from vanilla_transformer import VanillaTransformerForSequenceClassification, VanillaTransformerModel

SCRIPT = Path(__file__).with_name("parallel_run.py")
MODELS = {
    "shared": {},
    "separate": {"decoder_vocab_size": 52, "norm_placement": "pre", "qk_norm": "all"},
    "untied": {"tie_word_embeddings": False, "lm_head_bias": True},
}
SPLIT = ("_proj.weight", "fc1.weight", "fc2.weight", "shared.weight", "embed_tokens.weight")


def test_a_split_model_computes_what_a_whole_one_does(tiny_model, tmp_path):
    for name, changes in MODELS.items():
        tiny_model(**changes).save_pretrained(tmp_path / name)
    run_in_two_processes(SCRIPT, tmp_path, *(tmp_path / name for name in MODELS))
    for rank in range(2):
        report = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(report) == len(KINDS) * len(MODELS)
        for run, shares in report.items():
            split = [name for name in shares if name.endswith(SPLIT) or "fsdp" in run]
            assert len(split) >= 20
            for name in split:
                assert 0.2 < shares[name] < 0.8, (run, name)


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("cls", [None, VanillaTransformerModel], ids=["head", "bare"])
def test_every_rule_of_a_plan_names_something(tiny_model, changes, cls):
    model = tiny_model(**changes, **({} if cls is None else {"cls": cls}))
    names = {name.replace(".0", ".*") for name, _ in model.named_modules()}
    assert model.tp_plan.keys() <= names
    assert model.fsdp_plan.keys() <= names
    assert model._no_split_modules <= {type(module).__name__ for module in model.modules()}
    prefix = "model." if cls is None else ""
    assert ("shared" in {name.removeprefix(prefix) for name in model.tp_plan}) is hasattr(
        model.base_model, "shared"
    )
    assert f"{prefix}decoder.layers.*.encoder_attn.out_proj" in model.tp_plan
    assert f"{prefix}encoder.final_norm" in model.fsdp_plan


def test_the_plans_of_one_stack_name_its_modules(tiny_model):
    model = tiny_model(cls=VanillaTransformerForSequenceClassification, norm_placement="pre")
    names = {name.replace(".0", ".*") for name, _ in model.named_modules()}
    assert model.tp_plan.keys() <= names
    assert model.fsdp_plan.keys() <= names
    assert model._no_split_modules <= {type(module).__name__ for module in model.modules()}
    assert {"model.shared", "model.encoder.layers.*.self_attn.q_proj"} <= model.tp_plan.keys()
    assert "model.encoder.final_norm" in model.fsdp_plan
    assert "lm_head" not in model.tp_plan
