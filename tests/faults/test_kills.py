"""Killed runs and full disks: the same command ends with what an undisturbed run leaves."""

import json
import random
from pathlib import Path

import programs
import pytest
from tiny_training import SIZES

PROGRAM = Path(__file__).with_name("doomed_run.py")
STEPS = {"max_steps": 10, "logging_steps": 1, "save_strategy": "steps", "save_steps": 3}
STEPS |= {"max_tokens": 200, "learning_rate": 0.01, "dropout": 0.3, "seed": 3, "warmup_steps": 2}
STEPS |= {"choose_defaults": False, "generation_max_length": 8, "generation_num_beams": 1}
SCORED = {"eval_strategy": "steps", "eval_steps": 3, "metrics": "chrf"}
VARIANTS = {
    "everything that draws": {
        "tokenizer_kind": "bpe",
        "vocab_size": 90,
        "bpe_dropout": 0.2,
        "rdrop_alpha": 5.0,
        "ema_decay": 0.9,
        "gradient_accumulation_steps": 2,
    },
    "the best of few checkpoints": {
        "tokenizer_kind": "char",
        "save_total_limit": 1,
        "load_best_model_at_end": True,
        "early_stopping_patience": 5,
        **SCORED,
    },
    "a rate that follows the scores": {
        "tokenizer_kind": "word",
        "lr_scheduler_type": "reduce_lr_on_plateau",
        **SCORED,
    },
}
OF_ITS_STEPS = ("runtime", "per_second", "train_loss")
"""Ends of the names of figures that a resumed run has for its own steps alone."""


class Runs:
    """Runs of one corpus, in processes of their own."""

    def __init__(self, folder):
        self.folder, self._expected = folder, {}
        chance, words = random.Random(0), [f"word{index}" for index in range(12)]
        for name, count in (("train", 60), ("validation", 6)):
            pairs = [chance.choices(words, k=chance.randint(1, 6)) for _ in range(count)]
            for side, order in (("source", 1), ("target", -1)):
                lines = "".join(f"{' '.join(pair[::order])}\n" for pair in pairs)
                (folder / f"{name}.{side}").write_text(lines, encoding="utf-8")

    def start(self, variant, output, doom=""):
        files = {
            f"{split}_{side}": self.folder / f"{split}.{side}"
            for split in ("train", "validation")
            for side in ("source", "target")
        }
        options = {**files, "output_dir": output, "resume_from_checkpoint": True}
        options |= {**SIZES, **STEPS, **VARIANTS[variant]}
        words = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        return programs.start(PROGRAM, *words, environment={"DOOM": doom})

    def expected(self, variant):
        """Returns what an undisturbed run leaves."""
        if variant not in self._expected:
            output = self.folder / f"whole-{variant}".replace(" ", "-")
            self.finish(variant, output)
            self._expected[variant] = what_a_run_leaves(output)
        return self._expected[variant]

    def finish(self, variant, output):
        process = self.start(variant, output)
        assert process.wait() == 0, process.stderr[-3000:]


def without_figures_of_its_steps(value):
    """Returns figures and logs less what differs in a resumed run."""
    if isinstance(value, dict):
        kept = {name: entry for name, entry in value.items() if not name.endswith(OF_ITS_STEPS)}
        return {name: without_figures_of_its_steps(entry) for name, entry in kept.items()}
    return [without_figures_of_its_steps(e) for e in value] if isinstance(value, list) else value


def what_a_run_leaves(folder):
    """Returns everything in the directory of a run that must not depend on kills, by file."""
    left = {path.name: None for path in folder.iterdir()}
    for name in ("model.safetensors", "tokenizer.json", "config.json", "generation_config.json"):
        left[name] = (folder / name).read_bytes()
    for name in ("all_results.json", "trainer_state.json"):
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        left[name] = without_figures_of_its_steps(content)
    left["trainer_state.json"].pop("best_model_checkpoint")  # a path
    return left


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(
    ("variant", "doom"), [*zip(VARIANTS, ("event:29", "event:9"), strict=False)]
)
def test_a_killed_run_ends_like_an_undisturbed_one(runs, variant, doom, tmp_path):
    expected = runs.expected(variant)
    assert runs.start(variant, tmp_path / "run", doom).wait() < 0
    runs.finish(variant, tmp_path / "run")
    assert what_a_run_leaves(tmp_path / "run") == expected


def test_a_full_disk_is_named_and_loses_nothing(runs, tmp_path):
    variant = "a rate that follows the scores"
    process = runs.start(variant, tmp_path / "run", "full:20000")
    assert process.wait() == 1
    # A progress bar may be drawn once more, after the error.
    last = next(line for line in reversed(process.stderr.splitlines()) if "error: " in line)
    assert "cannot be written whole: no space left" in last
    runs.finish(variant, tmp_path / "run")
    assert what_a_run_leaves(tmp_path / "run") == runs.expected(variant)
