"""Processor time to a score: clock, scores of checkpoints, Marian as a peer, reports."""

import gzip
import json
import os
import shlex
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import forks
import marian_run
import psutil
import pytest
import quality_runs
import time_to_quality
from conftest import make_model
from quality_runs import (
    Curve,
    HeldOut,
    completed_checkpoints,
    run_clocked,
    score_checkpoints,
    score_model,
)

from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

RUN = """
import json, pathlib, sys, time
for step in (10, 20):
    folder = pathlib.Path(sys.argv[1], "run", f"checkpoint-{step}")
    folder.mkdir(parents=True)
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass
    (folder / "trainer_state.json").write_text("{}")
    time.sleep(0.5)
"""
WORDS = HeldOut(["a b", "b"], [["x y"], ["y", "z"]], "wer", num_beams=1, max_length=8)
RECIPE = """
tokenizer_kind: char
target_tokenizer_kind: word
separate_vocabularies: true
d_model: 64
encoder_layers: 1
decoder_layers: 1
encoder_attention_heads: 2
decoder_attention_heads: 2
encoder_ffn_dim: 32
decoder_ffn_dim: 32
dropout: 0.0
"""


def test_the_clock_notes_each_checkpoint_once(tmp_path):
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    clock = run_clocked(command, tmp_path, threads=1)
    assert set(clock) == {-1, 10, 20}
    assert 0.4 < clock[10] < clock[20] <= clock[-1]
    assert clock[10] < 1.0  # waiting does not count
    assert completed_checkpoints(tmp_path / "run") == [10, 20]
    assert run_clocked(command, tmp_path, threads=1) == clock  # a second run would find its folders


STARTER = """
import sys
from pathlib import Path
from quality_runs import run_clocked

run_clocked([sys.executable, "-c", "import time; time.sleep(60)"], Path(sys.argv[1]), threads=1)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_training_does_not_outlive_its_clock_unseen(tmp_path, number):
    """Nothing can run after SIGKILL: then the next call says that the training still runs."""
    program = tmp_path / "starter.py"
    program.write_text(STARTER)
    paths = os.pathsep.join(sys.path)
    process = forks.start(program, tmp_path, environment={"PYTHONPATH": paths})
    note = tmp_path / "process.json"
    while not (note.is_file() and note.read_text().endswith("]")):
        assert process.poll() is None, process.stderr
        time.sleep(0.05)
    training = psutil.Process(json.loads(note.read_text())[0])
    process.send_signal(number)
    process.wait()
    if number == signal.SIGTERM:
        assert process.returncode == 128 + number
        assert not training.is_running()
        assert not note.exists()
        return
    try:
        with pytest.raises(RuntimeError, match=f"Process {training.pid} still trains"):
            run_clocked(["never"], tmp_path, threads=1)
    finally:
        training.kill()
        training.wait()
    run_clocked([sys.executable, "-c", ""], tmp_path, threads=1)


def test_a_run_is_repeated_if_what_it_reads_has_changed(tmp_path):
    text = tmp_path / "train.gz"

    def run(rows, threads=1):
        with gzip.open(text, "wt") as file:
            file.write(rows)
        quick = RUN.replace("0.5", "0.05")
        command = [sys.executable, "-c", quick, str(tmp_path / "own")]
        return run_clocked(command, tmp_path / "own", threads, files=[text])

    clock = run("a dog\n")
    assert run("a dog\n") == clock  # the file is new, but not its text
    for changed in ({"rows": "a cat\n"}, {"rows": "a dog\n", "threads": 2}):
        with pytest.raises(RuntimeError, match="that had other options or texts"):
            run(**changed)
    (tmp_path / "own" / "clock.json").unlink()  # it was killed
    with pytest.raises(RuntimeError, match="that was stopped"):
        run("a dog\n")
    scores = tmp_path / "own" / "scores.json"
    scores.write_text("{}")
    shutil.rmtree(tmp_path / "own" / "run")
    assert set(run("a dog\n")) == {-1, 10, 20}
    assert not scores.exists()  # they were those of the old checkpoints


def test_scores_of_other_texts_or_another_search_are_not_reused(tmp_path, monkeypatch):
    monkeypatch.setattr(quality_runs, "score_model", lambda path, texts: float(texts.max_length))
    held_out = HeldOut(["a"], [["x"]], "wer", num_beams=1, max_length=8)
    old = {f"10 wer 1 {held_out.digest}": 50.0}  # as it was kept before the whole search was
    (tmp_path / "scores.json").write_text(json.dumps(old))
    texts = [replace(held_out, sources=["b"], max_length=9), replace(held_out, max_length=7)]
    rows = [held_out, *texts, held_out]
    found = [score_checkpoints("one", tmp_path, {-1: 2.0, 10: 1.0}, one).scores for one in rows]
    assert found == [[8.0], [9.0], [7.0], [8.0]]
    assert len(json.loads((tmp_path / "scores.json").read_text())) == 4  # the last was known


def test_the_search_does_not_depend_on_what_a_model_was_saved_with(tmp_path):
    words = [x + y for x in "abc" for y in "abc"]
    tokenizer = VanillaTransformerTokenizer.train(words, words, kind="char", shared=True)
    model = make_model(vocab_size=len(tokenizer), seed=1)
    found, outputs = [], []
    for name, early_stopping, length_penalty in (("one", True, 3.0), ("other", "never", -3.0)):
        model.generation_config.num_beams = 2
        model.generation_config.early_stopping = early_stopping
        model.generation_config.length_penalty = length_penalty
        for part in (model, tokenizer):
            part.save_pretrained(tmp_path / name)
        translator = Translator.from_model(model, tokenizer)
        outputs.append(translator.translate(words, num_beams=4, max_length=12))
        held_out = HeldOut(words, [["b"]] * len(words), "wer", num_beams=4, max_length=12)
        found.append(score_model(tmp_path / name, held_out))
    assert outputs[0] != outputs[1]  # the saved settings matter where nothing replaces them
    assert found[0] == found[1]


def test_a_recipe_is_read_as_train_reads_it(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(
        RECIPE.replace("true", "no").replace("target_tokenizer_kind: word\n", "")
        + "gated_ffn: no\nlabel-smoothing: 1e-1\n"
    )
    settings = marian_run.recipe_settings(str(path))
    assert settings["tokenizer"] == {"kind": "char", "shared": True}
    assert (settings["gated_ffn"], settings["label_smoothing"]) == (False, 0.1)
    assert marian_run.plain_ffn_dim(settings, "encoder") == 32
    assert settings["num_train_epochs"] == 3


def test_a_failed_run_is_an_error_with_its_words(tmp_path):
    with pytest.raises(RuntimeError, match="no such recipe"):
        run_clocked([sys.executable, "-c", "raise SystemExit('no such recipe')"], tmp_path, 1)
    assert not (tmp_path / "clock.json").exists()


def test_scores_and_the_time_to_a_target():
    assert WORDS.score(["x y", "z"]) == 0
    assert WORDS.score(["x", "z"]) == 50
    curve = Curve("ours", [1.0, 2.0, 3.0], [10, 20, 30], [60.0, 40.0, 45.0], 3.5)
    assert curve.seconds_to(45, WORDS) == 2
    assert curve.seconds_to(39, WORDS) is None
    texts = HeldOut(["a"], [["a small dog runs"]], "bleu", num_beams=1, max_length=8)
    assert texts.score(["a small dog runs"]) == pytest.approx(100)
    assert curve.seconds_to(45, texts) == 1


def test_marian_learns_under_the_stock_trainer_and_is_scored(tmp_path, monkeypatch, capsys):
    letters = {"a": "AH", "b": "B", "c": "K"}
    words = [x + y + z for x in letters for y in letters for z in letters]
    spoken = [" ".join(letters[letter] for letter in word) for word in words]
    for side, texts in (("source", words), ("target", spoken)):
        with gzip.open(tmp_path / f"{side}.gz", "wt") as file:
            file.writelines(f"{text}\n" for text in texts)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    options = f"""marian_run.py --recipe {tmp_path}/recipe.yaml --train_source {tmp_path}/source.gz
        --train_target {tmp_path}/target.gz --output_dir {tmp_path}/run --learning_rate 5e-3
        --per_device_train_batch_size 27 --max_steps 250 --save_strategy steps --save_steps 250
        --lr_scheduler_type constant_with_warmup --warmup_steps 20 --report_to none
        --disable_tqdm True"""
    monkeypatch.setattr(sys, "argv", options.split())
    marian_run.main()
    held_out = HeldOut(words, [[text] for text in spoken], "wer", num_beams=2, max_length=8)
    curve = score_checkpoints("marian:5e-3", tmp_path, {-1: 9.0, 250: 8.0}, held_out)
    assert curve.scores[0] < 20  # it would be about 100 with a wrong start token or wrong ids
    assert (curve.seconds, curve.steps, curve.total_seconds) == ([8.0], [250], 9.0)
    again = score_checkpoints("marian:5e-3", tmp_path, {-1: 9.0, 250: 8.0}, held_out)
    assert again == curve
    assert capsys.readouterr().err.count("step 250: wer") == 1  # the second came from the record


def test_marian_drops_what_the_recipe_drops(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.replace("dropout: 0.0", "dropout: 0.2\nattention_dropout: 0.1"))
    recipe = marian_run.recipe_settings(str(path))
    tokenizer = marian_run.make_tokenizer(recipe, ["a b"], ["A B"])
    config = marian_run.make_marian(recipe, tokenizer).config
    assert (config.dropout, config.attention_dropout) == (0.2, 0.1)


def test_peers_have_as_many_parameters_as_gated_networks():
    recipe = {"encoder_ffn_dim": 344, "decoder_ffn_dim": 512, "gated_ffn": True}
    assert marian_run.plain_ffn_dim(recipe, "encoder") == 516
    assert marian_run.plain_ffn_dim(recipe | {"gated_ffn": False}, "decoder") == 512


BOTH = "translation --data x --systems ours:LARGE marian:1e-3"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pronunciation --systems theirs", "unknown system 'theirs'"),
        ("pronunciation --systems ours", "unknown system 'ours'"),
        ("pronunciation --systems command:x", "needs --train-command and --translate-command"),
        ("pronunciation --systems ours:OURS --train-command x", "has no effect without command"),
        ("pronunciation --systems log:nowhere.tsv", "nowhere.tsv does not exist"),
        ("pronunciation --systems ours:nowhere.yaml", "nowhere.yaml does not exist"),
        ("translation --systems marian:1e-3", "needs --data"),
        ("translation --data x --systems marian:1e-3 --epoch 2", "unknown options: --epoch 2"),
        ("pronunciation --systems marian:1e-3 --eval-samples 0", "--eval-samples is 0"),
        ("pronunciation --systems marian:1e-3 marian:1e-3", "two systems have one name"),
        ("pronunciation --systems ours:OURS --peer-bf16", "--peer-bf16 has no effect"),
        ("pronunciation --systems ours:OURS --output_dir=y", "--output_dir is set for each"),
        ("pronunciation --systems ours:OURS --train-source y", "--train-source is set for each"),
        (f"{BOTH} --d_model 96", "would change our model (d_model)"),
        (
            f"{BOTH} --encoder-layers 2 --dropout=0.45",
            "would change our model (dropout, encoder_layers)",
        ),
        (f"{BOTH} --vocab_size 500", "would change our model (tokenizer)"),
    ],
)
def test_wrong_options_are_named(words, message, capsys):
    def parse(line):
        for name, recipe in (("OURS", "cmudict-longer"), ("LARGE", "multi30k")):
            line = line.replace(name, str(time_to_quality.RECIPES / f"{recipe}.yaml"))
        return time_to_quality.parse_options([*line.split(), "--output-dir", "x", "--target", "1"])

    with pytest.raises(SystemExit):
        parse(words)
    assert message in capsys.readouterr().err
    if words.startswith(BOTH):  # without Marian, nothing stands beside our model
        assert parse(words.replace(" marian:1e-3", "")).overrides


def test_a_missing_matplotlib_is_named_before_the_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    words = f"translation --data x --output-dir {tmp_path}/out --target 1 --systems marian:1e-3"
    with pytest.raises(ModuleNotFoundError, match="plot"):
        time_to_quality.main(words.split())
    assert not (tmp_path / "out").exists()


def test_other_programs_and_logs_are_scored(tmp_path):
    for name, text in (("en", "a dog runs fast\n"), ("de", "ein Hund rennt schnell\n")):
        for part in ("train", "val"):
            with gzip.open(tmp_path / f"{part}.{name}.gz", "wt") as file:
                file.write(text)
    train = tmp_path / "train.sh"
    train.write_text(f"{shlex.quote(sys.executable)} -c 'sum(range(10**7))' && cp $1 $2/model")
    (tmp_path / "bad.txt").write_text("ein Hund\n")
    shutil.copy(tmp_path / "train.de.gz", tmp_path / "good.txt.gz")
    log = tmp_path / "log.tsv"
    log.write_text("10\tbad.txt\n20\tgood.txt.gz\n")
    options = ["translation", "--data", str(tmp_path), "--output-dir", str(tmp_path / "out")]
    options += ["--target", "50", "--systems", "command:mine", f"log:{log}"]
    options += ["--train-command", f"sh {train} {{target}} {{output}}"]
    options += ["--translate-command", "cat {output}/model"]
    time_to_quality.main(options)
    mine, logged = json.loads((tmp_path / "out" / "curves.json").read_text())
    assert mine["scores"] == [pytest.approx(100)]
    assert mine["seconds"] == [mine["total_seconds"]]
    assert mine["total_seconds"] > 0.05  # the program that the command starts counts
    assert logged["seconds"] == [10, 20]
    assert logged["scores"][0] < 50 < logged["scores"][1]


def test_the_command_of_our_training_and_the_reports(tmp_path, monkeypatch):
    commands = []

    def clocked(command, folder, threads, files):
        commands.append(command)
        assert len(files) == 3  # two texts and the recipe
        return {-1: 30.0, 10: 10.0, 20: 20.0}

    def scored(system, folder, clock, held_out):
        scores = [30.0, 36.0] if system.startswith("ours") else [20.0, 35.0]
        return Curve(system, [10.0, 20.0], [10, 20], scores, clock[-1])

    monkeypatch.setattr(time_to_quality, "run_clocked", clocked)
    monkeypatch.setattr(time_to_quality, "score_checkpoints", scored)
    for name in ("train.en", "train.de", "val.en", "val.de"):
        with gzip.open(tmp_path / f"{name}.gz", "wt") as file:
            file.write("a dog\nein Hund\n")
    recipe = Path(time_to_quality.RECIPES, "multi30k.yaml")
    time_to_quality.main(
        f"translation --data {tmp_path} --output-dir {tmp_path}/out --target 30 "
        f"--systems ours:{recipe} marian:1e-3 --max_tokens 999 --bf16 False".split()
    )
    ours, marian = commands
    assert ours[1:5] == ["-m", "vanilla_transformer", "train", str(recipe)]
    assert ours[-4:] == ["--max_tokens", "999", "--bf16", "False"]
    assert not {"999", "--bf16"} & {*marian}
    assert f"--recipe={recipe}" in marian
    assert "--learning_rate=1e-3" in marian
    assert "--num_train_epochs=30" in marian  # those of the recipe
    curves = json.loads((tmp_path / "out" / "curves.json").read_text())
    assert [curve["scores"] for curve in curves] == [[30, 36], [20, 35]]
    assert (tmp_path / "out" / "time_to_quality.png").stat().st_size > 5000
    held_out = HeldOut(["a"], [["b"]], "bleu", 1, 8)
    report = time_to_quality.format_ratios([Curve(**curve) for curve in curves], 30, held_out)
    assert "| ours" in report
    assert "| 20 | 2.00 |" in report
    assert "not reached" in time_to_quality.format_curve(Curve(**curves[1]), 36, held_out)
