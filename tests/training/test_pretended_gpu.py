"""On a device that is no CPU, all tensors are in the right place."""

import json
from pathlib import Path

import forks
import pytest
from pretended_gpu_run import SIZES, TRAININGS
from small import _environment_of_a_program

from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES

PROGRAM = Path(__file__).with_name("pretended_gpu_run.py")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretended")
    environment = _environment_of_a_program()
    done = forks.run(PROGRAM, folder, environment=environment)
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads((folder / "report.json").read_text())


def test_a_device_computes_what_a_cpu_does(report):
    assert len(report["compared"]) == len(CHOICES["position_embedding_type"]) * len(SIZES)


@pytest.mark.parametrize("kind", TRAININGS)
def test_a_training_on_a_device_equals_one_on_a_cpu(report, kind):
    expected, found = report["losses"][kind]
    assert len(expected) == 1
    assert found == pytest.approx(expected, rel=1e-3)
