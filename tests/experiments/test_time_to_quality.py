"""Systems are trained, clocked and scored on the same texts."""

import gzip
import json
import shlex
import sys

import marian_run
import pytest
import time_to_quality
from quality_runs import HeldOut, run_clocked, score_checkpoints

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
max_tokens: 200
"""


@pytest.fixture
def data(tmp_path):
    for language, text in (("en", "a dog runs fast\n"), ("de", "ein Hund rennt schnell\n")):
        for split in ("train", "val"):
            (tmp_path / f"{split}.{language}.gz").write_bytes(gzip.compress(text.encode() * 8))
    (tmp_path / "small.yaml").write_text(RECIPE)
    return tmp_path


def test_systems_are_scored_and_finished_runs_kept(data, capsys):
    train = data / "train.sh"
    train.write_text(f"{shlex.quote(sys.executable)} -c 'sum(range(10**7))' && cp $1 $2/model")
    (data / "bad.txt").write_text("ein Hund\n" * 8)
    (data / "good.txt").write_text("ein Hund rennt schnell\n" * 8)
    (data / "log.tsv").write_text("10\tbad.txt\n20\tgood.txt\n")
    out = data / "out"
    options = ["translation", "--data", str(data), "--output-dir", str(out), "--target", "50"]
    options += ["--systems", "command:mine", f"log:{data / 'log.tsv'}", f"ours:{data}/small.yaml"]
    options += ["--train-command", f"sh {train} {{target}} {{output}}", "--save-steps", "2"]
    options += ["--translate-command", "cat {output}/model", "--max_steps", "4"]
    time_to_quality.main(options)
    curves = json.loads((out / "curves.json").read_text())
    mine, logged, ours = curves
    assert mine["scores"] == [pytest.approx(100)]
    assert mine["total_seconds"] > 0.05  # the program that the command starts counts
    assert logged["seconds"] == [10, 20]
    assert logged["scores"][0] < 50 < logged["scores"][1]
    assert ours["steps"] == [2, 4]
    assert 0 < ours["seconds"][0] <= ours["seconds"][1] <= ours["total_seconds"]
    assert (out / "time_to_quality.png").stat().st_size > 5000
    assert "| log:" in capsys.readouterr().out
    time_to_quality.main(options)  # finished runs and scores are kept
    assert json.loads((out / "curves.json").read_text()) == curves
    clock = out / "ours-small" / "clock.json"
    clock.unlink()  # it was killed
    with pytest.raises(RuntimeError, match="that was stopped"):
        time_to_quality.main(options)


def test_marian_learns_under_the_stock_trainer_and_is_scored(tmp_path, monkeypatch):
    letters = {"a": "AH", "b": "B", "c": "K"}
    words = [x + y + z for x in letters for y in letters for z in letters]
    spoken = [" ".join(letters[letter] for letter in word) for word in words]
    for side, texts in (("source", words), ("target", spoken)):
        (tmp_path / side).write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    options = f"""marian_run.py --recipe {tmp_path}/recipe.yaml --train_source {tmp_path}/source
        --train_target {tmp_path}/target --output_dir {tmp_path}/run --learning_rate 5e-3
        --per_device_train_batch_size 27 --max_steps 250 --save_strategy steps --save_steps 250
        --lr_scheduler_type constant_with_warmup --warmup_steps 20 --report_to none
        --disable_tqdm True"""
    monkeypatch.setattr(sys, "argv", options.split())
    marian_run.main()
    held_out = HeldOut(words, [[text] for text in spoken], "mismatch", num_beams=2, max_length=8)
    curve = score_checkpoints("marian:5e-3", tmp_path, {-1: 9.0, 250: 8.0}, held_out)
    assert curve.scores[0] < 20  # it would be about 100 with a wrong start token or wrong ids
    with pytest.raises(RuntimeError, match="no such recipe"):
        run_clocked([sys.executable, "-c", "raise SystemExit('no such recipe')"], tmp_path / "x", 1)
