"""Defaults of a new model: what is chosen, what is left alone, and what a resumed run keeps."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_up_language import main
from programs import REPOSITORY
from transformers import AutoConfig

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.interop.checkpoint_files import read_state_dict
from vanilla_transformer.run.arguments import TOPICS, parse_arguments
from vanilla_transformer.run.defaults import (
    CHOSEN_NAMES,
    REPLACED_BY,
    TABLE,
    RunFacts,
    choose_defaults,
)
from vanilla_transformer.run.machine import Machine

FACTS = {"pairs": 29_000, "characters": 90, "has_validation": True}
QUICK = {"num_train_epochs": 1, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1}


def chosen(given=None, epochs=None, **facts):
    changed = {name: facts.pop(name) for name in FACTS.keys() & facts.keys()}
    machine = Machine(**{"on_cpu": True, **facts})
    known = RunFacts.of(**{**FACTS, **changed}, machine=machine)
    return choose_defaults(given or {}, replace(known, epochs=epochs))


def words(corpus, folder, *splits, **options):
    """The command with the four files and the directory, and some options."""
    names = {"train": "train", "validation": "val"}
    files = {
        f"{split}_{side}": corpus / f"{names[split]}.{suffix}"
        for split in splits or names
        for side, suffix in (("source", "en"), ("target", "de"))
    }
    given = {**files, "output_dir": folder, **options}
    return [text for name, value in given.items() for text in (f"--{name}", str(value))]


def saved_training(folder):
    return torch.load(Path(folder, "training_args.bin"), weights_only=False)


@pytest.mark.parametrize(
    ("given", "without", "expected"),
    [
        ({}, (), {"optim": "muon", "norm_placement": "pre", "eval_strategy": "epoch"}),
        ({"optim": "adamw_torch_fused"}, ("muon_learning_rate",), {"learning_rate": 0.001}),
        ({"deepspeed": "x.json"}, ("optim", "bf16"), {"learning_rate": 0.001}),
        ({"lr_scheduler_type": "noam"}, ("learning_rate", "warmup_steps"), {"optim": "muon"}),
        ({"max_steps": 100}, ("num_train_epochs",), {}),
        (
            {"per_device_train_batch_size": 4},
            ("max_tokens", "max_source_length"),
            {"eval_max_tokens": 4096},
        ),
        ({"max_source_length": 5000}, ("max_source_length",), {"max_target_length": 1024}),
        ({"eval_strategy": "no"}, ("load_best_model_at_end",), {"save_strategy": "epoch"}),
        (
            {"eval_steps": 50},
            (),
            {"eval_strategy": "steps", "save_steps": 50, "load_best_model_at_end": True},
        ),
        ({"eval_steps": 50, "save_steps": 20}, ("load_best_model_at_end",), {}),
        ({"label_smoothing_factor": 0.1}, ("label_smoothing",), {}),
        ({"generation_config": "there"}, ("generation_num_beams",), {}),
        ({"activation_function": "gelu"}, ("gated_ffn",), {"encoder_ffn_dim": 768}),
        ({"d_model": 100}, (), {"encoder_attention_heads": 5, "encoder_ffn_dim": 272}),
        ({"d_model": 15}, ("position_embedding_type",), {"encoder_attention_heads": 1}),
        ({"torch_compile": True}, ("guided_alignment",), {}),
        ({"guided_alignment_weight": 0}, ("guided_alignment",), {}),
        ({"guided_alignment_weight": 0.5}, (), {"guided_alignment": "auto"}),
    ],
)
def test_what_is_given_wins_and_nothing_contradicts_it(given, without, expected):
    options = chosen(given)
    assert not {*given, *without} & options.keys()
    assert expected.items() <= options.items()
    if not {"deepspeed", "fsdp", "generation_config", "tokenizer_name_or_path"} & given.keys():
        argv = [f"--{name}={value}" for name, value in {**options, **given}.items()]
        if given.get("lr_scheduler_type") == "noam":
            argv.append("--warmup_steps=10")
        parsed = parse_arguments([*argv, "--output_dir=x"])  # no rule is broken
        AutoConfig.for_model("vanilla_transformer", **parsed.architecture)


def test_the_machine_and_the_data_decide():
    assert "bf16" not in chosen()
    assert chosen({"d_model": 192}, has_bfloat16=True)["bf16"] is True
    assert "bf16" not in chosen({"d_model": 128}, has_bfloat16=True)  # too narrow on a CPU
    assert chosen()["guided_alignment"] == "auto"
    assert "guided_alignment" not in chosen(on_cpu=False)
    weight = {"guided_alignment_weight": 0.5}
    assert chosen(weight, on_cpu=False)["guided_alignment"] == "auto"
    parse_arguments(["--output_dir=x", "--guided_alignment_weight=0.5"])
    for other in ("--choose_defaults=False", "--torch_compile=True"):
        with pytest.raises(ValueError, match="has no effect without `guided_alignment`"):
            parse_arguments(["--output_dir=x", "--guided_alignment_weight=0.5", other])
    assert "tf32" not in chosen(has_bfloat16=True)
    on_gpu = chosen({"d_model": 128}, has_bfloat16=True, on_cpu=False)
    assert on_gpu["bf16"] is on_gpu["tf32"] is True


@pytest.mark.parametrize(("cores", "workers"), [(0, None), (2, 2), (15, 4)])
def test_a_gpu_is_fed_by_other_cores(cores, workers):
    options = chosen(on_cpu=False, spare_cores=cores)
    assert options.get("dataloader_num_workers") == workers
    given = {"dataloader_num_workers": 1}
    assert "dataloader_num_workers" not in chosen(given, on_cpu=False, spare_cores=cores)
    assert not {"eval_strategy", "load_best_model_at_end"} & chosen(has_validation=False).keys()
    assert "optim" not in chosen(is_sharded=True)
    assert chosen(characters=6000)["vocab_size"] == 10_000
    large = {on_cpu: chosen(pairs=5_000_000, on_cpu=on_cpu) for on_cpu in (True, False)}
    assert [large[on_cpu]["d_model"] for on_cpu in (True, False)] == [256, 512]
    assert [large[on_cpu]["num_train_epochs"] for on_cpu in (True, False)] == [5, 5]


def test_a_saved_model_and_the_option_leave_everything_as_it_is(tmp_path):
    assert chosen({"model_name_or_path": "there"}) == chosen({"choose_defaults": False}) == {}
    for words in (["--model_name_or_path", "there"], ["--choose_defaults", "False"]):
        training = parse_arguments(["--output_dir", str(tmp_path), *words]).training
        assert (training.learning_rate, training.num_train_epochs) == (5e-5, 3)


def test_every_default_is_an_option():
    known = {name for topic in TOPICS for name in topic.__dataclass_fields__}
    assert known >= {*CHOSEN_NAMES}.union(*REPLACED_BY.values())
    assert REPLACED_BY.keys() <= {*CHOSEN_NAMES}


def test_a_recipe_of_the_repository_chooses_nothing(tmp_path):
    for recipe in (REPOSITORY / "scripts" / "recipes").iterdir():
        given = parse_arguments([str(recipe), "--output_dir", str(tmp_path)]).given
        assert chosen(dict(given)) == {}


def test_values_that_equal_a_default_of_transformers_are_given(tmp_path):
    words = ["--learning_rate", "5e-5", "--optim", "adamw_torch_fused", "--save_strategy=steps"]
    training = parse_arguments(["--output_dir", str(tmp_path), *words]).training
    assert (training.learning_rate, training.optim) == (5e-5, "adamw_torch_fused")
    assert training.save_strategy == "steps"


@pytest.mark.parametrize(
    ("given", "facts", "dropout"),
    [
        ({}, {}, 0.2),
        ({"num_train_epochs": 5.0}, {}, 0.1),
        ({"num_train_epochs": 30.0}, {}, 0.2),
        ({"num_train_epochs": 30.0}, {"epochs": 1.5}, 0.03),
        ({"max_steps": 100}, {}, 0.2),
    ],
)
def test_the_dropout_is_that_of_the_epochs(given, facts, dropout):
    assert chosen(given, **facts)["dropout"] == dropout
    assert "dropout" not in chosen({**given, "dropout": 0.5}, **facts)


def test_the_documentation_has_the_table():
    page = (REPOSITORY / "docs" / "sizing.md").read_text()
    for row, before in zip(TABLE, (None, *TABLE), strict=False):
        pairs = f"up to {row.pairs:,}" if row.pairs else f"more than {before.pairs:,}"
        options = chosen(pairs=row.pairs or before.pairs + 1, on_cpu=False)
        fields = VanillaTransformerConfig.__annotations__.keys() & options.keys()
        config = VanillaTransformerConfig(**{name: options[name] for name in fields})
        with torch.device("meta"):
            parameters = VanillaTransformerForConditionalGeneration(config).num_parameters()
        sizes = (f"{row.layers}+{row.layers}", row.d_model, config.encoder_attention_heads)
        sizes += (f"{row.vocab_size:,}", f"{parameters / 1e6:.1f}M")
        batches = (row.dropout, row.num_train_epochs, f"{row.max_tokens:,}")
        rates = (row.muon_learning_rate, row.learning_rate, row.adamw_rate)
        for cells in (sizes, (*batches, *rates)):
            assert f"| {' | '.join(map(str, (pairs, *cells)))} |" in page


@pytest.mark.parametrize("pairs", [1, 10, 200])
def test_the_four_files_are_enough(corpus, tmp_path, pairs, heard):
    heard.set_level("INFO")
    options = {"max_train_samples": pairs, "max_eval_samples": min(pairs, 4), "max_steps": 3}
    if pairs == 1:  # whose characters are not those of another pair
        options["validation_source"] = corpus / "train.en"
        options["validation_target"] = corpus / "train.de"
    figures = main(words(corpus, tmp_path / "out", **options))
    assert {"train_loss", "eval_loss", "eval_bleu"} <= figures.keys()
    sentence = f"{pairs} training pair{'s' * (pairs > 1)} on a CPU: d_model 128, encoder_layers 2, "
    assert sentence in heard.text
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "--muon_learning_rate 0.02" in card
    training = saved_training(tmp_path / "out")
    assert (training.optim, training.max_tokens, training.eval_max_tokens) == ("muon", 1024, 1024)
    assert training.load_best_model_at_end
    assert training.metric_for_best_model == "bleu"
    settings = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert (settings["num_beams"], settings["early_stopping"]) == (5, True)


def test_long_texts_fit_into_the_batches(tmp_path, heard):
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("a b c d\n" * 3 + "e f g h " * 800 + "\n")
    main(words(tmp_path, tmp_path / "out", "train", **QUICK, tokenizer_kind="word"))
    assert "truncated 1 of 4 source texts to 512 tokens" in heard.text


def test_a_resumed_run_keeps_what_it_has_chosen(corpus, tmp_path, monkeypatch):
    """Also when the table and the machine have changed since."""
    options = {**QUICK, "num_train_epochs": 2, "max_train_samples": 120, "max_eval_samples": 4}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    main(words(corpus, whole, **options))
    main(words(corpus, cut, **options))
    (cut / "trainer_state.json").unlink()  # as if it were killed before its end
    steps = sorted(int(path.name.rpartition("-")[2]) for path in cut.glob("checkpoint-*"))
    for path in (cut / f"checkpoint-{steps[-1]}").iterdir():
        path.unlink()
    (cut / f"checkpoint-{steps[-1]}").rmdir()
    other = [row._replace(muon_learning_rate=0.5, num_train_epochs=9) for row in TABLE]
    monkeypatch.setattr("vanilla_transformer.run.defaults.TABLE", tuple(other))
    main(words(corpus, cut, resume_from_checkpoint=True, **options))
    assert [path.name for path in sorted(cut.glob("checkpoint-*"))] == [
        path.name for path in sorted(whole.glob("checkpoint-*"))
    ]
    saved = [read_state_dict(folder / "model.safetensors") for folder in (whole, cut)]
    assert saved[0].keys() == saved[1].keys()
    assert all(torch.equal(saved[0][name], saved[1][name]) for name in saved[0])
    cards = [(folder / "README.md").read_text(encoding="utf-8") for folder in (whole, cut)]
    assert all("--muon_learning_rate 0.02" in card for card in cards)
