"""The package registers its classes when it is imported, however the process was started."""

import sys

import pytest

from vanilla_transformer.registration import started_as_command


@pytest.mark.parametrize(
    "argv", [[], [""], ["-c"], ["script.py"], ["/usr/bin/vanilla-transformer"]]
)
def test_only_the_command_itself_registers_later(monkeypatch, argv):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", ["python", *argv])
    is_command = bool(argv) and argv[0].endswith("vanilla-transformer")
    assert started_as_command() == is_command


def test_a_process_without_arguments_registers(monkeypatch):
    monkeypatch.delattr(sys, "argv")
    assert not started_as_command()
