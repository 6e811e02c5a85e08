"""Options from the command line and from recipes."""

import ast
import json
import sys
from pathlib import Path

import pytest

import vanilla_transformer
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.tokenization_vanilla_transformer import KINDS
from vanilla_transformer.names import TOKENIZER_KINDS
from vanilla_transformer.run.option_names import (
    OTHER_NAMES,
    first_unknown_option,
    option_names,
    unknown_option_message,
)
from vanilla_transformer.run.parsing import (
    ARCHITECTURE_FIELDS,
    field_descriptions,
    option_parser,
    parse_arguments,
)
from vanilla_transformer.run.recipes import read_recipe

PACKAGE = Path(vanilla_transformer.__file__).parent


def test_every_architecture_field_is_an_option(tmp_path):
    argv = ["--output_dir", str(tmp_path), "--d_model", "64", "--norm_placement", "pre"]
    argv += ["--dropout", "0", "--tie_word_embeddings", "False", "--lm_head_bias", "True"]
    changes = parse_arguments(argv).architecture
    assert changes == {
        "d_model": 64,
        "norm_placement": "pre",
        "dropout": 0.0,
        "tie_word_embeddings": False,
        "lm_head_bias": True,
    }
    VanillaTransformerConfig(**changes)
    assert parse_arguments(["--output_dir", str(tmp_path)]).architecture == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num_train_epochs", "x"], "`num_train_epochs`: invalid float value: 'x'."),
        (["--bf16", "maybe"], "`bf16`: Truthy value expected"),
        (["--metrics"], "`metrics`: expected at least one argument."),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error_of_the_command_that_reads_it(words, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        parse_arguments(words)


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_file_holds_arguments_and_the_command_line_wins(tmp_path, suffix):
    recipe = tmp_path / f"recipe.{suffix}"
    content = {
        "output_dir": str(tmp_path / "out"),
        "learning_rate": 0.003,
        "metrics": ["chrf", "ter"],
        "load_best_model_at_end": False,
        "lr_scheduler_type": "cosine_with_restarts",
        "lr_scheduler_kwargs": {"num_cycles": 2},
        "max_tokens": None,
    }
    recipe.write_text(json.dumps(content))
    arguments = parse_arguments([str(recipe), "--learning_rate", "0.1"])
    assert arguments.training.learning_rate == 0.1
    assert arguments.model.metrics == ["chrf", "ter"]
    assert arguments.training.lr_scheduler_kwargs == {"num_cycles": 2}
    assert arguments.recipe == recipe


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
    changes = parse_arguments(argv).architecture
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
        ("a.yaml", b"- 1\n- 2\n", "one mapping"),
        ("a.yaml", b"seed: 1\nd_model: 8\nseed: 2\n", r"a\.yaml' cannot .* 'seed' occurs twice"),
        ("a.yaml", b"corpora: []\n", r"a\.yaml' has an empty list for 'corpora'"),
        ("a.json", b'{"seed": 1, "seed": 2}', r"a\.json' cannot be read: 'seed' occurs twice"),
        ("a.yaml", b"d_model: 8\nd-model: 9\n", r"a\.yaml' cannot .* 'd_model' occurs twice"),
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


@pytest.mark.parametrize("name", ["names", "rules", "data/arguments", "run/options"])
def test_the_plain_options_import_no_library(name):
    tree = ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {"names", "rules", "data.arguments", "data.corpus_entries"}
    modules -= {f"vanilla_transformer.{module}" for module in own}
    assert {module.split(".")[0] for module in modules} <= set(sys.stdlib_module_names)


def test_the_names_that_options_and_library_share():
    assert tuple(KINDS) == TOKENIZER_KINDS


def test_every_architecture_option_has_a_description_of_its_own():
    described = field_descriptions()
    assert set(described) >= set(ARCHITECTURE_FIELDS)
    assert described["d_model"].startswith("Width of the residual stream")
    text = " ".join(option_parser().format_help().split())
    chosen = "Default of a new model: chosen by the size of its data, or 512."
    assert f"Width of the residual stream (§3.1). {chosen}" in text
    assert "Default of a new model: 'layer_norm'." in text


def test_option_names_are_those_of_the_parser():
    words = [word for action in option_parser()._actions for word in action.option_strings]
    assert first_unknown_option(words) is None
    parsed = {word.lstrip("-").replace("-", "_") for word in words}
    assert set(option_names()) <= parsed
    assert first_unknown_option(["r.yaml", "--d_model", "-1", "--sed=2"]) == "--sed"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--epochs", "num_train_epochs"),
        ("--valid-source", "validation_source"),
        ("--batch_size", "max_tokens"),
        ("--lr", "learning_rate"),
        ("--device", "use_cpu"),
    ],
)
def test_an_option_of_another_toolkit_leads_to_ours(given, meant):
    assert unknown_option_message(given).endswith(f"unknown: did you mean `--{meant}`?")
    assert set(OTHER_NAMES.values()) <= set(option_names())


@pytest.mark.parametrize("old", ["overwrite_output_dir", "overwrite-output-dir", "overwrite"])
def test_names_of_options_old_and_with_hyphens(tmp_path, old):
    assert parse_arguments(["--output-dir", str(tmp_path), f"--{old}"]).model.overwrite
    assert not parse_arguments(["--output_dir", "x", f"--{old}", "False"]).model.overwrite
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"{old}: true\nnorm-placement: pre\n")
    arguments = parse_arguments([str(recipe), "--output-dir", str(tmp_path)])
    assert arguments.model.overwrite
    assert arguments.architecture == {"norm_placement": "pre"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--norm-placment", "pre"], "`--norm-placment` is unknown: did you mean `--norm_pl"),
        (["--qqqqqq=1"], "`--qqqqqq` is unknown: `--help` lists"),
        (["--rope_parameters", "{bad"], r"`rope_parameters` '\{bad' is not valid JSON"),
        (["recipe.yaml"], "'recipe.yaml' is unexpected.* a recipe .* as the first"),
    ],
)
def test_options_that_cannot_be_read_are_refused(tmp_path, argv, message):
    with pytest.raises(ValueError, match=message):
        parse_arguments(["--output_dir", str(tmp_path), *argv])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: 010", ["--seed=10"]),
        ("a: 1:30", ["--a=1:30"]),
        ("a: {b: 1e-3, c: [no, .inf]}", ['--a={"b": 0.001, "c": ["no", Infinity]}']),
        ("a: ~", []),
        ("a: 2001-01-01", ["--a=2001-01-01"]),
    ],
)
def test_values_of_a_recipe_are_those_of_yaml_1_2(tmp_path, text, words):
    (tmp_path / "recipe.yaml").write_text(text)
    assert read_recipe(tmp_path / "recipe.yaml").words == words


def test_a_recipe_may_repeat_a_part_of_itself(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"output_dir: {tmp_path}\naccelerator_config: &a {{split_batches: true}}\n"
        "lr_scheduler_kwargs: {<<: *a, factor: 2}\n"
    )
    words = read_recipe(recipe).words
    assert words[-1] == '--lr_scheduler_kwargs={"split_batches": true, "factor": 2}'


def test_the_command_on_the_card_is_the_one_that_repeats_the_run(tmp_path):
    argv = ["--output_dir", str(tmp_path), "--seed", "2"]
    assert parse_arguments(argv).command == ("vanilla-transformer", "train", *argv)
    demo = ["bash", "scripts/demo.sh"]
    assert parse_arguments(argv, command=demo).command == tuple(demo)
