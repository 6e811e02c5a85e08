"""The versions that a model was saved with, and those that it was tested with."""

import json
import logging

import pytest
import torch

import vanilla_transformer
from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.model import sharing


@pytest.fixture
def saved(tiny_model, tmp_path):
    tiny_model().save_pretrained(tmp_path)
    return tmp_path


def test_the_code_knows_its_version_and_writes_it(saved):
    assert vanilla_transformer.__version__ == sharing.CODE_VERSION
    written = json.loads((saved / "config.json").read_text())["saved_with"]
    assert written == sharing.current_versions()
    assert written["torch"] == torch.__version__


def test_an_untested_version_is_warned_of_once(saved, monkeypatch, caplog):
    tested = {"torch": ("1.0", "1.1"), "transformers": ("5.0", "6")}
    monkeypatch.setattr(sharing, "TESTED", tested)
    load = VanillaTransformerForConditionalGeneration.from_pretrained
    with caplog.at_level(logging.WARNING, sharing.__name__):
        load(saved)  # with the versions that it was saved with
        assert "untested" not in caplog.text
        written = json.loads((saved / "config.json").read_text())
        written["saved_with"]["torch"] = "1.0.1"
        (saved / "config.json").write_text(json.dumps(written))
        load(saved)
        load(saved)
        # Without an end, a newer version gives no warning, and an older one does.
        monkeypatch.setattr(sharing, "TESTED", {"torch": ("1.0", None)})
        load(saved)
        monkeypatch.setattr(sharing, "TESTED", {"torch": ("99.0", None)})
        load(saved)
    assert caplog.text.count("is untested") == 2
