"""The demo, with a tiny model and a run of three steps."""

import json
from contextlib import redirect_stdout
from io import StringIO

import demo
import programs
from datasets import DatasetDict
from pronunciations import load_cmudict, split_of

SMALL = ["--d_model", "16", "--encoder_layers", "1", "--decoder_layers", "1"]
SHORT = ["--max_steps", "3", "--save_strategy", "no", "--max_eval_samples", "20"]


def load_few_examples():
    data = load_cmudict()
    for split, count in (("train", 300), ("test", 20)):
        data[split] = data[split].select(range(count))
    return DatasetDict(data)


def run_in_fork(command, *, input, **options):
    """Runs a command in a process that has imported the package already."""
    done = programs.run(*command[2:], input=input)
    assert done.returncode == 0, done.stderr
    return done


def test_it_trains_pronounces_words_and_reuses_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "load_cmudict", load_few_examples)
    monkeypatch.setattr(demo, "SECONDS_BETWEEN_WORDS", 0.0)
    monkeypatch.setattr(demo.subprocess, "run", run_in_fork)
    monkeypatch.chdir(tmp_path)  # the recipe is found from any working directory

    def run_demo(*words):
        with redirect_stdout(StringIO()) as printed:
            demo.main(["--output_dir", "model", *words])
        return printed.getvalue().splitlines()

    lines = run_demo("--words", "two\nlines", "na\u00efve", *SHORT, *SMALL)
    figures = json.loads((tmp_path / "model/all_results.json").read_text(encoding="utf-8"))
    assert f"mismatch {figures['test_mismatch']:.1f} PER {figures['test_per']:.1f}" in lines
    table = lines.index("Ten words that the model has not seen:")
    assert lines[table + 1].split() == ["word", "prediction", "reference"]
    assert all(lines[table + 2 : table + 12])
    assert all(split_of(word) == "test" for word in demo.WATCHED)
    assert sum(" of 3: translation: " in line for line in lines) == 3
    assert any(line.startswith("two lines: ") for line in lines)
    assert "bash scripts/demo.sh" in (tmp_path / "model/README.md").read_text(encoding="utf-8")
    weights = (tmp_path / "model/model.safetensors").read_bytes()
    assert any(" of 4 epochs fitted " in line for line in lines)
    assert any("holds a trained model" in line for line in run_demo())
    assert (tmp_path / "model/model.safetensors").read_bytes() == weights
    run_demo("--retrain", "--seed", "5", *SHORT, *SMALL)
    assert (tmp_path / "model/model.safetensors").read_bytes() != weights


def test_a_training_has_a_time_unless_it_has_steps(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(demo, "load_cmudict", load_few_examples)
    monkeypatch.setattr(demo, "run", lambda arguments, *_: seen.append(arguments))
    for words in ([], ["--max-steps", "3"]):
        options = {"overwrite": False, "command": ["demo"], "minutes": 0.7}
        demo.train_model("cmudict-demo", tmp_path, [*SMALL, *words], **options)
    assert [one.model.minutes for one in seen] == [0.7, None]
    assert seen[1].training.max_steps == 3
