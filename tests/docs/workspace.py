"""A folder with the files that the pages name, so that their code runs as printed."""

import shutil

import pytest
import torch
from pages import DOCS, blocks
from toy import REPOSITORY

import vanilla_transformer  # noqa: F401 - registers the Auto classes before any page needs them


@pytest.fixture(scope="session")
def workspace(corpus, trained, tmp_path_factory):
    """A working directory: toy data and toy models under the names that the pages use."""
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "scripts").symlink_to(REPOSITORY / "scripts")
    for file in corpus.iterdir():
        shutil.copy(file, folder)
    shutil.copy(corpus / "test.de", folder / "mono.de")
    (folder / "words.txt").write_text("a dog\na cat\n", encoding="utf-8")
    (folder / "recipe.yaml").write_text("d_model: 32\nnum_train_epochs: 1\n", encoding="utf-8")
    runs = folder / "runs"
    for name in ("cmudict-demo", "en-de", "de-en", "large"):
        shutil.copytree(trained, runs / name)
    (checkpoint,) = (runs / "en-de").glob("checkpoint-*")
    last = int(checkpoint.name.removeprefix("checkpoint-"))
    for step in range(last - 4, last):  # enough of them for an average
        shutil.copytree(checkpoint, runs / "en-de" / f"checkpoint-{step}")
    save_checkpoint_of_system_c(folder)
    return folder


def save_checkpoint_of_system_c(folder):
    """Saves a model of system C under a reader's own names, with the rules of the page."""
    from parity.reference_systems import SystemC

    torch.manual_seed(0)
    sizes = {"d_model": 32, "heads": 8, "inner": 48, "layers": 1, "source": 71, "target": 97}
    weights = SystemC(sizes).state_dict()
    theirs = {
        "module." + name.replace("self_attention.qkv.", "mha.W_qkv."): tensor
        for name, tensor in weights.items()
    }
    assert any("mha" in name for name in theirs)
    torch.save(theirs, folder / "checkpoint.pt")
    (rules,) = [block for block in blocks(DOCS / "converting.md") if block.language == "yaml"]
    (folder / "rules.yaml").write_text(rules.code, encoding="utf-8")
