"""A folder with the files that the pages name, so that their code runs as printed."""

import gzip
import shutil
from itertools import combinations

import pytest
import torch
from hf_models import make
from pages import DOCS, blocks
from programs import REPOSITORY
from servers import serving

import vanilla_transformer  # noqa: F401 - registers the Auto classes before any page needs them
from vanilla_transformer.commands.program import main

MODELS = (
    *("cmudict-demo", "en-de", "de-en", "large", "small", "six", "by-heart"),
    *("opus-en-de", "my-domain", "en-de-fr", "adapted", "en-zh", "programs", "small-de/model"),
)


@pytest.fixture(scope="session")
def workspace(corpus, trained, tmp_path_factory):
    """A working directory: toy data and toy models under the names that the pages use."""
    folder = tmp_path_factory.mktemp("workspace")
    for name in ("scripts", "model_cards"):
        (folder / name).symlink_to(REPOSITORY / name)
    for file in corpus.iterdir():
        shutil.copy(file, folder)
    for side in ("en", "de"):  # texts that are in no other file
        lines = (corpus / f"val.{side}").read_text(encoding="utf-8").splitlines()
        with (folder / f"val.{side}").open("a", encoding="utf-8") as file:
            file.writelines(f"{one} {two}\n" for one, two in combinations(lines[:15], 2))
    for name in ("mono.de", "test.zh"):
        shutil.copy(corpus / "test.de", folder / name)
    (folder / "words.txt").write_text("a dog\na cat\n", encoding="utf-8")
    cue = "1\n00:00:01,000 --> 00:00:02,000\na dog sees a cat .\n"
    (folder / "film.srt").write_text(cue, encoding="utf-8")
    (folder / "recipe.yaml").write_text("d_model: 32\nnum_train_epochs: 1\n", encoding="utf-8")
    runs = folder / "runs"
    for name in MODELS:
        shutil.copytree(trained, runs / name)
    (checkpoint,) = (runs / "en-de").glob("checkpoint-*")
    last = int(checkpoint.name.removeprefix("checkpoint-"))
    for step in (*range(last - 4, last), 151):  # enough of them for an average; one has a name
        shutil.copytree(checkpoint, runs / "en-de" / f"checkpoint-{step}")
    (recipe,) = [one.code for one in blocks(DOCS / "corpora.md") if one.language == "yaml"]
    (folder / "corpora.yaml").write_text(recipe, encoding="utf-8")
    save_data(folder)
    save_checkpoint_of_system_c(folder)
    make("marian").save_pretrained(folder / "opus-mt-en-de")
    assert not main(
        ["export", "--to", "ctranslate2", str(runs / "en-de"), str(folder / "deployed")]
    )
    save_checkpoints_of_trainers(folder)
    return folder


@pytest.fixture(scope="session")
def page_server(workspace):
    """The server that the pages start and ask."""
    runs = workspace / "runs"
    models = [
        *(f"{name}={runs / name}" for name in ("en-de", "de-en", "en-zh")),
        runs / "cmudict-demo",
    ]
    options = ("--engine", "transformers", "--memory", workspace / "corrections.tsv")
    with serving(*models, *options) as running:
        yield running


def save_data(folder):
    """Saves the toy texts under the names of Multi30k (two languages) and of program texts."""
    data = folder / "data" / "multi30k"
    data.mkdir(parents=True)
    for side, of_side in (("en", "en"), ("de", "de"), ("fr", "de")):
        for split, name in (("train", "train"), ("val", "val"), ("test", "test_2016_flickr")):
            text = (folder / f"{split}.{of_side}").read_bytes()
            (data / f"{name}.{side}.gz").write_bytes(gzip.compress(text))
    texts = folder / "data" / "program-texts"
    texts.mkdir()
    for split, name in (("train", "train"), ("val", "validation"), ("test", "test")):
        sides = ((folder / f"{split}.{side}").read_text().splitlines() for side in ("en", "de"))
        lines = (f"{source}\t{target}\tpackage\n" for source, target in zip(*sides, strict=True))
        (texts / f"{name}.en-de.tsv").write_text("".join(lines))
    shutil.copy(folder / "test.en", folder / "french.en")
    shutil.copy(folder / "test.de", folder / "french.fr")


def save_checkpoint_of_system_c(folder):
    """Saves a model of system C under a reader's own names, with the rules of the page."""
    from reference_systems import SystemC

    torch.manual_seed(0)
    sizes = {"d_model": 32, "heads": 8, "inner": 48, "layers": 1, "source": 71, "target": 97}
    weights = SystemC(sizes).state_dict()
    theirs = {
        "module." + name.replace("self_attention.qkv.", "mha.W_qkv."): tensor
        for name, tensor in weights.items()
    }
    assert any("mha" in name for name in theirs)
    torch.save(theirs, folder / "checkpoint.pt")
    (folder / "rules.yaml").write_text(yaml_of_page()[1], encoding="utf-8")


def yaml_of_page():
    """The table and the rules of the page."""
    return [block.code for block in blocks(DOCS / "converting.md") if block.language == "yaml"]


def save_checkpoints_of_trainers(folder):
    """Saves small models in the formats of other trainers, and one with the page's table."""
    import eole_models
    import fairseq_models
    import marian_models
    import opennmt_models
    from handwritten_model import FromScratch
    from nn_transformer_model import random_model
    from transformers import FSMTConfig, FSMTForConditionalGeneration
    from tutorial_layouts import Seq2Seq, weights_of

    torch.manual_seed(0)
    (folder / "iwslt").mkdir()
    config = FSMTConfig(**fairseq_models.FSMT, **fairseq_models.SIZES)
    weights = fairseq_models.weights_of(FSMTForConditionalGeneration(config))
    fairseq_models.save(folder / "iwslt" / "checkpoint_best.pt", weights)
    reference = opennmt_models.reference_model()
    opennmt_models.save(folder / "model_step_1000.pt", reference)
    eole_models.save(folder / "eole-model", eole_models.renamed(reference))
    marian_models.save(
        folder / "opus-en-de", marian_models.make_arrays(marian_models.BASE), marian_models.BASE
    )
    torch.save(random_model("sinusoidal").state_dict(), folder / "seq2seq.pt")
    torch.save(FromScratch().state_dict(), folder / "my-model.pt")
    torch.save(weights_of(Seq2Seq()), folder / "seq2seq-transformer.pt")
    (folder / "table.yaml").write_text(yaml_of_page()[0], encoding="utf-8")
