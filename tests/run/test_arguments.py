"""Arguments from the command line and from files."""

import json

import pytest

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.run.parsing import parse_arguments


def test_every_architecture_field_is_an_option(tmp_path):
    argv = ["--output_dir", str(tmp_path), "--d_model", "64", "--norm_placement", "pre"]
    argv += ["--dropout", "0", "--tie_word_embeddings", "False", "--lm_head_bias", "True"]
    changes = parse_arguments(argv).architecture_changes()
    assert changes == {
        "d_model": 64,
        "norm_placement": "pre",
        "dropout": 0.0,
        "tie_word_embeddings": False,
        "lm_head_bias": True,
    }
    VanillaTransformerConfig(**changes)


def test_no_architecture_option_means_the_defaults(tmp_path):
    assert parse_arguments(["--output_dir", str(tmp_path)]).architecture_changes() == {}


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_file_holds_arguments_and_the_command_line_wins(tmp_path, suffix):
    recipe = tmp_path / f"recipe.{suffix}"
    content = {
        "output_dir": str(tmp_path / "out"),
        "learning_rate": 0.003,
        "metrics": ["chrf", "ter"],
        "load_best_model_at_end": False,
        "lr_scheduler_kwargs": {"num_cycles": 2},
        "max_tokens": None,
    }
    recipe.write_text(json.dumps(content))
    arguments = parse_arguments([str(recipe), "--learning_rate", "0.1"])
    assert arguments.training.learning_rate == 0.1
    assert arguments.model.metrics == ["chrf", "ter"]
    assert arguments.training.lr_scheduler_kwargs == {"num_cycles": 2}
    assert arguments.recipe == recipe


def test_bad_arguments_say_what_is_wrong(tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        parse_arguments([str(tmp_path / "nowhere.yaml")])
    (tmp_path / "list.yaml").write_text("- 1\n- 2\n")
    with pytest.raises(ValueError, match="one mapping"):
        parse_arguments([str(tmp_path / "list.yaml")])
    with pytest.raises(ValueError, match=r"rouge.*choose of"):
        parse_arguments(["--output_dir", str(tmp_path), "--metrics", "rouge"])
    with pytest.raises((SystemExit, ValueError)):
        parse_arguments(["--output_dir", str(tmp_path), "--d_modell", "3"])


@pytest.mark.parametrize("source", ["command", "file"])
def test_parameters_of_rotation_are_json_or_a_mapping(tmp_path, source):
    parameters = {"rope_type": "linear", "factor": 2.0}
    argv = ["--output_dir", str(tmp_path), "--position_embedding_type", "rope"]
    argv += ["--rope_parameters", json.dumps(parameters)]
    if source == "file":
        recipe = tmp_path / "recipe.json"
        content = {"output_dir": str(tmp_path), "position_embedding_type": "rope"}
        recipe.write_text(json.dumps(content | {"rope_parameters": parameters}))
        argv = [str(recipe)]
    changes = parse_arguments(argv).architecture_changes()
    assert changes == {"position_embedding_type": "rope", "rope_parameters": parameters}
    assert VanillaTransformerConfig(**changes).rope_parameters["factor"] == 2.0


def test_files_hold_odd_values(tmp_path):
    recipe = tmp_path / "recipe.json"
    content = '\ufeff{\n\t"output_dir": "out",\n\t"dataset_label": "--x \\ud83d\\ude00"\n}'
    recipe.write_text(content, encoding="utf-8")
    assert parse_arguments([str(recipe)]).card.dataset_label == "--x \U0001f600"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.yaml", b"a: [1,", r"a\.yaml' cannot be read"),
        ("a.json", b'{"a": 1', r"a\.json' cannot be read"),
        ("a.yaml", b"seed: 1\nx: \xff\n", r"a\.yaml, line 2: byte 0xff"),
        ("a.yaml", b"", "one mapping"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        parse_arguments([str(tmp_path / name)])


def test_the_metric_that_chooses_must_be_computed(tmp_path):
    argv = ["--output_dir", str(tmp_path), "--metrics", "wer", "per"]
    for name in ("wer", "eval_per", "loss"):
        parse_arguments([*argv, "--metric_for_best_model", name])
    with pytest.raises(ValueError, match="`metric_for_best_model` 'bleu' is not computed"):
        parse_arguments([*argv, "--metric_for_best_model", "bleu"])


def test_a_recipe_may_say_no(tmp_path):
    """YAML 1.1 takes the words no, on and off for truth values."""
    path = tmp_path / "recipe.yaml"
    path.write_text("save_strategy: no\nlanguage: [no, en]\nbf16: false\neval_on_start: True\n")
    arguments = parse_arguments([str(path), "--output_dir", str(tmp_path)])
    assert arguments.training.save_strategy == "no"
    assert arguments.card.language == ["no", "en"]
    assert (arguments.training.bf16, arguments.training.eval_on_start) == (False, True)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--generation_max_length", "1", "at least 2"),
        ("--generation_num_beams", "0", "at least 1"),
        ("--d_mode", "8", "--d_mode"),
    ],
)
def test_what_would_be_found_late_or_taken_for_another_is_refused(tmp_path, option, value, message):
    with pytest.raises(ValueError, match=message):
        parse_arguments(["--output_dir", str(tmp_path), option, value])


def test_rope_parameters_that_are_no_json_are_named(tmp_path):
    arguments = parse_arguments(["--output_dir", str(tmp_path), "--rope_parameters", "{bad"])
    with pytest.raises(ValueError, match=r"`rope_parameters` '\{bad' is no JSON"):
        arguments.architecture_changes()
