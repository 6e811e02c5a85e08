"""Two real processes compute what one does, and the config files for Accelerate are legal."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DistributedType
from processes_run import main as run_here
from small import model
from toy import REPOSITORY

PROGRAM = Path(__file__).with_name("processes_run.py")
CONFIGS = REPOSITORY / "scripts" / "accelerate"
KINDS = {
    "ddp": DistributedType.MULTI_GPU,
    "fsdp": DistributedType.FSDP,
    "deepspeed": DistributedType.DEEPSPEED,
}


def start(folder, launcher, **options):
    folder.mkdir()
    paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *launcher, str(PROGRAM), str(folder), json.dumps(options)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(path.read_text()) for path in sorted(folder.glob("?.json"))]


def stripped(row):
    """Tokens without padding, whether by the padding token or by -100."""
    return [token for token in row if token not in (1, -100)]


def accelerate(config, processes):
    launch = ["-m", "accelerate.commands.launch", "--config_file", str(CONFIGS / config)]
    return [*launch, "--num_processes", str(processes), "--mixed_precision", "no"]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    run_here(folder, "{}")
    return json.loads((folder / "0.json").read_text())


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_compute_what_one_does(tmp_path, one, kind):
    options = {"ddp": {"rdrop_alpha": 1.0}, "fsdp": {"fsdp_size": 2}}[kind]
    # R-Drop adds nothing without dropout, if it is divided right. Accelerate shards on GPUs alone,
    # so "fsdp" stands for weights that transformers spreads by the model's plan.
    two = start(tmp_path / "two", accelerate("ddp.yaml", 2), **options)
    assert [report["processes"] for report in two] == [2, 2]
    for report in two:
        shares = [part for name, part in report["shares"].items() if ".layers." in name]
        assert all((part < 0.8) is (kind == "fsdp") for part in shares)
    for report in two:
        assert report["losses"] == pytest.approx(one["losses"], rel=1e-5)
        for name, value in one["weights"].items():
            found = torch.tensor(report["weights"][name])
            torch.testing.assert_close(found, torch.tensor(value), rtol=1e-4, atol=1e-5)
    if kind == "fsdp":  # evaluated without generating, where Trainer weighs rows by their tokens
        return
    assert two[0]["eval_loss"] == pytest.approx(one["eval_loss"], rel=1e-5)
    assert [stripped(row)[:6] for row in two[0]["predictions"]] == [
        stripped(row) for row in one["predictions"]
    ]
    assert list(map(stripped, two[0]["labels"])) == list(map(stripped, one["labels"]))


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


def test_fsdp_wraps_layers_that_exist():
    wrapped = load_config_from_file(str(CONFIGS / "fsdp.yaml")).fsdp_config
    names = set(wrapped["fsdp_transformer_layer_cls_to_wrap"].split(","))
    assert names == {type(module).__name__ for module in model().modules()} & names
    assert len(names) == 2
    assert names == set(model()._no_split_modules)
