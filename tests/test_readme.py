"""What the README prints is what runs."""

import re
import subprocess
import sys

import pytest
from toy import REPOSITORY

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.run.parsing import parse_arguments

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
RECIPES = sorted((REPOSITORY / "scripts" / "recipes").glob("*.yaml"))


def test_the_example_runs_as_printed(trained):
    code = re.search(r"```python\n(import vanilla_transformer.*?)```", README, re.DOTALL)[1]
    assert len(code.strip().splitlines()) <= 9
    code = code.replace("runs/cmudict-demo", str(trained))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("['")


def test_the_loop_over_accelerate_trains_as_printed(trained):
    """On the first words of the dictionary, for one epoch."""
    first, loop = re.findall(
        r"```python\n((?:import vanilla|from accelerate).*?)```", README, re.DOTALL
    )
    part = "{'train': load_cmudict()['train'].select(range(400))}"
    changes = {"runs/cmudict-demo": str(trained), "range(3)": "range(1)", "4096": "1000"}
    changes["load_cmudict()"] = f"__import__('datasets').DatasetDict({part})"
    code = f"{first}\n{loop}\nprint('loss', loss.item())"
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    options = {"capture_output": True, "text": True, "timeout": 120, "check": False}
    done = subprocess.run([sys.executable, "-c", code], **options)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.split()[-1]) > 0


def test_every_field_stands_in_the_table():
    table = README.split("## Fields of the config")[1].split("from_preset(")[0]
    rows = "\n".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`(\w+)`", rows))
    unnamed = {"is_encoder_decoder", "use_cache", "forced_eos_token_id"}
    assert named == set(VanillaTransformerConfig.__annotations__) - unnamed


def test_the_layer_beside_the_figure_is_the_layer_that_runs():
    code = (REPOSITORY / "vanilla_transformer" / "layers.py").read_text(encoding="utf-8")
    section = README.split("## The paper's figure")[1].split("\n## ")[0]
    quoted = re.findall(r"(?:residual|hidden_states(?:, _)?) = .*", section)
    assert len(quoted) == 8
    for line in quoted:
        assert line.strip() in code


def test_the_files_named_exist():
    tree = README.split("## Files")[1].split("```")[1]
    for name in re.findall(r"^  (\w+\.py)", tree, re.MULTILINE):
        assert (REPOSITORY / "vanilla_transformer" / name).is_file()
    for link in re.findall(r"\]\(((?!http|#)[^)]+)\)", README):
        assert (REPOSITORY / link).exists(), link


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_are_legal(recipe, tmp_path):
    arguments = parse_arguments([str(recipe), "--output_dir", str(tmp_path)])
    VanillaTransformerConfig(**arguments.architecture)
