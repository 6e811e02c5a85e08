"""On a device that is no CPU all tensors are in the right place, and few operations wait for it."""

import json
from pathlib import Path

import forks
import pytest
from pretended_gpu_run import BATCHES, SIZES, STEPS, TRAININGS
from small import _environment_of_a_program

from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES

PROGRAM = Path(__file__).with_name("pretended_gpu_run.py")
BATCH, STEP, TRAINING = STEPS * BATCHES, STEPS, 1
WAITS = {
    # In each batch
    "copy to the device, tokenization_utils_base.py <dictcomp>": (
        4 * BATCH,  # three tensors that the collator makes, and the decoder's inputs
        "the batch: its memory is pinned on a GPU, and the copy does not wait there",
    ),
    "nonzero, token_layout.py layout_of": (
        2 * BATCH,
        "the number of tokens of each side, without which padding cannot be left out",
    ),
    "_local_scalar_dense, masking_utils.py _ignore_bidirectional_mask_sdpa": (
        2 * BATCH,
        "transformers asks whether a mask hides anything; the device has just been waited for",
    ),
    # In each step
    "copy to the host, finite_values.py check": (
        STEP,
        "no gradient that is not finite changes the weights",
    ),
    "copy to the device, moving_average.py on_step_end": (
        STEP - 1,
        "torch's `AveragedModel` counts on the CPU, and copies its number",
    ),
    # In each entry of the log, and at the end
    "_local_scalar_dense, trainer.py _maybe_log_save_evaluate": (2 * TRAINING, "the log"),
    "copy to the device, trainer.py _inner_training_loop": (TRAINING, "the sum of losses is 0"),
    "copy to the host, finite_values.py check_weights": (TRAINING, "no bad weight is saved"),
    "_local_scalar_dense, trainer.py _finalize_training": (2 * TRAINING, "the figures of the end"),
}
"""How often each place waits, and why."""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretended")
    environment = _environment_of_a_program()
    done = forks.run(PROGRAM, folder, environment=environment)
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads((folder / "report.json").read_text())


def test_a_device_computes_what_a_cpu_does(report):
    assert len(report["compared"]) == len(CHOICES["position_embedding_type"]) * len(SIZES)


def test_a_device_computes_little_padding(report):
    left_out = {"0": False, "1": False, "4": False, "5": True, "20": True}  # an eighth is 5
    assert report["layouts"] == left_out


@pytest.mark.parametrize("kind", TRAININGS)
def test_a_training_on_a_device_equals_one_on_a_cpu(report, kind):
    expected, found = report["losses"][kind]
    assert len(expected) == 1
    assert found == pytest.approx(expected, rel=1e-3)


def test_each_wait_of_a_training_for_the_device_has_a_reason(report):
    found = {f"{what}, {place}": count for what, place, count in report["waits"]}
    assert found == {place: count for place, (count, reason) in WAITS.items() if reason}
