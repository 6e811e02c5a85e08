"""Arguments from the command line and from files."""

import json

import pytest

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.training.arguments import parse_arguments


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
