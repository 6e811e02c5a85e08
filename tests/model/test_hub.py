"""Pushing to the Hub and loading from it, over HTTP, in processes of their own."""

import json

import pytest
from conftest import WITHOUT_THE_PACKAGE
from hub_server import TOKEN, Hub, run
from huggingface_hub import ModelCard
from toy import REPOSITORY, arguments

CODE = {path.name for path in (REPOSITORY / "vanilla_transformer/model").glob("*.py")}
CODE -= {"__init__.py"}
MODEL_CODE = CODE - {"tokenization_vanilla_transformer.py"}
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
SENTENCE, GERMAN = "a dog sees a cat .", "Hund sieht Katze ."


@pytest.fixture(scope="module")
def hub():
    server = Hub()
    yield server
    server.close()


def card_of(hub, name):
    return ModelCard(hub.files(name)["README.md"].decode())


def assert_no_pickle_was_ever_pushed(hub, name):
    paths = hub.all_files_ever(name)
    assert not {path for path in paths if path.endswith(PICKLES)}
    contents = (content for _, _, files in hub.commits(name) for content in files.values())
    assert not any(content.startswith((b"\x80", b"PK")) for content in contents)


# --- a run of the training program ---------------------------------------------------------------


@pytest.fixture(scope="module")
def pushed_run(hub, corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub") / "run"
    changes = {"num_train_epochs": 2, "save_strategy": "epoch", "push_to_hub": True}
    options = arguments(corpus, folder, **changes, hub_token=TOKEN, hub_always_push=True)
    card = [
        "--source_language",
        "en",
        "--target_language",
        "de",
        "--dataset_label",
        "Toy pairs",
        "--license",
        "mit",
    ]
    run(hub, folder.parent / "home", REPOSITORY / "scripts" / "train.py", *options, *card)
    return folder


def test_a_run_pushes_all_that_belongs_to_a_model(hub, pushed_run):
    files = hub.files("somebody/run")
    assert set(files) >= CODE
    assert {"tokenizer.json", "config.json", "generation_config.json"} <= set(files)
    assert files["model.safetensors"] == (pushed_run / "model.safetensors").read_bytes()
    assert (pushed_run / "training_args.bin").is_file()
    assert not [path for path in files if path.startswith("checkpoint")]


def test_every_commit_with_weights_has_their_code_and_none_a_pickle(hub, pushed_run):
    weighted = [
        files for _, _, files in hub.commits("somebody/run") if "model.safetensors" in files
    ]
    assert len(weighted) >= 3
    for files in weighted:
        assert set(files) >= MODEL_CODE
    assert_no_pickle_was_ever_pushed(hub, "somebody/run")


def test_the_card_of_a_run_says_what_the_hub_shows(hub, pushed_run):
    card = card_of(hub, "somebody/run")
    scores = json.loads((pushed_run / "all_results.json").read_text())
    assert (card.data.license, card.data.language) == ("mit", ["en", "de"])
    assert (card.data.library_name, card.data.pipeline_tag) == ("transformers", "translation")
    found = {(r.dataset_split, r.metric_type): r.metric_value for r in card.data.eval_results}
    assert found["test", "bleu"] == round(scores["test_bleu"], 2)
    assert found["validation", "chrf"] == round(scores["eval_chrf"], 2)
    assert {r.dataset_name for r in card.data.eval_results} == {"Toy pairs"}
    assert 'path = "somebody/run"' in card.text
    assert "--hub_token" in card.text


def test_the_card_names_the_model_that_was_trained_further(hub, pushed_run, corpus, tmp_path):
    data = ["--train_source", corpus / "train.en", "--train_target", corpus / "train.de"]
    options = ["--max_steps", "1", "--max_tokens", "256", "--output_dir", tmp_path / "further"]
    program = REPOSITORY / "scripts" / "train.py"
    run(hub, tmp_path / "home", program, *data, *options, "--model_name_or_path", "somebody/run")
    card = ModelCard.load(tmp_path / "further" / "README.md")
    assert card.data.base_model == "somebody/run"
    assert "pre-norm, sinusoidal positions, relu" in " ".join(card.text.split())
    assert card_of(hub, "somebody/run").data.base_model is None


def test_no_file_names_the_token(hub, pushed_run):
    for _, _, files in hub.commits("somebody/run"):
        assert not [path for path, content in files.items() if TOKEN.encode() in content]
    assert (pushed_run / "training_args.bin").is_file()
    for path in pushed_run.rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes(), path


@pytest.mark.slow
def test_a_hub_that_is_out_of_order_loses_nothing(hub, corpus, tmp_path):
    """Uploads are tried again; if the last commit fails, a resumed run makes it."""
    folder, home = tmp_path / "flaky", tmp_path / "home"
    changes = {"num_train_epochs": 1, "push_to_hub": True, "hub_token": TOKEN}
    train = [REPOSITORY / "scripts" / "train.py", *arguments(corpus, folder, **changes)]
    commit = "POST api/models/somebody/flaky/commit/"
    hub.faults = [("PUT lfs/", 503), ("PUT lfs/", "cut"), (commit, 503), (commit, 403)]
    error = run(hub, home, *train, fails=True)
    assert not hub.faults
    assert "Traceback" not in error
    assert f"The model is saved in {str(folder)!r}" in error.splitlines()[-1]
    assert (folder / "all_results.json").is_file()
    assert "model.safetensors" not in hub.files("somebody/flaky")
    run(hub, home, *train, "--resume_from_checkpoint", "True")
    weights = hub.files("somebody/flaky")["model.safetensors"]
    assert weights == (folder / "model.safetensors").read_bytes()


# --- pushing by hand -----------------------------------------------------------------------------

BY_HAND = """
import sys
import vanilla_transformer
from datasets import Dataset
from huggingface_hub import HfApi
from transformers import (
    AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, Seq2SeqTrainer,
    Seq2SeqTrainingArguments, pipeline,
)
from vanilla_transformer.training.callbacks import CompletePushes

directory, output = sys.argv[1:]
model = AutoModelForSeq2SeqLM.from_pretrained(directory)
tokenizer = AutoTokenizer.from_pretrained(directory)
tokenizer.push_to_hub("by-hand")
model.push_to_hub("by-hand", tags=["toy"])
tokenizer.push_to_hub("somebody/by-hand")
model.push_to_hub("somebody/by-hand")
model.config.push_to_hub("somebody/config")
pipe = pipeline("seq2seq-generation", model=directory, device="cpu")
pipe.push_to_hub("somebody/pipe")
HfApi().create_repo("somebody/folder")
HfApi().upload_folder(
    repo_id="somebody/folder", folder_path=directory, ignore_patterns=["checkpoint-*", "*.bin"]
)
loaded = pipeline("seq2seq-generation", model="somebody/pipe", device="cpu")
assert loaded("a dog sees a cat .") == pipe("a dog sees a cat .")

arguments = Seq2SeqTrainingArguments(
    output, push_to_hub=True, max_steps=2, save_steps=1, hub_model_id="somebody/stock",
    hub_always_push=True, report_to="none", use_cpu=True,
)
rows = Dataset.from_dict(dict(tokenizer(["a dog"] * 8, text_target=["Hund"] * 8)))
trainer = Seq2SeqTrainer(
    model=model, args=arguments, train_dataset=rows, processing_class=tokenizer,
    data_collator=DataCollatorForSeq2Seq(tokenizer, model=model), callbacks=[CompletePushes()],
)
trainer.train()
trainer.push_to_hub(language="en", license="mit", tasks="translation")
"""


@pytest.fixture(scope="module")
def pushed_by_hand(hub, trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("by_hand")
    run(hub, folder / "home", "-c", BY_HAND, trained, folder / "stock")


@pytest.mark.parametrize("name", ["by-hand", "pipe", "stock", "folder"])
def test_code_and_tokenizer_are_there_after_the_second_push(hub, pushed_by_hand, name):
    files = hub.files(f"somebody/{name}")
    assert set(files) >= CODE
    assert {"tokenizer.json", "tokenizer_config.json", "model.safetensors"} <= set(files)
    assert_no_pickle_was_ever_pushed(hub, f"somebody/{name}")
    if name == "stock":
        commits = hub.commits("somebody/stock")
        assert all(set(files) >= MODEL_CODE for _, _, files in commits if "config.json" in files)


def test_a_folder_brings_its_card(hub, pushed_by_hand, trained):
    assert hub.files("somebody/folder")["README.md"] == (trained / "README.md").read_bytes()


# --- loading where the package is not installed --------------------------------------------------

STRANGE = (
    WITHOUT_THE_PACKAGE
    + """
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

trust = {"trust_remote_code": True}
name, again = sys.argv[1:]
model = AutoModelForSeq2SeqLM.from_pretrained(name, **trust)
tokenizer = AutoTokenizer.from_pretrained(name, **trust)
assert type(model).__module__.startswith("transformers_modules."), type(model)
pipe = pipeline(model=name, device="cpu", **trust)
named = pipeline("seq2seq-generation", model=name, device="cpu", **trust)
inputs = tokenizer(["a dog sees a cat ."], return_tensors="pt")
text = tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)[0]
assert [{"generated_text": text}] == pipe("a dog sees a cat .") == named("a dog sees a cat .")
empty = AutoConfig.from_pretrained("somebody/config", **trust)
AutoModelForSeq2SeqLM.from_config(empty, **trust)
if again != "-":
    model.push_to_hub(again)
    tokenizer.push_to_hub(again)
    pipe.push_to_hub(again)
print(text)
"""
)


def test_a_stranger_loads_and_pushes_what_another_stranger_loads(hub, pushed_by_hand, tmp_path):
    first = run(
        hub, tmp_path / "one", "-c", STRANGE, "somebody/by-hand", "somebody/2nd", package=False
    )
    assert first.splitlines()[-1] == GERMAN
    assert set(hub.files("somebody/2nd")) >= CODE
    assert_no_pickle_was_ever_pushed(hub, "somebody/2nd")
    second = run(hub, tmp_path / "two", "-c", STRANGE, "somebody/2nd", "-", package=False)
    assert second.splitlines()[-1] == GERMAN
