"""Averages of checkpoints: selection, means, refusals, loading."""

import json

import pytest
import torch
from programs import command
from safetensors.torch import load_file, save_file
from tiny_training import model, tokenizer, trainer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.training.averaging import (
    average_checkpoints,
    average_weights,
    select_checkpoints,
)

SCORED = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    trainer(folder, max_steps=8, learning_rate=0.01, **SCORED).train()
    return folder


def weights(folder):
    return load_file(folder / "model.safetensors")


def assert_mean(found, folders):
    """The weights are the mean of those that are saved in the folders."""
    loaded = [weights(folder) for folder in folders]
    for name in loaded[0]:
        mean = sum(one[name].double() for one in loaded) / len(loaded)
        torch.testing.assert_close(found[name], mean.float(), rtol=0, atol=1e-7)


def test_the_last_ones_become_a_model_that_loads(finished, tmp_path):
    chosen = select_checkpoints(finished, 3)
    assert [path.name for path in chosen] == ["checkpoint-4", "checkpoint-6", "checkpoint-8"]
    average_checkpoints(chosen, tmp_path / "mean")
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean")
    assert AutoTokenizer.from_pretrained(tmp_path / "mean")("w3 w4") == tokenizer()("w3 w4")
    assert_mean(loaded.state_dict(), chosen)
    last = weights(chosen[-1])["model.shared.weight"]
    assert not torch.equal(loaded.get_input_embeddings().weight, last)
    names = {path.name for path in (tmp_path / "mean").iterdir()}
    assert not names & {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}
    assert "modeling_vanilla_transformer.py" in names


def test_nothing_is_said_of_the_mean_of_finished_models_that_is_true_of_the_last(trained, tmp_path):
    average_checkpoints([trained, trained], tmp_path / "mean")
    left = {path.name for path in trained.iterdir()} - {
        path.name for path in (tmp_path / "mean").iterdir()
    }
    assert {"README.md", "all_results.json", "trainer_state.json", "file_sizes.json"} <= left
    assert not [name for name in left if name.endswith((".py", "config.json", "tokenizer.json"))]


def test_the_best_ones_by_loss(finished):
    log = json.loads((finished / "checkpoint-8" / "trainer_state.json").read_text())["log_history"]
    scores = {row["step"]: row["eval_loss"] for row in log if "eval_loss" in row}
    by_loss = sorted(scores, key=scores.get, reverse=True)
    found = [int(path.name[11:]) for path in select_checkpoints(finished, 2, "loss")]
    assert found == by_loss[-2:]


def test_directions_of_scores_and_scores_that_are_no_number(tmp_path):
    values = {2: 2.0, 4: float("nan"), 6: 3.0}
    log = [{"step": step, "eval_wer": value, "eval_bleu": value} for step, value in values.items()]
    log = [{**row, "eval_ter": 100.0, "eval_chrf": 10 - row["step"]} for row in log]
    for step in values:
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    assert select_checkpoints(tmp_path, 1, "wer")[0].name == "checkpoint-2"
    assert select_checkpoints(tmp_path, 1, "bleu")[0].name == "checkpoint-6"
    assert select_checkpoints(tmp_path, 1, "ter")[0].name == "checkpoint-2"  # the best by chrF
    with pytest.raises(ValueError, match="holds 2 checkpoints with a score 'wer', not 3"):
        select_checkpoints(tmp_path, 3, "wer")
    with pytest.raises(ValueError, match="`metric` 'comet' is unknown"):
        select_checkpoints(tmp_path, 1, "comet")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_means_are_taken_in_float64_and_keep_the_type(tmp_path, dtype):
    config = json.dumps({"model_type": "x"})
    values = (1.0, 2**-9, 2**-9, 2**-9, -1.0, 2**-9)
    for number, value in enumerate(values):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "config.json").write_text(config)
        tensors = {"a": torch.tensor([value], dtype=dtype), "n": torch.tensor([7])}
        save_file(tensors, tmp_path / str(number) / "model.safetensors")
    mean = average_weights([tmp_path / str(number) for number in range(len(values))])
    assert mean["a"].dtype == dtype
    assert mean["a"].item() == torch.tensor(4 * 2**-9 / 6, dtype=torch.float64).to(dtype).item()
    assert mean["n"].tolist() == [7]


def test_weights_in_several_files(tmp_path):
    nets = [model(), model()]
    with torch.no_grad():
        nets[1].lm_head.weight += 2.0
    for name, net in zip("ab", nets, strict=True):
        net.save_pretrained(tmp_path / name, max_shard_size="8KB")
        assert not (tmp_path / name / "model.safetensors").exists()
    average_checkpoints([tmp_path / "a", tmp_path / "b"], tmp_path / "mean")
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean")
    torch.testing.assert_close(loaded.lm_head.weight, nets[0].lm_head.weight + 1.0)


def test_models_that_differ_are_refused_with_all_that_differs(tmp_path):
    words = tokenizer()
    for name, changes in {
        "a": {},
        "b": {"encoder_ffn_dim": 24, "dropout": 0.3},
        "c": {"norm_placement": "pre"},
    }.items():
        model(**changes).save_pretrained(tmp_path / name)
        words.save_pretrained(tmp_path / name)
    text = (tmp_path / "b" / "tokenizer.json").read_text()
    (tmp_path / "b" / "tokenizer.json").write_text(text + " ")
    with pytest.raises(ValueError, match="cannot be averaged") as error:
        average_checkpoints([tmp_path / name for name in "abc"], tmp_path / "mean")
    differing = ("config field dropout", "tokenizer.json", "c and a: config field norm_placement")
    assert all(part in str(error.value) for part in differing)
    assert not (tmp_path / "mean").exists()


def test_what_is_no_model_or_in_use_is_refused(finished, tmp_path):
    first = finished / "checkpoint-2"
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors|config\.json"):
        average_checkpoints([tmp_path], tmp_path / "mean")
    with pytest.raises(ValueError, match="checkpoint-2' is read, and lies in the output"):
        average_checkpoints([first], first, overwrite=True)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "precious").touch()
    with pytest.raises(ValueError, match="precious"):
        average_checkpoints([first], tmp_path / "used")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{}")
    (tmp_path / "bad" / "model.safetensors").write_bytes(b"12345678901234")
    with pytest.raises(ValueError, match="it is damaged"):
        average_checkpoints([tmp_path / "bad"], tmp_path / "mean")


def test_the_program(finished, tmp_path):
    done = command("average", finished, "--best", 2, "--output", tmp_path / "mean")
    assert done.returncode == 0, done.stderr[-2000:]
    assert_mean(weights(tmp_path / "mean"), select_checkpoints(finished, 2, "loss"))
    argv = [str(finished), "--last", "1", "--output", str(tmp_path / "mean")]
    with pytest.raises(ValueError, match="add --overwrite"):
        run_subcommand("average", argv)
    run_subcommand("average", [*argv, "--overwrite"])
    for name, value in weights(finished / "checkpoint-8").items():
        assert torch.equal(weights(tmp_path / "mean")[name], value)
    with pytest.raises(ValueError, match="take the directory of one run, not 2"):
        run_subcommand("average", [str(finished), *argv])
