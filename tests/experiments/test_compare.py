"""The comparison of systems is fair, and its measurements and files are right."""

import csv
import json
import sys

import pytest
import torch
from compare import (
    SYSTEMS,
    CompareArguments,
    count_parameters,
    format_table,
    main,
    make_compared_model,
    running_mean,
    train,
    training_batches,
    training_loss,
    validate,
)
from datasets import Dataset
from small import rows, tokenizer
from toy import experiment
from transformers import DataCollatorForSeq2Seq

from vanilla_transformer.model.labels import IGNORE_INDEX

TINY = {"d_model": 16, "layers": 1, "ffn_dim": 16, "max_tokens": 120, "steps": 12}


def options(**changes):
    return CompareArguments("nowhere", **{**TINY, "validate_every": 6, **changes})


def batch():
    return DataCollatorForSeq2Seq(tokenizer())(rows(6))


def command(corpus, folder, **changes):
    files = {"train": "train", "validation": "val"}
    given = {
        f"{split}_{side}": corpus / f"{name}.{suffix}"
        for split, name in files.items()
        for side, suffix in (("source", "en"), ("target", "de"))
    }
    given |= {**TINY, "output_dir": folder, "vocab_size": 80, "warmup_steps": 2, **changes}
    return [str(part) for name, value in given.items() for part in (f"--{name}", value)]


def test_systems_have_equally_many_parameters_except_final_norms():
    words = tokenizer()
    counts = {
        name: count_parameters(make_compared_model(name, options(), words)) for name in SYSTEMS
    }
    assert counts["ours"] == counts["marian"] == counts["marian_scaled"]
    assert counts["ours_pre"] == counts["ours"] + 2 * 2 * 16


def test_with_the_same_weights_scaled_marian_has_our_loss():
    """Formula, sizes and special tokens are the same: only the initial values differ."""
    words, settings = tokenizer(), options(dropout=0.0, label_smoothing=0.3)
    ours, marian = (
        make_compared_model(name, settings, words) for name in ("ours", "marian_scaled")
    )
    ours.config.position_embedding_type = "sinusoidal_half"
    half = type(ours)(ours.config)
    own = dict(half.named_parameters())
    renames = [("self_attn_layer_norm", "self_attn_post_norm"), ("fc", "feed_forward.fc")]
    renames += [("encoder_attn_layer_norm", "encoder_attn_post_norm")]
    renames += [("final_layer_norm", "feed_forward_post_norm")]
    with torch.no_grad():
        for name, value in marian.named_parameters():
            for old, new in renames if value.requires_grad else []:
                name = name.replace(f".{old}", f".{new}")
            if value.requires_grad:
                own.pop(name).copy_(value)
    assert not own
    losses = [training_loss(model, batch(), 0.3) for model in (half, marian)]
    torch.testing.assert_close(*losses)
    assert training_loss(marian, batch(), 0.0) != losses[1]


def test_systems_start_from_the_initial_values_of_their_defaults():
    words, settings = tokenizer(), options(d_model=64)
    stds = {
        name: make_compared_model(name, settings, words)
        .get_input_embeddings()
        .weight[4:]
        .std()
        .item()
        for name in ("ours", "marian")
    }
    assert stds == {"ours": pytest.approx(1 / 16, rel=0.1), "marian": pytest.approx(0.02, rel=0.1)}


def test_every_system_gets_the_same_batches_over_several_epochs():
    data = Dataset.from_list(rows(24))
    twice = [list(training_batches(data, options(), tokenizer())) for _ in range(2)]
    assert len(twice[0]) == 12
    for one, other in zip(*twice, strict=True):
        assert all(one[name].equal(other[name]) for name in one)
        assert one["input_ids"].numel() + one["labels"].numel() <= 120
    others = list(training_batches(data, options(seed=2), tokenizer()))
    assert any(
        a["labels"].shape != b["labels"].shape for a, b in zip(twice[0], others, strict=True)
    )
    pairs = sum(len(one["labels"]) for one in twice[0])
    assert pairs > 24


@pytest.mark.parametrize("system", ["ours", "marian"])
def test_a_training_learns_and_repeats_itself(system):
    data, words = Dataset.from_list(rows(24)), tokenizer()
    settings = options(steps=30, learning_rate=0.02, warmup_steps=5, validate_every=10)
    found = [
        train(make_compared_model(system, settings, words), data, data, settings, words)
        for _ in range(2)
    ]
    assert found[0]["loss"] == found[1]["loss"]
    assert sum(found[0]["loss"][-5:]) < 0.9 * sum(found[0]["loss"][:5])
    assert [point["step"] for point in found[0]["validation"]] == [10, 20, 30]


def test_validation_is_the_mean_over_tokens_without_dropout_or_smoothing():
    words, settings = tokenizer(), options(max_tokens=40)
    model, pairs = make_compared_model("ours", settings, words).train(), rows(9)
    before = torch.get_rng_state()
    found = validate(model, Dataset.from_list(pairs), settings, words)
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    model.eval()
    total = tokens = right = 0
    for row in pairs:
        alone = DataCollatorForSeq2Seq(words)([row])
        logits, labels = model(**alone).logits[0], alone["labels"][0]
        assert IGNORE_INDEX not in labels
        total -= logits.log_softmax(-1)[range(len(labels)), labels].sum().item()
        right += (logits.argmax(-1) == labels).sum().item()
        tokens += len(labels)
    assert found == {
        "nll": pytest.approx(total / tokens),
        "accuracy": pytest.approx(right / tokens),
    }


def test_the_program_writes_figures_curves_and_a_picture(corpus, tmp_path):
    done = experiment("compare.py", *command(corpus, tmp_path / "out", validate_every=6))
    assert done.returncode == 0, done.stderr[-2000:]
    content = json.loads((tmp_path / "out" / "losses.json").read_text())
    assert list(content["systems"]) == ["ours", "marian", "marian_scaled"]
    assert content["settings"]["d_model"] == 16
    with (tmp_path / "out" / "losses.csv").open() as file:
        written = list(csv.DictReader(file))
    assert len(written) == 36
    for name, result in content["systems"].items():
        own = [row for row in written if row["system"] == name]
        assert [float(row["loss"]) for row in own] == result["loss"]
        assert [row["step"] for row in own if row["validation_nll"]] == ["6", "12"]
        assert f"| {name} | {result['parameters']:,} |" in done.stdout
    picture = (tmp_path / "out" / "losses.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 100_000


def test_long_texts_are_truncated_as_asked(corpus, tmp_path):
    argv = command(corpus, tmp_path, systems="ours", steps=2, max_tokens=12)
    with pytest.raises(ValueError, match="truncate the example"):
        main(argv)
    results = main([*argv, "--max_source_length", "6", "--max_target_length", "6"])
    assert list(results) == ["ours"]


def test_the_table_has_running_means():
    losses = [float(step) for step in range(1, 101)]
    assert running_mean(losses)[:3] == [1.0, 1.5, 2.0]
    assert running_mean(losses)[99] == 88.0
    last = {"step": 100, "nll": 1.5, "accuracy": 0.25}
    result = {"parameters": 1234, "loss": losses, "validation": [last], "seconds": 3.2}
    assert format_table({"ours": result}).splitlines()[-1] == (
        "| ours | 1,234 | 10.50 | 28.00 | 48.00 | 88.00 | 1.500 | 25.0% | 3 |"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "`steps` is 0"),
        ({"systems": "fairseq"}, "are unknown: choose from"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "follows a score"),
        ({"validation_source": None, "validation_target": None}, "No validation data"),
    ],
)
def test_bad_arguments(corpus, tmp_path, changes, message):
    argv = command(corpus, tmp_path, **changes)
    argv = [
        part
        for pair in zip(argv[::2], argv[1::2], strict=True)
        if pair[1] != "None"
        for part in pair
    ]
    with pytest.raises(ValueError, match=message):
        main(argv)


def test_a_missing_matplotlib_is_told_before_the_training(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"vanilla-transformer\[plot\]"):
        main(command(corpus, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
