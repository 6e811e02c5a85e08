"""Options from the command line and from recipes."""

import inspect
import json

import pytest

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerTokenizer
from vanilla_transformer.run.arguments import parse_arguments, read_given
from vanilla_transformer.run.options import TokenizerArguments
from vanilla_transformer.run.recipes import read_recipe


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
    assert arguments.recipe.path == recipe


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.yaml", b"a: [1,", r"a\.yaml' cannot be read"),
        ("a.yaml", b"seed: 1\nx: \xff\n", r"a\.yaml, line 2: byte 0xff"),
        ("a.yaml", b"seed: 1\nd_model: 8\nseed: 2\n", r"a\.yaml' cannot .* 'seed' occurs twice"),
        ("a.yaml", b"corpora:\n- name: a\n  name: b\n", r"a\.yaml' cannot .* 'name' occurs twice"),
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


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--muon-momentum", "0.9", "--optim", "adamw_torch"], "`optim` muon"),
        (["--muon-learning-rate", "0.1", "--model-name-or-path", "x"], "`optim` muon"),
        (["--target-vocab-size", "9"], "`target_vocab_size` .* without `separate_vocabularies`"),
        (["--teacher-weight", "0.2"], "`teacher_weight` .* without `teacher`"),
        (["--optim", "muonn"], "'muon',"),
        (["--lr-scheduler-type", "noan"], "'noam',"),
    ],
)
def test_an_option_without_effect_or_with_an_unknown_name_is_refused(words, named, tmp_path):
    with pytest.raises(ValueError, match=named):
        parse_arguments(["--output_dir", str(tmp_path), *words])


def test_a_recipe_with_muon_takes_another_optimizer(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("optim: muon\nmuon-learning-rate: 0.1\nmuon_momentum: 0.9\n")
    words = [str(recipe), "--output_dir", str(tmp_path), "--optim", "adafactor"]
    assert parse_arguments(words).training.optim == "adafactor"


def test_muon_may_still_be_chosen_for_a_rate_that_is_given(tmp_path):
    parse_arguments(["--output_dir", str(tmp_path), "--muon-learning-rate", "0.1"])


def test_a_recipe_may_say_no(tmp_path):
    """YAML 1.1 takes the words no, on and off for truth values."""
    path = tmp_path / "recipe.yaml"
    path.write_text("save_strategy: no\nsource_language: no\nbf16: false\neval_on_start: True\n")
    arguments = parse_arguments([str(path), "--output_dir", str(tmp_path)])
    assert arguments.training.save_strategy == "no"
    assert arguments.data.source_language == "no"
    assert (arguments.training.bf16, arguments.training.eval_on_start) == (False, True)


def test_names_of_options_with_hyphens(tmp_path):
    assert parse_arguments(["--output-dir", str(tmp_path), "--overwrite"]).model.overwrite
    assert not parse_arguments(["--output_dir", "x", "--overwrite", "False"]).model.overwrite
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("overwrite: true\nnorm-placement: pre\n")
    arguments = parse_arguments([str(recipe), "--output-dir", str(tmp_path)])
    assert arguments.model.overwrite
    assert arguments.architecture == {"norm_placement": "pre"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: 010", ["--seed=010"]),
        ("a: 1:30", ["--a=1:30"]),
        ("a: 1e-3", ["--a=1e-3"]),
        ("a: {b: 2, c: [d, 0.5]}", ['--a={"b": 2, "c": ["d", 0.5]}']),
        ("a: ~", []),
        ("a: 2001-01-01", ["--a=2001-01-01"]),
        ("a: {b: 2001-01-01, c: [en, no]}", ['--a={"b": "2001-01-01", "c": ["en", "no"]}']),
        ("a: {on: 12:30, n: off, b: 1_000}", ['--a={"on": "12:30", "n": "off", "b": "1_000"}']),
        ("a: {b: 010, c: 1e-3, d: '7'}", ['--a={"b": 10, "c": 0.001, "d": "7"}']),
        ("a: {b: True, c: null, d: , e: .5}", ['--a={"b": true, "c": null, "d": null, "e": 0.5}']),
        ("x: &x {b: yes}\na: {<<: *x, c: -1}", ['--x={"b": "yes"}', '--a={"b": "yes", "c": -1}']),
    ],
)
def test_values_of_a_recipe_are_as_they_are_written(tmp_path, text, words):
    (tmp_path / "recipe.yaml").write_text(text)
    assert read_recipe(tmp_path / "recipe.yaml").words == words


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--bf16"], {"bf16": True}),
        (["--bf16", "no", "--do-eval=False"], {"bf16": False, "do_eval": False}),
        (["--no_remove_unused_columns"], {"remove_unused_columns": False}),
        (["--remove-unused-columns", "true"], {"remove_unused_columns": True}),
        (["--eval_strategy", "epoch"], {"eval_strategy": "epoch"}),
        (["--liger_kernel_config", '{"rope": false}'], {"liger_kernel_config": {"rope": False}}),
        (["--include_for_metrics", "inputs", "loss"], {"include_for_metrics": ["inputs", "loss"]}),
        (["--rope_parameters", '{"rope_theta": 10}'], {"rope_parameters": {"rope_theta": 10}}),
        (["--learning_rate", "1e-3", "--learning-rate=5e-5"], {"learning_rate": 5e-5}),
        ([], {}),
    ],
    ids=str,
)
def test_options_are_read_in_all_their_forms(words, given):
    assert read_given(words)[0] == given


def test_a_vocabulary_has_as_many_tokens_as_the_library_gives_it():
    train = inspect.signature(VanillaTransformerTokenizer.train)
    assert train.parameters["vocab_size"].default == TokenizerArguments().vocab_size


@pytest.mark.parametrize(
    ("text", "size"), [("8MB", 8_000_000), ("0.5mb", 500_000), ("123", 123), ("8e6", 8_000_000)]
)
def test_a_size_is_read_in_bytes_and_in_megabytes(text, size):
    assert read_given(["--size", text])[0] == {"size": size}


@pytest.mark.parametrize("text", ["8kb", "8 GB", "MB", "1e999", "nan"])
def test_a_size_in_another_form_is_refused_with_the_forms_that_are_read(text):
    with pytest.raises(ValueError, match=f"'{text}' is no size: .* 8000000 or 8MB"):
        read_given(["--size", text])


@pytest.mark.parametrize(
    "words",
    ["--bf16 maybe", "--eval_strategy never", "--max_tokens 0", "--seed many", "--bf", "x"],
)
def test_what_is_no_option_or_no_value_is_refused(words):
    with pytest.raises(ValueError, match=words.split()[-1]):
        read_given(words.split())
