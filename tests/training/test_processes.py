"""Two processes compute the same as one, and the config files for Accelerate are valid."""

import json
from pathlib import Path

import pytest
import torch
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DistributedType
from processes_run import main as run_here
from programs import REPOSITORY
from several_processes import read_reports, run_in_two_processes
from transformers import AutoModelForSeq2SeqLM

PROGRAM = Path(__file__).with_name("processes_run.py")
KINDS_OF_RUNS = ("rdrop", "simcut", "budget", "guided", "fsdp", "accelerate", "muon")
SHARDED = ("fsdp", "accelerate")
CONFIGS = REPOSITORY / "scripts" / "accelerate"
MODEL_CODE = REPOSITORY / "vanilla_transformer" / "model"
KINDS = {
    "ddp": DistributedType.MULTI_GPU,
    "fsdp": DistributedType.FSDP,
    "deepspeed": DistributedType.DEEPSPEED,
}


def stripped(row):
    """Returns the tokens without padding (the padding token or -100)."""
    return [token for token in row if token not in (1, -100)]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    run_here(folder, "plain", "budget", "guided", "accelerate", "muon")
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    run_in_two_processes(PROGRAM, folder, *KINDS_OF_RUNS)
    return folder


@pytest.mark.parametrize("kind", KINDS_OF_RUNS)
def test_two_processes_compute_what_one_does(one, two, kind):
    """In "fsdp" transformers shards the weights by the model's plan, in "accelerate" Accelerate."""
    alone = "plain" if kind in ("rdrop", "simcut", "fsdp") else kind
    (expected,), found = read_reports(one, alone), read_reports(two, kind)
    assert [report["processes"] for report in found] == [2, 2]
    for report in found:
        shares = [part for name, part in report["shares"].items() if ".layers." in name]
        assert all((part < 0.8) is (kind in SHARDED) for part in shares)
        assert report["losses"] == pytest.approx(expected["losses"], rel=1e-5)
        assert report["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-5)
        assert report["uneven_loss"] == pytest.approx(expected["uneven_loss"], rel=1e-5)
        assert report["uneven_labels"] == 7
        for name, value in expected["weights"].items():
            weight = torch.tensor(report["weights"][name])
            torch.testing.assert_close(weight, torch.tensor(value), rtol=1e-6, atol=2e-6)


def test_sharded_weights_are_saved_whole_and_resumed(one, two):
    (expected,), (found, _) = read_reports(one, "accelerate"), read_reports(two, "accelerate")
    assert found["resumed"] == found["weights"]
    saved = AutoModelForSeq2SeqLM.from_pretrained(two / "accelerate")
    for name, value in saved.named_parameters():
        torch.testing.assert_close(value.tolist(), expected["weights"][name], rtol=1e-6, atol=1e-6)
    config = json.loads((two / "accelerate" / "config.json").read_text())
    assert config["auto_map"]["AutoModelForSeq2SeqLM"] == (
        "modeling_vanilla_transformer.VanillaTransformerForConditionalGeneration"
    )
    files = {path.name for path in (two / "accelerate").glob("*.py")}
    assert files == {path.name for path in MODEL_CODE.glob("*.py") if path.name != "__init__.py"}


def test_an_evaluation_pads_across_processes(one, two):
    (expected,), (found, _) = read_reports(one, "plain"), read_reports(two, "rdrop")
    assert found["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-5)
    assert list(map(stripped, found["labels"])) == list(map(stripped, expected["labels"]))
    texts = [list(map(stripped, report["predictions"])) for report in (expected, found)]
    assert [row[:5] for row in texts[0]] == [row[:5] for row in texts[1]]
    assert len({len(row) for row in texts[1]}) > 1


@pytest.mark.parametrize("name", KINDS)
def test_the_config_files_are_legal(name):
    path = CONFIGS / f"{name}.yaml"
    config = load_config_from_file(str(path))
    assert isinstance(config, ClusterConfig)
    assert config.distributed_type == KINDS[name]
    assert config.mixed_precision == "bf16"
    known = vars(launch_command_parser().parse_args(["program.py"]))
    for key in [*config.fsdp_config, *config.deepspeed_config]:
        assert key in known, key
    assert "--num_processes" in path.read_text()
