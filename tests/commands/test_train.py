"""`vanilla-transformer train`: its options, its help, and its start in several processes."""

import json
import os
import subprocess
import sys

import pytest
from made_up_language import arguments
from programs import REPOSITORY, run_python
from several_processes import launch

from vanilla_transformer.command_line import CommandParser, UsageError
from vanilla_transformer.commands import train
from vanilla_transformer.commands.train import ENVIRONMENT
from vanilla_transformer.extras import EXTRAS
from vanilla_transformer.run.arguments import option_parser


def test_the_short_help_has_the_most_used_options_and_the_whole_one_has_all(capsys):
    shown = []
    for word in ("--help", "--help-all"):
        train.run([word])
        shown.append(capsys.readouterr().out)
    for name in train.MOST_USED:
        option = f" --{name.replace('_', '-')}"
        assert all(f"{option} " in text or f"{option}\n" in text for text in shown)
    for seldom in ("--adam-beta2", "--bpe-dropout"):
        assert seldom in shown[1]
        assert seldom not in shown[0]
    assert len(shown[0].splitlines()) <= 110
    assert "--help-all" in shown[0].splitlines()[-1]


def test_a_misspelt_option_is_named_with_the_most_similar_one(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("max_step: 5\n")
    for words, similar in (
        (["--outputdir", "x"], "--output-dir"),
        (["--train-sorce=x"], "--train-source"),
        (["--epochs", "4"], "--num-train-epochs"),
        ([str(recipe), "--output-dir", "x"], "--max-steps"),
    ):
        with pytest.raises(UsageError, match=f"did you mean {similar}"):
            train.parse(words)


def test_a_text_that_begins_with_a_dash_is_told_where_to_stand():
    with pytest.raises(UsageError, match=r"'--force is needed' is no option: put texts .* behind"):
        CommandParser("translate", "").parse_words(["--force is needed"])


def test_each_option_has_a_name_that_is_known_without_imports():
    train.parse(list(option_parser()._option_string_actions))


def test_the_help_needs_no_extra():
    blocked = f"import sys; sys.modules |= dict.fromkeys({EXTRAS['train'] + EXTRAS['peft']})"
    start = "from vanilla_transformer.commands.program import main; main(['train', '--help'])"
    done = run_python("-c", f"{blocked}; {start}")
    assert "--train-source" in done.stdout, done.stderr


def test_accelerate_starts_it_in_two_processes(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    argv = arguments(corpus, tmp_path / "out", "train", "validation", max_steps=4)
    launch("-m", "vanilla_transformer", "train", *argv)
    results = json.loads((tmp_path / "out" / "all_results.json").read_text(encoding="utf-8"))
    assert "eval_bleu" in results


def test_threads_that_wait_are_told_so_before_torch_is_imported(tmp_path):
    spy = """
import os, sys

class Spy:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("spins:", os.environ.get("GOMP_SPINCOUNT"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Spy())
"""
    (tmp_path / "sitecustomize.py").write_text(spy, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path), str(REPOSITORY)))
    done = subprocess.run(
        [sys.executable, "-m", "vanilla_transformer", "train", "--dry-run"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "spins: 10000\n"


@pytest.mark.parametrize("given", [None, "0"])
def test_training_sets_its_environment_unless_told_otherwise(monkeypatch, given):
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, given or "")  # so that its absence is restored at the end
        if given is None:
            monkeypatch.delenv(name)
    with pytest.raises(UsageError, match="no-such-option"):
        train.run(["--no_such_option", "1"])
    for name, value in ENVIRONMENT.items():
        assert os.environ[name] == (given or value)
